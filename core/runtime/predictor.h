// Predicts with the weights of a session, from other threads, while the session trains on.
// Thread safety: one caller at a time; steps of the session may run beside any call. `steps` from any thread.
//
// It has a copy of what a prediction reads: parameters and buffers, not the optimizer's state. The copy is of one step,
// never of two: a step changes its state in its update alone, in place, and whoever copies and the update wait for each
// other (StateGate). Sharing the memory itself would make each update wait for each prediction.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime/session.h"

namespace epl {

class Predictor {
 public:
  // With `shapes`, another plan of the same model, whose predict entry has other sizes; null: the session's plan. It
  // holds what the session has now, as after `refresh`.
  static Result<std::unique_ptr<Predictor>> create(const std::shared_ptr<Session>& session,
                                                   std::shared_ptr<const CompiledPlan> shapes,
                                                   const CallOptions& options = {});
  // Takes the weights of the session's last step. It waits for an update at most, as an update for it. Where it fails
  // before it copies, nothing has changed.
  Status refresh(const CallOptions& options = {});
  // Steps that the session had done when it was looked at.
  int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // Bytes of all its ranks: state, arena, constants, scalars.
  int64_t memory_bytes() const;
  // The session that predicts, with the predict entry alone. An error: a refresh has failed while it copied.
  Result<Session*> session();
  const CompiledPlan& plan() const { return own_->plan(); }

 private:
  // A name of the state on its way: which ranks of the session have a shard each, and where it comes to.
  struct Item {
    const StateSlot* from = nullptr;
    std::vector<int> holders;
    const StateSlot* to = nullptr;
  };
  Predictor() = default;
  Status prepare(Session& session);
  Status copy(Session& session);

  std::weak_ptr<Session> source_;
  std::unique_ptr<Session> own_;
  std::map<Device*, std::unique_ptr<Stream>> streams_;  // that read the session's state, by its devices
  bool alike_ = false;  // the plan is the session's, so that each rank takes what its like has
  std::vector<Item> items_;
  std::vector<std::byte> room_;  // for one of them
  std::atomic<int64_t> steps_{0};
  bool complete_ = false;
};

}  // namespace epl
