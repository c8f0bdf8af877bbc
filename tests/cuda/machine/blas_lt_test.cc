// The stand-in for cuBLASLt: right products, and mistakes planted into descriptors, pointers and streams, each of which
// is found and named.
#include "backends/cuda/api/blas_lt.h"

#include <cmath>

#include "core/base/dtype.h"
#include "tests/cuda/machine/rig.h"

namespace epl::blas_lt_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

// D[m, n] = A[m, k] B[k, n] + bias, all of it column-major, and what a test changes of it.
struct Described {
  struct Layout {
    int type = cuda::blas_f32;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch = 1;
    int64_t stride = 0;
    int32_t order = cuda::blas_order_columns;
  };
  Layout a, b, c, d;
  int compute = cuda::blas_compute_f32;
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = cuda::blas_epilogue_none;
  Address bias = 0;
  size_t workspace_limit = 0;
};

Described product(uint64_t m, uint64_t n, uint64_t k, int32_t batch = 1) {
  const auto layout = [&](uint64_t rows, uint64_t columns) {
    return Described::Layout{.rows = rows,
                             .columns = columns,
                             .leading = static_cast<int64_t>(rows),
                             .batch = batch,
                             .stride = static_cast<int64_t>(rows * columns)};
  };
  return {.a = layout(m, k), .b = layout(k, n), .c = layout(m, n), .d = layout(m, n)};
}

std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> all(count);
  for (float& one : all) {
    seed = seed * 1664525 + 1013904223;
    one = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return all;
}

class BlasLt : public ::testing::Test {
 protected:
  BlasLt() : BlasLt("seed=1 devices=h100,h100") {}
  explicit BlasLt(const std::string& settings) : rig(settings) {
    auto opened = cuda::open_blas_lt(EPL_TEST_LIBRARIES);
    if (!opened.ok()) throw std::runtime_error(opened.status().message());
    blas = *opened;
    must(blas->create(&handle));
    stream = rig.stream();
  }
  ~BlasLt() override {
    for (cuda::BlasLayout one : {a, b, c, d})
      if (one != nullptr) blas->destroy_layout(one);
    if (operation != nullptr) blas->destroy_operation(operation);
    blas->destroy(handle);
  }
  void must(int code) {
    if (code != 0) throw std::runtime_error(blas->text(code) + ": " + rig.last_error());
  }

