// What the CPU gives for a sample of an op: that which kernels of a GPU must have the bits of.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/base/philox.h"
#include "core/ir/evaluate.h"
#include "tests/kernels/kernel_harness.h"
#include "tests/ops/variants.h"

namespace epl::cuda {

// A node of the op as lowering hands it to a backend: elementwise ops are regions of one.
inline cpu::Launch lowered(const OpDef& op, const Sample& sample, Units units = {}) {
  const OutputTypes types = *infer_types(op, sample.attributes, sample.types());
  cpu::Launch launch{.op = op.name, .attributes = sample.attributes, .inputs = sample.values(3), .outputs = types};
  launch.units = units;
  launch.context = {.seed = 5, .step = 3};
  if (op.elementwise()) {
    std::vector<const TensorType*> outputs;
    for (const TensorType& type : types) outputs.push_back(&type);
    launch.op = "fused";
    launch.attributes = {
        {"expression", scalar_expression(OpQuery(op, sample.attributes, sample.types(), outputs)).text()}};
  }
  return launch;
}

// Of the CPU's kernel, or of the meaning where it has none.
inline std::vector<Tensor> on_cpu(const OpDef& op, const Sample& sample, const cpu::Launch& launch) {
  if (cpu::kernel_table().choose(cpu::query_of(launch)).row) return cpu::launch_kernel(launch);
  auto made = evaluate_op(op, sample.attributes, launch.inputs, launch.units,
                          random_key(launch.context.seed, launch.context.step, launch.node));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : std::vector<Tensor>();
}

}  // namespace epl::cuda
