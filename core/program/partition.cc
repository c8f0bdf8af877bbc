#include <algorithm>

#include "core/program/moves.h"
#include "core/program/partitioning.h"
#include "core/program/together.h"
#include "core/strategy/local_experts.h"
#include "core/strategy/weight_shards.h"

namespace epl {
namespace {

// So many nodes of a rank are more than a layer has.
constexpr int gathered_again_behind = 256;

}  // namespace

Result<LocalGraph> Partition::run() {
  std::optional<std::vector<NodeId>> order = run_order(plan_);
  EPL_CHECK(order.has_value(), "verify_plan has found an order");
  order_ = *std::move(order);
  for (const NodeId n : plan_.node_representative.ids()) {
    const NodeId representative = plan_.node_representative[n];
    if (!representative) continue;
    const RankLocal& rank_local = plan_.node_shardings[n].rank_local;
    std::vector<NodeId>& all = alternatives_[representative];
    all.resize(plan_.mesh(plan_.node_task_graph[n]).shards(rank_local.axes));
    all[rank_local.shard] = n;
  }
  find_means();
  local_.graph.name = global_.name;
  local_.virtual_device = here_;
  local_.mesh = mesh_;
  local_.batch = BatchLayout(plan_.in_global_batch(plan_.batch_of_virtual_device(here_).cuts()));
  local_.calls = plan_.calls[here_];
  local_.blocks = blocks_of(local_.calls);
  local_.commits = !global_.updates.empty();
  copy_leaves();
  for (int block = 0; block < std::ssize(local_.blocks); ++block) {
    const LocalWriter w(local_, block);
    carry_on(w);
    take_means(w);
    for (const Boundary& b : boundaries_) {
      if (b.late) EPL_TRY(pass_on(b, w));
    }
    for (const NodeId n : order_) EPL_TRY(visit(n, w));
    known_ = {};  // what is known belongs to one loop
  }
  EPL_TRY(finish());
  const bool in_buckets = shards_gradients(plan_.strategy);
  const std::vector<StateHome> away = results_away();
  join_collectives(local_, in_buckets ? std::max<int64_t>(plan_.strategy.integer("communication.max_splits"), 1) : 0);
  if (!away.empty() || !local_.homes.empty()) write_moves(local_, away);
  EPL_TRY(verify(local_.graph));
  return std::move(local_);
}

// By their names here, which collectives that are joined keep.
std::vector<StateHome> Partition::results_away() const {
  std::vector<StateHome> away;
  for (const Value v : plan_.value_memory.ids()) {
    const MemoryKind memory = plan_.value_memory[v];
    const bool made = global_.value(v).producer && now_[v] && local_.graph.value(now_[v]).producer;
    if (memory != MemoryKind::device && made) away.push_back({local_.graph.value(now_[v]).name, memory});
  }
  return away;
}

bool Partition::assigned_here(NodeId n) const {
  const int at = plan_.node_task_graph[n];
  return at != every_task_graph && plan_.virtual_device_of(at) == here_;
}

Value& Partition::in_block(Value v, bool behind) {
  return (behind && wants_mean(v) ? mean_ : now_)[plan_.representative_of(v)];
}

Status Partition::visit(NodeId n, const LocalWriter& w) {
  const int at = plan_.node_task_graph[n];
  if (is_representative(n) && (assigned_here(n) || at == every_task_graph)) {
    const bool again = is_again(n, local_.blocks[w.block()]);
    if (again || plan_.block_of(n, here_) == local_.blocks[w.block()]) {
      if (!plan_.node_recomputed.empty() && global_.node(n).phase == Phase::backward) {
        for (Value v : global_.node(n).inputs) EPL_TRY(recompute(v, w));
      }
      EPL_TRY(make_local(n, w, again));
      EPL_TRY(give_to_all(n, w));
      EPL_TRY(sum_over_time(n, w));
    }
  }
  for (const Boundary& b : boundaries_) {
    if (!b.late && global_.value(b.value).producer == n) EPL_TRY(pass_on(b, w));
  }
  return {};
}

Status Partition::recompute(Value v, const LocalWriter& w) {
  const NodeId n = v ? global_.value(v).producer : NodeId{};
  const BlockId& here = local_.blocks[w.block()];
  if (!n || !plan_.node_recomputed[n] || !assigned_here(n) || here.kind == BlockKind::post) return {};
  if (here.kind != BlockKind::main && here.stage != plan_.task_graphs[plan_.node_task_graph[n]].stage) return {};
  if (is_recomputed_.empty()) is_recomputed_.assign(global_.node_count(), false);
  if (is_recomputed_[n]) return {};
  is_recomputed_[n] = true;
  for (Value input : global_.node(n).inputs) EPL_TRY(recompute(input, w));
  for (Value output : global_.node(n).outputs) known_.moved.erase(output);
  const NodeId last{local_.graph.node_count() - 1};
  EPL_TRY(make_local(n, LocalWriter(local_, w.block(), Phase::backward), true));
  for (const NodeId made : local_.graph.node_ids().after(last)) local_.again.insert(local_.graph.node(made).name);
  return {};
}

bool Partition::is_again(NodeId n, const BlockId& block) const {
  const bool sees = block.kind == BlockKind::main || block.kind == BlockKind::forward;
  if (!sees || plan_.node_block[n] != BlockKind::pre || !plan_.node_cloned[n] || !assigned_here(n)) return false;
  const int at = plan_.node_task_graph[n];
  return block.kind == BlockKind::main || block.stage == plan_.task_graphs[at].stage;
}

Status Partition::pass_on(const Boundary& b, const LocalWriter& w) {
  const BlockId& here = local_.blocks[w.block()];
  const bool sends = b.from == here_ && b.sent == here, receives = b.to == here_ && b.received == here;
  if (!sends && !receives) return {};
  const auto mesh_of = [&](int virtual_device) -> const Mesh& { return plan_.meshes[virtual_device]; };
  const ValueInfo& info = global_.value(b.value);
  auto made = cross(mesh_of(b.from), b.from, mesh_of(b.to), b.to, global_.type(b.value), stored(b.value));
  if (!made.ok()) return made.status().with_context(cat("value ", info.name));
  Crossing& crossing = *made;
  if (const int64_t channel = channel_of(plan_, boundaries_, b); channel > 0) {
    for (Move& send : crossing.sends) send.attributes.set("channel", channel);
    crossing.receive.attributes.set("channel", channel);
  }
  const Phase phase = info.producer ? global_.node(info.producer).phase : Phase::forward;
  Value& now = in_block(b.value, b.late);
  if (sends) {
    const Value leaves = w.append(crossing.gathers, info.name, now, phase);
    for (const Move& send : crossing.sends) w.append(send, cat(info.name, send.suffix), {leaves}, phase);
  }
  if (receives) {
    now = w.append(crossing.receive, cat(info.name, crossing.receive.suffix), {}, phase);
    received_[b.value] = crossing.as;
  }
  return {};
}

bool Partition::staged(Value v) const {
  const int dim = stored(v).cut_dim(batch_axis);
  if (global_.value(v).kind != ValueKind::input || dim < 0) return false;
  const Cuts cuts = plan_.in_global_batch(stored(v).dims[dim]);
  const auto makes_shards = [&](const AxisCut& cut) { return mesh_.shards(cut.axes) > 1; };
  return (dim > 0 && mesh_.shards(cuts) > 1) || std::ranges::any_of(cuts.begin() + 1, cuts.end(), makes_shards);
}

Sharding Partition::lies(Value v) const {
  if (const auto& as = received_[v]) return *as;
  return staged(v) ? Sharding{.dims = std::vector<Cuts>(stored(v).dims.size())} : stored(v);
}

ByValue<bool> Partition::leaves_here() const {
  ByValue<bool> used(global_.value_count(), plan_.virtual_devices() == 1);
  ByValue<bool> anywhere(used.size());
  const auto use = [&](Value v, bool here) {
    if (!v) return;
    anywhere[v] = true;
    // Who has a state lends it, whether it uses it or not.
    if (is_state(global_.value(v).kind) ? made_here(v) : here) used[v] = true;
  };
  for (const NodeId n : global_.node_ids()) {
    for (Value v : global_.node(n).inputs) use(v, assigned_here(n));
  }
  for (const Graph::Update& update : global_.updates) use(update.state, made_here(update.state));
  for (const Graph::Output& output : global_.outputs) use(output.value, made_here(output.value));
  for (const Value v : used.ids()) used[v] = used[v] || (!anywhere[v] && here_ == 0);
  return used;
}

void Partition::copy_leaves() {
  const ByValue<bool> here = leaves_here();
  for (const Value v : global_.value_ids()) {
    const ValueInfo& info = global_.value(v);
    if (info.kind == ValueKind::result || !here[v]) continue;
    const Sharding sharding = lies(v);
    const TensorType type = staged(v) ? plan_.global_type(v) : local_type(mesh_, info.type, sharding);
    const bool in_shards = is_state(info.kind) && (type != info.type || sharding.rank_local);
    const Value representative = plan_.representative_of(v);
    if (in_shards) {
      local_.cut_state.push_back({info.name, info.type, sharding, info.data,
                                  sharding.rank_local ? global_.value(representative).name : std::string()});
    }
    if (representative != v) continue;
    now_[v] = local_.graph.add_leaf(info.kind, info.name, type, in_shards ? Tensor() : info.data);
    local_.graph.value(now_[v]).batch_dim = info.batch_dim;
    if (!plan_.value_memory.empty() && plan_.value_memory[v] != MemoryKind::device)
      local_.homes.push_back({info.name, plan_.value_memory[v]});
    if (in_shards) zero_padding_.insert(now_[v]);
    if (info.kind == ValueKind::input) local_.inputs.push_back(port(info.name, v, of_batch(v, sharding)));
  }
}

LocalPort Partition::port(const std::string& name, Value v, const Sharding& sharding) const {
  LocalPort made{.name = name, .value = now_[v], .global_type = global_.type(v), .sharding = sharding};
  if (const int dim = sharding.cut_dim(batch_axis); dim >= 0) {
    Cuts& cuts = made.sharding.dims[dim];
    cuts = plan_.in_global_batch(cuts, sharding.outer(batch_axis));
  }
  made.global_type = plan_.global_type(v);
  return made;
}

Sharding Partition::of_batch(Value v, const Sharding& sharding) const {
  const BatchLayout batch = batch_of(v);
  Sharding made{.dims = sharding.dims};
  for (Cuts& cuts : made.dims) std::erase_if(cuts, [&](const AxisCut& cut) { return !batch.cuts_over(cut.axes[0]); });
  return made;
}

Sharding Partition::as_given(Value v) const {
  Sharding made{.dims = std::vector<Cuts>(stored(v).dims.size())};
  const int dim = stored(v).cut_dim(batch_axis);
  if (dim < 0) return made;
  made.dims[dim] = plan_.batch_of_virtual_device(here_).cuts_inside(stored(v).outer(batch_axis));
  return made;
}

Result<Value> Partition::operand(Value v, const Sharding& wanted, Phase user, const LocalWriter& w,
                                 const RowRoutes* routes) {
  if (!v) return v;
  if (stored(v).rank_local && !wanted.rank_local) return taken(v, wanted, user, w);
  v = plan_.representative_of(v);
  // Of an input that comes in full, the current micro-batch.
  Sharding to = wanted;
  TensorType type = global_.type(v);
  if (plan_.independent_micro_batches && staged(v)) {
    Cuts& cuts = to.dims[global_.value(v).batch_dim];
    cuts = plan_.in_global_batch(cuts);
    type = plan_.global_type(v);
  }
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, batch_of(v), type, lies(v), to));
  const Value now = in_block(v, w.kind() == BlockKind::post);
  if (moves.empty()) return now;
  const bool by_owners = routes && brings_rows(mesh_, moves, lies(v), *routes);
  const Value owners = by_owners ? routes->owners : Value{};
  const ValueInfo& info = global_.value(v);
  const bool gathers = std::ranges::any_of(moves, &Move::gathers);
  const int nodes = local_.graph.node_count();
  for (auto [known, end] = known_.moved.equal_range(v); known != end; ++known) {
    Known::Moved& moved = known->second;
    if (moved.as != wanted || moved.owners != owners || (moved.phase && *moved.phase != user)) continue;
    // A weight is gathered again where it is used again much later, and is not there in full in between.
    if (gathers && info.kind == ValueKind::parameter && nodes - moved.last_use > gathered_again_behind) continue;
    moved.last_use = nodes;
    return moved.shard;
  }
  const bool made = info.kind == ValueKind::result;
  const Phase phase = gathers || (!made && user == Phase::update) ? user
                      : made                                      ? global_.node(info.producer).phase
                                                                  : Phase::forward;
  const Value shard =
      by_owners ? dispatched(w, now, moves, *routes, info.name, phase) : w.append(moves, info.name, now, phase);
  if (!lies(v).uneven() && to.uneven()) zero_padding_.insert(shard);
  known_.moved.emplace(
      v, Known::Moved{wanted, shard, gathers ? std::optional(user) : std::nullopt, owners, local_.graph.node_count()});
  return shard;
}

