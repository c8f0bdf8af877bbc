// The state of one rank: parameters, buffers, optimizer state, by name, in one buffer of each memory. Entries of a plan
// share it. Of a slot that is cut over ranks it holds the shard at the rank's coordinates. Thread safety: none; its
// rank's executor and, between steps, the session use it.
#pragma once

#include <memory>
#include <string>

#include "core/backend/device.h"
#include "core/base/stop.h"
#include "core/base/tensor_box.h"
#include "core/program/link.h"

namespace epl {

class ParameterStore {
 public:
  // Allocates and fills with initial values. `rank` is one of the mesh, whose layout this is.
  static Result<ParameterStore> create(Device& device, Stream& stream, const StateLayout& layout, const Mesh& mesh,
                                       int rank, const Stop& stop = {});
  // The first bytes of a layout, which hold anything.
  static Result<ParameterStore> create_room(Device& device, const MemoryBytes& bytes, const Mesh& mesh, int rank);
  // Where the state of a memory begins, of which the rank has some.
  std::byte* data(MemoryKind memory) const { return static_cast<std::byte*>(buffers_[memory]->data()); }
  // An address of the memory that the slot is in.
  std::byte* at(const StateSlot& slot) const { return data(slot.memory) + slot.offset; }
  // All that is here, from a store that begins alike.
  void copy_from(Stream& stream, const ParameterStore& other);
  // All of a slot that is not cut, and is the rank's, without a copy where the store lies in host memory: valid until
  // the store changes or goes.
  Result<Tensor> view(Stream& stream, const StateSlot& slot) const;
  // What the rank holds of a slot, where it lies: borrowed where the store is in host memory, else read from the device
  // when it is asked for. Valid until the store changes or goes.
  Tensor shard(Stream& stream, const StateSlot& slot) const;
  // The same as boxes of the tensor of all ranks.
  std::vector<PositionedBox> boxes(Stream& stream, const StateSlot& slot) const;
  // What the rank holds of a slot, into room of its local type.
  Status read(Stream& stream, const StateSlot& slot, Tensor& shard) const;
  // Writes what the rank holds of a slot to where it belongs in `full`, of the slot's type.
  Status gather(Stream& stream, const StateSlot& slot, Tensor& full) const;
  // Reads what the rank holds of a slot from shards of the slot's tensor, wherever they are: straight into place where
  // the store is in host memory. Elsewhere the host holds the rank's shard on its way, or a part of it.
  Status scatter(Stream& stream, const StateSlot& slot, const std::vector<PositionedBox>& shards);
  // The same of all of the tensor, of the slot's type: what is cut is then put.
  Result<Tensor> cut(const StateSlot& slot, const Tensor& full) const;  // empty where the rank holds nothing
  Status put(Stream& stream, const StateSlot& slot, const Tensor& shard);

 private:
  Buffers buffers_;
  Mesh mesh_;
  MeshCoordinates coordinates_;
};

}  // namespace epl
