// A roofline with a launch before it. Which side of it a kernel is on follows from the numbers, and the numbers follow
// from the kernels on each side, so both are found in turns.
#include "tools/machine_fit.h"

#include <algorithm>
#include <cmath>

#include "tools/api.h"

namespace epl::tools {
namespace {

constexpr int turns = 40;
constexpr double small_bytes = 4096, large_bytes = 65536;
constexpr double least_seconds = 1e-9;  // of a launch and of a message, below what a clock tells
constexpr double least_error = 1e-4;
constexpr double above_launch = 4;  // times a launch, from where on a kernel says something of rates

bool computes(const FittedMachine& machine, const KernelMeasure& one) {
  return one.flops / (one.product ? machine.products : machine.elementwise) >= one.bytes / machine.bandwidth;
}

double work_seconds(const FittedMachine& machine, const KernelMeasure& one) {
  return std::max(one.flops / (one.product ? machine.products : machine.elementwise), one.bytes / machine.bandwidth);
}

// The fastest of each kind shows its rate. Memory is as fast as the elementwise work that this share is slower than.
FittedMachine first_guess(const std::vector<KernelMeasure>& kernels, double share) {
  FittedMachine guess;
  std::vector<double> moved;
  for (const KernelMeasure& one : kernels) {
    double& rate = one.product ? guess.products : guess.elementwise;
    rate = std::max(rate, one.flops / one.seconds);
    if (!one.product) moved.push_back(one.bytes / one.seconds);
  }
  guess.bandwidth = middle_of(moved, share);
  if (guess.products <= 0) throw UsageError("nothing was measured of products: more --seconds may help");
  if (guess.elementwise <= 0 || guess.bandwidth <= 0)
    throw UsageError("nothing was measured of elementwise work: more --seconds may help");
  return guess;
}

void fit_rates(const std::vector<KernelMeasure>& kernels, FittedMachine& machine) {
  std::vector<double> products, elementwise, moved;
  for (const KernelMeasure& one : kernels) {
    const double working = one.seconds - machine.launch_seconds;
    if (one.seconds < above_launch * machine.launch_seconds || working <= 0) continue;
    if (!computes(machine, one)) {
      moved.push_back(one.bytes / working);
    } else {
      (one.product ? products : elementwise).push_back(one.flops / working);
    }
  }
  // A side that no kernel is on stays as it was.
  if (!products.empty()) machine.products = middle_of(products);
  if (!elementwise.empty()) machine.elementwise = middle_of(elementwise);
  if (!moved.empty()) machine.bandwidth = middle_of(moved);
}

void fit_launch(const std::vector<KernelMeasure>& kernels, FittedMachine& machine) {
  std::vector<double> launches;
  for (const KernelMeasure& one : kernels) {
    if (one.bytes <= small_bytes) launches.push_back(one.seconds - work_seconds(machine, one));
  }
  if (launches.empty()) throw UsageError("nothing was measured of small kernels: more --seconds may help");
  machine.launch_seconds = std::max(middle_of(launches), least_seconds);
}

std::vector<double> errors_of(const std::vector<KernelMeasure>& kernels, const FittedMachine& machine) {
  std::vector<double> errors;
  for (const KernelMeasure& one : kernels) errors.push_back(std::abs(machine.seconds(one) / one.seconds - 1));
  return errors;
}

// Taking turns ends at one of several answers, so that it begins in several ways.
FittedMachine fit_kernels(const std::vector<KernelMeasure>& kernels) {
  FittedMachine best;
  double least = 0;
  for (const double share : {1.0, 0.75, 0.5}) {
    FittedMachine machine = first_guess(kernels, share);
    for (int turn = 0; turn < turns; ++turn) {
      fit_launch(kernels, machine);
      fit_rates(kernels, machine);
    }
    const std::vector<double> errors = errors_of(kernels, machine);
    const double error = middle_of(errors) + middle_of(errors, 0.9);
    if (best.products > 0 && error >= least) continue;
    best = machine;
    least = error;
  }
  return best;
}

void fit_link(const std::vector<MessageMeasure>& messages, FittedMachine& machine) {
  const auto is_small = [](const MessageMeasure& one) { return one.bytes <= small_bytes; };
  const auto is_large = [](const MessageMeasure& one) { return one.bytes >= large_bytes; };
  if (std::none_of(messages.begin(), messages.end(), is_small)) return;
  if (std::none_of(messages.begin(), messages.end(), is_large)) return;
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<double> latencies, rates;
    for (const MessageMeasure& one : messages) {
      const double moving = one.seconds - machine.link_seconds;
      if (is_large(one)) rates.push_back(one.bytes / std::max(moving, one.seconds / 10));
    }
    machine.link_bandwidth = middle_of(rates);
    for (const MessageMeasure& one : messages) {
      if (is_small(one)) latencies.push_back(one.seconds - one.bytes / machine.link_bandwidth);
    }
    machine.link_seconds = std::max(middle_of(latencies), least_seconds);
  }
}

}  // namespace

double middle_of(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

double FittedMachine::seconds(const KernelMeasure& kernel) const {
  return launch_seconds + work_seconds(*this, kernel);
}

double FittedMachine::seconds(const MessageMeasure& message) const {
  return link_seconds + message.bytes / link_bandwidth;
}

FittedMachine fit_machine(const Measures& measures) {
  FittedMachine machine = fit_kernels(measures.kernels);
  fit_link(measures.messages, machine);
  std::vector<double> errors = errors_of(measures.kernels, machine);
  if (machine.link_bandwidth > 0) {
    for (const MessageMeasure& one : measures.messages)
      errors.push_back(std::abs(machine.seconds(one) / one.seconds - 1));
  }
  machine.error = std::max(middle_of(errors), least_error);
  machine.error_90th = std::max(middle_of(errors, 0.9), least_error);
  return machine;
}

}  // namespace epl::tools
