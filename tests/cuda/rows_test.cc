// Every row of the CUDA pack at level `exact` against the CPU: the texts of its kernels, compiled for the host, give
// the CPU's bits, over the samples of the op records in many sizes. A kernel for a new op is tested by being there.
#include "backends/cuda/kernels/rows.h"

#include <cstdio>
#include <set>

#include "backends/cuda/query.h"
#include "core/backend/pack_query.h"
#include "tests/cuda/host_machine.h"
#include "tests/cuda/narrow_casts.h"
#include "tests/cuda/on_cpu.h"
#include "tests/cuda/without_kernel.h"
#include "tests/thirds.h"

namespace epl::cuda {
namespace {

// Through the packs' interface, as the pack gets it.
Query asked(const cpu::Launch& launch) {
  Query q = query_of(*PackQuery(cpu::query_of(launch), nullptr).get()).value();
  q.capability = 90;
  q.processors = 132;
  return q;
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
              {s.seed, s.step, s.first_unit, s.units, s.runs, s.run_stride});
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

  // One whose launch stands already.
  void add_region(Case c) {
    std::string reason = "no row";
    c.row = row_of(rows_, c.launch, asked(c.launch), c.kernel, reason);
    ASSERT_NE(c.row, nullptr) << c.text << ": " << reason;
    for (const Launch& launch : c.kernel.launches) c.numbers.push_back(machine_.add(launch));
    cases_.push_back(std::move(c));
  }

