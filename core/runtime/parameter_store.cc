#include "core/runtime/parameter_store.h"

#include <algorithm>

namespace epl {

namespace {

// What is not in memory goes through a small piece of it, so that it is never there twice.
Status upload(Stream& stream, std::byte* target, const Tensor& value) {
  constexpr int64_t piece_bytes = 4 << 20;
  if (value.in_memory()) {
    stream.upload(target, value.data(), value.bytes());
    return stream.synchronize();
  }
  std::vector<std::byte> piece(static_cast<size_t>(std::min(piece_bytes, value.bytes())));
  for (int64_t at = 0; at < value.bytes(); at += piece_bytes) {
    const int64_t bytes = std::min(piece_bytes, value.bytes() - at);
    EPL_TRY(value.read(at, bytes, piece.data()));
    stream.upload(target + at, piece.data(), bytes);
    EPL_TRY(stream.synchronize());
  }
  return {};
}

}  // namespace

Result<ParameterStore> ParameterStore::create(Device& device, Stream& stream, const StateLayout& layout) {
  ParameterStore store;
  EPL_ASSIGN(store.buffer_, device.allocate(std::max<int64_t>(layout.bytes(), 1)));
  if (!device.executes()) return store;
  for (const StateSlot& slot : layout.slots()) {
    if (slot.initial.empty()) {
      stream.fill(store.data() + slot.offset, slot.type.bytes(), 0);
    } else {
      EPL_TRY(upload(stream, store.data() + slot.offset, slot.initial));
    }
  }
  EPL_TRY(stream.synchronize());
  return store;
}

Result<Tensor> ParameterStore::get(Stream& stream, const StateLayout& layout, std::string_view name) const {
  const StateSlot* slot = layout.find(name);
  if (!slot) return error(Code::not_found, "no parameter or state is called \"", name, "\"");
  Tensor out(slot->type);
  stream.download(out.data(), static_cast<const std::byte*>(buffer_->data()) + slot->offset, slot->type.bytes());
  EPL_TRY(stream.synchronize());
  return out;
}

Result<Tensor> ParameterStore::view(Stream& stream, const StateLayout& layout, std::string_view name) const {
  if (stream.threads() == nullptr) return get(stream, layout, name);  // the memory of another device
  const StateSlot* slot = layout.find(name);
  if (!slot) return error(Code::not_found, "no parameter or state is called \"", name, "\"");
  return Tensor(slot->type, nullptr, static_cast<const std::byte*>(buffer_->data()) + slot->offset);
}

Status ParameterStore::set(Stream& stream, const StateLayout& layout, std::string_view name, const Tensor& value) {
  const StateSlot* slot = layout.find(name);
  if (!slot) return error(Code::not_found, "no parameter or state is called \"", name, "\"");
  if (value.type() != slot->type) return invalid(name, " is ", slot->type.text(), ", got ", value.type().text());
  return upload(stream, data() + slot->offset, value);
}

}  // namespace epl
