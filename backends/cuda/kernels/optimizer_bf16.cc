// Steps of optimizers with states in bf16, rounded at random (core/ops/optimizer_bf16.cc).
#include <bit>

#include "backends/cuda/generate/program.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

// The formula as the text writes it, and its numbers in their order there.
struct Formula {
  std::string_view type;
  int states, scalars;
  std::initializer_list<std::string_view> numbers;
  std::string_view flag = {};
};

std::string step_text(const Query& q, const Formula& f) {
  std::string values;
  for (const std::string_view name : f.numbers)
    values +=
        cat(values.empty() ? "" : ", ", "__builtin_bit_cast(double, ", std::bit_cast<int64_t>(q.number(name)), "LL)");
  if (!f.flag.empty()) values += q.flag(f.flag) ? ", true" : ", false";
  return cat("  const epl::update::", f.type, " step{", values, "};\n");
}

Result<Kernel> step(const Query& q, const Formula& f) {
  const int scalar = 2 + f.states, rows = scalar + f.scalars;
  for (int o = 0; o < 1 + f.states; ++o) EPL_TRY(require(q.has_output(o), "a result that nobody wants"));
  const int64_t n = q.in(0).elements(), width = q.in(rows + 1).elements();
  Kernel kernel;
  kernel.aliases = {{0, 0}};
  for (int k = 0; k < f.states; ++k) kernel.aliases.push_back({2 + k, 1 + k});
  if (n == 0) return kernel;
  std::string parameters, stored, scalars;
  std::vector<Argument> arguments = {input(0), input(1), output(0)};
  for (int k = 0; k < f.states; ++k) {
    parameters += cat(", const unsigned short* old", k, ", unsigned short* next", k);
    stored += cat(k > 0 ? ", " : "", "{old", k, ", next", k, "}");
    arguments.push_back(input(2 + k));
    arguments.push_back(output(1 + k));
  }
  for (int k = 0; k < f.scalars; ++k) {
    parameters += cat(", const float* scalar", k);
    scalars += cat(k > 0 ? ", " : "", "{*scalar", k, "}");
    arguments.push_back(input(scalar + k));
  }
  for (int k = 0; k < 3; ++k) arguments.push_back(input(rows + k));
  const std::string body =
      cat("extern \"C\" __global__ void rounded(const float* parameter, const float* gradient, float* parameter_new",
          parameters, ",\n    const int* rows, const int* columns, const long long* key) {\n", thread_head(n),
          step_text(q, f), "  const StoredState stored[] = {", stored, "};\n  const Number scalars[] = {", scalars,
          "};\n  const bool held = ", q.flag("holds") ? "scalars[0].value < 0" : "false",
          ";\n  rounded_step(step, t, parameter, gradient, stored, scalars, (unsigned)rows[t / ", width,
          "], (unsigned)columns[t % ", width, "], (unsigned long long)*key, held, parameter_new);\n}\n");
  kernel.launches.push_back(
      launch_threads(program({"backends/cuda/text/update.cuh"}, body), "rounded", n, std::move(arguments)));
  return kernel;
}

constexpr std::string_view decay = "weight_decay";
Result<Kernel> momentum(const Query& q) { return step(q, {"Momentum", 1, 2, {"momentum", decay}, "nesterov"}); }
Result<Kernel> rmsprop(const Query& q) { return step(q, {"Rmsprop", 1, 1, {"alpha", "epsilon", decay}}); }
Result<Kernel> adagrad(const Query& q) { return step(q, {"Adagrad", 1, 1, {"epsilon", decay}}); }
Result<Kernel> adam(const Query& q) { return step(q, {"Adam", 2, 3, {"beta1", "beta2", "epsilon", decay}}); }
Result<Kernel> adamw(const Query& q) { return step(q, {"Adamw", 2, 3, {"beta1", "beta2", "epsilon", decay}}); }

}  // namespace

Rows optimizer_bf16_rows() {
  return {{"momentum_bf16", "rounded_step", f32, momentum},
          {"rmsprop_bf16", "rounded_step", f32, rmsprop},
          {"adagrad_bf16", "rounded_step", f32, adagrad},
          {"adam_bf16", "rounded_step", f32, adam},
          {"adamw_bf16", "rounded_step", f32, adamw}};
}

}  // namespace epl::cuda
