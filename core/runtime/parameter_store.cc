#include "core/runtime/parameter_store.h"

#include <algorithm>

#include "core/program/shards.h"

namespace epl {

namespace {

// What is not in memory goes through a small part of it, so that it is never there twice.
Status upload(Stream& stream, std::byte* target, const Tensor& value) {
  constexpr int64_t part_bytes = 4 << 20;
  if (value.in_memory()) {
    stream.upload(target, value.data(), value.bytes());
    return stream.synchronize();
  }
  std::vector<std::byte> part(static_cast<size_t>(std::min(part_bytes, value.bytes())));
  for (int64_t at = 0; at < value.bytes(); at += part_bytes) {
    const int64_t bytes = std::min(part_bytes, value.bytes() - at);
    EPL_TRY(value.read(at, bytes, part.data()));
    stream.upload(target + at, part.data(), bytes);
    EPL_TRY(stream.synchronize());
  }
  return {};
}

// Whether the host may touch a slot where it lies.
bool host_reads(Stream& stream, const StateSlot& slot) {
  return stream.host() != nullptr && slot.memory != MemoryKind::file;
}

// Bytes of a device, which come to the host when they are asked for: by one caller at a time, as the stream wants it.
class OnDevice final : public TensorSource {
 public:
  OnDevice(Stream& stream, const std::byte* data) : stream_(stream), data_(data) {}
  Status read(int64_t begin, int64_t bytes, void* target) const override {
    stream_.download(target, data_ + begin, bytes);
    return stream_.synchronize();
  }

 private:
  Stream& stream_;
  const std::byte* data_;
};

}  // namespace

Result<ParameterStore> ParameterStore::create(Device& device, Stream& stream, const StateLayout& layout,
                                              const Mesh& mesh, int rank, const Stop& stop) {
  EPL_ASSIGN(ParameterStore store, create_room(device, layout.of_each(), mesh, rank));
  if (!device.executes()) return store;
  for (const StateSlot& slot : layout.slots()) {
    EPL_TRY(stop.check());
    if (slot.sharding.rank_local) {  // what a rank runs for nothing has zeros
      if (!slot.is_represented()) stream.fill(store.at(slot), slot.local.bytes(), 0);
      if (!slot.initial.empty()) EPL_TRY(store.scatter(stream, slot, {PositionedBox::all(slot.initial)}));
    } else if (slot.initial.empty()) {
      stream.fill(store.at(slot), slot.local.bytes(), 0);
    } else {
      EPL_TRY(store.scatter(stream, slot, {PositionedBox::all(slot.initial)}));
    }
  }
  EPL_TRY(stream.synchronize());
  return store;
}

Result<ParameterStore> ParameterStore::create_room(Device& device, const MemoryBytes& bytes, const Mesh& mesh,
                                                   int rank) {
  ParameterStore store;
  store.mesh_ = mesh;
  store.coordinates_ = mesh.coordinates(rank);
  EPL_ASSIGN(store.buffers_, allocate_each(device, bytes));
  return store;
}

void ParameterStore::copy_from(Stream& stream, const ParameterStore& other) {
  for (const MemoryKind memory : memory_kinds) {
    if (buffers_[memory]) stream.copy(data(memory), other.data(memory), buffers_[memory]->bytes());
  }
}

Result<Tensor> ParameterStore::view(Stream& stream, const StateSlot& slot) const {
  if (host_reads(stream, slot) && slot.local == slot.type) return shard(stream, slot);
  Tensor out(slot.type);
  EPL_TRY(gather(stream, slot, out));
  return out;
}

Tensor ParameterStore::shard(Stream& stream, const StateSlot& slot) const {
  if (host_reads(stream, slot)) return Tensor(slot.local, nullptr, at(slot));
  return Tensor(slot.local, std::make_shared<const OnDevice>(stream, at(slot)));
}

std::vector<PositionedBox> ParameterStore::boxes(Stream& stream, const StateSlot& slot) const {
  std::vector<PositionedBox> out;
  const Tensor held = shard(stream, slot);
  for (ShardBox& box : boxes_of(slot.type, slot.sharding, mesh_, coordinates_))
    out.push_back({std::move(box.offset), std::move(box.shape), held, std::move(box.local_offset)});
  return out;
}

Status ParameterStore::read(Stream& stream, const StateSlot& slot, Tensor& shard) const {
  stream.download(shard.data(), at(slot), slot.local.bytes());
  return stream.synchronize();
}

Status ParameterStore::gather(Stream& stream, const StateSlot& slot, Tensor& full) const {
  const std::byte* source = at(slot);
  auto* target = static_cast<std::byte*>(full.data());
  for_each_run(slot.type, slot.sharding, mesh_, coordinates_, [&](int64_t global, int64_t local, int64_t bytes) {
    stream.download(target + global, source + local, bytes);
  });
  return stream.synchronize();
}

Result<Tensor> ParameterStore::cut(const StateSlot& slot, const Tensor& full) const {
  if (full.type() != slot.type) return invalid(slot.name, " is ", slot.type.text(), ", got ", full.type().text());
  if (!slot.sharding.rank_local.is_at(mesh_, coordinates_)) return Tensor();
  if (slot.local == slot.type) return full;
  Tensor shard(slot.local);
  const std::vector<ShardBox> boxes = boxes_of(slot.type, slot.sharding, mesh_, coordinates_);
  EPL_TRY(read_shard({PositionedBox::all(full)}, boxes, slot.local, shard.data()));
  return shard;
}

Status ParameterStore::put(Stream& stream, const StateSlot& slot, const Tensor& shard) {
  return shard.empty() ? Status() : upload(stream, at(slot), shard);
}

Status ParameterStore::scatter(Stream& stream, const StateSlot& slot, const std::vector<PositionedBox>& shards) {
  if (!slot.sharding.rank_local.is_at(mesh_, coordinates_)) return {};
  if (!host_reads(stream, slot) && slot.local == slot.type) return put(stream, slot, joined(slot.type, shards));
  const std::vector<ShardBox> boxes = boxes_of(slot.type, slot.sharding, mesh_, coordinates_);
  if (!host_reads(stream, slot)) {
    Tensor shard(slot.local);
    EPL_TRY(read_shard(shards, boxes, slot.local, shard.data()));
    return put(stream, slot, shard);
  }
  EPL_TRY(stream.synchronize());
  return read_shard(shards, boxes, slot.local, at(slot));
}

}  // namespace epl
