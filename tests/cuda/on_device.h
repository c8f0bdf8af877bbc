// A device cuda for tests of its kernels: a GPU, or whatever answers as its driver. Without one they are skipped with
// the reason.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/backend/conformance.h"
#include "tests/cuda/on_cpu.h"

namespace epl::cuda {

// Equal bits; which NaN it is, processors choose for themselves.
inline bool same_element(const Tensor& a, const Tensor& b, int64_t i) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.dtype()));
  const auto* p = static_cast<const std::byte*>(a.data()) + i * bytes;
  const auto* q = static_cast<const std::byte*>(b.data()) + i * bytes;
  if (std::memcmp(p, q, static_cast<size_t>(bytes)) == 0) return true;
  return is_float(a.dtype()) && std::isnan(a.get(i)) && std::isnan(b.get(i));
}

class OnTheDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static TestHost memory;
    auto opened = open_device("cuda", memory.host());
    reason = opened.ok() ? "" : opened.status().message();
    if (opened.ok()) device = *std::move(opened);
  }
  static void TearDownTestSuite() { device.reset(); }
  void SetUp() override {
    if (!device) GTEST_SKIP() << reason;
    stream = device->create_stream(1).value();
  }

  // Uploads, launches and downloads; empty where the device has no kernel for it.
  std::vector<Tensor> run(const cpu::Launch& launch) {
    KernelQuery query = cpu::query_of(launch);
    query.device = device.get();
    query.level = level;
    query.splits_keep_bits = splits_keep_bits;
    const ChosenKernel kernel = device->kernels().choose(query, &refusals);
    if (!kernel.row) return {};
    chosen = kernel.row->name;
    std::vector<std::unique_ptr<Buffer>> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Tensor& in : launch.inputs) {
      inputs.push_back(nullptr);
      if (in.empty()) continue;
      memory.push_back(device->allocate(in.bytes()).value());
      stream->upload(memory.back()->data(), in.data(), in.bytes());
      inputs.back() = memory.back()->data();
    }
    for (const TensorType& type : launch.outputs) {
      memory.push_back(device->allocate(type.bytes()).value());
      stream->fill(memory.back()->data(), type.bytes(), 0xc5);
      outputs.push_back(memory.back()->data());
    }
    const auto workspace = device->allocate(kernel.prepared.workspace_bytes).value();
    stream->fill(workspace->data(), kernel.prepared.workspace_bytes, 0xc5);
    stream->launch(*kernel.row, query, kernel.prepared.state.get(), inputs.data(), outputs.data(), workspace->data(),
                   launch.context);
    std::vector<Tensor> results;
    for (size_t o = 0; o < outputs.size(); ++o) {
      results.emplace_back(launch.outputs[o]);
      stream->download(results.back().data(), outputs[o], results.back().bytes());
    }
    const Status status = stream->synchronize();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? results : std::vector<Tensor>();
  }

  void compare(const OpDef& op, const std::string& text, const Sample& sample, Units units) {
    SCOPED_TRACE(cat(text, " units ", units.count));
    const cpu::Launch launch = lowered(op, sample, units);
    const std::vector<Tensor> got = run(launch);
    if (got.empty()) return;
    ++compared;
    const std::vector<Tensor> want = on_cpu(op, sample, launch);
    for (size_t o = 0; o < want.size(); ++o) {
      if (want[o].empty()) continue;
      for (int64_t i = 0; i < want[o].elements(); ++i) {
        if (same_element(want[o], got[o], i)) continue;
        ADD_FAILURE() << "output " << o << " element " << i << ": " << got[o].get(i) << ", the CPU has "
                      << want[o].get(i);
        break;
      }
    }
  }

  // Of a kernel that was refused last.
  std::string why() const { return refusals.empty() ? "" : ": " + refusals.back().reason; }

  static inline std::shared_ptr<Device> device;
  static inline std::string reason;
  std::unique_ptr<Stream> stream;
  std::vector<Refusal> refusals;
  BitsLevel level = BitsLevel::exact;
  bool splits_keep_bits = false;
  std::string chosen;  // the row that was launched last
  int compared = 0;
};
}  // namespace epl::cuda
