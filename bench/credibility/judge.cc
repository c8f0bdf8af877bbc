// A published plan as a candidate of the search, and the search for a better one.
#include "bench/credibility/judge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "core/strategy/search.h"

namespace epl::credibility {
namespace {

SearchProblem problem_of_row(const Book& book, const Row& row, double samples, std::span<const int64_t> tensor_ranks) {
  Machine machine = book.machines.at(row.machine);
  if (row.network > 0) machine.links.back().bandwidth = row.network;
  for (Machine::Memory& memory : machine.memories)
    if (memory.kind == MemoryKind::device && row.memory > 0) memory.bandwidth = row.memory;
  SearchProblem problem =
      problem_of(row.sizes, book.software.at(row.software), row.training, machine, samples, tensor_ranks);
  problem.ranks = row.ranks;
  problem.batch = row.batch;
  return problem;
}

// Published stages have as many layers each, the first one the embedding too, and the last one the head.
std::vector<int> even_begins(int64_t layers, int64_t runs) {
  std::vector<int> begins = {0};
  for (int64_t r = 1; r < runs; ++r) begins.push_back(static_cast<int>(1 + r * layers / runs));
  return begins;
}

const PipelineRow* schedule_of(const Row& row) {
  if (row.stages == 1) return &one_stage();
  return find_pipeline(row.chunks > 1 ? "interleaved" : "1F1B");
}

bool is_of(const SearchCandidate& found, const SearchProblem& problem, const Row& row) {
  return problem.forms[found.form].ranks == row.tensor && found.stages == row.stages && found.copies == row.copies &&
         found.micro_batches == row.micro_batches() && found.chunks == row.chunks && found.shards == row.shards;
}

struct Pick {
  const Row* row = nullptr;
  double seconds = 0;
};

// The fastest plans are asked for first, and more of them until one was measured.
Pick first_measured(const SearchProblem& problem, const SearchSpace& space, const std::vector<const Row*>& rows,
                    double samples) {
  for (size_t count = 4; count <= 4096; count *= 4) {
    const SearchResult result = search_plans(problem, space, {.count = count});
    for (const SearchFound& found : result.best) {
      const auto measured = std::ranges::find_if(
          rows, [&](const Row* row) { return row->samples == samples && is_of(found.candidate, problem, *row); });
      if (measured != rows.end()) return {*measured, found.cost.seconds};
    }
    if (result.best.size() < count) break;
  }
  return {};
}

// Ways to cut are open; of a number of samples for a call, of micro-batches and of shards the search has one at a time.
// Calls of another number of samples take another time for each sample, and a search keeps one plan of those that
// differ in the other two, which may not be the one that was measured.
const Row* search(const Book& book, const std::vector<const Row*>& rows) {
  std::set<std::tuple<double, int64_t, SearchShards>> sizes;
  std::set<int64_t> tensor, stages, chunks;
  for (const Row* row : rows) {
    sizes.emplace(row->samples, row->micro_batches(), row->shards);
    tensor.insert(row->tensor);
    stages.insert(row->stages);
    chunks.insert(row->chunks);
  }
  const std::vector<int64_t> forms(tensor.begin(), tensor.end());
  SearchSpace space{.rows = {find_pipeline("1F1B"), find_pipeline("interleaved")},
                    .stages = {stages.begin(), stages.end()},
                    .chunks = {chunks.begin(), chunks.end()},
                    .offload = {SearchOffload::nothing}};
  Pick pick;
  for (const auto& [samples, micro_batches, shards] : sizes) {
    space.micro_batches = {micro_batches};
    space.shards = {shards};
    const Pick found = first_measured(problem_of_row(book, *rows.front(), samples, forms), space, rows, samples);
    if (found.row != nullptr && (pick.row == nullptr || found.seconds < pick.seconds)) pick = found;
  }
  return pick.row;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;  // ties share
    begin = end;
  }
  return ranks;
}

// The value below which this share of them lies.
double quantile(std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Result<Prediction> predict(const Book& book, const Row& row) {
  const int64_t tensor[] = {row.tensor};
  const SearchProblem problem = problem_of_row(book, row, row.samples, tensor);
  SearchCandidate plan{.row = schedule_of(row),
                       .stages = static_cast<int>(row.stages),
                       .chunks = static_cast<int>(row.chunks),
                       .copies = row.copies,
                       .micro_batches = row.micro_batches(),
                       .shards = row.copies == 1 ? SearchShards::nothing : row.shards,
                       .begins = even_begins(row.sizes.layers, row.stages * row.chunks),
                       .again = std::vector<int>(problem.layers.size(), 0)};
  if (!is_possible(problem, plan)) return invalid(row.name, " is no plan of the search");
  const SearchCost cost = cost_of(problem, plan);
  return Prediction{cost.seconds, cost.bytes};
}

Errors errors_of(std::vector<double> relative) {
  Errors errors{.count = relative.size()};
  if (relative.empty()) return errors;
  std::ranges::sort(relative);
  errors.bias = quantile(relative, 0.5);
  for (double& one : relative) one = std::abs(one);
  std::ranges::sort(relative);
  errors.median = quantile(relative, 0.5);
  errors.p90 = quantile(relative, 0.9);
  return errors;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double middle = (static_cast<double>(x.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

Result<Judgement> judge(const Book& book) {
  Judgement out;
  // What is the same for all plans of a choice.
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, std::string, double, int64_t>,
           std::vector<const Row*>>
      groups;
  for (const Row& row : book.rows) {
    EPL_ASSIGN(const Prediction predicted, predict(book, row));
    out.predicted.push_back(predicted.seconds);
    if (row.mark.empty())
      groups[{row.set, row.model, row.ranks, row.batch, row.machine, row.memory, row.sizes.sequence}].push_back(&row);
  }
  for (const auto& [key, rows] : groups) {
    if (rows.size() < 3) continue;
    Choice choice{.set = std::get<0>(key),
                  .model = std::get<1>(key),
                  .ranks = std::get<2>(key),
                  .batch = std::get<3>(key),
                  .count = rows.size(),
                  .fitted = rows.front()->fitted};
    choice.best = *std::ranges::min_element(rows, {}, [](const Row* row) { return row->seconds; });
    choice.picked = search(book, rows);
    if (choice.picked == nullptr) return invalid("the search found none of the plans of ", choice.model);
    choice.distance = choice.picked->seconds / choice.best->seconds - 1;
    out.choices.push_back(choice);
  }
  return out;
}

}  // namespace epl::credibility
