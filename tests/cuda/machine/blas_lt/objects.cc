#include "tests/cuda/machine/blas_lt/objects.h"

#include <algorithm>

namespace epl::cuda_blas {

Objects& Objects::get() {
  static auto* const all = new Objects;  // a host's threads may call until the very end
  return *all;
}

Object* Objects::make(Kind kind) {
  Object* made = all_.emplace_back(std::make_unique<Object>()).get();
  made->kind = kind;
  alive_.insert(made);
  return made;
}

const Object& Objects::at(const void* object, Kind kind, const char* what) const {
  const auto found = std::find(alive_.begin(), alive_.end(), object);
  require(found != alive_.end(), kInvalidValue, std::string(what) + " is none, or one that was destroyed");
  require((*found)->kind == kind, kInvalidValue, std::string(what) + " is a descriptor of another kind");
  return **found;
}

const AttributeRow& attribute_row(std::span<const AttributeRow> rows, int attribute, size_t bytes) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& one) { return one.number == attribute; });
  require(row != rows.end(), kInvalidValue, "attribute " + std::to_string(attribute) + " is not known to this machine");
  require(row->bytes == bytes, kInvalidValue,
          std::string("attribute ") + row->name + " has " + std::to_string(row->bytes) + " bytes and is given " +
              std::to_string(bytes));
  return *row;
}

void Objects::set(void* object, Kind kind, std::span<const AttributeRow> rows, int attribute, const void* value,
                  size_t bytes) {
  at(object, kind, "a descriptor");
  attribute_row(rows, attribute, bytes);
  require(value != nullptr, kInvalidValue, "an attribute without a value");
  uint64_t all = 0;
  std::memcpy(&all, value, bytes);
  static_cast<Object*>(object)->values[attribute] = all;
}

void Objects::destroy(void* object, Kind kind) {
  at(object, kind, "what is destroyed");
  alive_.erase(static_cast<Object*>(object));
}

}  // namespace epl::cuda_blas
