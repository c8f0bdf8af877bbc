// A plan for many ranks as a problem of numbers: no graph, no node, no sharding.
//
// A model is a chain of layers, and layers that are alike are one kind. A form says over how many ranks each layer is
// cut, and what that makes of each kind: seconds of a call on a rank, its collectives included, and bytes. A candidate
// says everything else: how many stages and copies there are, which layers a stage has, the schedule, micro-batches,
// what copies share out, and what is computed again.
//
// Stages have blocks of neighbouring ranks, a copy is a part of such a block, and a form cuts over the ranks of a copy.
// All stages have as many ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/cost_model.h"
#include "core/strategy/pipeline.h"

namespace epl {

// Of a call: what it has once, and for each sample.
struct PerCall {
  double once = 0, sample = 0;
  double of(double samples) const { return once + sample * samples; }
};

// A kind of layers under a form, on one rank.
struct SearchLayer {
  PerCall forward, backward;  // seconds
  double weights = 0;         // bytes of parameters
  double parameters = 0;      // how many have these; each is gathered by itself
  double expert_weights = 0;  // of others, which ranks of SearchForm::experts copies share out: what each has
  // Bytes of a sample: that wait for the backward pass, of the layer before too; that are there beside these while the
  // layer runs; that come from the layer before; and that the caller gives, where a call has a copy of these.
  double kept = 0, working = 0, enters = 0, given = 0;
  double gradient = 0;  // bytes of gradients of weights that one node has, whatever the samples
  // Ways to keep less, and the seconds of a call for computing that again.
  struct Again {
    PerCall seconds;
    double kept = 0;
  };
  std::vector<Again> again;
};

struct SearchForm {
  std::string name;
  int64_t ranks = 1;      // of a copy
  bool sequence = false;  // what lies between the parts of a split is cut too (split.sequence)
  int64_t experts = 1;    // copies whose ranks share out experts
  bool staged = true;     // there may be several stages
  std::vector<SearchLayer> kinds;
};

// Neighbouring ranks of a kind. A kernel of theirs does so many times what it does on the device that forms were
// measured for, and they may have so many times SearchProblem::bytes.
using SearchDevices = Machine::Ranks;

struct SearchProblem {
  CostModel cost;
  int64_t ranks = 1;
  std::vector<SearchDevices> devices;    // all ranks, in their order; empty: they are alike
  int64_t batch = 1;                     // samples
  int64_t units = 0;                     // whose powers of two copies and micro-batches may have; 0: of any samples
  std::vector<int> layers;               // kinds, in the order of layers
  std::vector<SearchForm> forms;         // with as many kinds
  double gradients = 1;                  // bytes of a gradient for each byte of its parameter
  bool tree = false;                     // gradients of micro-batches are added in pairs, and sums of these wait
  double states = 2;                     // the same of the optimizer's states
  double always = 0;                     // bytes of a rank for all else
  double bytes = 0;                      // that a rank may have; 0: no limit
  double buckets = 5;                    // of gradients: the sum of the last one cannot hide behind the backward pass
  MemoryKind beside = MemoryKind::host;  // where lies what is offloaded
  double beside_bytes = 0;               // that a rank may have there; 0: no limit
  bool two_levels = false;               // all-reduces may go inside hosts first (core/backend/two_level.h)
};

// What copies share out, as `zero.level` says.
enum class SearchShards : uint8_t { nothing, states, gradients, weights };

// What lies in another memory while nobody uses it: the optimizer's states, or weights as well. A weight comes for each
// pass of a call and for the update. With one micro-batch gradients lie there too, until the update; sums of several
// stay where they are added up.
enum class SearchOffload : uint8_t { nothing, states, weights };

struct SearchCandidate {
  size_t form = 0;  // of SearchProblem::forms
  const PipelineRow* row = nullptr;
  int stages = 1;  // with ranks of their own
  int chunks = 1;  // runs of layers that each of them has
  int64_t copies = 1, micro_batches = 1;
  SearchShards shards = SearchShards::nothing;
  SearchOffload offload = SearchOffload::nothing;
  std::vector<int> begins;  // the first layer of each run of layers
  std::vector<int> again;   // by layer: 0: it keeps all; n: way n - 1 of its kind

  PipelineShape shape() const { return {stages, chunks, micro_batches}; }
};

// Of a step, and of the fullest rank. One that may have half the bytes counts for twice as many.
struct SearchCost {
  double seconds = 0, bytes = 0;
  double beside = 0;  // bytes in the other memory
  // Parts of the seconds: the busiest rank's calls, waiting for the other stages, and what comes behind the last call.
  double busy = 0, waits = 0, tail = 0;
};

// Sums over a run of layers.
struct SearchRun {
  double forward = 0, backward = 0, again = 0;  // seconds of a call
  double weights = 0, parameters = 0, expert_weights = 0;
  double largest = 0;               // bytes of the weights of one layer, at most
  double kept = 0;                  // bytes of a sample
  double working = 0, returns = 0;  // the same, of one layer at most; what is there again while it runs
  double gradient = 0;              // SearchLayer::gradient, at most
  double given = 0;                 // bytes of a sample
  double enters = 0, leaves = 0;
  bool computes_again = false;

