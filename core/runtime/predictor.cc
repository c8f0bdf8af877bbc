#include "core/runtime/predictor.h"

#include <algorithm>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"

namespace epl {
namespace {

// Of the state, what predictions read, by name.
std::vector<const StateSlot*> slots_read(const CompiledPlan& plan) {
  std::vector<const StateSlot*> out;
  for (const Entry& entry : plan.entries()) {
    if (entry.kind != EntryKind::predict) continue;
    for (int t = 0; t < plan.virtual_devices(); ++t) {
      const Program& program = entry.programs[static_cast<size_t>(t)];
      const std::set<StateLocation> used = state_in_use(program);
      for (const StateSlot& slot : program.state) {
        const bool known = std::ranges::any_of(out, [&](const StateSlot* other) { return other->name == slot.name; });
        if (used.contains(slot.location()) && !known) out.push_back(plan.state_of(t).find(slot.name));
      }
    }
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::create(const std::shared_ptr<Session>& session,
                                                     std::shared_ptr<const CompiledPlan> shapes,
                                                     const CallOptions& options) {
  const CompiledPlan& trained = session->plan();
  Device& device = *session->world().ranks().device();
  std::unique_ptr<Predictor> made(new Predictor());
  made->source_ = session;
  made->alike_ = shapes == nullptr || shapes.get() == &trained;
  if (made->alike_) shapes = session->shared_plan();
  if (!shapes->entry(EntryKind::predict)) return invalid("the plan has no predict entry");
  if (!device.executes())
    return unsupported("a predictor needs a device that computes, and ", device.description(), " computes nothing");
  if (made->alike_ && session->world().over_processes()) {
    return unsupported("a predictor lives in one process, and this session is one of several: give it a plan of its ",
                       "own, of one rank");
  }
  SessionOptions own{.seed = session->host_state().seed(), .predicts_only = true};
  if (made->alike_) own.device = session->world().options().device;
  for (const auto& rank : session->world().ranks()) {
    Device& of_rank = device.of_rank(rank->number);
    if (std::unique_ptr<Stream>& stream = made->streams_[&of_rank]; stream == nullptr) {
      EPL_ASSIGN(stream, of_rank.create_stream(1));
    }
  }
  EPL_ASSIGN(made->own_, Session::create(session->host(), std::move(shapes), own));
  if (!made->alike_) EPL_TRY(made->prepare(*session));
  EPL_TRY(made->refresh(options));
  return made;
}

// What the two plans have of each other's state.
Status Predictor::prepare(Session& session) {
  const std::vector<const StateSlot*> wanted = slots_read(plan());
  if (session.plan().entry(EntryKind::predict)) {
    for (const StateSlot* slot : slots_read(session.plan())) {
      if (std::ranges::any_of(wanted, [&](const StateSlot* other) { return other->name == slot->name; })) continue;
      return invalid("the plan of the predictor does not read ", slot->name,
                     ", which predictions of the session do: make it of the same model, with the same trainer")
          .at(slot->name);
    }
  }
  int64_t largest = 0;
  for (const StateSlot* slot : wanted) {
    const auto held = session.state().held(slot->name);
    if (!held.ok()) {
      return invalid("the session has no ", slot->name,
                     ", which the plan of the predictor reads: make it of the same model, with the same trainer")
          .at(slot->name);
    }
    if (held->slot->type != slot->type) {
      return invalid(slot->name, " is ", held->slot->type.text(), " in the session and ", slot->type.text(),
                     " in the plan of the predictor: make it with the same trainer")
          .at(slot->name);
    }
    Item item{.from = held->slot, .to = slot};
    for (const std::vector<int>& holders : held->holders) {
      const auto local = std::ranges::find_if(holders, [&](int rank) { return session.world().is_local(rank); });
      if (local == holders.end())
        return unsupported("other processes have shards of ", slot->name, "; a predictor needs all in its own")
            .at(slot->name);
      item.holders.push_back(*local);
    }
    items_.push_back(std::move(item));
    largest = std::max(largest, slot->type.bytes());
  }
  room_.resize(static_cast<size_t>(largest));
  return {};
}

Status Predictor::refresh(const CallOptions& options) {
  const std::shared_ptr<Session> session = source_.lock();
  if (!session) return error(Code::misuse, "the session of this predictor is gone; its weights stay as they are");
  return session->state().gate().read(options.stop, [&]() -> Status {
    if (!session->state().healthy())
      return error(Code::state_lost, "a step of the session failed while the weights were changing; load a checkpoint");
    complete_ = false;
    EPL_TRY(copy(*session));
    complete_ = true;
    const HostState& from = session->host_state();
    own_->host_state().set_seed(from.seed());
    own_->host_state().set_steps_done(from.steps_done());
    steps_.store(from.steps_done(), std::memory_order_relaxed);
    return {};
  });
}

Status Predictor::copy(Session& session) {
  Device& device = *session.world().ranks().device();
  const auto stream_of = [&](int rank) -> Stream& { return *streams_.at(&device.of_rank(rank)); };
  if (alike_) {
    for (const auto& rank : own_->world().ranks())
      rank->store.copy_from(stream_of(rank->number), session.world().ranks().at(rank->number).store);
    Status copied;
    for (const auto& [on, stream] : streams_) {
      if (const Status status = stream->synchronize(); copied.ok()) copied = status;
    }
    return copied;
  }
  for (const Item& item : items_) {
    Tensor full(item.from->type, nullptr, room_.data());
    for (const int holder : item.holders)
      EPL_TRY(session.world().ranks().at(holder).store.gather(stream_of(holder), *item.from, full));
    EPL_TRY(own_->state().set(item.to->name, full));
  }
  return {};
}

int64_t Predictor::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& rank : own_->world().ranks()) bytes += PlanMemory(plan()).prediction(rank->virtual_device);
  return bytes + static_cast<int64_t>(room_.size());
}

Result<Session*> Predictor::session() {
  if (!complete_)
    return error(Code::state_lost, "the last refresh of this predictor failed while it copied; refresh it again");
  return own_.get();
}

}  // namespace epl
