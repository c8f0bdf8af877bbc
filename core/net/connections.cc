#include "core/net/connections.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/net/abort_frame.h"

namespace epl::net {
namespace {

constexpr auto slice = std::chrono::milliseconds(20);  // how long a call waits before it asks whether it should
constexpr double tell_seconds = 0.1;                   // how long a call waits before it says what it is
constexpr double hastened_silence_seconds = 5;         // of a peer that does not answer, where the job is to end
constexpr auto reason_wait = std::chrono::seconds(2);  // for the message of a rank that has ended a group

static_assert(sizeof(FrameHead) == 80, "a head has no holes and the same size everywhere");

uint64_t hash_of(std::string_view text) {
  Hash64 hash;
  hash.add(text.data(), text.size());
  return hash.value();
}
uint64_t hash_of(const std::vector<int>& members) {
  Hash64 hash;
  hash.add(members.data(), members.size() * sizeof(int));
  return hash.value();
}

}  // namespace

Connections::Connections(std::string group, int rank, std::vector<Link> links, bool signs, double silence_seconds,
                         std::function<double()> clock)
    : rank_(rank), silence_seconds_(silence_seconds), clock_(std::move(clock)), peers_(links.size()) {
  std::vector<int> members;
  for (size_t r = 0; r < links.size(); ++r) {
    peers_[r].socket = std::move(links[r].socket);
    members.push_back(static_cast<int>(r));
    if (!signs) continue;
    peers_[r].sends.emplace(links[r].keys.sends);
    peers_[r].receives.emplace(links[r].keys.receives);
  }
  root_ = &at(hash_of(group));
  root_->name = std::move(group);
  root_->members = std::move(members);
  root_->members_hash = hash_of(root_->members);
}

Result<std::shared_ptr<Connections>> Connections::create(std::string group, int rank, std::vector<Link> links,
                                                         bool signs, double silence_seconds,
                                                         std::function<double()> clock) {
  std::shared_ptr<Connections> made(
      new Connections(std::move(group), rank, std::move(links), signs, silence_seconds, std::move(clock)));
  made->wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake_.open()) return system_error("cannot make", "an eventfd", errno);
  if (made->peers_.size() == 1) return made;
  try {
    made->thread_ = std::thread([own = made.get()] { own->serve(); });
  } catch (const std::system_error& e) {
    return error(Code::exhausted, "the operating system gave no thread for the connections of a rank: ", e.what());
  }
  return made;
}

Connections::~Connections() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  static_cast<void>(::eventfd_write(wake_.number(), 1));
  thread_.join();
}

Connections::Group& Connections::at(uint64_t id) {
  std::unique_ptr<Group>& group = groups_[id];
  if (!group) {
    group = std::make_unique<Group>();
    group->id = id;
  }
  return *group;
}

Result<Connections::Group*> Connections::split(Group& parent, const std::string& name, std::vector<int> members) {
  std::lock_guard lock(mutex_);
  if (!parent.status.ok()) return parent.status;
  Group& child = at(hash_of(cat(parent.id, "/", name)));
  if (child.name.empty()) {
    child.name = name;
    child.parent = &parent;
    child.members = std::move(members);
    child.members_hash = hash_of(child.members);
  } else if (child.members != members) {
    return error(Code::misuse, "group ", parent.name, " has a group ", name, " of other members");
  }
  return &child;
}

Result<Message> Connections::receive(Group& group, int rank, FrameHead::Type type, uint64_t call) {
  std::unique_lock lock(mutex_);
  std::vector<Message>& box = group.inbox[{rank, type}];
  std::chrono::duration<double> silent(0);
  for (;;) {
    const bool completes = type == FrameHead::Type::together && call <= group.ends_after;
    if (!group.status.ok() && !completes) return group.status;
    if (!box.empty()) {
      Message first = std::move(box.front());
      box.erase(box.begin());
      return first;
    }
    if (std::string why = why_missing(group, rank); !why.empty()) return error(Code::peer_failed, why).of_rank(rank);
    if (changed_.wait_for(lock, slice) == std::cv_status::no_timeout) continue;
    silent += slice;
    tell_call(silent.count());
    if (std::string why = why_given_up(rank, silent.count()); !why.empty())
      return error(Code::peer_failed, why).of_rank(rank);
    if (!stop_) continue;
    const std::function<Status()> stop = stop_;
    lock.unlock();
    EPL_TRY(stop());
    lock.lock();
  }
}

void Connections::complete(Group& group, uint64_t call) {
  std::lock_guard lock(mutex_);
  group.completed = call;
}

void Connections::abort(Group& group, const Status& why) {
  std::lock_guard lock(mutex_);
  if (!group.status.ok()) return;
  end(group, why.ok() ? error(Code::cancelled, "the group ", group.name, " was aborted") : why);
  tell_why(group);
}

void Connections::leave(Group& group) {
  std::lock_guard lock(mutex_);
  if (group.closed) return;
  group.closed = true;
  group.inbox.clear();
  // The abort message may still be on its way to other ranks. They must not take a rank that leaves because of it for
  // one that is missing.
  if (!group.status.ok()) tell_why(group);
  tell(group, {.type = FrameHead::Type::leave, .peer = retired_ ? 1 : 0}, {});
}

