// Products by a library on the device, at the levels of bits that allow it: near the CPU's numbers, and at `data` the
// bits of a unit that has the device for itself. On the machine for tests a library's bits follow from the algorithm
// and the sizes of one sum, so that an algorithm that follows from the batch is found.
#include <dlfcn.h>

#include "tests/cuda/on_device.h"

namespace epl::cuda {
namespace {

// Elements of `units` units from `first` on, along a dimension that Units divide.
Tensor some_units(const Tensor& x, int axis, Units all, int64_t first, int64_t units) {
  const int64_t n = x.type().dim(axis), run = all.run(n);
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] = all.outer * units * run;
  Tensor part(TensorType{x.dtype(), shape});
  const auto bytes = static_cast<int64_t>(dtype_bytes(x.dtype()));
  int64_t before = 1, behind = 1;
  for (int d = 0; d < x.type().ndim(); ++d) (d < axis ? before : behind) *= d == axis ? 1 : x.type().dim(d);
  auto* to = static_cast<std::byte*>(part.data());
  const int64_t together = units * run * behind * bytes;
  for (int64_t b = 0; b < before; ++b) {
    for (int64_t o = 0; o < all.outer; ++o, to += together) {
      const int64_t from = (b * n + (o * all.count + first) * run) * behind * bytes;
      std::memcpy(to, static_cast<const std::byte*>(x.data()) + from, static_cast<size_t>(together));
    }
  }
  return part;
}

class OnTheDeviceProducts : public OnTheDevice {
 protected:
  void SetUp() override {
    OnTheDevice::SetUp();
    if (IsSkipped()) return;
    // Of the machine for tests; a GPU has orders of its own.
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return;
    if (auto* set = reinterpret_cast<int (*)(const char*)>(::dlsym(driver, "epl_test_machine_set"))) set("orders=1");
  }

  cpu::Launch launch_of(const char* name, const std::string& text, Units units) {
    const OpDef* op = op_table().find(name);
    auto sample = parse_sample(*op, text);
    EXPECT_TRUE(sample.ok()) << sample.status().to_string();
    return lowered(*op, *sample, units);
  }
  // By the library, or the test is skipped where it is not there.
  std::vector<Tensor> by_library(const cpu::Launch& launch) {
    std::vector<Tensor> got = run(launch);
    const bool missing = !refusals.empty() && refusals[0].reason.find("cannot be opened") != std::string::npos;
    if (!missing) {
      EXPECT_TRUE(chosen.ends_with("_blas_lt")) << chosen << (refusals.empty() ? "" : ": " + refusals[0].reason);
    }
    without_library = missing;
    return got;
  }
  void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (int64_t i = 0; i < want[0].elements(); ++i) {
      if (std::abs(got[0].get(i) - want[0].get(i)) <= 2e-5 * (1 + std::abs(want[0].get(i)))) continue;
      ADD_FAILURE() << "element " << i << ": " << got[0].get(i) << ", the CPU has " << want[0].get(i);
      return;
    }
  }
  void expect_same(const Tensor& got, const Tensor& want, const char* what) {
    ASSERT_EQ(got.elements(), want.elements()) << what;
    for (int64_t i = 0; i < want.elements(); ++i) {
      if (same_element(got, want, i)) continue;
      ADD_FAILURE() << what << ", element " << i << ": " << got.get(i) << " and " << want.get(i);
      return;
    }
  }
  bool without_library = false;
};

struct ProductCase {
  const char* op;
  const char* sample;
};
constexpr ProductCase products[] = {
    {"linear", "f32[6,5,24], f32[24,20]"},
    {"linear", "f32[30,24], f32[24,20], f32[20]"},
    {"linear", "f32[30,23], f32[21,23], f32[21] {transpose_w=true}"},
    {"matmul", "f32[30,24], f32[24,20]"},
    {"matmul", "f32[2,3,30,24], f32[2,3,24,20]"},
    {"matmul", "f32[2,3,24,30], f32[2,3,24,20] {transpose_a=true}"},
    {"matmul", "f32[2,3,30,24], f32[2,3,20,24] {transpose_b=true}"},
    {"matmul", "f32[2,3,24,30], f32[2,3,20,24] {transpose_a=true,transpose_b=true}"},
    {"matmul", "f32[6,30,24], f32[24,20]"},
    {"matmul", "f32[6,24,30], f32[24,20] {transpose_a=true}"},
    {"linear_grad_weight", "f32[48,20], f32[48,36]"},
    {"linear_grad_weight", "f32[6,8,20], f32[6,8,33] {transpose_w=true}"},
    {"linear", "bf16[30,24], bf16[24,20], f32[20] {wide=true}"},
    {"linear", "f16[30,23], f16[21,23], f32[21] {transpose_w=true,wide=true}"},
    {"matmul", "bf16[2,3,30,24], bf16[2,3,20,24] {transpose_b=true,wide=true}"},
    {"matmul", "f16[2,3,24,30], f16[2,3,24,20] {transpose_a=true,wide=true}"},
    {"matmul", "bf16[6,31,25], bf16[25,21] {wide=true}"},
    {"linear_grad_weight", "bf16[48,24], bf16[48,32] {wide=true}"},
    {"linear_grad_weight", "f16[6,8,20], f16[6,8,33] {transpose_w=true,wide=true}"},
};

