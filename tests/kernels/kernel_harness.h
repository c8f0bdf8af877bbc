// Launches a row of the CPU backend's kernel table as the executor does, with guards around what it may write.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/stream.h"
#include "core/base/host.h"

namespace epl::cpu {

struct Launch {
  std::string op;
  Attributes attributes;
  std::vector<Tensor> inputs;  // an empty tensor is an absent operand
  std::vector<TensorType> outputs;
  Units units;
  int threads = 1;
  StepContext context;
  std::string node = "node";
  std::vector<std::pair<int, int>> aliases;  // (input, output) that share memory
  std::vector<bool> wanted;                  // which outputs are used; empty: all
  BitsLevel level = BitsLevel::exact;
};

inline KernelQuery query_of(const Launch& launch) {
  KernelQuery q;
  q.op = launch.op;
  q.node = q.key = launch.node;
  q.attributes = launch.attributes;
  q.units = launch.units;
  q.level = launch.level;
  q.threads = launch.threads;
  for (const Tensor& in : launch.inputs) {
    q.input_types.push_back(in.type());
    q.input_present.push_back(!in.empty());
  }
  q.output_types = launch.outputs;
  q.output_present = launch.wanted.empty() ? std::vector<bool>(launch.outputs.size(), true) : launch.wanted;
  return q;
}

// The first row of `table` that accepts (or the row `name`), prepared; fails the test where none does.
inline ChosenKernel choose_kernel(const KernelQuery& q, const std::string& name, const KernelTable& table) {
  std::vector<Refusal> refusals;
  ChosenKernel chosen;
  if (name.empty()) {
    chosen = table.choose(q, &refusals);
  } else {
    for (const KernelRow& row : table.rows(q.op)) {
      if (row.name != name) continue;
      auto prepared = prepare(row, q);
      if (prepared.ok()) return {&row, *std::move(prepared)};
      refusals.push_back({row.name, prepared.status().message()});
    }
  }
  if (!chosen.row) {
    for (const Refusal& r : refusals) ADD_FAILURE() << q.op << ": " << r.kernel << " refuses: " << r.reason;
    if (refusals.empty()) ADD_FAILURE() << "no row " << name << " for " << q.op;
  }
  return chosen;
}

// The outputs of the first row of `table` that accepts (or of the row `name`); fails the test where none does. Inputs
// are copied, so that nothing outside can be written; outputs and workspace start poisoned and are checked for
// overruns.
inline std::vector<Tensor> launch_kernel(const Launch& launch, const std::string& name = {},
                                         const KernelTable& table = kernel_table()) {
  constexpr int64_t guard = 256;
  constexpr uint8_t poison = 0xc5;
  KernelQuery q = query_of(launch);
  ChosenKernel kernel = choose_kernel(q, name, table);
  if (!kernel.row) return {};
  auto padded = [&](int64_t bytes) {
    return std::vector<uint8_t>(static_cast<size_t>(bytes + 2 * guard + 64), poison);
  };
  auto aligned = [&](std::vector<uint8_t>& memory) {
    auto at = reinterpret_cast<uintptr_t>(memory.data()) + guard;
    return reinterpret_cast<uint8_t*>((at + 63) / 64 * 64);
  };
  std::vector<std::vector<uint8_t>> memory;
  std::vector<int64_t> sizes;
  memory.reserve(launch.inputs.size() + launch.outputs.size() + 1);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Tensor& in : launch.inputs) {
    if (in.empty()) {
      inputs.push_back(nullptr);
      continue;
    }
    memory.push_back(padded(in.bytes()));
    sizes.push_back(in.bytes());
    if (in.bytes()) std::memcpy(aligned(memory.back()), in.data(), in.bytes());
    inputs.push_back(aligned(memory.back()));
  }
  for (size_t o = 0; o < launch.outputs.size(); ++o) {
    void* shared = nullptr;
    for (auto [input, output] : launch.aliases) {
      if (output != static_cast<int>(o)) continue;
      EXPECT_TRUE(kernel.prepared.may_alias(input, output)) << kernel.row->name;
      shared = const_cast<void*>(inputs[input]);
    }
    bool wanted = launch.wanted.empty() || launch.wanted[o];
    if (!shared && wanted) {
      memory.push_back(padded(launch.outputs[o].bytes()));
      sizes.push_back(launch.outputs[o].bytes());
      shared = aligned(memory.back());
    }
    outputs.push_back(shared);
  }
  const int64_t bytes = kernel.prepared.workspace_bytes;
  memory.push_back(padded(bytes));
  sizes.push_back(bytes);
  uint8_t* workspace = aligned(memory.back());
  CpuStream stream(std::make_shared<Workers>(launch.threads, ThreadPool::Wait::brief), launch.threads);
  stream.launch(*kernel.row, q, kernel.prepared.state.get(), inputs.data(), outputs.data(), workspace, launch.context);
  for (size_t m = 0; m < memory.size(); ++m) {
    const uint8_t* begin = aligned(memory[m]);
    for (int64_t k = 1; k <= guard; ++k) {
      EXPECT_EQ(begin[-k], poison) << kernel.row->name << " wrote " << k << " bytes before operand " << m;
      EXPECT_EQ(begin[sizes[m] + k - 1], poison) << kernel.row->name << " wrote " << k << " bytes past operand " << m;
      if (begin[-k] != poison || begin[sizes[m] + k - 1] != poison) break;
    }
  }
  std::vector<Tensor> results;
  for (size_t o = 0; o < launch.outputs.size(); ++o) {
    if (!outputs[o]) {
      results.emplace_back();
      continue;
    }
    Tensor t(launch.outputs[o]);
    if (t.bytes()) std::memcpy(t.data(), outputs[o], t.bytes());
    results.push_back(std::move(t));
  }
  return results;
}

// The same bits on 1, 2 and 3 threads and at every level the processor has; returns them.
inline std::vector<Tensor> launch_everywhere(Launch launch, const std::string& name = {}) {
  std::vector<Tensor> first;
  for (CpuLevel level : {CpuLevel::v3, CpuLevel::v4, CpuLevel::v4_bf16}) {
    if (level > detected_cpu_level()) continue;
    ScopedCpuLevel scope(level);
    for (int threads : {1, 2, 3}) {
      launch.threads = threads;
      std::vector<Tensor> results = launch_kernel(launch, name);
      if (first.empty()) first = results;
      EXPECT_EQ(results.size(), first.size());
      for (size_t o = 0; o < std::min(results.size(), first.size()); ++o) {
        if (first[o].empty()) continue;
        EXPECT_TRUE(identical(results[o], first[o]))
            << launch.op << ": output " << o << " differs on " << threads << " threads at " << cpu_level_name(level);
      }
    }
  }
  return first;
}

inline TensorType f32_type(Shape shape) { return {DType::f32, std::move(shape)}; }

inline Tensor random_f32(const Shape& shape, unsigned seed, double low = -2, double high = 2) {
  Tensor t(f32_type(shape));
  std::mt19937 engine(seed);
  for (float& x : t.as<float>()) x = static_cast<float>(low + (high - low) * (engine() / 4294967296.0));
  return t;
}
inline Tensor random_int(DType dtype, const Shape& shape, unsigned seed, int64_t low, int64_t high) {
  Tensor t(TensorType{dtype, shape});
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, low + static_cast<int64_t>(engine() % (high - low + 1)));
  return t;
}

// Whether `got` is within `absolute` + `relative` |want| of `want`; NaN and infinities must be the same.
inline bool near(double got, double want, double relative, double absolute = 0) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::abs(got - want) <= absolute + relative * std::abs(want);
}

}  // namespace epl::cpu
