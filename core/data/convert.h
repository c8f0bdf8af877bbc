// Samples of one element type where another is wanted: float64 files for float32 inputs, bytes for class indices.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/data/reader.h"

namespace epl {

// Whether a sample of type `from` can be given where `to` is wanted: as many elements in the same order, dimensions of
// 1 aside. Which values can is seen when they are read.
bool can_stand_for(const TensorType& from, const TensorType& to);

// Converts `count` elements, exactly or, into a type of real numbers, to the nearest. An element that cannot be held by
// `to` (a fraction or too large a number for an integer type, a finite number that would become infinite) is an error
// that names it.
Status convert_elements(DType from, const void* source, DType to, void* target, int64_t count);

// A reader with its fields in other types.
class ConvertingReader : public Reader {
 public:
  // Over `reader`, whose fields can stand for `wanted`, one for each. It takes the reader over by `own`, which cannot
  // fail.
  static std::unique_ptr<ConvertingReader> over(const Reader& reader, std::vector<TensorType> wanted);
  void own(std::unique_ptr<Reader> reader) noexcept { owned_ = std::move(reader); }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return reader_.samples(); }
  std::vector<int64_t> file_samples() const override { return reader_.file_samples(); }
  Status read(int64_t index, int field, void* target) const override {
    return read_samples(std::span(&index, 1), field, target);
  }
  Status read_samples(std::span<const int64_t> samples, int field, void* target) const override;
  bool repeatable() const override { return reader_.repeatable(); }
  std::vector<ClassNames> classes() const override { return reader_.classes(); }
  std::vector<std::string> columns(int field) const override { return reader_.columns(field); }
  std::string options_alike() const override { return reader_.options_alike(); }

 private:
  // Room for what is converted, for one call.
  class Scratch {
   public:
    Scratch(const ConvertingReader& reader, size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    std::byte* data() const { return const_cast<std::byte*>(bytes_.data()); }

   private:
    const ConvertingReader& reader_;
    std::vector<std::byte> bytes_;
  };
  explicit ConvertingReader(const Reader& reader) : reader_(reader) { scratch_.reserve(8); }
  const Reader& reader_;
  std::unique_ptr<Reader> owned_;
  std::vector<std::pair<std::string, TensorType>> fields_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<std::byte>> scratch_;  // what nobody uses now
};

}  // namespace epl
