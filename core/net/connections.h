// One rank's connections to the ranks of a group that are reached by sockets, and what comes over them.
//
// A connection carries frames: a head and a body. A thread reads what comes and keeps it until a call asks for it. So a
// send never waits for its receiver, and no two ranks wait for each other in a ring. The part of a frame that the
// system does not take at once is kept in memory of the connection, and that thread writes it when there is room.
// Memory is reused: after the first steps of a job nothing allocates.
//
// A rank that leaves says so, and whether it has come together with the others anew. A connection that ends otherwise
// means that the peer's process has ended. Who ends a group says which rank it takes for lost, so that nobody waits for
// that one again. A child that the host forks and that does not exec holds its parent's connections open, so that
// nobody notices the end of the parent before the child's.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/communicator.h"
#include "core/backend/job_call.h"
#include "core/base/descriptor.h"
#include "core/base/function_ref.h"
#include "core/net/frame_seal.h"

namespace epl::net {

// A connection, and the keys that follow from how it was made.
struct Link {
  Descriptor socket;
  FrameKeys keys;
};

// What a frame is about. Both ends have the same processor, so it travels as it lies in memory.
struct FrameHead {
  // `row` and `memory`: what ranks that share memory tell each other first (process_communicator.h). `ask`: whether the
  // process lives, which its thread says.
  // `call`: what its process does (job_call.h).
  enum class Type : uint32_t { together, between_two, row, memory, ask, alive, call, abort, leave };
  static constexpr uint32_t right_mark = 0x314c5045;
  uint32_t mark = right_mark;  // detects a connection that is out of step
  Type type = Type::together;
  uint64_t group = 0;  // see Connections::Group
  uint64_t members = 0;
  uint64_t call = 0;   // of its sender, counted from 1
  uint64_t doing = 0;  // the digest of what its sender's process does
  uint32_t phase = 0;  // of that call
  Collective::Kind kind = Collective::Kind::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  uint8_t carried = 0;  // the operand is brought by a carrier, and the body says which it is
  int64_t count = 0;
  int64_t peer = 0;
  int64_t rows = 0;
  uint64_t bytes = 0;  // of the body
};

struct Message {
  FrameHead head;
  std::unique_ptr<std::byte[]> body;
  size_t room = 0;  // that `body` has
  const std::byte* data() const { return body.get(); }
};

// Thread safety: one thread sends and receives; `abort` comes from any.
class Connections {
 public:
  // A group as one rank sees it. Ranks know it by a number that follows from its name and those of the groups that it
  // was split from.
  struct Group {
    uint64_t id = 0, members_hash = 0;
    std::string name;          // empty: not split here yet, though peers have
    std::vector<int> members;  // by their ranks in the group that was joined
    Group* parent = nullptr;
    bool closed = false;     // this rank has left it
    uint64_t completed = 0;  // calls of all members together that this rank has
    Status status;           // why it was aborted
    // The rank that aborted it has completed the calls up to this one, so they complete everywhere.
    uint64_t ends_after = 0;
    std::function<void()> on_end;                                           // called once when it is ended
    std::map<int, bool> left;                                               // members that have
    std::map<std::pair<int, FrameHead::Type>, std::vector<Message>> inbox;  // by who sent it, in order
  };

  // `links` by rank, none for this one; they are connected and do not block. Frames are signed by their keys where the
  // group `signs`. Fails where the system gives no thread.
  static Result<std::shared_ptr<Connections>> create(std::string group, int rank, std::vector<Link> links, bool signs,
                                                     double silence_seconds, std::function<double()> clock);
  ~Connections();
  Group& root() { return *root_; }
  // The group of that name in `parent`, which is made at the first call. Members by their ranks in the group that was
  // joined.
  Result<Group*> split(Group& parent, const std::string& name, std::vector<int> members);

  // Never waits. What is sent to a peer that is gone goes nowhere.
  void send(int peer, FrameHead head, const void* body);
  // The next message of a kind from a peer; waits for it. An error says that the group was aborted, or what happened to
  // the peer. `call` is its number.
  Result<Message> receive(Group& group, int peer, FrameHead::Type type, uint64_t call);
  void use_again(Message message);
  Message make_room(const FrameHead& head);
  void complete(Group& group, uint64_t call);

