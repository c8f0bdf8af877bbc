// Apache Thrift's compact protocol, as far as Parquet's metadata uses it. Every read is checked: after the first that
// does not fit, `ok` is false and all others give zeros.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/formats/varint.h"

namespace epl {

class Thrift {
 public:
  enum Type : uint8_t {
    stop = 0,
    yes = 1,
    no = 2,
    i8 = 3,
    i16 = 4,
    i32 = 5,
    i64 = 6,
    real = 7,
    binary = 8,
    list = 9,
    set = 10,
    map = 11,
    structure = 12
  };
  struct Field {
    Type type = stop;
    int id = 0;
  };

  explicit Thrift(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t position() const { return at_; }

  // Reads a structure: `each` is called with each field and either reads it or calls `skip`. False for what is damaged.
  template <class F> bool read_structure(F&& each) {
    if (++depth_ > max_depth) ok_ = false;
    int last = 0;
    while (ok_) {
      const uint8_t head = byte();
      const Type type = static_cast<Type>(head & 15);
      if (!ok_ || type == stop) break;
      last = head >> 4 ? last + (head >> 4) : static_cast<int>(integer());
      each(Field{type, last});
    }
    --depth_;
    return ok_;
  }
  // Reads a list: `each` is called for each element and reads it.
  template <class F> bool read_list(F&& each) {
    Type type = stop;
    for (uint64_t left = list_head(type); left > 0 && ok_; --left) each(type);
    return ok_;
  }
  int64_t integer() { return from_zigzag(varint()); }
  std::string_view text() {
    const uint64_t size = varint();
    if (size > bytes_.size() - at_) ok_ = false;
    const std::string_view out = ok_ ? bytes_.substr(at_, size) : std::string_view();
    at_ += out.size();
    return out;
  }
  void skip(Type type) {
    switch (type) {
      case yes:
      case no:
        return;
      case i8:
        byte();
        return;
      case i16:
      case i32:
      case i64:
        varint();
        return;
      case real:
        advance(8);
        return;
      case binary:
        text();
        return;
      case structure:
        read_structure([this](Field field) { skip(field.type); });
        return;
      case list:
      case set:
        read_list([this](Type element) { skip_element(element); });
        return;
      case map:
        skip_map();
        return;
      default:
        ok_ = false;
    }
  }
  // In a list a truth takes a byte; in a structure the field's type says it.
  void skip_element(Type type) {
    if (++depth_ > max_depth) ok_ = false;
    if (type == yes || type == no) {
      byte();
    } else if (ok_) {
      skip(type);
    }
    --depth_;
  }

 private:
  static constexpr int max_depth = 32;
  uint8_t byte() {
    if (at_ >= bytes_.size()) ok_ = false;
    return ok_ ? static_cast<uint8_t>(bytes_[at_++]) : 0;
  }
  void advance(size_t count) {
    if (count > bytes_.size() - at_) ok_ = false;
    if (ok_) at_ += count;
  }
  uint64_t varint() {
    std::string_view rest = bytes_.substr(at_);
    uint64_t value = 0;
    ok_ = ok_ && read_varint(rest, value);
    at_ = bytes_.size() - rest.size();
    return ok_ ? value : 0;
  }
  uint64_t list_head(Type& type) {
    const uint8_t head = byte();
    type = static_cast<Type>(head & 15);
    const uint64_t size = head >> 4 == 15 ? varint() : head >> 4;
    if (size > bytes_.size() - at_) ok_ = false;  // an element takes a byte at least
    return ok_ ? size : 0;
  }
  void skip_map() {
    const uint64_t size = varint();
    if (size == 0 || !ok_) return;
    const uint8_t types = byte();
    if (size > bytes_.size() - at_) ok_ = false;
    for (uint64_t left = size; left > 0 && ok_; --left) {
      skip_element(static_cast<Type>(types >> 4));
      skip_element(static_cast<Type>(types & 15));
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace epl
