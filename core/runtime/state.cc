#include "core/runtime/state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/converted.h"
#include "core/base/shown.h"
#include "core/program/shards.h"

namespace epl {

StateKind state_kind(const CompiledPlan& plan, const StateSlot& slot) {
  if (slot.kind == ValueKind::buffer) return StateKind::buffer;
  if (slot.kind != ValueKind::parameter)
    return gradient_of(plan, slot.name).empty() ? StateKind::optimizer : StateKind::gradient;
  const std::vector<std::string>& trained = plan.trained();
  return std::ranges::find(trained, slot.name) == trained.end() ? StateKind::frozen : StateKind::parameter;
}

bool converts(const CompiledPlan& plan, const StateSlot& slot, const TensorType& from) {
  return state_kind(plan, slot) == StateKind::optimizer && from.shape == slot.type.shape && is_float(from.dtype) &&
         is_float(slot.type.dtype);
}

std::vector<std::string> state_names(const CompiledPlan& plan, StateKind kind) {
  std::vector<std::string> names;
  for (const StateSlot& slot : plan.state().slots()) {
    if (state_kind(plan, slot) == kind) names.push_back(slot.name);
  }
  std::ranges::sort(names);
  return names;
}

State::State(const Host& host, std::shared_ptr<const CompiledPlan> plan, World& world, const HostState& host_state)
    : host_(host), plan_(std::move(plan)), world_(world), host_state_(host_state), gradients_(*plan_) {}

void State::restored() {
  healthy_ = consistent_here_ = true;
  world_.call().forget_values_set();
}

void State::note_failure(bool here, bool elsewhere) {
  consistent_here_ = consistent_here_ && !here;
  healthy_ = healthy_ && consistent_here_ && !elsewhere;
}

Result<State::Held> State::held(std::string_view name) const {
  Held out;
  for (int t = 0; t < plan_->virtual_devices() && !out.slot; ++t) {
    out.slot = plan_->state_of(t).find(name);
    out.mesh = &plan_->mesh(t);
  }
  if (!out.slot) return error(Code::not_found, "no parameter or state is called ", shown(name, 200));
  std::vector<int> ranks = out.mesh->device.ranks;
  std::ranges::sort(ranks);
  std::vector<std::vector<int64_t>> shards;
  std::vector<int> shard_of(static_cast<size_t>(world_.size()), -1);
  for (const int rank : ranks) {
    if (!out.slot->sharding.rank_local.is_at(*out.mesh, out.mesh->coordinates(rank))) continue;
    std::vector<int64_t> shard;
    for (const Cuts& cuts : out.slot->sharding.dims) {
      for (const AxisCut& cut : cuts) shard.push_back(out.mesh->shard(out.mesh->coordinates(rank), cut.axes));
    }
    const auto known = static_cast<size_t>(std::ranges::find(shards, shard) - shards.begin());
    if (known == shards.size()) {
      shards.push_back(shard);
      out.holders.emplace_back();
    }
    out.holders[known].push_back(rank);
    shard_of[static_cast<size_t>(rank)] = static_cast<int>(known);
  }
  out.everywhere =
      world_.processes().each_has_all([&](int rank, int shard) { return shard_of[static_cast<size_t>(rank)] == shard; },
                                      static_cast<int>(shards.size()));
  return out;
}

bool State::has_full(std::string_view name) const {
  const Result<Held> held = this->held(name);
  return held.ok() && held->everywhere;
}

// A shard that some process lacks goes from its first holder to all.
Result<Tensor> State::get(std::string_view name) {
  EPL_ASSIGN(const Held held, this->held(name));
  const Stop& stop = world_.call().stop();
  if (!held.everywhere) EPL_TRY(world_.enter_call(stop));
  if (const Status stopped = stop.check(); !stopped.ok()) return held.everywhere ? stopped : world_.abort(stopped);
  const StateSlot& slot = *held.slot;
  Tensor full(slot.type);
  for (const std::vector<int>& holders : held.holders) {
    const auto local = std::ranges::find_if(holders, [&](int rank) { return world_.is_local(rank); });
    if (held.everywhere) {
      const LocalRank& rank = world_.ranks().at(*local);
      EPL_TRY(rank.store.gather(*rank.stream, slot, full));
      continue;
    }
    const int giver = holders.front();
    Tensor shard(slot.local);
    if (world_.is_local(giver)) {
      const LocalRank& rank = world_.ranks().at(giver);
      if (Status status = rank.store.read(*rank.stream, slot, shard); !status.ok()) return world_.abort(status);
    }
    EPL_TRY(world_.among_processes({.kind = Collective::Kind::broadcast,
                                    .count = shard.bytes(),
                                    .source = shard.data(),
                                    .target = shard.data(),
                                    .peer = static_cast<int>(world_.processes().of(giver))}));
    const auto put = [&](int64_t global, int64_t at, int64_t bytes) {
      std::memcpy(static_cast<std::byte*>(full.data()) + global, static_cast<const std::byte*>(shard.data()) + at,
                  static_cast<size_t>(bytes));
    };
    for_each_run(slot.type, slot.sharding, *held.mesh, held.mesh->coordinates(giver), put);
  }
  return full;
}

Result<Tensor> State::view(std::string_view name) {
  EPL_ASSIGN(const Held held, this->held(name));
  if (!held.everywhere || held.holders.size() > 1) return get(name);
  EPL_TRY(world_.call().stop().check());
  const auto local = std::ranges::find_if(held.holders.front(), [&](int rank) { return world_.is_local(rank); });
  const LocalRank& rank = world_.ranks().at(*local);
  return rank.store.view(*rank.stream, *held.slot);
}

Result<std::vector<State::Shard>> State::shards(std::string_view name, size_t number) const {
  EPL_ASSIGN(const Held held, this->held(name));
  EPL_TRY(world_.call().stop().check());
  std::vector<Shard> out;
  for (const std::vector<int>& holders : held.holders) {
    const int giver = holders[number % holders.size()];
    if (!world_.is_local(giver)) continue;
    const LocalRank& rank = world_.ranks().at(giver);
    out.push_back({giver, rank.store.boxes(*rank.stream, *held.slot)});
  }
  return out;
}

Status State::set_shards(std::string_view name, const std::vector<PositionedBox>& given) {
  EPL_ASSIGN(const Held held, this->held(name));
  std::vector<PositionedBox> shards = given;
  for (PositionedBox& shard : shards) shard.value = converted(shard.value, held.slot->type.dtype);
  const StateGate::Change change(gate_);
  const bool was_healthy = healthy_, was_consistent = consistent_here_;
  torn();  // until all ranks have it
  for (const auto& rank : world_.ranks()) {
    const StateSlot* slot = plan_->state_of(rank->virtual_device).find(name);
    if (slot != nullptr) EPL_TRY(rank->store.scatter(*rank->stream, *slot, shards));
  }
  healthy_ = was_healthy;
  consistent_here_ = was_consistent;
  gradients_.note_set(*held.slot);
  return {};
}

// What may fail for want of memory or of a file comes before anything changes, but for a value that no rank cuts and
// that is not in memory.
Status State::set(std::string_view name, const Tensor& given) {
  EPL_ASSIGN(const Held held, this->held(name));
  if (given.type() != held.slot->type && !converts(*plan_, *held.slot, given.type()))
    return invalid(name, " is ", held.slot->type.text(), ", got ", given.type().text());
  const Tensor value = converted(given, held.slot->type.dtype);
  std::vector<Tensor> shards;
  for (const auto& rank : world_.ranks()) {
    const StateSlot* slot = plan_->state_of(rank->virtual_device).find(name);
    EPL_ASSIGN(Tensor shard, slot != nullptr ? rank->store.cut(*slot, value) : Result<Tensor>(value));
    shards.push_back(std::move(shard));
  }
  const StateGate::Change change(gate_);
  const bool was_healthy = healthy_, was_consistent = consistent_here_;
  torn();  // until all ranks have it
  auto shard = shards.begin();
  for (const auto& rank : world_.ranks()) {
    const Tensor& own = *shard++;
    const StateSlot* slot = plan_->state_of(rank->virtual_device).find(name);
    if (slot != nullptr) EPL_TRY(rank->store.put(*rank->stream, *slot, own));
  }
  healthy_ = was_healthy;
  consistent_here_ = was_consistent;
  gradients_.note_set(*held.slot);
  // Of a torn state nothing is compared: only a checkpoint makes it consistent.
  return world_.over_processes() && healthy_ ? world_.call().note_value_set(name, value) : Status();
}

Result<Tensor> State::in_place(std::string_view name) const {
  if (!consistent_here_)
    return error(Code::state_lost, "the last step failed while the weights of this process were changing");
  EPL_ASSIGN(const Held held, this->held(name));
  std::vector<PositionedBox> boxes;
  for (const std::vector<int>& holders : held.holders) {
    const auto local = std::ranges::find_if(holders, [&](int rank) { return world_.is_local(rank); });
    if (local == holders.end())
      return error(Code::peer_failed, "this process does not have all of ", shown_plain(name, 200));
    const LocalRank& rank = world_.ranks().at(*local);
    for (PositionedBox& box : rank.store.boxes(*rank.stream, *held.slot)) boxes.push_back(std::move(box));
  }
  const bool uncut = boxes.size() == 1 && boxes[0].value.type() == held.slot->type;
  return uncut ? boxes[0].value : joined(held.slot->type, std::move(boxes));
}

int State::keeper() const {
  const Status& lost = world_.lost();
  const Processes& processes = world_.processes();
  if (lost.ok() || lost.rank() < 0 || processes.count() == 0) return -1;
  const size_t gone = processes.of(static_cast<int>(lost.rank()));
  for (size_t p = 0; p < processes.count(); ++p) {
    const auto is_of_it = [&](int rank) { return rank >= processes.first(p) && rank < processes.end(p); };
    const auto has_all = [&](const StateSlot& slot) {
      const Result<Held> held = this->held(slot.name);
      return held.ok() && std::ranges::all_of(held->holders, [&](const std::vector<int>& holders) {
               return std::ranges::any_of(holders, is_of_it);
             });
    };
    if (p != gone && std::ranges::all_of(plan_->state().slots(), has_all)) return processes.first(p);
  }
  return -1;
}

Status State::set_checked(std::string_view name, const Tensor& value) {
  if (!gradient_of(*plan_, name).empty() && is_float(value.dtype())) {
    for (int64_t i = 0; i < value.elements(); ++i) {
      if (std::isfinite(value.get(i))) continue;
      return Status(Code::not_finite, cat(name, " would hold ", number_text(value.get(i)), " (element ", i, ")"),
                    std::string(name));
    }
  }
  return set(name, value);
}

Result<uint64_t> State::hash() {
  const std::vector<std::string> names = state_names(*plan_, StateKind::parameter);
  const bool full = std::ranges::all_of(names, [&](const std::string& name) { return has_full(name); });
  if (!full) EPL_TRY(world_.enter_call(world_.call().stop()));
  const auto hash = [&]() -> Result<uint64_t> {
    Hash64 all;
    for (const std::string& name : names) {
      EPL_ASSIGN(Tensor value, view(name));
      add_to_hash(all, value);
    }
    return all.value();
  };
  const Result<uint64_t> own = hash();
  if (full) return own;
  EPL_TRY(world_.leave_call(own.status()));
  EPL_TRY(world_.agree({}));  // nobody has it where another one was cancelled
  return own;
}

void State::clear_gradients() {
  const StateGate::Change change(gate_);
  for (const auto& rank : world_.ranks()) {
    for (const StateSlot& slot : plan_->state_of(rank->virtual_device).slots()) {
      if (!slot.name.ends_with(gradient_suffix)) continue;
      const bool kept = std::ranges::any_of(
          plan_->trained(), [&](const std::string& name) { return slot.name == cat(name, gradient_suffix); });
      if (kept && world_.ranks().device()->executes()) rank->stream->fill(rank->store.at(slot), slot.local.bytes(), 0);
    }
  }
}

}  // namespace epl