TEST_F(OnTheDeviceProducts, AreNearTheCpus) {
  for (const ProductCase& one : products) {
    for (const BitsLevel at : {BitsLevel::data, BitsLevel::run}) {
      for (const int64_t units : {1, 4}) {
        const bool sums = std::string_view(one.op) == "linear_grad_weight";
        if (units > 1 && !sums) continue;
        SCOPED_TRACE(cat(one.op, " ", one.sample, " units ", units, " level ", static_cast<int>(at)));
        level = at;
        refusals.clear();
        const cpu::Launch launch = launch_of(one.op, one.sample, units);
        const std::vector<Tensor> got = by_library(launch);
        if (without_library) GTEST_SKIP() << refusals[0].reason;
        expect_near(got, cpu::launch_kernel(launch));
        if (HasFailure()) return;
      }
    }
  }
}

// The sum of eight units is that of the first four and that of the others, which two ranks have.
TEST_F(OnTheDeviceProducts, AtDataAUnitHasItsOwnBits) {
  struct Sum {
    const char* op;
    const char* sample;
    int axis_a, axis_b;
    Units units;
  };
  constexpr Sum sums[] = {
      {"linear_grad_weight", "f32[48,20], f32[48,36]", 0, 0, {8}},
      {"linear_grad_weight", "f32[48,33], f32[48,21] {transpose_w=true}", 0, 0, {8}},
      {"linear_grad_weight", "f32[48,20], f32[48,36]", 0, 0, {8, 3}},
      {"matmul", "f32[48,20], f32[48,36] {transpose_a=true}", 0, 0, {8}},
      {"matmul", "f32[20,48], f32[48,36]", 1, 0, {8}},
      {"matmul", "f32[20,48], f32[36,48] {transpose_b=true}", 1, 1, {8, 2}},
      {"matmul", "f32[3,48,20], f32[3,48,36] {transpose_a=true}", 1, 1, {8}},
      {"matmul", "f32[3,20,48], f32[3,48,36]", 2, 1, {8, 3}},
      {"linear_grad_weight", "bf16[48,24], bf16[48,40] {wide=true}", 0, 0, {8}},
      {"linear_grad_weight", "f16[48,20], f16[48,33] {wide=true}", 0, 0, {8, 3}},
      {"matmul", "bf16[20,48], bf16[36,48] {transpose_b=true,wide=true}", 1, 1, {8, 2}},
      {"matmul", "f16[3,48,24], f16[3,48,40] {transpose_a=true,wide=true}", 1, 1, {8}},
  };
  level = BitsLevel::data;
  for (const Sum& one : sums) {
    SCOPED_TRACE(cat(one.op, " ", one.sample, " outer ", one.units.outer));
    refusals.clear();
    const cpu::Launch full = launch_of(one.op, one.sample, one.units);
    const std::vector<Tensor> all = by_library(full);
    if (without_library) GTEST_SKIP() << refusals[0].reason;
    ASSERT_EQ(all.size(), 1u);
    std::vector<Tensor> halves, units;
    for (const int64_t count : {4, 1}) {
      for (int64_t first = 0; first < one.units.count; first += count) {
        cpu::Launch part = full;
        part.units = {count, count > 1 ? one.units.outer : 1};
        part.inputs = {some_units(full.inputs[0], one.axis_a, one.units, first, count),
                       some_units(full.inputs[1], one.axis_b, one.units, first, count)};
        (count == 4 ? halves : units).push_back(by_library(part).at(0));
      }
    }
    const auto join = [](const std::vector<Tensor>& parts) {
      std::vector<Tensor> now = parts;
      while (now.size() > 1) {
        std::vector<Tensor> next;
        for (size_t i = 0; i < now.size(); i += 2) {
          Tensor sum(now[i].type());
          for (int64_t e = 0; e < sum.elements(); ++e)
            sum.as<float>()[static_cast<size_t>(e)] =
                now[i].as<float>()[static_cast<size_t>(e)] + now[i + 1].as<float>()[static_cast<size_t>(e)];
          next.push_back(std::move(sum));
        }
        now = std::move(next);
      }
      return now[0];
    };
    expect_same(all[0], join(halves), "two halves");
    expect_same(all[0], join(units), "units one by one");
    if (HasFailure()) return;
  }
}