void Connections::tell_why(const Group& group) {
  Abort abort{group.status, {}, lost_};
  for (const auto& [id, other] : groups_) {
    if (below(*other, group)) abort.completed.push_back({id, other->completed});
  }
  tell(group, {.type = FrameHead::Type::abort}, packed(abort));
}

Status Connections::why_aborted(const Group& group) {
  std::lock_guard lock(mutex_);
  return group.status;
}

// Empty: it is there.
std::string Connections::why_missing(const Group& group, int rank) const {
  return group.left.contains(rank) ? "it has left the group" : peers_[static_cast<size_t>(rank)].gone;
}

// Empty: it is waited for. A rank that says nothing may hang, or wait for one that does: then its process still
// answers, and who waits for the one that hangs will say so. So a process that answers is waited for twice as long.
std::string Connections::why_given_up(int rank, double silent_seconds) {
  if (std::string why = why_hung(rank, silent_seconds); !why.empty()) return why;
  if (silent_seconds > 0.75 * silence_seconds_) ask(rank, 0.25 * silence_seconds_);
  if (silent_seconds <= silence_seconds_) return "";
  const bool lives = clock_() - peers_[static_cast<size_t>(rank)].answered < 0.5 * silence_seconds_;
  if (lives && silent_seconds <= 2 * silence_seconds_) return "";
  const std::string why = lives ? cat("its process lives, but it has made no call for ", 2 * silence_seconds_, " s")
                                : cat("it has said nothing for ", silence_seconds_, " s");
  note_lost(rank, why);
  return why;
}

void Connections::ask(int rank, double seconds) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (clock_() - peer.asked <= seconds) return;
  peer.asked = clock_();
  send_locked(rank, {.type = FrameHead::Type::ask, .group = root_->id}, nullptr);
}

// Of a job that is to end, a process that does not answer; empty where there is no such thing.
std::string Connections::why_hung(int rank, double silent_seconds) {
  if (!hastened_ || !hastened_()) return "";
  const double now = clock_(), bound = std::min(silence_seconds_, hastened_silence_seconds);
  if (hastened_at_ < 0) hastened_at_ = now;
  ask(rank, 0.25 * bound);
  if (std::min(silent_seconds, now - hastened_at_) <= bound) return "";
  if (now - peers_[static_cast<size_t>(rank)].answered <= bound) return "";
  std::string why = cat("its process has not answered for ", bound, " s");
  note_lost(rank, why);
  return why;
}

Status Connections::why_ended(const Group& group) {
  std::unique_lock lock(mutex_);
  int missing = -1;
  changed_.wait_for(lock, reason_wait, [&] {
    for (size_t m = 0; m < group.members.size(); ++m)
      missing = why_missing(group, group.members[m]).empty() ? missing : static_cast<int>(m);
    return !group.status.ok() || missing >= 0;
  });
  if (!group.status.ok()) return group.status;
  if (missing < 0) return error(Code::peer_failed, "group ", group.name, " was ended by a rank that gave no reason");
  const int joined = group.members[static_cast<size_t>(missing)];
  return error(Code::peer_failed, "group ", group.name, ": rank ", joined, " of ", root_->name,
               " is missing: ", why_missing(group, joined))
      .of_rank(joined);
}

void Connections::on_end(Group& group, std::function<void()> what) {
  std::lock_guard lock(mutex_);
  group.on_end = std::move(what);
  if (group.on_end && !group.status.ok()) group.on_end();
}

Connections::Waiting Connections::keep_waiting(const Group& group, FunctionRef<bool(int)> awaited,
                                               double silent_seconds) {
  std::function<Status()> stop;
  {
    std::lock_guard lock(mutex_);
    tell_call(silent_seconds);
    if (!group.status.ok()) return {group.status, -1};
    for (size_t m = 0; m < group.members.size(); ++m) {
      const auto member = static_cast<int>(m);
      if (!awaited(member)) continue;
      if (std::string why = why_missing(group, group.members[m]); !why.empty())
        return {error(Code::peer_failed, why).of_rank(group.members[m]), member};
      if (std::string why = why_given_up(group.members[m], silent_seconds); !why.empty())
        return {error(Code::peer_failed, why).of_rank(group.members[m]), member};
    }
    stop = stop_;
  }
  return {stop ? stop() : Status(), -1};
}

void Connections::watch(std::function<Status()> stop) {
  std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
}

void Connections::hasten(std::function<bool()> asked) {
  std::lock_guard lock(mutex_);
  if (!asked) hastened_at_ = -1;
  hastened_ = std::move(asked);
}

void Connections::enter(const JobCall& call) {
  std::lock_guard lock(mutex_);
  entered_ = call.number;
  calls_[call.number % calls_.size()] = call;  // allocates nothing once all have their room
  doing_.store(call.digest, std::memory_order_relaxed);
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].call == entered_) compare_call(static_cast<int>(r));
  }
}

