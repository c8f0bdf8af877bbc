// Steps with states in bf16, in one pass, give the bits of the op's meaning: wherever a shard begins, in place, with
// what is not finite, and where a parameter is held.
#include <limits>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::optimizer_bf16_test {
namespace {

struct Case {
  std::string op;
  int states, scalars;
  Attributes attributes;
};

std::vector<Case> cases(double weight_decay) {
  const Attributes adam = {
      {"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", weight_decay}, {"holds", true}};
  const auto momentum = [&](bool nesterov) {
    return Attributes{{"momentum", 0.9}, {"nesterov", nesterov}, {"weight_decay", weight_decay}, {"holds", true}};
  };
  return {{"momentum_bf16", 1, 2, momentum(false)},
          {"momentum_bf16", 1, 2, momentum(true)},
          {"rmsprop_bf16", 1, 1, {{"alpha", 0.99}, {"epsilon", 1e-8}, {"weight_decay", weight_decay}, {"holds", true}}},
          {"adagrad_bf16", 1, 1, {{"epsilon", 1e-10}, {"weight_decay", weight_decay}, {"holds", true}}},
          {"adam_bf16", 2, 3, adam},
          {"adamw_bf16", 2, 3, adam}};
}

Tensor number(double value) {
  Tensor t(TensorType{DType::f32, {}});
  t.set(0, value);
  return t;
}

Tensor halves(const Tensor& from) {
  Tensor t(TensorType{DType::bf16, from.shape()});
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, from.get(i));
  return t;
}

Tensor counted(Shape shape, int64_t first) {
  Tensor t(TensorType{DType::i32, std::move(shape)});
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, first + i);
  return t;
}

// A shard of rows from `first_row` on and of columns from `first_column` on.
Launch launch_of(const Case& one, int64_t rows, int64_t columns, double rate, int64_t first_row = 0,
                 int64_t first_column = 0) {
  const Shape shape{rows, columns};
  Launch out{.op = one.op, .attributes = one.attributes};
  out.inputs = {random_f32(shape, 1), random_f32(shape, 2)};
  out.outputs = {out.inputs[0].type()};
  for (int k = 0; k < one.states; ++k) {
    out.inputs.push_back(halves(random_f32(shape, static_cast<uint64_t>(3 + k), 0, 2)));
    out.outputs.push_back(out.inputs.back().type());
  }
  const double scalars[] = {rate, 0.19, 0.002};
  for (int k = 0; k < one.scalars; ++k) out.inputs.push_back(number(scalars[k]));
  out.inputs.push_back(counted({rows, 1}, first_row));
  out.inputs.push_back(counted({1, columns}, first_column));
  out.inputs.push_back(Tensor::from_ints({123456789012345}));
  out.inputs.back() = out.inputs.back().reshaped({});
  return out;
}

std::vector<Tensor> meaning_of(const Launch& launch) {
  auto made = evaluate_op(op_named(launch.op), launch.attributes, launch.inputs);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : std::vector<Tensor>(launch.outputs.size());
}

void expect_identical(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(identical(got[o], want[o])) << what << ", output " << o;
}

TEST(OptimizerBf16, HasTheBitsOfItsMeaning) {
  for (const double weight_decay : {0.0, 0.1}) {
    for (const Case& one : cases(weight_decay)) {
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {3, 1}, {1, 7}, {5, 33}, {7, 1000}, {70, 1003}}) {
        const Launch launch = launch_of(one, rows, columns, 0.03, 11, 6);
        expect_identical(launch_everywhere(launch), meaning_of(launch), cat(one.op, " ", rows, " x ", columns));
      }
    }
  }
}

TEST(OptimizerBf16, RunsOverItsOperands) {
  for (const Case& one : cases(0.1)) {
    Launch launch = launch_of(one, 9, 77, 0.03);
    const std::vector<Tensor> want = meaning_of(launch);
    launch.aliases = {{0, 0}};
    for (int k = 0; k < one.states; ++k) launch.aliases.emplace_back(2 + k, 1 + k);
    expect_identical(launch_kernel(launch), want, one.op);
  }
}

TEST(OptimizerBf16, LeavesAHeldParameterAlone) {
  for (const Case& one : cases(0.1)) {
    const Launch launch = launch_of(one, 9, 77, -1);
    const std::vector<Tensor> got = launch_kernel(launch);
    expect_identical(got, meaning_of(launch), one.op);
    EXPECT_TRUE(identical(got[0], launch.inputs[0]));
    for (int k = 0; k < one.states; ++k) EXPECT_TRUE(identical(got[1 + k], launch.inputs[2 + k])) << one.op;
  }
}

// Columns that a cut into granules or padding leaves in any order.
TEST(OptimizerBf16, TakesColumnsInAnyOrder) {
  for (const Case& one : cases(0.1)) {
    Launch launch = launch_of(one, 4, 90, 0.03);
    Tensor& columns = launch.inputs[launch.inputs.size() - 2];
    for (int64_t i = 0; i < 90; ++i) columns.set_int(i, i < 30 ? i : i < 70 ? 500 + i : i < 80 ? 90 - i : 0);
    expect_identical(launch_everywhere(launch), meaning_of(launch), one.op);
  }
}

TEST(OptimizerBf16, RoundsWhatIsNotFiniteAsItIs) {
  const double odd[] = {std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN(),
                        3.3e38,
                        1e-39,
                        0.0,
                        -0.0};
  for (const Case& one : cases(0)) {
    Launch launch = launch_of(one, 3, 40, 0.03);
    for (int64_t i = 0; i < 100; ++i) launch.inputs[i % 2 == 0 ? 1 : 2].set(i, odd[i % 7]);
    const std::vector<Tensor> got = launch_kernel(launch), want = meaning_of(launch);
    for (size_t o = 0; o < want.size(); ++o) {
      for (int64_t i = 0; i < want[o].elements(); ++i) {
        const double a = got[o].get(i), b = want[o].get(i);
        EXPECT_TRUE((std::isnan(a) && std::isnan(b)) || a == b) << one.op << ", output " << o << ", " << i;
      }
    }
  }
}

// What a rank has of a tensor is what one rank has there: a shard of rows, of columns, or of both.
TEST(OptimizerBf16, RoundsShardsAsTheFullTensor) {
  for (const Case& one : cases(0.1)) {
    const Launch full = launch_of(one, 12, 70, 0.03);
    const std::vector<Tensor> want = launch_kernel(full);
    for (const auto& [row, column] : {std::pair<int64_t, int64_t>{0, 0}, {4, 0}, {0, 21}, {8, 33}}) {
      Launch shard = launch_of(one, 4, 30, 0.03, row, column);
      const auto take = [&, r = row, c = column](const Tensor& from, Tensor& to) {
        for (int64_t i = 0; i < 120; ++i) to.set(i, from.get((r + i / 30) * 70 + c + i % 30));
      };
      for (int i = 0; i < 2 + one.states; ++i) take(full.inputs[i], shard.inputs[i]);
      const std::vector<Tensor> got = launch_kernel(shard);
      for (size_t o = 0; o < want.size(); ++o) {
        Tensor there(got[o].type());
        take(want[o], there);
        EXPECT_TRUE(identical(got[o], there)) << one.op << " from " << row << ", " << column << ", output " << o;
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::optimizer_bf16_test
