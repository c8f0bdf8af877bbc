// Copies between dense tensors whose elements correspond by strides: the common core of transposes, slices, concats,
// broadcasts and tiles. Elements are bytes of size 1, 2, 4 or 8; their type does not matter.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/tensor_type.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {

// Dimensions, outermost first, with how far (in elements) each step moves in source and target. Source strides may be
// zero or negative; every target element is written once.
class StridedCopy {
 public:
  struct Dim {
    int64_t size, source, target;
  };
  StridedCopy(std::vector<Dim> dims, DType type);
  // `source` and `target` point at the elements that correspond to index 0 of every dimension.
  void run(const void* source, void* target, ThreadPool& threads) const;
  int64_t elements() const;

 private:
  template <class T> void run_as(const T* source, T* target, ThreadPool& threads) const;

  std::vector<Dim> dims_;  // merged; sizes above one; at least one
  int64_t element_bytes_;
};

// Target bytes = value, on all threads.
void fill_bytes(void* target, int64_t bytes, uint8_t value, ThreadPool& threads);
// `count` copies of one element, on all threads.
void fill_elements(const void* element, DType type, void* target, int64_t count, ThreadPool& threads);
// Contiguous bytes, on all threads.
void copy_bytes(const void* source, void* target, int64_t bytes, ThreadPool& threads);

}  // namespace epl::cpu