// A rank that waits says what its process does, once for each call: one that does something else may wait for it in
// another group.
void Connections::tell_call(double silent_seconds) {
  if (silent_seconds < tell_seconds || told_ == entered_) return;
  told_ = entered_;
  tell(*root_, {.type = FrameHead::Type::call, .call = entered_}, calls_[entered_ % calls_.size()].text());
}

// What a rank has said of a call, with what this process says of the one of the same number.
void Connections::compare_call(int rank) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const JobCall& own = calls_[peer.call % calls_.size()];
  if (own.number != peer.call) return;  // it is ahead, or far behind
  const std::string text = own.text();
  const std::string why = rank_difference(rank_, text, rank, peer.call_text);
  if (why.empty() || !root_->status.ok()) return;
  const auto call_of = [](std::string_view of) { return of.substr(0, of.find('\n')); };
  const Code code = call_of(text) == call_of(peer.call_text) ? Code::invalid_argument : Code::misuse;
  end(*root_, error(code, why, "; the processes of a job make the same calls of the same things").of_rank(rank));
  tell_why(*root_);
}

Status Connections::why_other_call(const Group& group) {
  {
    std::lock_guard lock(mutex_);
    tell_call(tell_seconds);
  }
  return why_ended(group);
}

Status Connections::lost() {
  std::lock_guard lock(mutex_);
  constexpr double long_ago = std::numeric_limits<double>::infinity();
  for (size_t r = 0; r < peers_.size() && lost_.ok(); ++r) {
    if (peers_[r].socket.open()) static_cast<void>(why_hung(static_cast<int>(r), long_ago));
  }
  return lost_;
}

bool Connections::has(int rank) {
  std::lock_guard lock(mutex_);
  return why_missing(*root_, rank).empty() && why_hung(rank, std::numeric_limits<double>::infinity()).empty();
}

void Connections::note_lost(int rank, std::string_view why) {
  if (!lost_.ok()) return;
  lost_ = error(Code::peer_failed, "rank ", rank, " of ", root_->name, " is missing: ", why).of_rank(rank);
}

void Connections::retire() {
  std::lock_guard lock(mutex_);
  retired_ = true;
}

// Whether `other` is the group or was split from it.
bool Connections::below(const Group& other, const Group& group) const {
  const Group* above = &other;
  while (above != nullptr && above != &group) above = above->parent;
  return above != nullptr;
}

// Ends a group and those that were split from it, here.
void Connections::end(Group& group, const Status& why) {
  for (auto& [id, other] : groups_) {
    if (below(*other, group)) mark_ended(*other, why);
  }
  changed_.notify_all();
}

void Connections::mark_ended(Group& group, const Status& why) {
  if (!group.status.ok()) return;
  group.status = why;
  if (group.on_end) group.on_end();
}

void Connections::tell(const Group& group, FrameHead head, std::string_view body) {
  head.group = group.id;
  head.members = group.members_hash;
  head.bytes = body.size();
  for (const int member : group.members) {
    if (member != rank_) send_locked(member, head, body.data());
  }
}

void Connections::take(int rank, Message message) {
  Group& group = at(message.head.group);
  switch (message.head.type) {
    case FrameHead::Type::together:
    case FrameHead::Type::between_two:
    case FrameHead::Type::row:
    case FrameHead::Type::memory:
      if (!group.closed) group.inbox[{rank, message.head.type}].push_back(std::move(message));
      break;
    case FrameHead::Type::ask:
      return send_locked(rank, {.type = FrameHead::Type::alive, .group = root_->id}, nullptr);
    case FrameHead::Type::alive:
      peers_[static_cast<size_t>(rank)].answered = clock_();
      return;
    case FrameHead::Type::call: {
      Peer& peer = peers_[static_cast<size_t>(rank)];
      peer.call = message.head.call;
      peer.call_text.assign(reinterpret_cast<const char*>(message.data()), static_cast<size_t>(message.head.bytes));
      compare_call(rank);
      break;
    }
    case FrameHead::Type::abort: {
      const Abort abort =
          unpacked({reinterpret_cast<const char*>(message.data()), static_cast<size_t>(message.head.bytes)});
      if (lost_.ok()) lost_ = abort.lost;
      for (const auto& [id, completed] : abort.completed) {
        Group& ended = at(id);
        ended.ends_after = std::max(ended.ends_after, completed);
        mark_ended(ended, abort.why);
      }
      end(group, abort.why);
      break;
    }
    case FrameHead::Type::leave:
      group.left[rank] = true;
      // Ranks that have ended a group together may join another one, and then leave this one; others do not come back.
      if (&group == root_ && message.head.peer == 0) note_lost(rank, "it has left the group");
      break;
  }
  changed_.notify_all();
}

void Connections::lose(int rank, std::string why) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  peer.socket.close();
  peer.pending = {};
  peer.written = 0;
  peer.gone = std::move(why);
  if (!root_->left.contains(rank)) note_lost(rank, peer.gone);
  changed_.notify_all();
}

}  // namespace epl::net
