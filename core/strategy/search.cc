// The walk over shapes.
#include "core/strategy/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "core/base/text.h"
#include "core/strategy/search_stages.h"

namespace epl {
namespace {

constexpr int some_chunks[] = {2, 3, 4};  // with more, calls become short and messages many
constexpr double clearly = 0.99;          // of the seconds that are told of
// Of a shape's bound, one after another.
constexpr double slacks[] = {1.01, 1.1, 1.5};

template <class T> bool may_be(const std::vector<T>& list, T value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d < number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// All calls first forward, or one more of them, never make a step shorter in this model and always take more memory.
std::vector<const PipelineRow*> rows_of(const SearchSpace& space) {
  if (!space.rows.empty()) return space.rows;
  std::vector<const PipelineRow*> rows;
  for (const char* word : {"1F1B", "interleaved", "ZB-H1", "ZB-V", "DualPipe-V"}) {
    if (const PipelineRow* row = find_pipeline(word)) rows.push_back(row);
  }
  return rows;
}

// But for micro-batches and, without `by_memory`, memory. Weights go to another memory only where that is faster than
// all that leaves them where they are.
bool are_alike(const SearchCandidate& a, const SearchCandidate& b, bool by_memory) {
  const bool moves_weights = a.offload == SearchOffload::weights || b.offload == SearchOffload::weights;
  return a.form == b.form && a.row == b.row && a.stages == b.stages && a.chunks == b.chunks && a.copies == b.copies &&
         (!by_memory || (a.shards == b.shards && (a.offload == b.offload || moves_weights)));
}

class PlanSearch {
 public:
  PlanSearch(const SearchProblem& problem, const SearchSpace& space, const SearchLimits& limits)
      : problem_(problem), space_(space), limits_(limits), work_(limits.work) {}

  SearchResult run() {
    for (size_t form = 0; form < problem_.forms.size(); ++form) add_shapes(form);
    std::ranges::stable_sort(shapes_, {}, &Shape::bound);
    out_.shapes = std::ssize(shapes_);
    out_.least_seconds = std::numeric_limits<double>::infinity();
    size_t at = 0;
    for (; at < shapes_.size() && shapes_[at].bound < worst_of_best(); ++at) {
      if (limits_.stop.why() != Code::ok || work_ <= 0) break;
      search(shapes_[at]);
    }
    // Those that follow have no lower bound.
    if (at < shapes_.size()) out_.least_seconds = std::min(out_.least_seconds, shapes_[at].bound);
    out_.finished = work_ > 0 && (at == shapes_.size() || shapes_[at].bound >= worst_of_best());
    if (!out_.best.empty()) out_.least_seconds = std::min(out_.least_seconds, out_.best.front().cost.seconds);
    return std::move(out_);
  }

 private:
  struct Shape {
    SearchCandidate candidate;
    double bound = 0;
  };

  void add_shapes(size_t form) {
    const SearchForm& how = problem_.forms[form];
    if (problem_.ranks % how.ranks != 0) return;
    for (const int64_t copies : divisors(problem_.ranks / how.ranks)) {
      const int64_t stages = problem_.ranks / how.ranks / copies;
      if (stages > std::ssize(problem_.layers) || problem_.batch % copies != 0) continue;
      if (!may_be(space_.stages, static_cast<int>(stages))) continue;
      SearchCandidate one{.form = form, .stages = static_cast<int>(stages), .copies = copies};
      for (const PipelineRow* row : stages == 1 ? std::vector{&one_stage()} : rows_of(space_)) {
        one.row = row;
        add_chunks(one);
      }
    }
  }

  void add_chunks(SearchCandidate one) {
    std::vector<int> counts = {one.stages > 1 ? one.row->chunks : 1};
    if (counts.front() == 0) counts = space_.chunks;
    if (counts.empty()) counts.assign(std::begin(some_chunks), std::end(some_chunks));
    for (const int chunks : counts) {
      one.chunks = chunks;
      for (const int64_t micro_batches : divisors(problem_.batch / one.copies)) {
        if (!may_be(space_.micro_batches, micro_batches)) continue;
        one.micro_batches = micro_batches;
        add_memory(one);
      }
    }
  }

  void add_memory(SearchCandidate one) {
    for (const SearchShards shards :
         {SearchShards::nothing, SearchShards::states, SearchShards::gradients, SearchShards::weights}) {
      if (!may_be(space_.shards, shards)) continue;
      one.shards = shards;
      for (const auto offload : {SearchOffload::nothing, SearchOffload::states, SearchOffload::weights}) {
        if (!may_be(space_.offload, offload)) continue;
        one.offload = offload;
        if (!is_possible(problem_, one)) continue;
        const SearchShape shape(problem_, one);
        const double bound = StageSearch(problem_, shape, fronts_of(one), one.form, work_).bound();
        shapes_.push_back({one, bound});
      }
    }
  }

  SearchFronts& fronts_of(const SearchCandidate& one) {
    const int64_t samples = problem_.batch / (one.copies * one.micro_batches);
    std::unique_ptr<SearchFronts>& made = fronts_[{one.form, samples}];
    if (!made) made = std::make_unique<SearchFronts>(problem_, one.form, static_cast<double>(samples));
    return *made;
  }

  // What has to be beaten.
  double worst_of_best() const {
    return out_.best.size() < limits_.count ? std::numeric_limits<double>::infinity() : out_.best.back().cost.seconds;
  }

  void search(const Shape& one) {
    SearchCandidate candidate = one.candidate;
    const SearchShape shape(problem_, candidate);
    SearchFronts& fronts = fronts_of(candidate);
    StageSearch stages(problem_, shape, fronts, candidate.form, work_);
    // What is found close to the bound is found soon, because few runs are short enough.
    std::optional<StageSearch::Cut> cut;
    for (const double slack : slacks) {
      if (!cut && slack * one.bound < worst_of_best()) cut = stages.below(slack * one.bound);
    }
    if (!cut) cut = stages.below(worst_of_best());
    ++out_.searched;
    if (!stages.all() || work_ <= 0) out_.least_seconds = std::min(out_.least_seconds, one.bound);
    if (!cut) return;
    candidate.begins = std::move(cut->begins);
    candidate.again = std::move(cut->again);
    const SearchCost cost = cost_of(problem_, candidate);
    const auto alike = std::ranges::find_if(
        out_.best, [&](const SearchFound& found) { return are_alike(found.candidate, candidate, limits_.by_memory); });
    if (alike != out_.best.end() && alike->cost.seconds <= cost.seconds) return;
    if (alike != out_.best.end()) out_.best.erase(alike);
    const auto before = std::ranges::upper_bound(out_.best, cost.seconds, {},
                                                 [](const SearchFound& found) { return found.cost.seconds; });
    out_.best.insert(before, {std::move(candidate), cost});
    if (out_.best.size() > limits_.count) out_.best.pop_back();
  }

  const SearchProblem& problem_;
  const SearchSpace& space_;
  const SearchLimits& limits_;
  int64_t work_;
  std::vector<Shape> shapes_;
  std::map<std::pair<size_t, int64_t>, std::unique_ptr<SearchFronts>> fronts_;  // by form and samples of a call
  SearchResult out_;
};

int percent_of(double part, double all) { return all > 0 ? static_cast<int>(std::lround(100 * part / all)) : 0; }

}  // namespace

SearchResult search_plans(const SearchProblem& problem, const SearchSpace& space, const SearchLimits& limits) {
  return PlanSearch(problem, space, limits).run();
}

std::vector<SearchFound> time_over_memory(SearchProblem problem, const SearchSpace& space, const SearchLimits& limits,
                                          size_t most) {
  std::vector<SearchFound> front;
  problem.bytes = 0;
  while (front.size() < most) {
    SearchResult result = search_plans(problem, space, limits);
    if (result.best.empty()) break;
    front.push_back(std::move(result.best.front()));
    problem.bytes = front.back().cost.bytes * 4 / 5;
  }
  return front;
}

std::optional<MoreUnits> with_more_units(SearchProblem problem, const SearchSpace& space, SearchLimits limits,
                                         double seconds) {
  const int64_t before = problem.units;
  while (problem.units > 0 && 2 * problem.units <= problem.batch && problem.batch % (2 * problem.units) == 0)
    problem.units *= 2;
  if (problem.units == before) return {};
  limits.count = 1;
  SearchResult result = search_plans(problem, space, limits);
  if (result.best.empty() || result.best.front().cost.seconds > clearly * seconds) return {};
  const SearchCandidate& best = result.best.front().candidate;
  const int64_t units = best.copies * best.micro_batches;
  if (units <= before) return {};
  return MoreUnits{units, std::move(result.best.front())};
}

std::string print_candidate(const SearchProblem& problem, const SearchCandidate& candidate) {
  static constexpr std::string_view levels[] = {"auto", "v0", "v1", "v2"};
  const SearchForm& form = problem.forms[candidate.form];
  std::vector<std::string> parts = {candidate.copies == 1 ? std::string("1 copy") : cat(candidate.copies, " copies")};
  if (candidate.stages > 1) {
    parts.back() +=
        cat(" of ", candidate.stages, " stages", " (", candidate.row->words.back(),
            candidate.chunks > 1 ? cat(", ", candidate.chunks, " runs of layers each") : std::string(), ")");
  }
  if (!form.name.empty()) parts.push_back(form.name);
  parts.push_back(candidate.micro_batches == 1 ? std::string("1 micro-batch")
                                               : cat(candidate.micro_batches, " micro-batches"));
  if (candidate.copies > 1) parts.push_back(cat("zero.level = ", levels[static_cast<size_t>(candidate.shards)]));
  if (problem.two_levels && SearchShape(problem, candidate).sums_in_levels())
    parts.emplace_back("sums inside hosts first");
  if (candidate.offload == SearchOffload::states) parts.push_back("states in another memory");
  if (candidate.offload == SearchOffload::weights) parts.push_back("weights and states in another memory");
  const auto again = std::ranges::count_if(candidate.again, [](int way) { return way > 0; });
  if (again > 0) parts.push_back(cat(again, " of ", candidate.again.size(), " layers computed again"));
  return join(parts, ", ");
}

std::string what_decides(const SearchCost& first, const SearchCost& other) {
  const double differences[] = {other.busy - first.busy, other.waits - first.waits, other.tail - first.tail};
  switch (std::ranges::max_element(differences) - std::begin(differences)) {
    case 0:
      return cat("its ranks are busy ", percent_of(other.busy, first.seconds), " % of the first one's step, not ",
                 percent_of(first.busy, first.seconds), " %");
    case 1:
      return cat("it waits ", percent_of(other.waits, other.seconds), " % of its step for other stages, not ",
                 percent_of(first.waits, first.seconds), " %");
    default:
      return cat("its sums and its update take ", percent_of(other.tail, other.seconds), " % of its step, not ",
                 percent_of(first.tail, first.seconds), " %");
  }
}

}  // namespace epl