  cuda::BlasLayout layout(const Described::Layout& of) {
    cuda::BlasLayout made = nullptr;
    must(blas->create_layout(&made, of.type, of.rows, of.columns, of.leading));
    must(blas->set_layout(made, cuda::layout_batch, &of.batch, 4));
    must(blas->set_layout(made, cuda::layout_batch_stride, &of.stride, 8));
    must(blas->set_layout(made, cuda::layout_order, &of.order, 4));
    return made;
  }
  void describe(const Described& setup) {
    must(blas->create_operation(&operation, setup.compute, cuda::blas_f32));
    must(blas->set_operation(operation, cuda::operation_transpose_a, &setup.transpose_a, 4));
    must(blas->set_operation(operation, cuda::operation_transpose_b, &setup.transpose_b, 4));
    must(blas->set_operation(operation, cuda::operation_epilogue, &setup.epilogue, 4));
    if (setup.bias != 0) must(blas->set_operation(operation, cuda::operation_bias, &setup.bias, 8));
    a = layout(setup.a), b = layout(setup.b), c = layout(setup.c), d = layout(setup.d);
  }
  // The code of the library.
  int choose(const Described& setup) {
    cuda::BlasPreference preference = nullptr;
    must(blas->create_preference(&preference));
    const uint64_t most = setup.workspace_limit;
    must(blas->set_preference(preference, cuda::preference_workspace, &most, 8));
    int found = 0;
    const int code = blas->choose(handle, operation, a, b, c, d, preference, 1, &choice, &found);
    must(blas->destroy_preference(preference));
    return code;
  }
  int multiply(Address at_a, Address at_b, Address at_d, Address workspace = 0, void* on = nullptr) {
    const auto pointer = [](Address address) { return reinterpret_cast<void*>(address); };
    return blas->multiply(handle, operation, alpha, pointer(at_a), a, pointer(at_b), b, &beta, pointer(at_d), c,
                          pointer(at_d), d, &choice.algorithm, pointer(workspace), workspace_bytes,
                          static_cast<cuda::StreamHandle>(on == nullptr ? stream : on));
  }
  // The product of fresh numbers; the code of the first call that fails.
  int run(const Described& setup) {
    describe(setup);
    if (const int code = choose(setup); code != 0) return code;
    workspace_bytes = choice.workspace_bytes;
    const auto elements = [](const Described::Layout& of) {
      return static_cast<size_t>(of.leading) * of.columns * static_cast<size_t>(of.batch);
    };
    values_a = numbers(elements(setup.a), 1), values_b = numbers(elements(setup.b), 2);
    result = rig.allocate(4 * elements(setup.d));
    const Address workspace = workspace_bytes == 0 ? 0 : rig.allocate(workspace_bytes);
    return multiply(upload(values_a, setup.a.type), upload(values_b, setup.b.type), result, workspace);
  }
  // As elements of a type of the library; `values` become what these are worth.
  Address upload(std::vector<float>& values, int type) {
    if (type == cuda::blas_f32) return rig.upload(values);
    const DType narrow = type == cuda::blas_f16 ? DType::f16 : DType::bf16;
    std::vector<uint16_t> elements(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      store_double(narrow, elements.data(), static_cast<int64_t>(i), double{values[i]});
      values[i] = static_cast<float>(load_double(narrow, elements.data(), static_cast<int64_t>(i)));
    }
    return rig.upload(elements);
  }
  int synchronize() { return rig.call("cuStreamSynchronize", stream); }

  Rig rig;
  const cuda::BlasLt* blas = nullptr;
  cuda::BlasHandle handle = nullptr;
  cuda::BlasOperation operation = nullptr;
  cuda::BlasLayout a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cuda::BlasChoice choice;
  void* stream = nullptr;
  const float one = 1, beta = 0;
  const float* alpha = &one;
  size_t workspace_bytes = 0;
  std::vector<float> values_a, values_b;
  Address result = 0;
};

struct Orientation {
  int32_t transpose_a, transpose_b;
};

class BlasLtTypes : public BlasLt, public ::testing::WithParamInterface<int> {
 protected:
  void expect_product(const Orientation& of) {
    constexpr uint64_t m = 5, n = 7, k = 9;
    Described setup = product(m, n, k, 3);
    if (of.transpose_a == 1) std::swap(setup.a.rows, setup.a.columns), setup.a.leading = k;
    if (of.transpose_b == 1) std::swap(setup.b.rows, setup.b.columns), setup.b.leading = n;
    setup.transpose_a = of.transpose_a, setup.transpose_b = of.transpose_b;
    setup.a.type = setup.b.type = GetParam();
    const std::vector<float> bias = numbers(m, 3);
    setup.epilogue = cuda::blas_epilogue_bias;
    setup.bias = rig.upload(bias);
    ASSERT_EQ(run(setup), 0) << rig.last_error();
    ASSERT_EQ(synchronize(), 0) << rig.findings();
    const std::vector<float> got = rig.download<float>(result, 3 * m * n);
    for (uint64_t i = 0; i < 3; ++i) {
      for (uint64_t row = 0; row < m; ++row) {
        for (uint64_t column = 0; column < n; ++column) {
          double want = bias[row];
          for (uint64_t s = 0; s < k; ++s) {
            const size_t at_a = i * m * k + (of.transpose_a == 1 ? row * k + s : s * m + row);
            const size_t at_b = i * k * n + (of.transpose_b == 1 ? s * n + column : column * k + s);
            want += double{values_a[at_a]} * double{values_b[at_b]};
          }
          EXPECT_NEAR(got[i * m * n + column * m + row], want, std::abs(want) * 0x1p-23);
        }
      }
    }
  }
};

