// What the processes of a job must have in common, and compare: numbers that are set, batches, weights.
#include <algorithm>
#include <sstream>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/program/pieces.h"
#include "core/runtime/session_rank.h"
#include "core/runtime/session_state.h"

namespace epl {
namespace {

constexpr int64_t looked_at_bytes = 16 << 10;  // of an input, at each call
constexpr int64_t run_bytes = 256;
constexpr int64_t bytes_at_once = 1 << 20;

// Of parts spread over the tensor, so that a large batch takes no longer than a small one.
uint64_t glance_at(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::byte*>(tensor.data());
  const int64_t size = tensor.bytes(), runs = looked_at_bytes / run_bytes;
  Hash64 hash;
  if (size <= looked_at_bytes) {
    hash.add(bytes, static_cast<size_t>(size));
    return hash.value();
  }
  for (int64_t i = 0; i < runs; ++i)
    hash.add(bytes + (size - run_bytes) / (runs - 1) * i, static_cast<size_t>(run_bytes));
  return hash.value();
}

// In chunks: a weight that lies in its file is not read into memory for this.
Result<uint64_t> hash_of_all(const Tensor& value) {
  Hash64 hash;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(bytes_at_once, value.bytes())));
  for (int64_t at = 0; at < value.bytes(); at += bytes_at_once) {
    const int64_t bytes = std::min(bytes_at_once, value.bytes() - at);
    EPL_TRY(value.read(at, bytes, chunk.data()));
    hash.add(chunk.data(), static_cast<size_t>(bytes));
  }
  return hash.value();
}

// Of a call that runs a program, whatever function was called for that.
const char* program_name(EntryKind kind, size_t part) {
  static constexpr const char* parts[] = {"epl_session_step", "epl_session_gradients", "epl_session_apply"};
  if (kind == EntryKind::train) return parts[part];
  return kind == EntryKind::evaluate ? "epl_session_evaluate" : "epl_session_predict";
}

}  // namespace

void Session::begin_call(const char* name) {
  call_name_ = name;
  program_call_ = nullptr;
  told_call_ = false;
  call_.numbers.clear();
}

// What a checkpoint sets, before which the session is torn, is compared otherwise.
Status Session::note_value_set(std::string_view name, const Tensor& value) {
  if (!over_processes() || !healthy_) return {};
  EPL_ASSIGN(values_set_[std::string(name)], hash_of_all(value));
  common_lines_ = nullptr;
  return {};
}

// Nothing is sent: the others look at it where they meet this process.
void Session::tell_call() {
  if (!common_lines_) {
    std::string lines;
    const auto say = [&](std::string_view key, std::string_view value) { lines += told_line(key, value); };
    say("learning_rate_scale", number_text(rate_scale_.scale));
    for (const auto& [key, value] : describe_rate(rate_scale_)) say(key, value);
    for (const auto& [key, value] : describe_numbers()) say(key, quoted(value));
    for (const auto& [name, hash] : values_set_) say(cat("the value set for ", name, ", as a hash"), cat(hash));
    common_lines_ = std::make_shared<const std::string>(std::move(lines));
  }
  told_call_ = true;
  ++call_.number;
  call_.name = program_call_ != nullptr ? program_call_ : call_name_ != nullptr ? call_name_ : "a call";
  call_.lines = common_lines_;
  call_.sign();
  for (const auto& rank : ranks_) rank->world->enter(call_);
}

// Each of these is a call of its own: an evaluation of many batches may have another one in some process.
void Session::look_at(const Entry& entry, std::span<const Tensor> inputs, Part part) {
  program_call_ = program_name(entry.kind, static_cast<size_t>(part));
  told_call_ = false;
  call_.numbers.clear();
  call_.numbers.emplace_back("step", static_cast<uint64_t>(steps_done_));
  if (input_keys_.empty()) {
    for (const Entry& of : plan_->entries()) {
      auto& keys = input_keys_.emplace_back();
      for (const Port& port : of.inputs) keys.push_back(cat("input ", port.name, " of the batch, as a hash"));
    }
  }
  const std::vector<std::string>& keys = input_keys_[index_of(entry)];
  for (size_t i = 0; slices_.empty() && i < inputs.size(); ++i) {
    if (!inputs[i].empty()) call_.numbers.emplace_back(keys[i], glance_at(inputs[i]));
  }
}

