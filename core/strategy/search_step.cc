// Calls are made in any order that their table and what they wait for allow, which changes no time.
#include "core/strategy/search_step.h"

#include <algorithm>
#include <random>
#include <vector>

#include "core/backend/two_level.h"

namespace epl {
namespace {

using Call = Collective::Kind;
using Times = std::vector<double>;  // by copy

// A layer of a stage: seconds of a call, and of what its weights make necessary.
struct Piece {
  double forward = 0, backward = 0, weight = 0;  // weight: the part of the backward pass that has calls of its own
  double gather = 0, scatter = 0, sum = 0;       // scatter: in each call; sum: behind the last one
  double fetch = 0, evict = 0;                   // of weights in each pass; of gradients behind the backward pass
};

struct Stage {
  std::vector<Piece> pieces;
  double update = 0;               // behind all sums
  double forward_message = 0;      // seconds, to the next stage
  double backward_message = 0;     // to the one before
  std::vector<Times> there, back;  // by micro-batch: when results and their gradients have come
};

// The ranks of one stage of a copy, of all copies. Gradients of weights may wait for another layer's gather.
struct Device {
  std::vector<BlockCall> calls;
  size_t next = 0;                  // of these
  Times kernels, transfers, began;  // until when a stream has work; when the layer before has begun
  Times fetches, evicts;            // the same, between memories
  Times slow;                       // by copy, how many times as long a kernel takes
  double busy = 0;                  // of all copies
};

class Simulation {
 public:
  Simulation(const SearchProblem& problem, const SearchCandidate& candidate, const SearchStragglers& stragglers)
      : problem_(problem),
        candidate_(candidate),
        form_(problem.forms[candidate.form]),
        row_(*candidate.row),
        shape_(candidate.shape()),
        samples_(static_cast<double>(problem.batch) / static_cast<double>(candidate.copies * candidate.micro_batches)),
        of_stage_(candidate.copies * form_.ranks),
        alone_(candidate.stages == 1) {
    const bool alike = problem.devices.empty() && stragglers.share <= 0;
    columns_ = alike ? 1 : static_cast<size_t>(candidate.copies);
    const Times slow = slow_ranks(stragglers);
    for (int v = 0; v < candidate.stages; ++v) devices_.push_back(device(v, slow));
    for (int s = 0; s < shape_.stages(); ++s) stages_.push_back(stage(s));
  }

