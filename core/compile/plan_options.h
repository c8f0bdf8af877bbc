// What a plan is made of: the model, how it is trained, the strategy and the ranks.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/stop.h"
#include "core/frontend/model.h"
#include "core/strategy/strategy.h"
#include "core/train/adapter.h"
#include "core/train/train_step.h"

namespace epl {

struct PlanFile;        // core/compile/plan_file.h
class SolvedRecompute;  // core/strategy/solved_recompute.h

// Sizes that a batch may have beside those of PlanOptions::binding.
struct PlanShape {
  Binding binding;                   // all of it, what it shares with the other included
  std::optional<TensorType> target;  // as LossSpec::target
};

// A combination of keys that was planned for `memory.budget`.
struct BudgetTrial {
  enum class Outcome : uint8_t {
    taken,
    fits,
    too_large,
    slower  // than what is taken, whether it fits or not: nothing is computed again in it
  } outcome = Outcome::slower;
  std::string keys;    // as a user writes them; empty: those of the strategy alone
  bool again = false;  // results are computed again to fit; where it is too large, as many as can be
  int stays = 0;       // of 100 bytes that would lie in another memory, those that do not
  int64_t peak = 0;    // bytes of a rank
  double seconds = 0;  // of a step, rehearsed, with what is computed again, and what stays, where it fits
};

// A plan that `auto.auto_parallel` has looked at.
struct SearchTrial {
  std::string plan;  // in words
  bool rehearsed =
      false;            // it was made; else the cost model alone knows it, and no other has less time and less memory
  double seconds = 0;   // of a step
  int64_t bytes = 0;    // of a rank
  std::string decides;  // what made another one faster; empty: nothing is known of that
};

// How a plan that was made without a budget keeps to one.
struct BudgetFit {
  std::string passes;  // of train entries; empty: the plan fits as it is
  bool again = false;  // results are computed again
  int stays = 0;       // as BudgetTrial::stays
  int64_t peak = 0;    // bytes of a rank
  double seconds = 0;  // of a step, more than that of the plan as it is
};
struct FitRequest {
  int64_t budget = 0;
  // Seconds of a step that go to what lies in another memory, if nobody has asked for it: then a share of it may stay.
  double moving = 0;
  // More seconds of a step than the plan as it is that nobody wants. What is slower has no end of seconds.
  double most_seconds = std::numeric_limits<double>::infinity();
  Stop stop = {};
  std::shared_ptr<SolvedRecompute> solved = nullptr;
};

// That a caller can ask for: a step of more is not simulated (core/runtime/rehearsal.h).
inline constexpr int64_t most_ranks = 16384;

struct PlanOptions {
  std::shared_ptr<const Model> model;
  TrainOptions train;
  AdapterOptions adapters;
  Strategy strategy;
  Binding binding;                // symbols and input shapes; the mode is set per entry
  std::vector<PlanShape> shapes;  // others, each with entries of its own over the same state and arena
  int64_t ranks = 1;
  int64_t local_ranks = 0;  // that share the threads of this process; 0: all of them
  std::string device = "cpu";
  bool training = true;                  // false: the plan has the predict entry alone, `train` is not looked at
  bool evaluate = true, predict = true;  // entries beside train
  bool keeps_to_budget = true;           // false: `memory.budget` is not looked at
  int threads = 0;                       // of a rank; 0: its share of the process's
  // Taken instead of new ones. Null: the passes decide.
  std::shared_ptr<const PlanFile> decisions;
  std::vector<std::string> notes;                     // of the search for the strategy: what has led to these options
  std::vector<BudgetTrial> tried;                     // for it, by the time of a step
  std::vector<SearchTrial> searched;                  // the same; those that were made come first
  Stop stop;                                          // while the plan is made; not kept
  std::shared_ptr<SolvedRecompute> solved = nullptr;  // by the search that makes the plan; not kept
  bool rewrites = true;                               // restore fused meaning (attention, layer norm, ...)
  std::vector<std::string> train_outputs;             // model outputs to return from step besides the loss
  std::set<std::string>
      named_batch_dims;  // inputs, the target among them, of which the host has said what counts samples

  bool over_processes() const { return local_ranks > 0 && local_ranks < ranks; }
};

}  // namespace epl