  void add(const SearchLayer& layer, double samples);
};

// A candidate without its runs: what a run takes and has in it. All of it grows with the run, but for what hides behind
// its backward pass.
class SearchShape {
 public:
  SearchShape(const SearchProblem& problem, const SearchCandidate& candidate);

  double samples() const { return samples_; }  // of a call
  int runs() const { return runs_; }
  // Of the slowest rank that has the run of this number, which the others wait for, and of the fastest run.
  double speed(int number) const { return speeds_.empty() ? 1 : speeds_[row_.virtual_device_of(shape_, number)]; }
  double fastest() const { return fastest_; }
  // Whether gradients are summed by all-reduces of hosts that have several ranks each.
  bool sums_in_levels() const {
    return shards_ == SearchShards::nothing && (copies_inside_ > 1 || experts_inside_ > 1);
  }
  // The share of SearchProblem::bytes that each rank of a run may have.
  double memory(int number) const { return speeds_.empty() ? 1 : memories_[row_.virtual_device_of(shape_, number)]; }
  // A forward and a backward call of the run of this number.
  double seconds(const SearchRun& run, int number) const { return seconds_at(run, speed(number)); }
  // In front of the first and behind the last call: what nothing hides, and the update.
  double tail(const SearchRun& run, int number) const;
  // The same, and no more than of any run with as many weights.
  double least_seconds(const SearchRun& run) const { return seconds_at(run, fastest_); }
  double least_tail(const SearchRun& run) const;
  // Of a rank whose runs are all like this one, the run being that of this number.
  double bytes(const SearchRun& run, int number) const;
  // Of these, what is there at all times: weights, states and sums of gradients.
  double state(const SearchRun& run) const;
  // Of these, beside what calls in flight keep: what one call needs.
  double of_call(const SearchRun& run) const;
  // Bytes of a rank for each byte of a sample that a run keeps.
  double times_kept(int number) const;
  // Of the same rank, in the other memory.
  double bytes_beside(const SearchRun& run) const;
  // What the calls of a rank take whose runs are all as long.
  double busy(double longest) const { return static_cast<double>(shape_.micro_batches * shape_.chunks) * longest; }
  // A step, by the longest run, all runs together, and the longest tail.
  double step(double longest, double all, double tail) const { return of_longest_ * longest + of_all_ * all + tail; }

 private:
  void find_speeds(int64_t ranks_of_stage);
  double seconds_at(const SearchRun& run, double speed) const;
  double share(double copies) const;
  double gradients_share(double copies) const;
  double behind_calls(const SearchRun& run) const;
  double moving(Collective::Kind kind, double weights, double expert_weights) const;
  double gathering(const SearchRun& run) const;
  double each_call(const SearchRun& run) const;
  double fetching(const SearchRun& run) const;
  double of_rank(const SearchRun& run, bool shared) const;
  double hideable(const SearchRun& run) const;
  double at_the_end(const SearchRun& run, double speed) const;

  const SearchProblem& problem_;  // outlives it
  const PipelineRow& row_;
  const PipelineShape shape_;
  const SearchShards shards_;
  const SearchOffload offload_;
  const bool gradients_beside_;
  const double samples_;
  const int runs_;
  int64_t copies_inside_ = 1, experts_inside_ = 1;  // ranks_inside of these, where there may be two levels
  RankGroup copies_, experts_;                      // that sum gradients of weights, and of weights of experts
  double sums_ = 1;                                 // of gradients, at a time
  double share_ = 1, expert_share_ = 1;             // bytes of a rank for each byte of these
  double of_longest_ = 1, of_all_ = 0;
  std::vector<double> speeds_, memories_;  // by virtual device; empty: all are 1
  double fastest_ = 1;
};

// Of so many ranks, as a machine has them; empty: they are alike.
std::vector<SearchDevices> devices_of(const Machine& machine, int64_t ranks);
// Whether the batch may be cut into so many shards: those of all copies and micro-batches.
bool cuts_batch(const SearchProblem& problem, int64_t shards);
// Whether ranks, batch and layers divide so, and the schedule has a table of that shape.
bool is_possible(const SearchProblem& problem, const SearchCandidate& candidate);
SearchCost cost_of(const SearchProblem& problem, const SearchCandidate& candidate);
// Whether a rank has no more bytes than it may have.
bool is_within_limits(const SearchProblem& problem, const SearchCost& cost);

}  // namespace epl
