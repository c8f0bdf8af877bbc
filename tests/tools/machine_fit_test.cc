// A machine that is known is measured without a machine: the fit gives back its numbers, and noise moves them little.
#include "tools/machine_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/backend/cost_model.h"
#include "tools/api.h"

namespace epl::machine_fit_test {
namespace {

using tools::FittedMachine;
using tools::KernelMeasure;
using tools::Measures;

constexpr double launch = 0.8e-6, products = 55e9, elementwise = 30e9, bandwidth = 9e9, link = 3e9, latency = 2.5e-6;

Machine known_machine() {
  return {.name = "known",
          .rates = {{DType::f32, WorkKind::product, products}, {DType::f32, WorkKind::elementwise, elementwise}},
          .memories = {{MemoryKind::device, bandwidth}, {MemoryKind::host, bandwidth}},
          .links = {{.ranks = 0, .bandwidth = link, .seconds = latency}},
          .launch_seconds = launch};
}

// Between 1 - most and 1 + most, the same sequence each time.
class Noise {
 public:
  explicit Noise(double most) : most_(most) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return 1 + most_ * (2 * static_cast<double>(state_ >> 11) / 9007199254740992.0 - 1);
  }

 private:
  double most_;
  uint64_t state_ = 7;
};

// As the engine's own cost model has it: square and thin products, and elementwise work in and out of caches.
Measures measures_of(const CostModel& cost, double noise) {
  Noise random(noise);
  Measures made;
  const auto add = [&](bool product, double flops, double bytes) {
    Work work{.dtype = DType::f32, .flops = flops, .bytes = bytes};
    work.results = product ? 1 : flops;  // so that it is of this kind
    EXPECT_EQ(work.kind() == WorkKind::product, product);
    made.kernels.push_back({"", product, flops, bytes, cost.kernel(work) * random.next()});
  };
  for (double n = 64; n <= 1024; n += 64) {
    add(true, 2 * n * n * n, 3 * 4 * n * n);
    add(true, 2 * 8 * n * n, 4 * (n * n + 16 * n));
    add(false, n * n, 8 * n * n);
    add(false, 24 * n * n, 4 * n * n);
  }
  for (double n = 4; n <= 64; n += 4) add(false, n, 8 * n);
  for (double bytes = 64; bytes <= 1 << 24; bytes *= 2) {
    const double seconds = cost.collective(Collective::Kind::all_reduce, RankGroup::of_first(2), bytes);
    made.messages.push_back({bytes, seconds * random.next()});
  }
  return made;
}

void expect_known(const FittedMachine& fitted, double within) {
  EXPECT_NEAR(fitted.launch_seconds, launch, within * launch);
  EXPECT_NEAR(fitted.products, products, within * products);
  EXPECT_NEAR(fitted.elementwise, elementwise, within * elementwise);
  EXPECT_NEAR(fitted.bandwidth, bandwidth, within * bandwidth);
  EXPECT_NEAR(fitted.link_seconds, latency, within * latency);
  EXPECT_NEAR(fitted.link_bandwidth, link, within * link);
}

TEST(MachineFit, GivesBackAKnownMachine) {
  const FittedMachine fitted = tools::fit_machine(measures_of(CostModel(known_machine()), 0));
  expect_known(fitted, 1e-3);
  EXPECT_LT(fitted.error_90th, 1e-3);
}

TEST(MachineFit, NoiseMovesItLittle) {
  const FittedMachine fitted = tools::fit_machine(measures_of(CostModel(known_machine()), 0.2));
  expect_known(fitted, 0.15);
  EXPECT_GT(fitted.error, 0.03);
  EXPECT_LT(fitted.error_90th, 0.4);
}

TEST(MachineFit, WhatWasDisturbedDoesNotCount) {
  Measures measures = measures_of(CostModel(known_machine()), 0);
  for (size_t i = 0; i < measures.kernels.size(); i += 10) measures.kernels[i].seconds *= 50;
  expect_known(tools::fit_machine(measures), 0.05);
}

TEST(MachineFit, WhatWasNotMeasuredIsSaid) {
  const Measures all = measures_of(CostModel(known_machine()), 0);
  for (const bool product : {true, false}) {
    Measures some = all;
    std::erase_if(some.kernels, [&](const KernelMeasure& one) { return one.product == product; });
    EXPECT_THROW(tools::fit_machine(some), tools::UsageError);
  }
  Measures large = all, alone = all;
  std::erase_if(large.kernels, [](const KernelMeasure& one) { return one.bytes <= 4096; });
  EXPECT_THROW(tools::fit_machine(large), tools::UsageError);
  alone.messages.clear();
  const FittedMachine fitted = tools::fit_machine(alone);
  EXPECT_EQ(fitted.link_bandwidth, 0);
  EXPECT_NEAR(fitted.bandwidth, bandwidth, 1e-3 * bandwidth);
}

}  // namespace
}  // namespace epl::machine_fit_test
