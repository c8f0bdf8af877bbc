// What the processes of a job must have in common of the state, and compare: the model's weights, and copies of the
// same shard.
#include <algorithm>
#include <map>
#include <sstream>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/runtime/state.h"
#include "core/runtime/tensor_hash.h"

namespace epl {

// Of each value that has an initial one, all of it, as the model's file has it.
Result<std::vector<std::string>> State::hashes_of_weights() {
  std::vector<std::string> out;
  for (const StateSlot& slot : plan_->state().slots()) {
    if (slot.initial.empty()) continue;
    EPL_TRY(world_.call().stop().check());
    EPL_ASSIGN(const uint64_t hash, hash_of_bytes(slot.initial));
    out.push_back(told_line(slot.name, cat(hash)));
  }
  std::ranges::sort(out);
  return out;
}

// That all have the same model's file, before anything is trained.
Status State::compare_weights() {
  const CallScope calling(world_.call(), "epl_session_create");
  auto own = hashes_of_weights();
  EPL_TRY(world_.agree(own.status()));
  std::string lines;
  for (const std::string& line : *own) lines += line;
  EPL_ASSIGN(std::vector<std::string> said, world_.tell(cat(hash64(std::as_bytes(std::span(lines))))));
  if (std::ranges::adjacent_find(said, std::not_equal_to<>()) == said.end()) return {};
  EPL_ASSIGN(said, world_.tell(lines));
  std::vector<std::string> differ;
  int other = -1;
  for (size_t p = 1; p < said.size(); ++p) {
    const std::vector<std::string> keys = different_keys(said[0], said[p]);
    if (!keys.empty() && other < 0) other = world_.processes().first(p);
    for (const std::string& key : keys) {
      if (std::ranges::find(differ, key) == differ.end()) differ.push_back(key);
    }
  }
  if (world_.options().take_weights) return take_weights(differ);
  return invalid("rank ", other, " has other weights than rank ", world_.processes().first(0),
                 " in its model's file: first differs ", shown(differ.front(), 200),
                 differ.size() > 1 ? cat(", of ", differ.size(), " that do") : "",
                 ". Give all processes the same file, or let them take those of rank ", world_.processes().first(0),
                 " (session option take_weights, on the command line --take-weights)")
      .of_rank(other);
}

// The process of rank 0 gives these values to all.
Status State::take_weights(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const StateSlot* slot = plan_->state().find(name);
    EPL_CHECK(slot != nullptr, "no slot of ", name);
    Tensor value(slot->type);
    const Status read = world_.is_local(0) ? slot->initial.read(0, value.bytes(), value.data()) : Status();
    EPL_TRY(world_.agree(read));
    EPL_TRY(world_.among_processes({.kind = Collective::Kind::broadcast,
                                    .count = value.bytes(),
                                    .source = value.data(),
                                    .target = value.data(),
                                    .peer = 0}));
    if (!world_.is_local(0)) EPL_TRY(set(name, value));
  }
  world_.call().forget_values_set();
  log(host_, LogLevel::warning, "took ", names.size(), names.size() == 1 ? " weight" : " weights", " of rank 0, first ",
      shown(names.front(), 200), ": the model's file of some process has others");
  return {};
}

// Shards of the state that several ranks hold, in an order that is the same in all processes.
struct State::Copies {
  struct Shard {
    std::string name;
    std::vector<int> holders;
  };
  std::vector<Shard> shards;
};

Status State::compare_if_due(StepPhase phase, const Stop& stop) {
  if (!world_.over_processes() || !healthy_) return {};
  const StopScope stopping(world_.call(), stop);
  EPL_TRY(world_.come_together(stop));
  const int64_t every = world_.options().compare_every, steps_done = host_state_.steps_done();
  const bool periodic = every > 0 && steps_done > compared_step_ && steps_done % every == 0;
  if (world_.rejoins() == compared_rejoins_ && !periodic) return {};
  world_.call().begin_program(EntryKind::train, phase);  // what one process alone has set is no damage: compared first
  EPL_TRY(compare_copies());
  compared_step_ = steps_done;
  compared_rejoins_ = world_.rejoins();
  return {};
}