TEST_P(BlasLtTypes, AreMultipliedInBatchesInEveryOrientation) {
  for (const Orientation& of : {Orientation{0, 0}, {0, 1}, {1, 0}, {1, 1}}) expect_product(of);
  EXPECT_EQ(rig.findings(), "");
}

// Operands of 16 bits are multiplied as matrices where they are aligned and that is allowed.
TEST_P(BlasLtTypes, HaveAlgorithmsOfTheirOwn) {
  Described setup = product(64, 64, 512);
  setup.a.type = setup.b.type = GetParam();
  describe(setup);
  const auto chosen = [&](uint64_t numerics) {
    cuda::BlasPreference preference = nullptr;
    must(blas->create_preference(&preference));
    must(blas->set_preference(preference, cuda::preference_numerics, &numerics, 8));
    int found = 0;
    const int code = blas->choose(handle, operation, a, b, c, d, preference, 1, &choice, &found);
    must(blas->destroy_preference(preference));
    int32_t id = -1;
    size_t written = 0;
    if (code == 0) must(blas->algorithm_attribute(&choice.algorithm, cuda::algorithm_id, &id, 4, &written));
    return id;
  };
  constexpr uint64_t plain = cuda::blas_numerics_fma | cuda::blas_numerics_sum_f32;
  const int type = GetParam();
  const uint64_t own = type == cuda::blas_f16    ? cuda::blas_numerics_of_f16
                       : type == cuda::blas_bf16 ? cuda::blas_numerics_of_bf16
                                                 : cuda::blas_numerics_of_f32;
  const bool narrow = type != cuda::blas_f32;
  EXPECT_EQ(chosen(plain | own), narrow ? 2 : 1);
  EXPECT_EQ(chosen(plain | own | cuda::blas_numerics_matrices), narrow ? 3 : 1);
  const uint64_t other = narrow ? cuda::blas_numerics_of_f32 : cuda::blas_numerics_of_bf16;
  EXPECT_EQ(chosen(plain | cuda::blas_numerics_matrices | other), -1) << "other operands are allowed alone";
}

INSTANTIATE_TEST_SUITE_P(All, BlasLtTypes, ::testing::Values(cuda::blas_f32, cuda::blas_f16, cuda::blas_bf16),
                         [](const auto& info) {
                           return info.param == cuda::blas_f32 ? "f32" : info.param == cuda::blas_f16 ? "f16" : "bf16";
                         });

TEST_F(BlasLt, SaysWhatAnAlgorithmNeedsAndWhichOneItIs) {
  Described setup = product(64, 64, 512);
  describe(setup);
  ASSERT_EQ(choose(setup), 0) << rig.last_error();
  EXPECT_EQ(choice.workspace_bytes, 0u) << "no workspace is allowed";
  setup.workspace_limit = 1 << 20;
  ASSERT_EQ(choose(setup), 0) << rig.last_error();
  EXPECT_EQ(choice.workspace_bytes, 4u * 4 * 64 * 64);
  int32_t id = 0, splits = 0;
  uint32_t tile = 0;
  size_t written = 0;
  must(blas->algorithm_attribute(&choice.algorithm, cuda::algorithm_id, &id, 4, &written));
  must(blas->algorithm_attribute(&choice.algorithm, cuda::algorithm_splits, &splits, 4, &written));
  must(blas->algorithm_attribute(&choice.algorithm, cuda::algorithm_tile, &tile, 4, &written));
  EXPECT_EQ(splits, 4);
  // The same algorithm, put together again.
  cuda::BlasAlgorithm again;
  must(blas->init_algorithm(handle, cuda::blas_compute_f32, 0, 0, 0, 0, 0, id, &again));
  must(blas->set_algorithm(&again, cuda::algorithm_tile, &tile, 4));
  must(blas->set_algorithm(&again, cuda::algorithm_splits, &splits, 4));
  must(blas->set_algorithm(&again, cuda::algorithm_reduction, &cuda::blas_reduction_apart, 4));
  cuda::BlasChoice needs;
  must(blas->check_algorithm(handle, operation, a, b, c, d, &again, &needs));
  EXPECT_EQ(needs.workspace_bytes, choice.workspace_bytes);
}