TEST_F(OnTheDeviceProducts, AtDataBitsDoNotFollowFromWhatElseACallHas) {
  level = BitsLevel::data;
  struct Cut {
    const char* op;
    const char* sample;
    int axis_a, axis_b, axis_c;  // -1: not cut
  };
  for (const Cut& one : {Cut{"linear", "f32[48,24], f32[24,20], f32[20]", 0, -1, 0},
                         {"linear", "f32[48,21], f32[23,21] {transpose_w=true}", 0, -1, 0},
                         {"matmul", "f32[8,6,24], f32[24,20]", 0, -1, 0},
                         {"matmul", "f32[8,6,24], f32[8,24,20]", 0, 0, 0},
                         {"matmul", "f32[20,24], f32[24,32]", -1, 1, 1},
                         {"matmul", "f32[20,24], f32[32,24] {transpose_b=true}", -1, 0, 1},
                         {"matmul", "f32[24,32], f32[24,20] {transpose_a=true}", 1, -1, 0},
                         {"matmul", "f32[3,32,24], f32[3,24,20]", 1, -1, 1},
                         {"linear", "bf16[48,24], bf16[24,20], f32[20] {wide=true}", 0, -1, 0},
                         {"linear", "f16[48,21], f16[23,21] {transpose_w=true,wide=true}", 0, -1, 0},
                         {"matmul", "bf16[8,6,24], bf16[8,24,20] {wide=true}", 0, 0, 0},
                         {"matmul", "f16[20,24], f16[32,24] {transpose_b=true,wide=true}", -1, 0, 1}}) {
    SCOPED_TRACE(cat(one.op, " ", one.sample));
    refusals.clear();
    const cpu::Launch full = launch_of(one.op, one.sample, 1);
    const std::vector<Tensor> all = by_library(full);
    if (without_library) GTEST_SKIP() << refusals[0].reason;
    for (const int64_t parts : {2, 8}) {
      cpu::Launch part = full;
      const auto cut = [&](const Tensor& x, int axis) {
        return axis < 0 ? x : some_units(x, axis, parts, parts - 1, 1);
      };
      part.inputs[0] = cut(full.inputs[0], one.axis_a);
      part.inputs[1] = cut(full.inputs[1], one.axis_b);
      part.outputs[0].shape[static_cast<size_t>(one.axis_c)] /= parts;
      expect_same(by_library(part).at(0), cut(all.at(0), one.axis_c), "the last part");
      if (HasFailure()) return;
    }
  }
}

TEST_F(OnTheDeviceProducts, WhereBitsAreKeptTheLibraryIsRefusedWithTheReason) {
  for (const char* sample : {"f32[30,24], f32[24,20]", "bf16[30,24], bf16[24,20] {wide=true}"}) {
    const cpu::Launch launch = launch_of("linear", sample, 1);
    for (const bool splits : {false, true}) {
      level = splits ? BitsLevel::data : BitsLevel::exact;
      splits_keep_bits = splits;
      refusals.clear();
      run(launch);
      EXPECT_EQ(chosen, "linear_ordered");
      ASSERT_FALSE(refusals.empty());
      EXPECT_NE(refusals[0].reason.find("reproducible.level"), std::string::npos) << refusals[0].reason;
    }
  }
}

// The library gives float32; what the model itself rounds to 16 bits is by the meaning.
TEST_F(OnTheDeviceProducts, AResultOf16BitsIsByTheMeaning) {
  level = BitsLevel::data;
  const cpu::Launch launch = launch_of("linear", "bf16[30,24], bf16[24,20]", 1);
  run(launch);
  EXPECT_EQ(chosen, "linear_by_meaning");
  ASSERT_FALSE(refusals.empty());
  EXPECT_NE(refusals[0].reason.find("rounded to 16 bits"), std::string::npos) << refusals[0].reason;
}

}  // namespace
}  // namespace epl::cuda
