// What the functions of the stand-in for cuBLASLt hand out, and how they refuse. Every descriptor is known, so that one
// that was destroyed, or is of another kind, is found.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda/machine/blas_lt/attributes.h"

namespace epl::cuda_blas {

enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15,
};

struct Refused : std::runtime_error {
  Refused(Status which, const std::string& why) : std::runtime_error("cuBLASLt: " + why), code(which) {}
  Status code;
};
inline void require(bool condition, Status code, const std::string& why) {
  if (!condition) throw Refused(code, why);
}

enum class Kind : uint8_t { handle, operation, layout, preference };

// Its attributes by number, as the bytes that were given.
struct Object {
  Kind kind = Kind::handle;
  int device = 0;  // of a handle
  std::map<int, uint64_t> values;

  template <class T> T get(int attribute, T otherwise = T()) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return otherwise;
    T value;
    std::memcpy(&value, &found->second, sizeof value);
    return value;
  }
  template <class T> void set(int attribute, T value) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, &value, sizeof value);
    values[attribute] = bytes;
  }
};

class Objects {
 public:
  static Objects& get();
  Object* make(Kind kind);
  const Object& at(const void* object, Kind kind, const char* what) const;
  void set(void* object, Kind kind, std::span<const AttributeRow> rows, int attribute, const void* value, size_t bytes);
  void destroy(void* object, Kind kind);
  std::mutex mutex;

 private:
  // None is freed: its address would become another one's, and who still has it would not be found.
  std::vector<std::unique_ptr<Object>> all_;
  std::set<Object*> alive_;
};

// The row of an attribute, whose size must be `bytes`.
const AttributeRow& attribute_row(std::span<const AttributeRow> rows, int attribute, size_t bytes);

// The bytes of cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t mark = 0;  // that this library has made it
  int32_t id = 0;
  uint32_t tile = 0;
  int32_t splits = 1;
  uint32_t reduction = 0;
  uint32_t swizzle = 0, custom = 0, stages = 0;
  uint16_t inner = 0, cluster = 0;
  uint32_t align = 4;  // of all operands, in bytes
  uint64_t unused[2] = {};
};
static_assert(sizeof(Algorithm) == 64);
inline constexpr uint64_t kAlgorithmMark = 0x65706c2d6c743133;

struct Choice {
  Algorithm algorithm;
  uint64_t workspace = 0;
  int state = 0;
  float waves = 0;
  int reserved[4] = {};
};

// Types of elements, by the number that the manual gives them.
enum Type : uint32_t { kFloat32 = 0, kFloat16 = 2, kBrain16 = 14 };
inline int64_t bytes_of(Type type) { return type == kFloat32 ? 4 : 2; }

// Operands and operation as they were described, checked.
struct Product {
  struct Matrix {
    int64_t rows = 0, columns = 0, leading = 0, stride = 0;
    Type type = kFloat32;
    int64_t elements() const { return (columns - 1) * leading + rows; }  // from the first to the last
    int64_t bytes() const { return bytes_of(type); }                     // of an element
  };
  Matrix a, b, c, d;
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool has_bias = false;
  uint64_t bias = 0;
  int64_t bias_stride = 0;
};
// Whether these are types that the library multiplies, of A, B, C and D: sums are float32.
bool are_multiplied(Type a, Type b, Type c, Type d);
Product product_of(const Object& operation, const Object& a, const Object& b, const Object& c, const Object& d);

// What an algorithm needs for the product; refuses one that does not fit.
Choice check(const Algorithm& algorithm, const Product& product);
std::vector<Choice> choose(const Product& product, const Object& preference, int wanted);

struct Pointers {
  const float *alpha, *beta;
  uint64_t a, b, c, d, workspace;
  uint64_t workspace_bytes;
  void* stream;
};
// Checks what is given beside the descriptors, and issues the command.
void multiply(const Product& product, const Algorithm& algorithm, const Pointers& pointers);

}  // namespace epl::cuda_blas