// What makes tests of layouts mean something: bits follow from the algorithm and from what one sum is of, not from the
// batch or the number of columns.
TEST_F(BlasLt, InOrdersBitsFollowFromTheAlgorithm) {
  rig.set("orders=1");
  const auto first = [&](uint64_t n, int32_t batch, size_t most_workspace) {
    Described described = product(64, n, 512, batch);
    described.workspace_limit = most_workspace;
    EXPECT_EQ(run(described), 0) << rig.last_error();
    EXPECT_EQ(synchronize(), 0) << rig.findings();
    return rig.download<float>(result, 64 * 20);
  };
  const std::vector<float> alone = first(20, 1, 0);
  EXPECT_EQ(alone, first(20, 4, 0));
  EXPECT_EQ(alone, first(24, 1, 0));
  EXPECT_NE(alone, first(20, 1, 1 << 20)) << "another algorithm";
}

struct Planted {
  const char* name;
  void (*change)(Described& setup);
  int code;
  const char* words;  // of the refusal
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class BlasLtMistakes : public BlasLt, public ::testing::WithParamInterface<Planted> {};

TEST_P(BlasLtMistakes, AreRefusedWithTheReason) {
  const Planted& planted = GetParam();
  Described setup = product(32, 48, 64, 2);
  planted.change(setup);
  EXPECT_EQ(run(setup), planted.code) << rig.last_error();
  EXPECT_NE(rig.last_error().find(planted.words), std::string::npos) << rig.last_error();
}

INSTANTIATE_TEST_SUITE_P(
    All, BlasLtMistakes,
    ::testing::Values(
        Planted{"none", [](Described&) {}, 0, ""},
        Planted{"leading_of_the_other_dimension", [](Described& s) { s.b.leading = 48; }, 7, "leading dimension of 48"},
        Planted{"not_transposed", [](Described& s) { s.transpose_a = 1; }, 7, "A has 32 to sum over and B 64"},
        Planted{"sizes_of_the_result_swapped", [](Described& s) { std::swap(s.d.rows, s.d.columns), s.d.leading = 48; },
                7, "the result is 32 x 48 and D 48 x 32"},
        Planted{"c_of_another_size", [](Described& s) { s.c.columns = 47; }, 7, "C has other sizes"},
        Planted{"one_operand_of_16_bits", [](Described& s) { s.b.type = cuda::blas_f16; }, 15,
                "A and B of different types"},
        Planted{"bf16_and_f16", [](Described& s) { s.a.type = cuda::blas_bf16, s.b.type = cuda::blas_f16; }, 15,
                "A and B of different types"},
        Planted{"a_result_of_16_bits",
                [](Described& s) { s.a.type = s.b.type = s.c.type = s.d.type = cuda::blas_bf16; }, 15,
                "C and D that are not float32"},
        Planted{"fp8", [](Described& s) { s.a.type = 28; }, 15, "A: only float32 and types of 16 bits"},
        Planted{"tf32", [](Described& s) { s.compute = 77; }, 15, "without TF32"},
        Planted{"row_major", [](Described& s) { s.d.order = cuda::blas_order_rows; }, 15, "D: only column-major"},
        Planted{"another_batch", [](Described& s) { s.b.batch = 1; }, 7, "batches of different lengths"},
        Planted{"results_over_each_other", [](Described& s) { s.d.stride = 32 * 48 - 1; }, 7, "lie over each other"},
        Planted{"no_stride_of_the_result", [](Described& s) { s.d.stride = 0; }, 7, "lie over each other"},
        Planted{"epilogue_without_its_operand", [](Described& s) { s.epilogue = cuda::blas_epilogue_bias; }, 7,
                "a bias and no bias"},
        Planted{"bias_misaligned",
                [](Described& s) { s.epilogue = cuda::blas_epilogue_bias, s.bias = 0x1000'0000'0002; }, 7,
                "a bias and no bias"},
        Planted{"unknown_epilogue", [](Described& s) { s.epilogue = 3; }, 15, "epilogue 3"},
        Planted{"nothing", [](Described& s) { s.a.rows = 0; }, 7, "a size that is zero"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(BlasLt, AWorkspaceThatIsTooSmallOrMisaligned) {
  Described setup = product(64, 64, 512);
  setup.workspace_limit = 1 << 20;
  describe(setup);
  ASSERT_EQ(choose(setup), 0);
  const Address at_a = rig.upload(numbers(64 * 512, 1)), at_b = rig.upload(numbers(64 * 512, 2)),
                at_d = rig.allocate(4 * 64 * 64), workspace = rig.allocate(choice.workspace_bytes + 16);
  workspace_bytes = choice.workspace_bytes - 1;
  EXPECT_EQ(multiply(at_a, at_b, at_d, workspace), 7);
  EXPECT_NE(rig.last_error().find("needs a workspace of 65536 bytes and is given 65535"), std::string::npos);
  workspace_bytes = choice.workspace_bytes;
  EXPECT_EQ(multiply(at_a, at_b, at_d, workspace + 4), 7);
  EXPECT_EQ(multiply(at_a, at_b, at_d, 0), 7);
  EXPECT_EQ(multiply(at_a, at_b, at_d, workspace), 0) << rig.last_error();
  EXPECT_EQ(synchronize(), 0) << rig.findings();
}

TEST_F(BlasLt, PointersThatTheAlgorithmDoesNotTake) {
  const Described setup = product(32, 48, 64);
  describe(setup);
  ASSERT_EQ(choose(setup), 0);
  const Address at_a = rig.upload(numbers(32 * 64 + 4, 1)), at_b = rig.upload(numbers(48 * 64, 2)),
                at_d = rig.allocate(4 * 32 * 48);
  EXPECT_EQ(multiply(at_a + 4, at_b, at_d), 7);
  EXPECT_NE(rig.last_error().find("A is not aligned to 16 bytes"), std::string::npos) << rig.last_error();
  EXPECT_EQ(multiply(at_a, at_b, 0), 7);
  alpha = reinterpret_cast<const float*>(at_a);
  EXPECT_EQ(multiply(at_a, at_b, at_d), 7);
  EXPECT_NE(rig.last_error().find("an address of a device"), std::string::npos) << rig.last_error();
  alpha = &one;
  EXPECT_EQ(multiply(at_a + 32, at_b, at_d), 13) << "past the end of A";
  choice.algorithm = {};
  EXPECT_EQ(multiply(at_a, at_b, at_d), 7);
  EXPECT_NE(rig.last_error().find("no algorithm of this library"), std::string::npos) << rig.last_error();
}

TEST_F(BlasLt, OperandsOf16BitsThatLieAtAnOddElement) {
  Described setup = product(32, 48, 64);
  setup.a.type = setup.b.type = cuda::blas_bf16;
  describe(setup);
  ASSERT_EQ(choose(setup), 0) << rig.last_error();
  std::vector<float> of_a = numbers(32 * 64 + 8, 1), of_b = numbers(48 * 64, 2);
  const Address at_a = upload(of_a, cuda::blas_bf16), at_b = upload(of_b, cuda::blas_bf16),
                at_d = rig.allocate(4 * 32 * 48 + 4);
  EXPECT_EQ(multiply(at_a + 2, at_b, at_d), 7);
  EXPECT_NE(rig.last_error().find("A is not aligned to 16 bytes"), std::string::npos) << rig.last_error();
  // Odd leading dimensions are for the algorithm that takes any.
  for (cuda::BlasLayout one : {a, b, c, d}) must(blas->destroy_layout(one));
  must(blas->destroy_operation(operation));
  Described odd = product(31, 47, 63);
  odd.a.type = odd.b.type = cuda::blas_bf16;
  describe(odd);
  ASSERT_EQ(choose(odd), 0) << rig.last_error();
  EXPECT_EQ(multiply(at_a + 2, at_b, at_d + 2), 7) << "the result is float32";
  EXPECT_NE(rig.last_error().find("is not aligned to 4 bytes"), std::string::npos) << rig.last_error();
  EXPECT_EQ(multiply(at_a + 2, at_b, at_d), 0) << rig.last_error();
  EXPECT_EQ(synchronize(), 0) << rig.findings();
}

TEST_F(BlasLt, DescriptorsThatAreNone) {
  describe(product(32, 48, 64));
  EXPECT_EQ(blas->set_layout(a, cuda::layout_leading, &one, 4), 7);
  EXPECT_NE(rig.last_error().find("LD has 8 bytes and is given 4"), std::string::npos) << rig.last_error();
  EXPECT_EQ(blas->set_layout(a, 99, &one, 4), 7);
  EXPECT_EQ(blas->destroy_layout(reinterpret_cast<cuda::BlasLayout>(operation)), 7);
  must(blas->destroy_layout(a));
  EXPECT_EQ(choose({}), 7);
  EXPECT_NE(rig.last_error().find("the layout of A is none"), std::string::npos) << rig.last_error();
  a = nullptr;
}

TEST_F(BlasLt, AHandleOfAnotherDevice) {
  describe(product(32, 48, 64));
  void *context = nullptr, *popped = nullptr;
  rig.must("cuDevicePrimaryCtxRetain", &context, 1);
  rig.must("cuCtxPushCurrent_v2", context);
  EXPECT_EQ(choose({}), 7);
  EXPECT_NE(rig.last_error().find("of device 0, and device 1 is current"), std::string::npos) << rig.last_error();
  rig.must("cuCtxPopCurrent_v2", &popped);
}

TEST_F(BlasLt, OperandsThatNobodyHasWritten) {
  const Described setup = product(32, 48, 64);
  describe(setup);
  ASSERT_EQ(choose(setup), 0);
  EXPECT_EQ(multiply(rig.allocate(4 * 32 * 64), rig.upload(numbers(48 * 64, 2)), rig.allocate(4 * 32 * 48)), 0);
  EXPECT_EQ(synchronize(), 719);
  EXPECT_NE(rig.findings().find("a product of cuBLASLt reads device memory that nobody has written"), std::string::npos)
      << rig.findings();
}

TEST_F(BlasLt, TwoStreamsWithoutAWait) {
  Described setup = product(64, 64, 512);
  setup.workspace_limit = 1 << 20;
  for (const bool waits : {true, false}) {
    describe(setup);
    ASSERT_EQ(choose(setup), 0);
    workspace_bytes = choice.workspace_bytes;
    void *other = rig.stream(), *event = rig.event();
    const Address at_a = rig.upload(numbers(64 * 512, 1)), at_b = rig.upload(numbers(64 * 512, 2)),
                  workspace = rig.allocate(workspace_bytes);
    ASSERT_EQ(multiply(at_a, at_b, rig.allocate(4 * 64 * 64), workspace), 0) << rig.last_error();
    rig.must("cuEventRecord", event, stream);
    if (waits) rig.must("cuStreamWaitEvent", other, event, 0u);
    ASSERT_EQ(multiply(at_a, at_b, rig.allocate(4 * 64 * 64), workspace, other), 0) << rig.last_error();
    const int code = rig.call("cuStreamSynchronize", other);
    if (waits) {
      EXPECT_EQ(code, 0) << rig.findings();
    } else {
      EXPECT_EQ(rig.call("cuStreamSynchronize", stream) == 0 && code == 0, false) << "the workspace is shared";
      EXPECT_NE(rig.findings().find("race: a product of cuBLASLt writes"), std::string::npos) << rig.findings();
    }
  }
}

TEST_F(BlasLt, ACallThatFailsIsADevicesFailure) {
  rig.set("launch_fails=1");
  ASSERT_EQ(run(product(32, 48, 64)), 0);
  EXPECT_EQ(synchronize(), 719);
  EXPECT_NE(rig.findings().find("a product of cuBLASLt fails"), std::string::npos) << rig.findings();
}

}  // namespace
}  // namespace epl::blas_lt_test
