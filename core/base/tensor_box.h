// Boxes of tensors: a range of each dimension. A box is copied from where a tensor lies, in memory, in a file or in
// shards of several files, to where it belongs in memory. No tensor is held for this.
#pragma once

#include <vector>

#include "core/base/tensor.h"

namespace epl {

// A box of a tensor, and where it goes: into a target in memory, which is row-major as well.
struct BoxCopy {
  Shape shape;  // of the box
  Shape from;   // where the box begins in the tensor
  Shape room;   // the shape of the target
  Shape to;     // where the box begins in the target
};

// From a tensor, wherever it is. What lies close together in a file is read at once, through a buffer of 256 KiB at
// most.
Status copy_box(const Tensor& tensor, const BoxCopy& box, void* target);

// A box of a tensor that is somewhere else, and where the box stands in another tensor: a shard of it.
struct PositionedBox {
  static PositionedBox all(Tensor value);
  Shape offset, shape;  // in the tensor that it is a shard of
  Tensor value;
  Shape from;  // where the box begins in `value`
  // The box as a tensor, which is not in memory unless it is all of `value`.
  Tensor as_tensor() const;
};
// The same from the shards that have some of the box.
Status copy_box(const std::vector<PositionedBox>& shards, const BoxCopy& box, void* target);

// A tensor of its shards, which are of this element type and cover it once. It is never in memory: what is read of it
// is read from the shards. A range of bytes begins and ends between elements.
Tensor joined(TensorType type, std::vector<PositionedBox> shards);

}  // namespace epl
