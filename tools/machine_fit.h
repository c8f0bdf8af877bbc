// The numbers of a machine from what was measured on it: the least that core/backend/cost_model.h needs to give the
// seconds that were measured.
#pragma once

#include <string>
#include <vector>

namespace epl::tools {

// A kernel takes a launch, and then the longer of computing and moving.
struct KernelMeasure {
  std::string probe;     // what it was measured for: a class of shapes
  bool product = false;  // which rate it has
  double flops = 0, bytes = 0, seconds = 0;
};

// Of two ranks: a message, and any collective call, takes a latency and its bytes.
struct MessageMeasure {
  double bytes = 0, seconds = 0;  // that one rank contributes
};

struct Measures {
  std::vector<KernelMeasure> kernels;
  std::vector<MessageMeasure> messages;  // none: the link stays unknown
};

struct FittedMachine {
  double launch_seconds = 0, products = 0, elementwise = 0, bandwidth = 0;
  double link_seconds = 0, link_bandwidth = 0;  // 0: unknown
  double error = 0, error_90th = 0;             // of all measures, as a share

  double seconds(const KernelMeasure& kernel) const;
  double seconds(const MessageMeasure& message) const;
};

// Each number is a median, so that a few measures that something disturbed do not count. A UsageError where a kind of
// measure is missing.
FittedMachine fit_machine(const Measures& measures);

double middle_of(std::vector<double> values, double share = 0.5);  // 0 of none

}  // namespace epl::tools
