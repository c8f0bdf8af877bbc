// How a session begins: its ranks in this process with their memory, and room for what steps give.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"

namespace epl {
namespace {

Result<int> count_local_ranks(const CompiledPlan& plan, const SessionOptions& options) {
  const int world = static_cast<int>(plan.options().ranks);
  const int count = options.ranks == 0 && options.first_rank == 0 ? world : options.ranks;
  const int first = options.first_rank;
  if (first < 0 || count < 1 || first > world - count)
    return invalid("a session of ", count, " ranks from rank ", first, " on; the plan has ", world, " ranks");
  if (count < world && !options.rendezvous)
    return invalid("a session of ", count, " of ", world, " ranks needs a rendezvous, where it finds the others");
  return count;
}

// Ascending.
Result<std::vector<int>> local_ranks_of(const CompiledPlan& plan, const SessionOptions& options) {
  if (!options.represented.empty()) return options.represented;
  EPL_ASSIGN(const int count, count_local_ranks(plan, options));
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), options.first_rank);
  return ranks;
}

// By entry and virtual device, the first unit of each shard of the batch that a rank here gives already.
using GivenShards = std::map<std::pair<const Entry*, int>, std::set<int64_t>>;

// Of the ranks here that have an output, or a shard of it, the first gives it.
void give_outputs(const Entry& entry, int virtual_device, int rank, GivenShards& given, Executor& executor) {
  const Mesh& mesh = entry.mesh(virtual_device);
  const BatchLayout& batch = entry.programs[static_cast<size_t>(virtual_device)].batch;
  std::set<int64_t>& here = given[{&entry, virtual_device}];
  const bool first = here.empty();
  executor.give_outputs(first, here.insert(batch.first_unit(mesh, mesh.coordinates(rank))).second);
}

// A rank of this process: its stream, memory, state, and an executor for each entry that runs. `host` outlives it.
Result<std::unique_ptr<LocalRank>> make_rank(const Host& host, Device& device, const CompiledPlan& plan,
                                             const SessionOptions& options, int number, GivenShards& given) {
  auto rank = std::make_unique<LocalRank>();
  rank->number = number;
  EPL_ASSIGN(rank->stream, device.create_stream(plan.threads_per_rank()));
  const int at = rank->virtual_device = plan.virtual_device_of_rank(number);
  if (options.predicts_only) {
    EPL_ASSIGN(rank->store,
               ParameterStore::create_room(device, PlanMemory(plan).prediction_state(at), plan.mesh(at), number));
  } else {
    EPL_ASSIGN(rank->store,
               ParameterStore::create(device, *rank->stream, plan.state_of(at), plan.mesh(at), number, options.stop));
  }
  EPL_ASSIGN(rank->arenas, allocate_each(device, options.predicts_only ? PlanMemory(plan).prediction_arenas(at)
                                                                       : PlanMemory(plan).arenas(at)));
  for (const Entry& entry : plan.entries()) {
    if (options.predicts_only && entry.kind != EntryKind::predict) {
      rank->executors.push_back(nullptr);
      continue;
    }
    EPL_TRY(options.stop.check());
    const Program& program = entry.programs[static_cast<size_t>(at)];
    EPL_ASSIGN(auto executor, Executor::create(host, device, *rank->stream, program, entry.agreement_bytes(at),
                                               rank->store, rank->arenas, entry.mesh(at), number));
    give_outputs(entry, at, number, given, *executor);
    if (!entry.applied.empty()) executor->set_applied(&entry.applied[static_cast<size_t>(at)]);
    rank->executors.push_back(std::move(executor));
  }
  return rank;
}

Result<LocalRanks> make_ranks(const Host& host, const CompiledPlan& plan, const SessionOptions& options) {
  LocalRanks ranks(options.device ? options.device : plan.device(), options.first_rank);
  EPL_ASSIGN(const std::vector<int> numbers, local_ranks_of(plan, options));
  const auto count = static_cast<int>(numbers.size());
  GivenShards given;
  for (const int r : numbers) {
    EPL_ASSIGN(auto rank, make_rank(host, ranks.device()->of_rank(r), plan, options, r, given));
    ranks.add(std::move(rank));
  }
  if (ranks.device()->executes() && count > 1) {
    const auto workers = host.workers ? host.workers : std::make_shared<Workers>(host.threads, wait_of(host));
    auto threads = workers->teams(count);
    Team started(*threads);  // now, so that a step finds them
    ranks.use(std::move(threads));
  }
  return ranks;
}

}  // namespace

Session::Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, uint64_t seed)
    : host_(host), plan_(std::move(plan)), host_state_(std::make_unique<HostState>(plan_, seed)) {}

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(host, std::move(plan), options.seed));
  const std::shared_ptr<const CompiledPlan>& of = session->plan_;
  EPL_ASSIGN(LocalRanks ranks, make_ranks(session->host_, *of, options));
  session->world_ = std::make_unique<World>(of, options, std::move(ranks), *session->host_state_);
  World& world = *session->world_;
  session->state_ = std::make_unique<State>(host, of, world, *session->host_state_);
  {
    const StopScope creating(world.call(), options.stop);
    EPL_TRY(world.connect(options.stop,
                          [&] { return options.predicts_only ? Status() : session->state_->compare_weights(); }));
  }
  session->results_ = std::make_unique<Results>(of, world.ranks(), options.predicts_only);
  session->foreign_ = std::make_unique<ForeignTensors>(*world.ranks().device(), of->options().device);
  session->reserve_pointers();
  if (options.slices) {
    EPL_ASSIGN(session->slices_, InputSlices::create(of, world.ranks().first(), world.ranks().count()));
  }
  session->measure_memory();
  return session;
}

// So that a call allocates nothing.
void Session::reserve_pointers() {
  size_t max_inputs = 0, max_outputs = 0;
  for (const Entry& entry : plan_->entries()) {
    max_inputs = std::max(max_inputs, entry.inputs.size());
    max_outputs = std::max(max_outputs, entry.outputs.size());
  }
  input_pointers_.reserve(max_inputs);
  output_pointers_.reserve(max_outputs);
  input_devices_.reserve(max_inputs);
  output_devices_.reserve(max_outputs);
}

void Session::measure_memory() {
  const PlanMemory planned(*plan_);
  for (const auto& rank : world_->ranks()) {
    for (const MemoryKind memory : memory_kinds) {
      int64_t arena = 0;
      for (const auto& executor : rank->executors) {
        if (executor) arena = std::max(arena, executor->arena_high_water()[memory]);
      }
      const int at = rank->virtual_device;
      const int64_t used = planned.peak(at, memory) - planned.arenas(at)[memory] + arena;
      rank->memory_bytes_used[memory].store(used, std::memory_order_relaxed);
    }
  }
}

int64_t Session::memory_bytes_used_by(int rank, MemoryKind memory) const {
  const LocalRanks& ranks = world_->ranks();
  return ranks.has(rank) ? ranks.at(rank).memory_bytes_used[memory].load(std::memory_order_relaxed) : -1;
}

int64_t Session::memory_bytes_used(MemoryKind memory) const {
  int64_t fullest = 0;
  for (const auto& rank : world_->ranks())
    fullest = std::max(fullest, rank->memory_bytes_used[memory].load(std::memory_order_relaxed));
  return fullest;
}

}  // namespace epl
