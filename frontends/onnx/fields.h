// Copies a protobuf message field by field. A field that is not understood keeps its bytes.
#pragma once

#include <protozero/buffer_string.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/varint.hpp>
#include <string>
#include <string_view>

namespace epl::onnx {

class FieldCopier {
 public:
  explicit FieldCopier(std::string_view message) : reader_(message.data(), message.size()), at_(message.data()) {}
  bool next() { return reader_.next(); }
  uint32_t tag() const { return reader_.tag(); }
  protozero::pbf_reader& reader() { return reader_; }
  // The bytes of the field at the reader's position, tag included. Call after the field was read or skipped.
  std::string_view raw() {
    const char* end = reader_.data().data();
    std::string_view field(at_, static_cast<size_t>(end - at_));
    at_ = end;
    return field;
  }
  // The field as a message within, which is then read.
  std::string_view message() {
    auto view = reader_.get_view();
    return {view.data(), view.size()};
  }

 private:
  protozero::pbf_reader reader_;
  const char* at_;
};

// The limit of protobuf for a message, in bytes: data beyond it goes to a file of its own.
inline constexpr int64_t max_message = int64_t{2} << 30;

inline void append_varint(std::string& out, uint64_t value) { protozero::add_varint_to_buffer(&out, value); }
inline void append_message(std::string& out, uint32_t tag, std::string_view message) {
  append_varint(out, (uint64_t{tag} << 3) | 2);
  append_varint(out, message.size());
  out += message;
}

}  // namespace epl::onnx