  void abort(Group& group, const Status& why);
  void leave(Group& group);
  Status why_aborted(const Group& group);
  // The same where it has ended for some other rank, whose message may be on its way.
  Status why_ended(const Group& group);
  // What is to happen when the group ends, at once if it has; under the lock, so that it must be quick. Null: nothing.
  void on_end(Group& group, std::function<void()> what);
  // Whether a call that waits for these members by itself, and has heard nothing for so long, should go on: an error
  // says why not, and which member is missing, if one is.
  struct Waiting {
    Status status;
    int missing = -1;
  };
  Waiting keep_waiting(const Group& group, FunctionRef<bool(int)> awaited, double silent_seconds);
  void watch(std::function<Status()> stop);
  void hasten(std::function<bool()> asked);
  // See Communicator::enter. What is said of the current call goes with every frame as `doing`; who waits tells it to
  // all in a frame of its own.
  void enter(const JobCall& call);
  uint64_t doing() const { return doing_.load(std::memory_order_relaxed); }
  // Two ranks of a group have met in calls of other digests: says why, once both have been told.
  Status why_other_call(const Group& group);
  // See Communicator::lost, has and retire.
  Status lost();
  bool has(int rank);
  void retire();

 private:
  struct Peer {
    Descriptor socket;
    std::vector<std::byte> pending;  // to be written, from `written` on
    size_t written = 0;
    Message incoming;
    size_t read = 0;  // of it: its head, the head's tag, the body, the body's tag
    FrameTag head_tag{}, body_tag{};
    std::optional<FrameSeal> sends, receives;  // where frames are signed
    std::string gone;                          // why there is no connection any more
    // When it was asked last whether its process lives, and when that answered; by the host's clock, in seconds.
    double asked = -std::numeric_limits<double>::infinity(), answered = asked;
    // What it does, as it has said last.
    uint64_t call = 0;
    std::string call_text;
  };

  Connections(std::string group, int rank, std::vector<Link> links, bool signs, double silence_seconds,
              std::function<double()> clock);
  // These have the lock.
  Group& at(uint64_t id);
  void send_locked(int peer, const FrameHead& head, const void* body);
  void tell(const Group& group, FrameHead head, std::string_view body);
  void tell_why(const Group& group);  // that it was aborted
  bool below(const Group& other, const Group& group) const;
  void end(Group& group, const Status& why);
  void mark_ended(Group& group, const Status& why);
  std::string why_missing(const Group& group, int rank) const;
  std::string why_given_up(int rank, double silent_seconds);
  std::string why_hung(int rank, double silent_seconds);
  void ask(int rank, double seconds);  // unless it was asked within so many
  void tell_call(double silent_seconds);
  void compare_call(int rank);
  void write_pending(Peer& peer);
  std::span<std::byte> next_to_read(Peer& peer) const;
  std::string begin_body(Peer& peer);
  std::string end_body(Peer& peer) const;
  void read_some(int rank);
  void take(int rank, Message message);
  void lose(int rank, std::string why);
  void note_lost(int rank, std::string_view why);
  Message room_for(const FrameHead& head);
  // Of the thread.
  void serve();
  bool wait_for_sockets();

  const int rank_;
  const double silence_seconds_;
  const std::function<double()> clock_;  // the host's; seconds
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::map<uint64_t, std::unique_ptr<Group>> groups_;
  Group* root_;
  std::vector<Message> spare_;
  std::vector<pollfd> waiting_;  // of the thread
  std::function<Status()> stop_;
  std::function<bool()> hastened_;
  double hastened_at_ = -1;  // when it said so first; -1: it has not
  Status lost_;
  bool retired_ = false, closing_ = false;
  std::array<JobCall, 16> calls_;    // the last ones of this rank's process, by their numbers
  uint64_t entered_ = 0, told_ = 0;  // numbers: of the one that it is in, of the one that the others have been told
  std::atomic<uint64_t> doing_{0};
  Descriptor wake_;  // of the thread, when there is something to write
  std::thread thread_;
};

}  // namespace epl::net
