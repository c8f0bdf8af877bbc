// How a session begins: its ranks in this process with their memory, and room for what steps give.
#include <algorithm>

#include "core/runtime/session.h"
#include "core/runtime/session_rank.h"

namespace epl {

Session::Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, const SessionOptions& options)
    : host_(host), plan_(std::move(plan)), options_(options), seed_(options.seed) {
  options_.stop = Stop();
}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 uint64_t seed) {
  return create(host, std::move(plan), SessionOptions{.seed = seed});
}

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(host, std::move(plan), options));
  const CompiledPlan& p = session->plan();
  session->device_ = options.device ? options.device : p.device();
  EPL_ASSIGN(const int local_ranks, session->local_ranks());
  for (int r = options.first_rank; r < options.first_rank + local_ranks; ++r)
    EPL_TRY(session->add_rank(r, options.stop));
  if (session->device_->executes() && local_ranks > 1) {
    const auto workers = host.workers ? host.workers : std::make_shared<Workers>(host.threads, wait_of(host));
    session->rank_threads_ = workers->teams(local_ranks);
    Team started(*session->rank_threads_);  // now, so that a step finds them
  }
  {
    const Call creating(*session, options.stop);
    EPL_TRY(session->connect(options.stop));
  }
  session->reserve_results();
  if (p.options().train.keep_gradients) session->has_gradient_.assign(p.trained().size(), 0);
  session->gradients_are("none were computed yet");
  if (options.slices) EPL_TRY(session->find_slices());
  session->measure_memory();
  return session;
}

// A rank of this process: its stream, memory, state, and an executor for each entry that runs.
Status Session::add_rank(int r, const Stop& stop) {
  const CompiledPlan& p = plan();
  auto rank = std::make_unique<Rank>();
  EPL_ASSIGN(rank->stream, device_->create_stream(p.threads_per_rank()));
  const int at = rank->rank_class = p.class_of_rank(r);
  if (options_.predicts_only) {
    const int64_t state_bytes = p.prediction_state_bytes(at);
    EPL_ASSIGN(rank->store, ParameterStore::create_room(*device_, state_bytes, p.mesh(at), r));
  } else {
    EPL_ASSIGN(rank->store, ParameterStore::create(*device_, *rank->stream, p.state_of(at), p.mesh(at), r, stop));
  }
  EPL_ASSIGN(rank->arena, device_->allocate(options_.predicts_only ? p.prediction_arena_bytes(at) : p.arena_bytes(at)));
  for (const Entry& entry : p.entries()) {
    // Of the ranks here that have an output, or a piece of it, the first gives it.
    const Mesh& mesh = entry.mesh(at);
    const Cuts& batch = entry.programs[static_cast<size_t>(at)].batch;
    const auto batch_place = [&](int of) { return mesh.first_unit(batch, mesh.place(of)); };
    bool first = true, first_of_piece = true;
    for (int other = options_.first_rank; other < r; ++other) {
      if (p.class_of_rank(other) != at) continue;
      first = false;
      first_of_piece = first_of_piece && batch_place(other) != batch_place(r);
    }
    if (!runs(entry)) {
      rank->executors.push_back(nullptr);
      continue;
    }
    EPL_TRY(stop.check());
    const Program& program = entry.programs[static_cast<size_t>(at)];
    EPL_ASSIGN(auto executor, Executor::create(host_, *device_, *rank->stream, program, entry.agreement_bytes(at),
                                               rank->store, *rank->arena, mesh, r));
    executor->give_outputs(first, first_of_piece);
    if (!entry.applied.empty()) executor->set_applied(&entry.applied[static_cast<size_t>(at)]);
    rank->executors.push_back(std::move(executor));
  }
  ranks_.push_back(std::move(rank));
  return {};
}

// Room for what steps give, so that a step allocates nothing.
void Session::reserve_results() {
  size_t max_inputs = 0, max_outputs = 0;
  for (const Entry& entry : plan().entries()) {
    max_inputs = std::max(max_inputs, entry.inputs.size());
    max_outputs = std::max(max_outputs, entry.outputs.size());
    auto& results = results_.emplace_back();
    auto& next = next_results_.emplace_back();
    // Of evaluate and predict the rest is wanted by few, who bring the room.
    for (const Port& port : entry.outputs) {
      const bool merged = entry.merges[results.size()].has_value();
      const bool kept = runs(entry) && (entry.kind == EntryKind::train ||
                                        (entry.kind == EntryKind::evaluate && (merged || port.name == "loss")));
      results.push_back(kept ? Tensor(port.global_type) : Tensor());
      next.push_back(kept ? Tensor(port.global_type) : Tensor());
    }
  }
  input_pointers_.reserve(max_inputs);
  output_pointers_.reserve(max_outputs);
}

Result<int> Session::local_ranks() const {
  const int count = options_.ranks == 0 && options_.first_rank == 0 ? world() : options_.ranks;
  const int first = options_.first_rank;
  if (first < 0 || count < 1 || first > world() - count) {
    return invalid("a session of ", count, " ranks from rank ", first, " on; the plan has ", world(), " ranks");
  }
  if (count < world() && !options_.rendezvous) {
    return invalid("a session of ", count, " of ", world(), " ranks needs a rendezvous, where it finds the others");
  }
  return count;
}

void Session::measure_memory() {
  int64_t fullest = 0;
  for (const auto& rank : ranks_) {
    int64_t arena = 0;
    for (const auto& executor : rank->executors) {
      if (executor) arena = std::max(arena, executor->arena_high_water());
    }
    const int at = rank->rank_class;
    fullest = std::max(fullest, plan_->memory_bytes_peak(at) - plan_->arena_bytes(at) + arena);
  }
  memory_bytes_used_.store(fullest, std::memory_order_relaxed);
}

}  // namespace epl