Status State::find_copies() {
  auto found = std::make_shared<Copies>();
  std::vector<std::string> names;
  for (const StateSlot& slot : plan_->state().slots()) names.push_back(slot.name);
  std::ranges::sort(names);
  for (const std::string& name : names) {
    EPL_ASSIGN(const Held held, this->held(name));
    for (const std::vector<int>& holders : held.holders) {
      if (holders.size() > 1) found->shards.push_back({name, holders});
    }
  }
  copies_ = std::move(found);
  return {};
}

// A number from 0 on, so that the largest and the smallest of several ranks tell whether all are equal. What a rank has
// for a value of this name is one shard.
Result<int64_t> State::hash_of_copy(int rank, const std::string& name) const {
  const LocalRank& own = world_.ranks().at(rank);
  const StateSlot& slot = *plan_->state_of(own.virtual_device).find(name);
  EPL_ASSIGN(const Tensor value, own.store.shard(*own.stream, slot).load());
  Hash64 hash;
  add_to_hash(hash, value);
  return static_cast<int64_t>(hash.value() >> 1);
}

// At reproducible.level = run copies may be computed by processors that round in other ways, and need not be equal.
Status State::compare_copies() {
  if (!world_.over_processes() || plan_->options().strategy.text("reproducible.level") == "run") return {};
  EPL_TRY(world_.enter_call(world_.call().stop()));
  if (!copies_) EPL_TRY(find_copies());
  const std::vector<Copies::Shard>& shards = copies_->shards;
  const size_t count = shards.size();
  if (count == 0) return {};
  // The largest hash of each shard, and the largest distance of one from the largest number there is; -1: none here.
  std::vector<int64_t> largest(2 * count, -1);
  Status own;
  for (size_t i = 0; i < count && own.ok(); ++i) {
    for (const int rank : shards[i].holders) {
      if (!world_.is_local(rank)) continue;
      const Result<int64_t> hash = hash_of_copy(rank, shards[i].name);
      own = hash.status();
      if (!own.ok()) break;
      largest[i] = std::max(largest[i], *hash);
      largest[count + i] = std::max(largest[count + i], INT64_MAX - *hash);
    }
  }
  if (!own.ok()) return world_.abort(own);
  EPL_TRY(world_.among_processes({.kind = Collective::Kind::all_reduce,
                                  .dtype = DType::i64,
                                  .count = static_cast<int64_t>(largest.size()),
                                  .source = largest.data(),
                                  .target = largest.data(),
                                  .reduction = Reduction::max}));
  for (size_t i = 0; i < count; ++i) {
    if (largest[i] != INT64_MAX - largest[count + i]) return who_differs(shards[i].name, shards[i].holders);
  }
  return {};
}

// The ranks that hold a shard say which hash it has there, so that the one that is alone with its values is named.
Status State::who_differs(const std::string& name, const std::vector<int>& holders) {
  torn();
  std::string here;
  for (const int rank : holders) {
    if (world_.is_local(rank)) here += cat(rank, " ", hash_of_copy(rank, name).value(), "\n");
  }
  EPL_ASSIGN(const std::vector<std::string> said, world_.tell(here));
  std::map<std::string, std::vector<int>> by_hash;
  for (const std::string& text : said) {
    std::istringstream in(text);
    std::string hash;
    for (int rank = 0; in >> rank >> hash;) by_hash[hash].push_back(rank);
  }
  const auto fewest = std::ranges::max_element(by_hash, [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.second < b.second;
  });
  const int alone = fewest->second.front(), other = alone == holders.front() ? holders.back() : holders.front();
  return error(Code::state_lost, "rank ", alone, " has other values of ", shown(name, 200), " than rank ", other,
               " after step ", host_state_.steps_done(),
               ", though they have the same of all that trains them: memory or a connection has changed data. Restore "
               "the session from a checkpoint")
      .of_rank(alone);
}

}  // namespace epl