  SearchStep run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Device& one : devices_) {
        for (; one.next < one.calls.size() && can_run(one.calls[one.next]); ++one.next) {
          run_call(one, one.calls[one.next]);
          moved = true;
        }
      }
    }
    for (int s = 0; s < shape_.stages(); ++s) update(devices_[row_.virtual_device_of(shape_, s)], stages_[s]);
    double busy = 0;
    for (const Device& one : devices_) {
      EPL_CHECK(one.next == one.calls.size(), "a table whose calls wait for each other");
      step_.seconds = std::max(step_.seconds, std::ranges::max(one.kernels));
      busy += one.busy;
    }
    const double all = step_.seconds * static_cast<double>(devices_.size() * columns_);
    step_.idle = all > 0 ? 1 - busy / all : 0;
    return step_;
  }

 private:
  // By rank, how many times as long a kernel takes; empty: all are 1.
  Times slow_ranks(const SearchStragglers& stragglers) const {
    if (problem_.devices.empty() && stragglers.share <= 0) return {};
    Times slow;
    for (const SearchDevices& kind : problem_.devices)
      slow.insert(slow.end(), static_cast<size_t>(kind.ranks), 1 / kind.speed);
    slow.resize(static_cast<size_t>(problem_.ranks), 1);
    std::mt19937 random(stragglers.seed);
    for (double& one : slow) {
      if (static_cast<double>(random()) / 4294967296.0 < stragglers.share) one *= stragglers.slower;
    }
    return slow;
  }

  Device device(int number, const Times& slow) const {
    Device made;
    made.calls = row_.calls(shape_, number);
    made.kernels = made.transfers = made.began = made.fetches = made.evicts = Times(columns_, 0);
    made.slow.assign(columns_, 1);
    for (size_t c = 0; !slow.empty() && c < columns_; ++c) {
      const int64_t first = number * of_stage_ + static_cast<int64_t>(c) * form_.ranks;
      // Ranks of a split wait for the slowest of them.
      made.slow[c] = *std::max_element(slow.begin() + first, slow.begin() + first + form_.ranks);
    }
    return made;
  }

  // The ranks of this stage that sum gradients, of weights or of experts.
  RankGroup group(int number, int64_t share_out) const {
    const int64_t first = row_.virtual_device_of(shape_, number) * of_stage_, size = candidate_.copies / share_out;
    return {size, first, first + (size - 1) * form_.ranks * share_out};
  }

  double moving(Call kind, int number, const SearchLayer& layer, double times) const {
    const auto of = [&](const RankGroup& group, double bytes) {
      if (group.size <= 1 || bytes <= 0) return 0.0;
      if (kind != Call::all_reduce) return problem_.cost.collective(kind, group, bytes / double(group.size));
      const int64_t inside = problem_.two_levels ? ranks_inside(problem_.cost.machine(), group) : 1;
      return all_reduce_seconds(problem_.cost, group, inside, bytes);
    };
    return of(group(number, 1), times * layer.weights) + of(group(number, form_.experts), times * layer.expert_weights);
  }

  // Each parameter is gathered by itself.
  double gathering(int number, const SearchLayer& layer) const {
    const RankGroup all = group(number, 1);
    const double latency = all.size > 1 ? problem_.cost.collective(Call::all_gather, all, 0) : 0;
    return moving(Call::all_gather, number, layer, 1) + std::max(0.0, layer.parameters - 1) * latency;
  }

  Piece piece(int number, int at) const {
    const SearchLayer& layer = form_.kinds[problem_.layers[at]];
    Piece made{.forward = layer.forward.of(samples_), .backward = layer.backward.of(samples_)};
    if (row_.has_weight_blocks) made.backward = made.weight = made.backward / 2;
    if (const int way = candidate_.again[at]; way > 0) made.backward += layer.again[way - 1].seconds.of(samples_);
    const SearchShards shards = candidate_.shards;
    if (shards >= SearchShards::weights) made.gather = gathering(number, layer);
    if (candidate_.offload == SearchOffload::weights) {
      made.fetch = problem_.cost.other(problem_.beside, of_rank(number, layer, shards >= SearchShards::weights));
      const double gradients = problem_.gradients * of_rank(number, layer, shards >= SearchShards::gradients);
      if (shape_.micro_batches == 1) made.evict = problem_.cost.other(problem_.beside, gradients);
    }
    const Call sum = shards == SearchShards::nothing ? Call::all_reduce : Call::reduce_scatter;
    (shards >= SearchShards::gradients ? made.scatter : made.sum) = moving(sum, number, layer, problem_.gradients);
    return made;
  }

  // Bytes of weights of a rank, where copies share them out or each has all.
  double of_rank(int number, const SearchLayer& layer, bool shared) const {
    const auto share = [&](int64_t share_out) {
      return shared ? 1 / static_cast<double>(group(number, share_out).size) : 1;
    };
    return layer.weights * share(1) + layer.expert_weights * share(form_.experts);
  }

  Stage stage(int number) const {
    const auto size = static_cast<int>(problem_.layers.size()), count = shape_.stages();
    const int begin = candidate_.begins[number], end = number + 1 < count ? candidate_.begins[number + 1] : size;
    Stage made;
    double updated = 0, gathered = 0, evicted = 0;
    for (int at = begin; at < end; ++at) {
      const SearchLayer& layer = form_.kinds[problem_.layers[at]];
      made.pieces.push_back(piece(number, at));
      updated += of_rank(number, layer, candidate_.shards != SearchShards::nothing);
      evicted += of_rank(number, layer, candidate_.shards >= SearchShards::weights);
      if (candidate_.shards == SearchShards::states || candidate_.shards == SearchShards::gradients)
        gathered += gathering(number, layer);
    }
    made.update = problem_.cost.memory(updated * (2 + problem_.gradients + 2 * problem_.states)) + gathered +
                  moved_by_update(updated, evicted);
    if (end < size) made.forward_message = message(number, number + 1, end);
    if (begin > 0) made.backward_message = message(number, number - 1, begin);
    const auto micro_batches = static_cast<size_t>(shape_.micro_batches);
    made.there.resize(number > 0 && !alone_ ? micro_batches : 0);
    made.back.resize(alone_ ? 0 : micro_batches);
    return made;
  }

  // Seconds between memories: states and weights come and go, and gradients come that are there. `evicted`: of the
  // bytes of weights, those that a rank has when they go.
  double moved_by_update(double updated, double evicted) const {
    if (candidate_.offload == SearchOffload::nothing) return 0;
    double bytes = 2 * problem_.states * updated;
    if (candidate_.offload == SearchOffload::weights) bytes += updated + evicted;
    if (candidate_.offload == SearchOffload::weights && shape_.micro_batches == 1)
      bytes += problem_.gradients * updated;
    return problem_.cost.other(problem_.beside, bytes);
  }

  // Of what the layer at a place gets from the one before, or gives to it, between the first copies of two stages.
  double message(int from, int to, int at) const {
    const double bytes = form_.kinds[problem_.layers[at]].enters * samples_;
    const int64_t a = row_.virtual_device_of(shape_, from) * of_stage_,
                  b = row_.virtual_device_of(shape_, to) * of_stage_;
    if (a == b || bytes <= 0) return 0;
    return problem_.cost.collective(Call::send, {2, std::min(a, b), std::max(a, b)}, bytes);
  }

  bool can_run(const BlockCall& call) const {
    if (alone_) return true;
    const Stage& stage = stages_[call.stage];
    const auto m = static_cast<size_t>(call.micro_batch);
    if (call.block == BlockKind::forward) return call.stage == 0 || !stage.there[m].empty();
    return call.block == BlockKind::weight || !stage.back[m].empty();
  }

  void run_call(Device& on, const BlockCall& call) {
    Stage& stage = stages_[call.stage];
    step_.calls += std::ssize(on.kernels);
    const auto m = static_cast<size_t>(call.micro_batch);
    // Other schedules come to the last micro-batch last too.
    const bool is_last = call.micro_batch + 1 == shape_.micro_batches;
    if (call.block == BlockKind::main || call.block == BlockKind::forward) {
      if (!alone_ && call.stage > 0) wait_for(on, stage.there[m]);
      for (const Piece& piece : stage.pieces) run_layer(on, piece, piece.forward, 0);
      if (!alone_) pass_on(on, stage, call.stage, m);
    }
    if (call.block == BlockKind::main || call.block == BlockKind::backward) {
      if (!alone_) wait_for(on, stage.back[m]);
      for (size_t l = stage.pieces.size(); l-- > 0;) {
        const Piece& piece = stage.pieces[l];
        run_layer(on, piece, piece.backward, row_.has_weight_blocks ? 0 : piece.scatter + (is_last ? piece.sum : 0));
        evict(on, piece);
      }
      if (!alone_ && call.stage > 0) send(on, stage.backward_message, stages_[call.stage - 1].back[m]);
    }
    if (call.block == BlockKind::weight) {
      for (size_t l = stage.pieces.size(); l-- > 0;) {
        const Piece& piece = stage.pieces[l];
        run_kernels(on, piece.weight);
        transfer(on, piece.scatter + (is_last ? piece.sum : 0), on.kernels);
      }
    }
  }

  // The last stage's gradients begin with its own results.
  void pass_on(Device& on, Stage& stage, int number, size_t m) {
    if (number + 1 == shape_.stages()) {
      stage.back[m] = on.kernels;
    } else {
      send(on, stage.forward_message, stages_[number + 1].there[m]);
    }
  }

  static void wait_for(Device& on, Times& come) {
    for (size_t c = 0; c < on.kernels.size(); ++c) on.kernels[c] = std::max(on.kernels[c], come[c]);
    Times().swap(come);  // nobody else asks
  }

  // Its weights come first, while the layer before runs; what its gradients need goes behind it.
  void run_layer(Device& on, const Piece& piece, double seconds, double behind) {
    if (piece.fetch > 0) {
      for (size_t c = 0; c < on.fetches.size(); ++c) on.fetches[c] = std::max(on.fetches[c], on.began[c]) + piece.fetch;
      for (size_t c = 0; piece.gather <= 0 && c < on.kernels.size(); ++c)
        on.kernels[c] = std::max(on.kernels[c], on.fetches[c]);
    }
    if (piece.gather > 0) {
      transfer(on, piece.gather, piece.fetch > 0 ? on.fetches : on.began);
      for (size_t c = 0; c < on.kernels.size(); ++c) on.kernels[c] = std::max(on.kernels[c], on.transfers[c]);
    }
    on.began = on.kernels;
    run_kernels(on, seconds);
    transfer(on, behind, on.kernels);
  }

  // When it is summed, where that follows its backward pass.
  static void evict(Device& on, const Piece& piece) {
    for (size_t c = 0; piece.evict > 0 && c < on.evicts.size(); ++c) {
      const double ready = piece.scatter + piece.sum > 0 ? std::max(on.kernels[c], on.transfers[c]) : on.kernels[c];
      on.evicts[c] = std::max(on.evicts[c], ready) + piece.evict;
    }
  }

  static void run_kernels(Device& on, double seconds) {
    for (size_t c = 0; c < on.kernels.size(); ++c) {
      on.kernels[c] += seconds * on.slow[c];
      on.busy += seconds * on.slow[c];
    }
  }

  // Of all copies together, when the last of them is ready.
  static void transfer(Device& on, double seconds, const Times& ready) {
    if (seconds <= 0) return;
    double begin = 0;
    for (size_t c = 0; c < ready.size(); ++c) begin = std::max({begin, on.transfers[c], ready[c]});
    on.transfers.assign(ready.size(), begin + seconds);
  }

  void send(Device& on, double seconds, Times& come) {
    come.resize(on.kernels.size());
    step_.messages += std::ssize(come);
    for (size_t c = 0; c < come.size(); ++c) {
      come[c] = on.kernels[c];
      if (seconds <= 0) continue;  // to itself
      come[c] = std::max(come[c], on.transfers[c]) + seconds;
      on.transfers[c] = come[c];
    }
  }

  static void update(Device& on, const Stage& stage) {
    const double all =
        std::max({std::ranges::max(on.kernels), std::ranges::max(on.transfers), std::ranges::max(on.evicts)});
    for (size_t c = 0; c < on.kernels.size(); ++c) on.kernels[c] = all + stage.update * on.slow[c];
  }

  const SearchProblem& problem_;  // outlives it
  const SearchCandidate& candidate_;
  const SearchForm& form_;
  const PipelineRow& row_;
  const PipelineShape shape_;
  const double samples_;  // of a call
  const int64_t of_stage_;
  const bool alone_;  // there is one stage
  size_t columns_ = 1;
  std::vector<Device> devices_;
  std::vector<Stage> stages_;
  SearchStep step_;
};

}  // namespace

SearchStep simulate_step(const SearchProblem& problem, const SearchCandidate& candidate,
                         const SearchStragglers& stragglers) {
  return Simulation(problem, candidate, stragglers).run();
}

std::vector<SearchFound> by_simulated_steps(const SearchProblem& problem, const std::vector<SearchFound>& found) {
  std::vector<std::pair<double, const SearchFound*>> order;
  for (const SearchFound& one : found) order.emplace_back(simulate_step(problem, one.candidate).seconds, &one);
  std::ranges::stable_sort(order, {}, &std::pair<double, const SearchFound*>::first);
  std::vector<SearchFound> sorted;
  for (const auto& [seconds, one] : order) sorted.push_back(*one);
  return sorted;
}

}  // namespace epl
