// Mixed precision: products of a float32 model take operands of 16 bits, and everything else stays in float32.
//
// What an op does is a field of its record (OpDef::narrow_inputs). Its operands are cast where they are used, its sums
// are float32 wherever they run (in a kernel, over units of the batch, over ranks that each have a part), and the full
// sum is rounded once, by a cast of its own. So the type of a sum is that of its value, and no layout adds numbers of
// 16 bits. Ops that only move elements keep the 16 bits. Parameters, states and updates stay in float32.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// The largest factor that leaves gradients room in float16.
inline constexpr double largest_loss_scale = 0x1p24;

struct MixedPrecision {
  DType type = DType::f32;  // of narrow operands, f16 or bf16; f32: there is no mixed precision
  // What gradients are multiplied with on their way, so that those of float16 do not become zero; 1: nothing.
  double loss_scale = 1;
  bool dynamic = false;    // the scale follows what steps give
  bool debug_log = false;  // a step that overflows says where
  bool narrow() const { return type != DType::f32; }
  bool scaled() const { return dynamic || loss_scale != 1; }
};

// The same graph in mixed precision. Outputs and updates keep their types, and a product that only moves on its way to
// an output is not rounded.
Result<Graph> with_mixed_precision(const Graph& graph, DType type);

// The same train step, in which casts to and from 16 bits are computed again for the backward pass, where what they
// read is there anyway: a weight, or the 16 bits that were widened. Nothing is kept in two types.
Graph with_casts_on_use(const Graph& graph);

}  // namespace epl
