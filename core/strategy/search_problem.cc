// What a candidate takes and has, in closed form.
//
// Stages work at the same time, each on another micro-batch. So a step is as long as the longest stage's work for all
// micro-batches, and one micro-batch's way through the others. Where the gradients of weights have calls of their own,
// these fill two thirds of that way (pipeline_table_test.cc holds this against the tables).
#include "core/strategy/search_problem.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/backend/two_level.h"

namespace epl {
namespace {

using Call = Collective::Kind;

// The slowest group of this kind among the blocks of ranks of all stages: `apart` is between two ranks of the group.
RankGroup slowest_group(const CostModel& cost, int64_t stages, int64_t ranks_of_stage, int64_t size, int64_t apart) {
  RankGroup slowest{.size = size};
  double most = -1;
  // How blocks lie in hosts repeats.
  int64_t period = 1;
  for (const Machine::Link& link : cost.machine().links) period = std::lcm(period, std::max<int64_t>(link.ranks, 1));
  for (int64_t s = 0; s < std::min(stages, period); ++s) {
    const RankGroup group{size, s * ranks_of_stage, s * ranks_of_stage + (size - 1) * apart};
    const double seconds = cost.collective(Call::all_gather, group, 1e6);
    if (seconds > most) most = seconds, slowest = group;
  }
  return slowest;
}

}  // namespace

void SearchRun::add(const SearchLayer& layer, double samples) {
  forward += layer.forward.of(samples);
  backward += layer.backward.of(samples);
  weights += layer.weights;
  parameters += layer.parameters;
  expert_weights += layer.expert_weights;
  largest = std::max(largest, layer.weights + layer.expert_weights);
  kept += layer.kept;
  given += layer.given;
  working = std::max(working, layer.working);
  gradient = std::max(gradient, layer.gradient);
  for (const SearchLayer::Again& way : layer.again) returns = std::max(returns, layer.kept - way.kept);
}

SearchShape::SearchShape(const SearchProblem& problem, const SearchCandidate& candidate)
    : problem_(problem),
      row_(*candidate.row),
      shape_(candidate.shape()),
      shards_(candidate.shards),
      offload_(candidate.offload),
      gradients_beside_(offload_ == SearchOffload::weights && candidate.micro_batches == 1),
      samples_(static_cast<double>(problem.batch) / static_cast<double>(candidate.copies * candidate.micro_batches)),
      runs_(shape_.stages()) {
  const SearchForm& form = problem.forms[candidate.form];
  const int64_t apart = form.ranks, of_stage = candidate.copies * form.ranks;
  copies_ = slowest_group(problem.cost, candidate.stages, of_stage, candidate.copies, apart);
  experts_ =
      slowest_group(problem.cost, candidate.stages, of_stage, candidate.copies / form.experts, apart * form.experts);
  if (problem.two_levels) {
    copies_inside_ = ranks_inside(problem.cost.machine(), copies_);
    experts_inside_ = ranks_inside(problem.cost.machine(), experts_);
  }
  // A sum of so many micro-batches waits until there is another one of as many.
  if (problem.tree && candidate.micro_batches > 1)
    sums_ = static_cast<double>(std::bit_width(static_cast<uint64_t>(candidate.micro_batches - 1)));
  find_speeds(of_stage);
  share_ = share(static_cast<double>(copies_.size));
  expert_share_ = share(static_cast<double>(experts_.size));
  const auto micro_batches = static_cast<double>(candidate.micro_batches),
             chunks = static_cast<double>(candidate.chunks);
  // A stage waits for the others to fill and to drain.
  const double waits = candidate.stages == 1 ? 0 : row_.has_weight_blocks ? 1.0 / 3 : 1;
  of_longest_ = micro_batches * chunks - waits;
  of_all_ = waits / chunks;
}

// Copies have as many samples each, so that the slowest rank of a stage decides.
void SearchShape::find_speeds(int64_t ranks_of_stage) {
  if (problem_.devices.empty()) return;
  speeds_.assign(static_cast<size_t>(shape_.virtual_devices), std::numeric_limits<double>::infinity());
  memories_ = speeds_;
  int64_t first = 0;
  for (const SearchDevices& kind : problem_.devices) {
    const int64_t behind = first + kind.ranks;
    for (int64_t v = first / ranks_of_stage; v < shape_.virtual_devices && v * ranks_of_stage < behind; ++v) {
      speeds_[v] = std::min(speeds_[v], kind.speed);
      memories_[v] = std::min(memories_[v], kind.memory);
    }
    first = behind;
  }
  fastest_ = std::ranges::max(speeds_);
}

double SearchShape::gradients_share(double copies) const {
  return shards_ >= SearchShards::gradients ? problem_.gradients / copies : problem_.gradients;
}

double SearchShape::share(double copies) const {
  double share = gradients_beside_ ? 0 : sums_ * gradients_share(copies);
  if (offload_ == SearchOffload::nothing)
    share += shards_ >= SearchShards::states ? problem_.states / copies : problem_.states;
  if (offload_ != SearchOffload::weights) share += shards_ >= SearchShards::weights ? 1 / copies : 1;
  return share;
}

double SearchShape::moving(Call kind, double weights, double expert_weights) const {
  const auto of = [&](const RankGroup& group, int64_t inside, double bytes) {
    if (group.size <= 1 || bytes <= 0) return 0.0;
    // What a rank gives: of a sum all of it, else its shard.
    return kind == Call::all_reduce ? all_reduce_seconds(problem_.cost, group, inside, bytes)
                                    : problem_.cost.collective(kind, group, bytes / static_cast<double>(group.size));
  };
  return of(copies_, copies_inside_, weights) + of(experts_, experts_inside_, expert_weights);
}

double SearchShape::gathering(const SearchRun& run) const {
  const double latency = copies_.size > 1 ? problem_.cost.collective(Call::all_gather, copies_, 0) : 0;
  return moving(Call::all_gather, run.weights, run.expert_weights) + std::max(0.0, run.parameters - 1) * latency;
}

// Weights are gathered for the forward and for the backward pass, and gradients are scattered.
double SearchShape::each_call(const SearchRun& run) const {
  double seconds = 0;
  if (shards_ >= SearchShards::gradients)
    seconds += moving(Call::reduce_scatter, problem_.gradients * run.weights, problem_.gradients * run.expert_weights);
  if (shards_ >= SearchShards::weights) seconds += 2 * gathering(run);
  return seconds;
}

// Bytes of weights of a rank, where copies share them out or each has all.
double SearchShape::of_rank(const SearchRun& run, bool shared) const {
  if (!shared) return run.weights + run.expert_weights;
  return run.weights / static_cast<double>(copies_.size) + run.expert_weights / static_cast<double>(experts_.size);
}

// Of a call, beside what it computes: weights come for the forward and for the backward pass, and gradients go the
// other way at the same time.
double SearchShape::fetching(const SearchRun& run) const {
  if (offload_ != SearchOffload::weights) return 0;
  const double fetched = 2 * of_rank(run, shards_ >= SearchShards::weights);
  const double evicted = gradients_beside_ ? problem_.gradients * of_rank(run, shards_ >= SearchShards::gradients) : 0;
  return problem_.cost.other(problem_.beside, std::max(fetched, evicted));
}

double SearchShape::seconds_at(const SearchRun& run, double speed) const {
  double computing = (run.forward + run.backward + run.again) / speed;
  for (const double bytes : {run.enters, run.leaves}) {
    // As a result, and back as its gradient. Which ranks these are is not known to a run.
    if (bytes > 0) computing += 2 * problem_.cost.collective(Call::send, {2, 0, problem_.ranks - 1}, bytes * samples_);
  }
  return std::max({computing, each_call(run), fetching(run)});
}

double SearchShape::hideable(const SearchRun& run) const {
  if (shards_ >= SearchShards::gradients) return each_call(run);
  const Call kind = shards_ == SearchShards::nothing ? Call::all_reduce : Call::reduce_scatter;
  return moving(kind, problem_.gradients * run.weights, problem_.gradients * run.expert_weights);
}

double SearchShape::at_the_end(const SearchRun& run, double speed) const {
  double seconds = 0;
  if (shards_ == SearchShards::states || shards_ == SearchShards::gradients) seconds += gathering(run);
  const double updated = of_rank(run, shards_ != SearchShards::nothing);
  // Weights and states are read and written, and gradients are read.
  seconds += problem_.cost.memory(updated * (2 + problem_.gradients + 2 * problem_.states)) / speed;
  // States come and go. So do weights, of which those go that a rank has then, and gradients come.
  double moved = offload_ == SearchOffload::nothing ? 0 : 2 * problem_.states * updated;
  if (offload_ == SearchOffload::weights) moved += updated + of_rank(run, shards_ >= SearchShards::weights);
  if (gradients_beside_) moved += problem_.gradients * updated;
  if (moved > 0) seconds += problem_.cost.other(problem_.beside, moved);
  return seconds * shape_.chunks;
}

double SearchShape::tail(const SearchRun& run, int number) const {
  const double sums = hideable(run) * shape_.chunks;
  // Of what moves in each call the seconds behind it are that call's.
  const double longer = shards_ >= SearchShards::gradients ? 0 : sums - run.backward / speed(number);
  return std::max(longer, sums / problem_.buckets) + at_the_end(run, speed(number));
}

double SearchShape::least_tail(const SearchRun& run) const {
  return hideable(run) * shape_.chunks / problem_.buckets + at_the_end(run, fastest_);
}

double SearchShape::state(const SearchRun& run) const {
  double state = (run.weights * share_ + run.expert_weights * expert_share_) * shape_.chunks;
  // Of one layer: what is gathered, and what is not yet scattered or has not yet gone to the other memory. What comes
  // from there is of two layers, because the next one's comes ahead.
  double layer = 0;
  if (shards_ >= SearchShards::gradients || gradients_beside_) layer += problem_.gradients;
  if (shards_ == SearchShards::weights) layer += 1;
  if (offload_ != SearchOffload::nothing) layer += problem_.states;
  if (offload_ == SearchOffload::weights) layer += 2;
  return state + layer * run.largest;
}

double SearchShape::bytes_beside(const SearchRun& run) const {
  if (offload_ == SearchOffload::nothing) return 0;
  double bytes = problem_.states * of_rank(run, shards_ >= SearchShards::states);
  if (offload_ == SearchOffload::weights) bytes += of_rank(run, shards_ >= SearchShards::weights);
  if (gradients_beside_) bytes += problem_.gradients * of_rank(run, shards_ >= SearchShards::gradients);
  return bytes * shape_.chunks;
}

// A gradient of one micro-batch is there beside the sums.
double SearchShape::of_call(const SearchRun& run) const {
  const double layer = run.working + (run.computes_again ? run.returns : 0);
  const bool adds = shape_.micro_batches > 1 && shards_ < SearchShards::gradients;
  return samples_ * (layer + run.given) + (adds ? run.gradient : 0);
}

// Where all blocks are one, the sums that wait are there until the last call ends, and beside them the full ones.
double SearchShape::behind_calls(const SearchRun& run) const {
  if (!problem_.tree || shape_.micro_batches == 1 || shape_.virtual_devices > 1) return 0;
  return run.weights * gradients_share(static_cast<double>(copies_.size)) +
         run.expert_weights * gradients_share(static_cast<double>(experts_.size)) + run.gradient;
}

double SearchShape::bytes(const SearchRun& run, int number) const {
  return problem_.always + state(run) + std::max(of_call(run) + times_kept(number) * run.kept, behind_calls(run));
}

double SearchShape::times_kept(int number) const {
  return samples_ * static_cast<double>(row_.in_flight(shape_, row_.virtual_device_of(shape_, number)));
}

std::vector<SearchDevices> devices_of(const Machine& machine, int64_t ranks) {
  std::vector<SearchDevices> devices;
  for (int64_t rank = 0; rank < ranks && !machine.kinds.empty();) {
    for (const SearchDevices& kind : machine.kinds) {
      if (rank == ranks) break;
      devices.push_back(kind);
      devices.back().ranks = std::min(kind.ranks, ranks - rank);
      rank += devices.back().ranks;
    }
  }
  return devices;
}

bool cuts_batch(const SearchProblem& problem, int64_t shards) {
  if (problem.batch % shards != 0) return false;
  return problem.units == 0 || (problem.units % shards == 0 && std::has_single_bit(uint64_t(problem.units / shards)));
}

bool is_possible(const SearchProblem& problem, const SearchCandidate& candidate) {
  const SearchForm& form = problem.forms[candidate.form];
  const PipelineShape shape = candidate.shape();
  if (candidate.stages * candidate.copies * form.ranks != problem.ranks) return false;
  if (candidate.copies % form.experts != 0 || !cuts_batch(problem, candidate.copies * candidate.micro_batches))
    return false;
  if (shape.stages() > static_cast<int>(problem.layers.size())) return false;
  if (candidate.shards != SearchShards::nothing && candidate.copies == 1) return false;
  const PipelineRow& row = *candidate.row;
  if (candidate.stages > 1 && !form.staged) return false;
  if ((candidate.stages == 1) != (&row == &one_stage())) return false;
  if (candidate.stages == 1) return candidate.chunks == 1;
  if (row.chunks == 0 ? candidate.chunks < 2 : candidate.chunks != row.chunks) return false;
  // With fewer its calls cannot fill what would be idle.
  if (row.has_weight_blocks && candidate.micro_batches < candidate.stages) return false;
  return !row.refusal || row.refusal(shape).empty();
}

SearchCost cost_of(const SearchProblem& problem, const SearchCandidate& candidate) {
  const SearchShape shape(problem, candidate);
  const std::vector<SearchLayer>& kinds = problem.forms[candidate.form].kinds;
  const auto size = static_cast<int>(problem.layers.size());
  const auto enters = [&](int layer) { return layer > 0 && layer < size ? kinds[problem.layers[layer]].enters : 0; };
  SearchCost cost;
  double longest = 0, all = 0, tail = 0;
  for (int r = 0; r < shape.runs(); ++r) {
    const int begin = candidate.begins[r], end = r + 1 < shape.runs() ? candidate.begins[r + 1] : size;
    SearchRun run{.enters = enters(begin), .leaves = enters(end)};
    for (int l = begin; l < end; ++l) {
      const SearchLayer& layer = kinds[problem.layers[l]];
      run.add(layer, shape.samples());
      if (candidate.again[l] == 0) continue;
      const SearchLayer::Again& way = layer.again[candidate.again[l] - 1];
      run.again += way.seconds.of(shape.samples());
      run.kept += way.kept - layer.kept;
      run.computes_again = true;
    }
    const double seconds = shape.seconds(run, r);
    longest = std::max(longest, seconds);
    all += seconds;
    tail = std::max(tail, shape.tail(run, r));
    cost.bytes = std::max(cost.bytes, shape.bytes(run, r) / shape.memory(r));
    cost.beside = std::max(cost.beside, shape.bytes_beside(run));
  }
  cost.seconds = shape.step(longest, all, tail);
  cost.busy = shape.busy(longest);
  cost.waits = cost.seconds - cost.busy - tail;
  cost.tail = tail;
  return cost;
}

bool is_within_limits(const SearchProblem& problem, const SearchCost& cost) {
  return (problem.bytes <= 0 || cost.bytes <= problem.bytes) &&
         (problem.beside_bytes <= 0 || cost.beside <= problem.beside_bytes);
}

}  // namespace epl
