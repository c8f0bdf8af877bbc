// Every row of the CUDA pack at level `exact` against the CPU: the texts of its kernels, compiled for the host, give
// the CPU's bits, over the samples of the op records in many sizes. A kernel for a new op is tested by being there.
#include "backends/cuda/kernels/rows.h"

#include <cstdio>
#include <set>

#include "backends/cuda/query.h"
#include "core/backend/pack_query.h"
#include "core/base/philox.h"
#include "core/ir/evaluate.h"
#include "tests/cuda/host_machine.h"
#include "tests/kernels/kernel_harness.h"
#include "tests/ops/variants.h"

namespace epl::cuda {
namespace {

using cpu::kernel_table;

// Through the packs' interface, as the pack gets it.
Query asked(const cpu::Launch& launch) {
  Query q = query_of(*PackQuery(cpu::query_of(launch), nullptr).get()).value();
  q.capability = 90;
  q.processors = 132;
  return q;
}

// A node of the op as lowering hands it to a backend: elementwise ops are regions of one.
cpu::Launch lowered(const OpDef& op, const Sample& sample) {
  const OutputTypes types = *infer_types(op, sample.attributes, sample.types());
  cpu::Launch launch{.op = op.name, .attributes = sample.attributes, .inputs = sample.values(3), .outputs = types};
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

struct Case {
  const OpDef* op = nullptr;
  std::string text;
  Sample sample;
  cpu::Launch launch;
  const Row* row = nullptr;
  Kernel kernel;
  std::vector<int> numbers;
};

// What the CPU gives: its kernel, or the meaning where it has none.
std::vector<Tensor> wanted(const Case& c) {
  const KernelQuery q = cpu::query_of(c.launch);
  const KernelTable& table = kernel_table();
  if (table.choose(q).row) return cpu::launch_kernel(c.launch);
  auto made = evaluate_op(*c.op, c.sample.attributes, c.launch.inputs, c.launch.units,
                          random_key(c.launch.context.seed, c.launch.context.step, c.launch.node));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : std::vector<Tensor>();
}

std::vector<Tensor> given(const HostMachine& machine, const Case& c) {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<Tensor> results;
  for (const Tensor& in : c.launch.inputs) inputs.push_back(in.empty() ? nullptr : in.data());
  for (const TensorType& type : c.launch.outputs) results.emplace_back(type);
  for (Tensor& t : results) {
    if (t.bytes()) std::memset(t.data(), 0xc5, static_cast<size_t>(t.bytes()));
    outputs.push_back(t.data());
  }
  std::vector<std::byte> room(static_cast<size_t>(c.kernel.workspace_bytes) + 512, std::byte{0xc5});
  const auto at = (reinterpret_cast<uintptr_t>(room.data()) + 255) / 256 * 256;
  const StepContext& s = c.launch.context;
  machine.run(c.kernel, c.numbers, inputs, outputs, reinterpret_cast<std::byte*>(at),
              {s.seed, s.step, s.first_unit, s.units, s.lanes, s.lane_stride});
  return results;
}

// Equal bits; which NaN it is, processors choose for themselves.
bool same_bits(const Tensor& a, const Tensor& b, int64_t& where) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.dtype()));
  for (where = 0; where < a.elements(); ++where) {
    const auto* p = static_cast<const std::byte*>(a.data()) + where * bytes;
    const auto* q = static_cast<const std::byte*>(b.data()) + where * bytes;
    if (std::memcmp(p, q, static_cast<size_t>(bytes)) == 0) continue;
    if (is_float(a.dtype()) && std::isnan(a.get(where)) && std::isnan(b.get(where))) continue;
    return false;
  }
  return true;
}

const Row* row_of(const std::vector<Row>& rows, const cpu::Launch& launch, const Query& q, Kernel& kernel,
                  std::string& reason) {
  const bool has_input = !launch.inputs.empty() && !launch.inputs[0].empty();
  const DType first = has_input ? launch.inputs[0].dtype() : launch.outputs[0].dtype;
  for (const Row& row : rows) {
    if (launch.op != row.op) continue;
    if (!row.dtypes.empty() && std::ranges::find(row.dtypes, first) == row.dtypes.end()) {
      reason = cat(dtype_name(first));
      continue;
    }
    auto made = row.make(q);
    if (made.ok()) {
      kernel = *std::move(made);
      return &row;
    }
    reason = made.status().message();
  }
  return nullptr;
}

class AllRows : public testing::Test {
 protected:
  static std::string files() {
    std::string all = program({"backends/cuda/text/all.cuh"}, "");
    return all.substr(0, all.find(body_begins));
  }

  void add(const OpDef& op, const std::string& text, const Sample& sample, Units units) {
    Case c{.op = &op, .text = cat(op.name, ": ", text, " units ", units.count), .sample = sample};
    c.launch = lowered(op, sample);
    c.launch.units = units;
    std::string reason = "no row";
    ++asked_;
    c.row = row_of(rows_, c.launch, asked(c.launch), c.kernel, reason);
    if (!c.row) {
      without_[op.name].insert(reason);
      return;
    }
    for (const Launch& launch : c.kernel.launches) c.numbers.push_back(machine_.add(launch));
    cases_.push_back(std::move(c));
  }

  void compare() {
    ASSERT_EQ(machine_.build(files()), "");
    std::map<std::string, int> failed;
    for (const Case& c : cases_) {
      SCOPED_TRACE(c.text);
      with_.insert(c.op->name);
      const std::vector<Tensor> want = wanted(c), got = given(machine_, c);
      for (size_t o = 0; o < want.size(); ++o) {
        if (want[o].empty()) continue;
        int64_t at = 0;
        if (same_bits(want[o], got[o], at)) continue;
        if (++failed[c.op->name] <= 3)
          ADD_FAILURE() << c.row->name << ", output " << o << " element " << at << ": " << got[o].get(at)
                        << ", the CPU has " << want[o].get(at);
      }
    }
    for (const auto& [op, count] : failed) std::printf("%s: %d cases differ\n", op.c_str(), count);
  }

  std::vector<Row> rows_ = all_rows();
  HostMachine machine_;
  std::vector<Case> cases_;
  std::map<std::string, std::set<std::string>> without_;
  std::set<std::string> with_;
  int asked_ = 0;
};

TEST_F(AllRows, HaveTheBitsOfTheCpu) {
  std::set<std::string> ops;
  for (const OpDef* op : op_table().all()) {
    if (op->boundary) continue;
    ops.insert(op->name);
    if (const char* only = std::getenv("EPL_TEST_OP"); only && op->name != only) continue;
    for (const std::string& text : op->samples)
      for (int64_t units : {1, 2, 4}) add(*op, text, *parse_sample(*op, text), units);
    for (const Variant& v : variants(*op, {0, 1, 5, 40}, true, 12)) add(*op, v.text, v.sample, 1);
  }
  compare();
  std::printf("%d cases, %zu with a kernel; %zu of %zu ops have one\n", asked_, cases_.size(), with_.size(),
              ops.size());
  for (const std::string& op : ops) {
    if (with_.contains(op)) continue;
    std::string reasons;
    for (const std::string& r : without_[op]) reasons += cat(" ", r, ";");
    std::printf("  none for %s:%s\n", op.c_str(), reasons.c_str());
  }
}

}  // namespace
}  // namespace epl::cuda