Status Session::compare(const std::string& lines) {
  if (!over_processes()) return stop_.check();
  EPL_TRY(reconnect(stop_));
  if (const Status stopped = stop_.check(); !stopped.ok()) return give_up_world(stopped);
  EPL_ASSIGN(const std::vector<std::string> said, tell(lines));
  for (size_t p = 1; p < said.size(); ++p) {
    const std::string why = rank_difference(processes_[0], said[0], processes_[p], said[p]);
    if (!why.empty()) return invalid(why).of_rank(processes_[p]);
  }
  return {};
}

// Of each value that has an initial one, all of it, as the model's file has it.
Result<std::vector<std::string>> Session::hashes_of_weights() {
  std::vector<std::string> out;
  for (const StateSlot& slot : plan_->state().slots()) {
    if (slot.initial.empty()) continue;
    EPL_TRY(stop_.check());
    EPL_ASSIGN(const uint64_t hash, hash_of_all(slot.initial));
    out.push_back(told_line(slot.name, cat(hash)));
  }
  std::ranges::sort(out);
  return out;
}

// That all have the same model's file, before anything is trained.
Status Session::compare_weights() {
  const InCall calling(*this, "epl_session_create");
  auto own = hashes_of_weights();
  EPL_TRY(agree(own.status()));
  std::string lines;
  for (const std::string& line : *own) lines += line;
  EPL_ASSIGN(std::vector<std::string> said, tell(cat(hash64(std::as_bytes(std::span(lines))))));
  if (std::ranges::adjacent_find(said, std::not_equal_to<>()) == said.end()) return {};
  EPL_ASSIGN(said, tell(lines));
  std::vector<std::string> differ;
  int other = -1;
  for (size_t p = 1; p < said.size(); ++p) {
    const std::vector<std::string> keys = different_keys(said[0], said[p]);
    if (!keys.empty() && other < 0) other = processes_[p];
    for (const std::string& key : keys) {
      if (std::ranges::find(differ, key) == differ.end()) differ.push_back(key);
    }
  }
  if (options_.take_weights) return take_weights(differ);
  return invalid("rank ", other, " has other weights than rank ", processes_[0], " in its model's file: first differs ",
                 shown(differ.front(), 200), differ.size() > 1 ? cat(", of ", differ.size(), " that do") : "",
                 ". Give all processes the same file, or let them take those of rank ", processes_[0],
                 " (session option take_weights, on the command line --take-weights)")
      .of_rank(other);
}

// The process of rank 0 gives these values to all.
Status Session::take_weights(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const StateSlot* slot = plan_->state().find(name);
    EPL_CHECK(slot != nullptr, "no slot of ", name);
    Tensor value(slot->type);
    const Status read = is_local(0) ? slot->initial.read(0, value.bytes(), value.data()) : Status();
    EPL_TRY(agree(read));
    EPL_TRY(among_processes({.kind = Collective::Kind::broadcast,
                             .count = value.bytes(),
                             .source = value.data(),
                             .target = value.data(),
                             .peer = 0}));
    if (!is_local(0)) EPL_TRY(set_state(name, value));
  }
  values_set_.clear();
  common_lines_ = nullptr;
  log(host_, LogLevel::warning, "took ", names.size(), names.size() == 1 ? " weight" : " weights", " of rank 0, first ",
      shown(names.front(), 200), ": the model's file of some process has others");
  return {};
}

// Pieces of the state that several ranks hold, in an order that is the same in all processes.
struct Session::Copies {
  struct Piece {
    std::string name;
    std::vector<int> holders;
  };
  std::vector<Piece> pieces;
};

