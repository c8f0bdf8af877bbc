// Problems that several tests search plans for.
#pragma once

#include <string>

#include "core/base/text.h"
#include "core/strategy/search.h"

namespace epl {

// A GPT on GPUs with 80 GB, eight to a host. Splits are over ranks of a host, with sums of results behind each of two
// parts of a layer, forward and backward. Results and products have 16 bits.
inline SearchProblem gpt_on_gpus(int layers, double width, int64_t ranks, int64_t batch) {
  constexpr double positions = 2048, words = 51200, flops = 400e12, link = 200e9;
  Machine machine = processor_core();
  machine.links = {{.ranks = 8, .bandwidth = link, .seconds = 5e-6}, {.ranks = 0, .bandwidth = 40e9, .seconds = 1e-5}};
  machine.memories = {{Machine::Memory::Kind::device, 2e12}, {Machine::Memory::Kind::host, 40e9}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = ranks;
  problem.batch = batch;
  problem.bytes = 80e9;
  problem.layers.assign(static_cast<size_t>(layers) + 2, 1);
  problem.layers.front() = 0;
  problem.layers.back() = 2;
  for (const double split : {1.0, 2.0, 4.0, 8.0}) {
    const double result = 2 * positions * width, sum = 2 * result * (split - 1) / split / link;
    const double forward = (24 * width * width * positions + 4 * width * positions * positions) / flops / split;
    const PerCall once{1e-4, forward + 2 * sum}, back{2e-4, 2 * forward + 2 * sum};
    SearchLayer layer{.forward = once,
                      .backward = back,
                      .weights = 4 * 12 * width * width / split,
                      .kept = 17 * result / split + 2 * result};
    layer.working = 8 * result / split;
    layer.enters = result;
    layer.again = {{{2e-5, 0.1 * forward}, 0.6 * layer.kept}, {once, result}};
    SearchLayer embedding{.forward = {1e-5, result / 1e12},
                          .backward = {1e-5, result / 1e12},
                          .weights = 4 * words * width / split,
                          .kept = result};
    const double scores = 2 * words * width * positions / flops / split;
    SearchLayer head{.forward = {1e-5, scores},
                     .backward = {1e-5, 2 * scores},
                     .weights = embedding.weights,
                     .kept = 2 * words * positions / split};
    head.working = head.kept;
    head.enters = result;
    const std::string name = split > 1 ? cat("split of ", static_cast<int>(split)) : std::string();
    problem.forms.push_back({.name = name, .ranks = static_cast<int64_t>(split), .kinds = {embedding, layer, head}});
  }
  return problem;
}

// So many layers that take a second for each sample, and a tenth once, so that fewer calls are faster.
inline SearchProblem seconds_of_samples(int layers, int64_t ranks, int64_t units = 0) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 1e9, .seconds = 0.01}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = ranks;
  problem.batch = 64;
  problem.units = units;
  problem.layers.assign(static_cast<size_t>(layers), 0);
  const SearchLayer layer{.forward = {0.1, 1}, .backward = {0.1, 2}};
  problem.forms = {{.name = "", .kinds = {layer}}};
  return problem;
}

}  // namespace epl