  void compare() {
    ASSERT_EQ(machine_.build(files()), "");
    std::map<std::string, int> failed;
    for (const Case& c : cases_) {
      SCOPED_TRACE(c.text);
      with_.insert(c.op->name);
      const std::vector<Tensor> want = on_cpu(*c.op, c.sample, c.launch), got = given(machine_, c);
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

  // Why some samples of these ops have none.
  std::string reasons(const std::set<std::string>& ops) {
    std::string all;
    for (const std::string& op : ops) {
      if (with_.contains(op) && without_[op].empty()) continue;
      all += cat(with_.contains(op) ? "some" : "none", " for ", op, ":");
      for (const std::string& reason : without_[op]) all += cat(" ", reason, ";");
      all += "\n";
    }
    return all;
  }

  std::vector<Row> rows_ = all_rows();
  HostMachine machine_;
  std::vector<Case> cases_;
  std::map<std::string, std::set<std::string>> without_;
  std::set<std::string> with_;
  int asked_ = 0;
};

TEST_F(AllRows, HaveTheBitsOfTheCpu) {
  EPL_ONE_OF_THREE();
  std::set<std::string> ops;
  for (const OpDef* op : op_table().all()) {
    if (op->boundary) continue;
    ops.insert(op->name);
    if (const char* only = std::getenv("EPL_TEST_OP"); only && op->name != only) continue;
    for (const std::string& text : op->samples) {
      const Sample sample = *parse_sample(*op, text);
      for (int64_t units : {1, 2, 4}) add(*op, text, sample, units);
      for (DType type : {DType::f64, DType::f16, DType::bf16})
        add(*op, cat(text, " in ", dtype_name(type)), sample.with_floats(type), type == DType::f64 ? 2 : 1);
    }
    for (const Variant& v : variants(*op, {0, 1, 5, 40}, true, 12)) add(*op, v.text, v.sample, 1);
  }
  compare();
  if (std::getenv("EPL_TEST_OP") != nullptr) return;
  std::set<std::string> none;
  for (const std::string& op : ops) {
    if (!with_.contains(op)) none.insert(op);
  }
  EXPECT_EQ(none, ops_without_kernel()) << asked_ << " cases, " << cases_.size() << " with a kernel\n" << reasons(ops);
}

// Sizes past every block, segment, tile and unit of the CPU's orders.
TEST_F(AllRows, HaveTheBitsOfTheCpuInLargerSizes) {
  EPL_ONE_OF_THREE();
  struct Larger {
    const char *op, *sample;
    Units units = 1;
  };
  const Larger larger[] = {
      {"sum", "f32[3,5000] {axes=[1]}"},
      {"sum", "f32[4,2048,3] {axes=[0,1]}", 4},
      {"sum", "f32[2,8,700,3] {axes=[0,1,2]}", {4, 2}},
      {"sum", "f32[5000] {axes=[0]}", 8},
      {"max_reduce", "f32[3,2500] {axes=[1]}"},
      {"prod_reduce", "f32[2500,3](0.9..1.1) {axes=[0]}"},
      {"softmax", "f32[3,4500] {axis=1}"},
      {"softmax_grad", "f32[3,2100,5], f32[3,2100,5] {axis=1}"},
      {"log_softmax", "f32[2,1030] {axis=1}"},
      {"log_softmax_grad", "f32[2,1030], f32[2,1030] {axis=1}"},
      {"cross_entropy", "f32[2048,40], i64[2048](-1..40) {ignore_index=-1}", 8},
      {"cross_entropy_grad", "f32[40,3000], i64[40](-1..3000), f32[](0.5..1), f32[40](7..9) {ignore_index=-1}"},
      {"layer_norm", "f32[5,2100], f32[2100], f32[2100]"},
      {"layer_norm_grad", "f32[2112,20], f32[2112,20], f32[2112,1], f32[2112,1](0.5..2), f32[20]", 2},
      {"layer_norm_grad", "f32[4,2100], f32[4,2100], f32[4,1], f32[4,1](0.5..2), f32[2100]"},
      {"rms_norm_grad", "f32[4,40,33], f32[4,40,33], f32[4,40,1](0.5..2), f32[33]", {2, 2}},
      {"matmul", "f32[70,600], f32[600,90]"},
      {"matmul", "f32[2,130,300], f32[2,140,300] {transpose_b=true}"},
      {"linear", "f32[300,520], f32[520,270], f32[270]"},
      {"linear", "f32[1157,21], f32[1200,21], f32[1200] {transpose_w=true}"},
      {"matmul", "f32[40,20,140], f32[40,20,133] {transpose_a=true}"},
      {"linear_grad_weight", "f32[44,1157], f32[44,1200]", 4},
      {"linear_grad_weight", "f32[16,1157], f32[16,3460]", 4},
      {"linear_grad_weight", "f32[4096,70], f32[4096,65]", 8},
      {"linear_grad_weight", "f32[4,8,16,33], f32[4,8,16,40] {transpose_w=true}", {4, 2}},
      {"matmul", "bf16[70,600], bf16[600,90] {wide=true}"},
      {"matmul", "f16[2,130,300], f16[2,140,300] {transpose_b=true,wide=true}"},
      {"matmul", "bf16[40,20,140], bf16[40,20,133] {transpose_a=true,wide=true}"},
      {"linear", "bf16[300,520], bf16[520,270], f32[270] {wide=true}"},
      {"linear", "f16[1157,21], f16[1200,21], f32[1200] {transpose_w=true,wide=true}"},
      {"linear_grad_weight", "bf16[44,1157], bf16[44,1200] {wide=true}", 4},
      {"linear_grad_weight", "f16[4096,70], f16[4096,65] {wide=true}", 8},
      {"linear_grad_weight", "bf16[4,8,16,33], bf16[4,8,16,40] {transpose_w=true,wide=true}", {4, 2}},
      {"gather_grad", "f32[512,40], i64[512](-7..9) {size=9}", 4},
      {"gather_grad", "f32[4,16,8,3], i32[4,16,8](-7..9) {size=9}", {4, 2}},
      {"gather_grad", "bf16[512,40], i64[512](-7..9) {size=9}", 4},
      {"gather_grad", "f16[4,16,8,3], i32[4,16,8](-7..9) {size=9}", {4, 2}},
      {"attention", "f32[2,4,200,20], f32[2,2,150,20], f32[2,2,150,24] {scale=0.3}"},
      {"attention", "f32[1,2,210,16], f32[1,2,210,16], f32[1,2,210,16] {scale=0.3,causal=true}"},
      {"attention", "f32[1,2,110,300], f32[1,2,70,300], f32[1,2,70,8], f32[1,1,110,70] {scale=0.1,softcap=5.0}"},
      {"attention_grad",
       "f32[1,4,200,24], f32[1,4,200,20], f32[1,2,150,20], f32[1,2,150,24], f32[1,4,200,24], f32[1,4,200](4..6) "
       "{scale=0.3}"},
      {"attention_grad",
       "f32[1,2,210,16], f32[1,2,210,16], f32[1,2,210,16], f32[1,2,210,16], f32[1,2,210,16], f32[1,2,210](4..6) "
       "{scale=0.3,causal=true}"},
      {"attention_grad",
       "f32[1,2,110,8], f32[1,2,110,16], f32[1,2,70,16], f32[1,2,70,8], f32[1,2,110,8], f32[1,2,110](510..514), "
       "f32[1,1,110,70](508..512) {scale=0.1,softcap=5.0}"},
      {"dropout", "f32[4,3000] {ratio=0.3}"},
      {"scatter_nd", "f32[20,40], i64[300,1](-20..20), f32[300,40] {reduction=\"add\"}"},
      {"scatter_elements", "f32[20,40], i64[300,40](-20..20), f32[300,40] {reduction=\"mul\"}"},
      {"gather_nd_grad", "f32[512,40], i64[512,1](-9..9) {shape=[9,40]}", 4},
      {"gather_nd_grad", "bf16[512,40], i64[512,1](-9..9) {shape=[9,40]}", 4},
      {"gather_elements_grad", "f32[300,9], i64[300,9](-20..20) {shape=[20,9]}"},
      {"picked_linear", "f32[600,520], f32[4,520,30], i64[600](-4..4)", 2},
      {"picked_linear_grad_weight", "f32[2048,33], f32[2048,30], i64[2048](-2..2) {size=2}", 2},
      {"max_pool", "f32[2,3,20,21] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1]}"},
      {"avg_pool_grad", "f32[2,3,10,11] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1],shape=[2,3,20,21]}"},
      {"conv", "f32[2,20,13,14], f32[24,20,3,3], f32[24] {pads=[1,1,1,1]}"},
      {"conv", "f32[2,6,30,31], f32[12,3,5,3], f32[12] {pads=[2,1,2,1],strides=[2,3],groups=2}"},
      {"conv", "f32[2,40,17,18], f32[24,40,1,1]"},
      {"conv", "f32[2,3,5,6,7], f32[4,3,2,3,2] {dilations=[1,2,1]}"},
      {"conv_grad_input", "f32[2,24,13,14], f32[24,20,3,3] {pads=[1,1,1,1],shape=[2,20,13,14]}"},
      {"conv_grad_input", "f32[2,8,7,8], f32[8,3,3,3] {strides=[2,2],pads=[1,1,1,1],groups=2,shape=[2,6,14,15]}"},
      {"conv_grad_input", "f32[2,8,7,7], f32[8,6,1,1] {strides=[2,2],shape=[2,6,14,14]}"},
      {"conv_grad_input", "f32[2,8,10], f32[8,5,4] {strides=[3],dilations=[2],shape=[2,5,35]}"},
      {"conv_grad_weight", "f32[4,20,13,14], f32[4,24,13,14] {pads=[1,1,1,1],shape=[24,20,3,3]}", 4},
      {"conv_grad_weight", "f32[8,6,14,15], f32[8,8,7,8] {strides=[2,2],pads=[1,1,1,1],groups=2,shape=[8,3,3,3]}", 4},
      {"conv_grad_weight", "f32[4,6,9,9], f32[4,8,9,9] {pads=[1,1,1,1],shape=[8,6,3,3]}", {2, 2}},
      {"conv", "bf16[2,20,13,14], bf16[24,20,3,3], f32[24] {pads=[1,1,1,1],wide=true}"},
      {"conv", "f16[2,6,30,31], f16[12,3,5,3], f32[12] {pads=[2,1,2,1],strides=[2,3],groups=2,wide=true}"},
      {"conv_grad_input", "bf16[2,24,13,14], bf16[24,20,3,3] {pads=[1,1,1,1],shape=[2,20,13,14],wide=true}"},
      {"conv_grad_input",
       "f16[2,8,7,8], f16[8,3,3,3] {strides=[2,2],pads=[1,1,1,1],groups=2,shape=[2,6,14,15],wide=true}"},
      {"conv_grad_weight", "bf16[4,20,13,14], bf16[4,24,13,14] {pads=[1,1,1,1],shape=[24,20,3,3],wide=true}", 4},
      {"conv_grad_weight",
       "f16[8,6,14,15], f16[8,8,7,8] {strides=[2,2],pads=[1,1,1,1],groups=2,shape=[8,3,3,3],wide=true}", 4},
      {"transpose", "f32[30,40,50] {perm=[2,0,1]}"},
      {"transpose", "bf16[30,40,50] {perm=[2,0,1]}"},
  };
  for (const Larger& l : larger) {
    const OpDef* op = op_table().find(l.op);
    ASSERT_NE(op, nullptr) << l.op;
    if (const char* only = std::getenv("EPL_TEST_OP"); only && op->name != only) continue;
    auto sample = parse_sample(*op, l.sample);
    ASSERT_TRUE(sample.ok()) << l.op << ": " << sample.status().to_string();
    const size_t before = cases_.size();
    add(*op, l.sample, *sample, l.units);
    EXPECT_EQ(cases_.size(), before + 1) << l.op << " has no kernel for " << l.sample << ": "
                                         << (without_[op->name].empty() ? "" : *without_[op->name].begin());
  }
  compare();
}

// Every scalar operation over all classes of floats: zeros, subnormals, numbers of every exponent, infinities and NaN.
TEST_F(AllRows, ScalarOperationsHaveTheBitsOfTheCpu) {
  EPL_ONE_OF_THREE();
  constexpr int64_t count = 1 << 17;
  // Steps through all bit patterns; the second and third operand step otherwise.
  const auto operand = [&](DType type, uint64_t step) {
    Tensor t(TensorType{type, {count}});
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t bits = static_cast<uint64_t>(i) * step;
      if (type == DType::f32) std::memcpy(t.as<float>().data() + i, &bits, 4);
      if (type == DType::f64) std::memcpy(t.as<double>().data() + i, &bits, 8);
    }
    return t;
  };
  for (int op = 0; op < scalar_op_count; ++op) {
    const ScalarOpInfo& info = scalar_op_info(static_cast<ScalarOp>(op));
    if (info.arity == 0 || info.family == ScalarFamily::bits || info.name == "cast") continue;
    for (DType type : {DType::f32, DType::f64}) {
      Case c{.op = op_table().find("fused"), .text = cat(info.name, " of ", dtype_name(type))};
      std::string expression, arguments;
      const uint64_t steps[] = {32771, 262147 * uint64_t{12347}, 7919 * uint64_t{65537}};
      for (int a = 0; a < info.arity; ++a) {
        expression += cat("x", a, "; ");
        arguments += cat(a ? "," : "", "%", a);
        c.launch.inputs.push_back(operand(type, type == DType::f32 ? steps[a] : steps[a] << 32 | steps[a]));
      }
      c.launch.op = "fused";
      c.launch.attributes = {{"expression", cat(expression, info.name, "(", arguments, ") -> %", info.arity)}};
      c.launch.outputs = {TensorType{type, {count}}};
      add_region(std::move(c));
    }
  }
  compare();
}

// Where bits may be the device's own, ops on tensors of 16 bits are those of float32 between casts.
TEST_F(AllRows, AtRunTensorsOf16BitsAreNearTheirMeaning) {
  EPL_ONE_OF_THREE();
  const std::set<std::string> ops = {
      "conv",          "conv_grad_input",          "conv_grad_weight", "cross_entropy", "cross_entropy_grad",
      "picked_linear", "picked_linear_grad_weight"};
  for (const std::string& name : ops) {
    const OpDef& op = *op_table().find(name);
    for (const std::string& text : op.samples) {
      for (const DType type : {DType::bf16, DType::f16}) {
        Case c{.op = &op, .text = cat(name, ": ", text, " in ", dtype_name(type))};
        c.sample = parse_sample(op, text)->with_floats(type);
        c.launch = lowered(op, c.sample);
        if (c.launch.attributes.has("wide") && c.launch.attributes.flag("wide")) continue;
        c.launch.level = BitsLevel::run;
        add_region(std::move(c));
      }
    }
  }
  ASSERT_EQ(machine_.build(files()), "");
  std::set<std::string> seen;
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.text);
    EXPECT_TRUE(std::string_view(c.row->name).ends_with("_between_casts")) << c.row->name;
    seen.insert(c.op->name);
    const std::vector<Tensor> want = on_cpu(*c.op, c.sample, c.launch), got = given(machine_, c);
    for (size_t o = 0; o < want.size(); ++o) {
      for (int64_t i = 0; i < want[o].elements(); ++i) {
        const double a = got[o].get(i), b = want[o].get(i);
        if ((std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 0.06 * (1 + std::abs(b))) continue;
        ADD_FAILURE() << "output " << o << " element " << i << ": " << a << ", the CPU has " << b;
        break;
      }
    }
  }
  EXPECT_EQ(seen, ops);
}

TEST_F(AllRows, CastsOf16BitsHaveTheBitsOfTheCpu) {
  EPL_ONE_OF_THREE();
  for (auto& [text, launch] : narrow_casts())
    add_region({.op = op_table().find("fused"), .text = text, .launch = std::move(launch)});
  EXPECT_EQ(cases_.size(), 8u);
  compare();
}

}  // namespace
}  // namespace epl::cuda
