#include <protozero/exception.hpp>

#include "frontends/onnx/proto.h"

namespace epl::onnx {
namespace {

template <class E> bool is(const std::exception& e) { return dynamic_cast<const E*>(&e) != nullptr; }

}  // namespace

std::string_view damage_text(const std::exception& e) {
  if (is<protozero::end_of_buffer_exception>(e)) return "it ends too early";
  if (is<protozero::varint_too_long_exception>(e)) return "a number has too many bytes";
  if (is<protozero::unknown_pbf_wire_type_exception>(e)) return "a field is of no known type";
  if (is<protozero::invalid_tag_exception>(e)) return "a field has an impossible number";
  if (is<protozero::invalid_length_exception>(e)) return "a list has an impossible length";
  return "it cannot be read";
}

}  // namespace epl::onnx
