#include "frontends/onnx/pieces.h"

#include <algorithm>
#include <iterator>

#include "core/base/tensor_file.h"
#include "frontends/onnx/fields.h"

namespace epl::onnx {

void Pieces::add(std::string_view text) {
  size_ += text.size();
  if (!pieces_.empty()) {
    if (auto* last = std::get_if<std::string>(&pieces_.back())) {
      *last += text;
      return;
    }
  }
  pieces_.emplace_back(std::string(text));
}

// Neighbours in the file become one piece: most of a model is copied as a whole.
void Pieces::copy(std::string_view part) {
  if (part.empty()) return;
  size_ += part.size();
  if (!pieces_.empty()) {
    if (auto* last = std::get_if<std::string_view>(&pieces_.back());
        last != nullptr && last->data() + last->size() == part.data()) {
      *last = {last->data(), last->size() + part.size()};
      return;
    }
  }
  pieces_.emplace_back(part);
}

void Pieces::add(epl::Tensor value) {
  size_ += static_cast<size_t>(value.bytes());
  pieces_.emplace_back(std::move(value));
}

void Pieces::add_message(uint32_t tag, Pieces message) {
  std::string head;
  append_varint(head, (uint64_t{tag} << 3) | 2);
  append_varint(head, message.size_);
  add(head);
  size_ += message.size_;
  std::ranges::move(message.pieces_, std::back_inserter(pieces_));
}

Status Pieces::write(FileWriter& file, const ModelBytes& bytes) const {
  constexpr size_t most = size_t{4} << 20;
  std::string buffer;
  for (const auto& piece : pieces_) {
    if (const auto* text = std::get_if<std::string>(&piece)) EPL_TRY(file.write(text->data(), text->size()));
    if (const auto* value = std::get_if<epl::Tensor>(&piece)) EPL_TRY(write_tensor(file, *value));
    const auto* part = std::get_if<std::string_view>(&piece);
    for (size_t at = 0; part != nullptr && at < part->size(); at += most) {
      buffer.clear();
      EPL_TRY(bytes.append(buffer, part->substr(at, most)));
      EPL_TRY(file.write(buffer.data(), buffer.size()));
    }
  }
  return {};
}

}  // namespace epl::onnx
