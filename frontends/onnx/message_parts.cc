#include "frontends/onnx/message_parts.h"

#include <algorithm>
#include <iterator>

#include "core/base/tensor_file.h"
#include "frontends/onnx/fields.h"

namespace epl::onnx {

void MessageParts::add(std::string_view text) {
  size_ += text.size();
  if (!parts_.empty()) {
    if (auto* last = std::get_if<std::string>(&parts_.back())) {
      *last += text;
      return;
    }
  }
  parts_.emplace_back(std::string(text));
}

// Neighbours in the file become one part: most bytes of a model are copied at once.
void MessageParts::copy(std::string_view part) {
  if (part.empty()) return;
  size_ += part.size();
  if (!parts_.empty()) {
    if (auto* last = std::get_if<std::string_view>(&parts_.back());
        last != nullptr && last->data() + last->size() == part.data()) {
      *last = {last->data(), last->size() + part.size()};
      return;
    }
  }
  parts_.emplace_back(part);
}

void MessageParts::add(epl::Tensor value) {
  size_ += static_cast<size_t>(value.bytes());
  parts_.emplace_back(std::move(value));
}

void MessageParts::add_message(uint32_t tag, MessageParts message) {
  std::string head;
  append_varint(head, (uint64_t{tag} << 3) | 2);
  append_varint(head, message.size_);
  add(head);
  size_ += message.size_;
  std::ranges::move(message.parts_, std::back_inserter(parts_));
}

Status MessageParts::write(ByteWriter& file, const ModelBytes& bytes) const {
  constexpr size_t max_bytes = size_t{4} << 20;
  std::string buffer;
  for (const auto& one : parts_) {
    if (const auto* text = std::get_if<std::string>(&one)) EPL_TRY(file.write(text->data(), text->size()));
    if (const auto* value = std::get_if<epl::Tensor>(&one)) EPL_TRY(write_tensor(file, *value));
    const auto* part = std::get_if<std::string_view>(&one);
    for (size_t at = 0; part != nullptr && at < part->size(); at += max_bytes) {
      buffer.clear();
      EPL_TRY(bytes.append(buffer, part->substr(at, max_bytes)));
      EPL_TRY(file.write(buffer.data(), buffer.size()));
    }
  }
  return {};
}

}  // namespace epl::onnx