// Before a step, so that a step that was made is never an error for this.
Status Session::compare_if_due(Part part, const Stop& stop) {
  if (!over_processes() || !healthy_) return {};
  const Call calling(*this, stop);
  EPL_TRY(come_together(stop));
  const bool periodic =
      options_.compare_every > 0 && steps_done_ > compared_step_ && steps_done_ % options_.compare_every == 0;
  if (!compare_due_ && !periodic) return {};
  program_call_ = program_name(EntryKind::train, static_cast<size_t>(part));
  told_call_ = false;  // what one process alone has set is no damage: that is compared first
  call_.numbers.clear();
  EPL_TRY(compare_copies());
  compared_step_ = steps_done_;
  compare_due_ = false;
  return {};
}

Status Session::find_copies() {
  auto found = std::make_shared<Copies>();
  std::vector<std::string> names;
  for (const StateSlot& slot : plan_->state().slots()) names.push_back(slot.name);
  std::ranges::sort(names);
  for (const std::string& name : names) {
    EPL_ASSIGN(const Held held, this->held(name));
    for (const std::vector<int>& holders : held.holders) {
      if (holders.size() > 1) found->pieces.push_back({name, holders});
    }
  }
  copies_ = std::move(found);
  return {};
}

// A number from 0 on, so that the largest and the smallest of several ranks tell whether all are equal. What a rank has
// for a value of this name is one piece.
Result<int64_t> Session::hash_of_copy(int rank, const std::string& name) const {
  const Rank& own = *ranks_[static_cast<size_t>(rank - options_.first_rank)];
  const StateSlot& slot = *plan_->state_of(own.rank_class).find(name);
  Tensor value;
  if (slot.local == slot.type) {
    EPL_ASSIGN(value, own.store.view(*own.stream, slot));
  } else {
    value = Tensor(slot.local);
    EPL_TRY(own.store.read(*own.stream, slot, value));
  }
  Hash64 hash;
  add_to_hash(hash, value);
  return static_cast<int64_t>(hash.value() >> 1);
}

// At reproducible.level = run copies may be computed by processors that round in other ways, and need not be equal.
Status Session::compare_copies() {
  if (!over_processes() || plan_->options().strategy.text("reproducible.level") == "run") return {};
  EPL_TRY(reconnect(stop_));
  if (!copies_) EPL_TRY(find_copies());
  const std::vector<Copies::Piece>& pieces = copies_->pieces;
  const size_t count = pieces.size();
  if (count == 0) return {};
  // The largest hash of each piece, and the largest distance of one from the largest number there is; -1: none here.
  std::vector<int64_t> largest(2 * count, -1);
  Status own;
  for (size_t i = 0; i < count && own.ok(); ++i) {
    for (const int rank : pieces[i].holders) {
      if (!is_local(rank)) continue;
      const Result<int64_t> hash = hash_of_copy(rank, pieces[i].name);
      own = hash.status();
      if (!own.ok()) break;
      largest[i] = std::max(largest[i], *hash);
      largest[count + i] = std::max(largest[count + i], INT64_MAX - *hash);
    }
  }
  if (!own.ok()) return give_up_world(own);
  EPL_TRY(among_processes({.kind = Collective::Kind::all_reduce,
                           .dtype = DType::i64,
                           .count = static_cast<int64_t>(largest.size()),
                           .source = largest.data(),
                           .target = largest.data(),
                           .reduction = Reduction::max}));
  for (size_t i = 0; i < count; ++i) {
    if (largest[i] != INT64_MAX - largest[count + i]) return who_differs(pieces[i].name, pieces[i].holders);
  }
  return {};
}

// The ranks that hold a piece say which hash it has there, so that the one that is alone with its values is named.
Status Session::who_differs(const std::string& name, const std::vector<int>& holders) {
  torn();
  std::string here;
  for (const int rank : holders) {
    if (is_local(rank)) here += cat(rank, " ", hash_of_copy(rank, name).value(), "\n");
  }
  EPL_ASSIGN(const std::vector<std::string> said, tell(here));
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
               " after step ", steps_done_,
               ", though they have the same of all that trains them: memory or a connection has changed data. Restore "
               "the session from a checkpoint")
      .of_rank(alone);
}

}  // namespace epl