Result<Value> Partition::given(Value v) {
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, batch_of(v), global_.type(v), lies(v), as_given(v)));
  const NodeId producer = global_.value(v).producer;
  const int block = wants_mean(v) ? local_.find({0, BlockKind::post})
                    : producer    ? local_.find(plan_.block_of(producer, here_))
                                  : local_.sample_block();
  const Phase phase = producer ? global_.node(producer).phase : Phase::forward;
  return LocalWriter(local_, block).append(moves, global_.value(v).name, in_block(v, true), phase);
}

Status Partition::finish() {
  for (const Graph::Output& output : global_.outputs) {
    const Value v = in_block(output.value, true);
    const NodeId producer = global_.value(output.value).producer;
    const bool every = producer && plan_.node_task_graph[producer] == every_task_graph;
    if (!v || (!every && !made_here(output.value))) continue;
    // An input that is an output lies as the caller gave it.
    const bool moves = global_.value(output.value).kind != ValueKind::input;
    EPL_ASSIGN(const Value leaves, moves ? given(output.value) : Result<Value>(v));
    local_.graph.outputs.push_back({output.name, leaves});
    const Sharding given_as = moves ? as_given(output.value) : of_batch(output.value, stored(output.value));
    local_.outputs.push_back(port(output.name, output.value, given_as));
    local_.outputs.back().value = leaves;
    local_.outputs.back().emitted = made_here(output.value);
  }
  for (const Graph::Update& update : global_.updates) {
    if (!made_here(update.state) || plan_.representative_of(update.state) != update.state) continue;
    Value next = in_block(update.next, true);
    const NodeId producer = global_.value(update.next).producer;
    for (const ReadPadding& read : padding_of(stored(update.next))) {
      if (!producer) break;
      const LocalWriter w(local_, local_.find(plan_.block_of(producer, here_)));
      EPL_ASSIGN(next, unpadded(next, stored(update.next), read, global_.node(producer), w));
    }
    local_.graph.updates.push_back({now_[update.state], next});
  }
  return {};
}
MemoryKind LocalGraph::home(std::string_view state) const {
  const auto found = std::ranges::find(homes, state, &StateHome::name);
  return found == homes.end() ? MemoryKind::device : found->memory;
}

int LocalGraph::find(const BlockId& block) const {
  const auto found = std::ranges::find(blocks, block);
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

int LocalGraph::sample_block() const {
  const auto found = std::ranges::find_if(
      blocks, [](const BlockId& b) { return b.kind == BlockKind::main || b.kind == BlockKind::forward; });
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

Result<std::vector<LocalGraph>> partition(const Plan& plan) {
  const std::vector<Boundary> all = boundaries(plan);
  EPL_ASSIGN(std::vector<std::vector<SendWait>> waits, send_waits(plan, all));
  std::vector<LocalGraph> locals;
  for (int c = 0; c < plan.virtual_devices(); ++c) {
    EPL_ASSIGN(LocalGraph local, Partition(plan, c, all).run());
    local.waits = std::move(waits[c]);
    locals.push_back(std::move(local));
  }
  return locals;
}

}  // namespace epl
