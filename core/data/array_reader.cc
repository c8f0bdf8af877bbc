#include "core/data/array_reader.h"

#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

void swap_bytes(std::byte* data, size_t count, size_t width) {
  for (size_t i = 0; i < count; ++i) std::reverse(data + i * width, data + (i + 1) * width);
}

class ArrayReader : public Reader {
 public:
  ArrayReader(std::vector<SampleArray> arrays) : arrays_(std::move(arrays)) {
    samples_ = arrays_[0].type.shape[0];
    for (SampleArray& array : arrays_) {
      TensorType sample = array.type;
      sample.shape.erase(sample.shape.begin());
      const auto bytes = static_cast<uint64_t>(sample.bytes());
      if (array.row_bytes == 0) array.row_bytes = bytes;
      if (array.spans.empty()) array.spans = {{0, bytes}};
      fields_.emplace_back(array.name, std::move(sample));
    }
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    const SampleArray& array = arrays_[static_cast<size_t>(field)];
    const uint64_t row = array.offset + static_cast<uint64_t>(index) * array.row_bytes;
    auto* to = static_cast<std::byte*>(target);
    for (const SampleArray::Span& span : array.spans) {
      if (array.memory) {
        std::copy_n(array.memory->data() + row + span.offset, span.bytes, to);
      } else {
        EPL_TRY(array.file->read(row + span.offset, to, span.bytes));
      }
      to += span.bytes;
    }
    const TensorType& type = fields_[static_cast<size_t>(field)].second;
    const auto count = static_cast<size_t>(type.elements());
    if (array.swapped) swap_bytes(static_cast<std::byte*>(target), count, dtype_bytes(type.dtype));
    if (type.dtype == DType::boolean) {  // any other byte is true, as in NumPy
      for (size_t i = 0; i < count; ++i) static_cast<uint8_t*>(target)[i] = static_cast<uint8_t*>(target)[i] != 0;
    }
    return {};
  }

 private:
  std::vector<SampleArray> arrays_;
  std::vector<std::pair<std::string, TensorType>> fields_;
  int64_t samples_ = 0;
};

// The arrays that `fields` names, under its names.
Status choose(const std::string& path, const std::string& fields, std::vector<SampleArray>& arrays) {
  const auto parsed = parse_json(fields);
  const Json json = parsed.ok() ? *parsed : Json();
  if (!json.is_object() || json.empty())
    return invalid("option fields is ", shown_plain(fields, 80),
                   "; an object of names is expected, {\"x\": \"images\"}");
  std::map<std::string_view, const SampleArray*> found;
  std::vector<std::string> known;
  for (const SampleArray& array : arrays) {
    found.emplace(array.name, &array);
    known.push_back(array.name);
  }
  std::vector<SampleArray> chosen;
  for (const auto& [field, name] : json.items()) {
    if (!name.is_string()) return invalid("option fields: ", shown(field), " is not the name of an array");
    const auto it = found.find(name.text());
    if (it == found.end()) {
      return Status(Code::not_found, cat("no array ", shown(name.text()), choices(name.text(), known)), path);
    }
    chosen.push_back(*it->second);
    chosen.back().name = field;
  }
  arrays = std::move(chosen);
  return {};
}

}  // namespace

Option fields_option() {
  return {
      .name = "fields",
      .value = std::string(),
      .doc =
          "which arrays to take and as which fields, `{\"x\": \"images\", \"target\": \"labels\"}`; all under their "
          "own names if not given",
      .json = true};
}

Result<std::unique_ptr<Reader>> read_arrays(const std::string& path, std::vector<SampleArray> arrays,
                                            const std::string& fields) {
  if (arrays.empty()) return Status(Code::invalid_argument, "the file holds no tensor", path);
  if (!fields.empty()) EPL_TRY(choose(path, fields, arrays));
  for (const SampleArray& array : arrays) {
    if (array.type.shape.empty()) {
      return Status(Code::invalid_argument,
                    cat("tensor ", shown(array.name, 200),
                        " is a scalar; rows need a first dimension; the option fields can leave it out"),
                    path);
    }
    const int64_t rows = array.type.shape[0], first = arrays[0].type.shape[0];
    if (rows != first) {
      return Status(Code::invalid_argument,
                    cat("tensor ", shown(array.name, 200), " has ", rows, " rows, ", shown(arrays[0].name, 200),
                        " has ", first, "; the option fields can leave one out"),
                    path);
    }
  }
  return std::unique_ptr<Reader>(std::make_unique<ArrayReader>(std::move(arrays)));
}

}  // namespace epl
