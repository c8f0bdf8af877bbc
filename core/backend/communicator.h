// What ranks do together. A group is named; every rank of it makes the same calls in the same order, except for send
// and receive, which two ranks call in the same order as each other.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/function_ref.h"
#include "core/base/status.h"

namespace epl {

class Stream;
struct JobCall;

enum class Reduction : uint8_t { sum, max, min };

// One call of one rank. `count` is in elements of `dtype`; n is the number of ranks of the group, r the calling rank.
//
//   kind            source            target            meaning
//   all_reduce      count             count             the reduction over the ranks, to each
//   reduce_scatter  n x count         count             segment r of the reduction over the ranks
//   all_gather      count             n x count         the sources of all ranks in their order
//   all_to_all      n x count         n x count         segment p of the target is segment r of rank p's source
//   dispatch        count             n x count         each row of each source, to the rank that owns it
//   combine         n x count         count             each row of the rank's own, from the rank that owns it
//   broadcast       count (of peer)   count             the source of rank `peer`
//   send            count                               to rank `peer`, which receives
//   receive                           count             from rank `peer`, which sends
//   barrier                                             nobody goes on before all have come
//
// Sums keep the canonical order: the binary tree over ranks, so that they continue the tree over units (where the
// number of ranks is a power of two). max and min have no order to keep. Source and target of all_reduce and broadcast
// may be the same memory; of all_gather and reduce_scatter the smaller one may be the rank's own segment of the larger
// one. Otherwise they do not overlap.
//
// dispatch and combine are an all_gather and its way back of which each row goes to one rank: `count` is `rows` rows,
// and `owners` has a rank for each of the n x rows rows, the same on all ranks; one that is no rank stands for the rank
// whose row it is. Rows keep their positions. What a rank does not own of the larger operand is neither read nor
// written.
struct Collective {
  enum class Kind : uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    dispatch,
    combine,
    broadcast,
    send,
    receive,
    barrier
  };
  Kind kind = Kind::barrier;
  DType dtype = DType::u8;
  int64_t count = 0;
  const void* source = nullptr;
  void* target = nullptr;
  Reduction reduction = Reduction::sum;
  int peer = 0;
  int64_t rows = 0;
  const int64_t* owners = nullptr;

  bool reduces() const { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }
  bool between_two() const { return kind == Kind::send || kind == Kind::receive; }
  bool by_owners() const { return kind == Kind::dispatch || kind == Kind::combine; }
  // Calls f(source, target, bytes) with where they lie in the operands of two ranks: each run of rows that `from` of
  // `size` ranks gives to `to`, which may be the same. Of the source only its bytes [begin, end) count, and no row
  // outside of them is looked at.
  using RowsBetween = FunctionRef<void(int64_t source, int64_t target, int64_t bytes)>;
  void rows_between(int from, int to, int size, int64_t begin, int64_t end, RowsBetween f) const;
  void rows_between(int from, int to, int size, RowsBetween f) const;
  int64_t bytes() const;     // of `count` elements
  std::string text() const;  // "all_reduce(8 x f32, sum)"
};
std::string_view collective_name(Collective::Kind kind);
// Whether two ranks of a group make one call: the same but for their memory, or a send and its receive.
bool agree(const Collective& a, const Collective& b);
// What no rank may ask for: a negative count, a peer outside of the group or, to send to, itself, memory that overlaps.
Status check_collective(const Collective& call, int rank, int size);

// One rank's end of a group. Thread safety: calls of one rank come from one thread at a time; `abort` may come from
// any.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual const std::string& group() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // As a command of the stream: source and target are the call's until the stream has come past it. A send leaves the
  // host free: the stream waits until its receiver has taken it, and `synchronize` says where it could not. Over
  // processes its source is free at once, and the next call of the group says what became of it.
  virtual Status run(Stream& stream, const Collective& call) = 0;
  // Several at once, in no order: no operand of one is a result of another. All ranks give as many. One by one where a
  // device gains nothing by it.
  virtual Status run_together(Stream& stream, std::span<const Collective> calls);
  // The same where the operands are memory of the host, whatever memory the device has: what processes tell each other,
  // in a group over them. It has taken place when this returns.
  virtual Status run_on_host(Stream& stream, const Collective& call);
  // A group of some of the ranks, `members` by their ranks in this one, ascending; each of them asks for the same, the
  // others for nothing. `name` is free in this group, or names the group of the same members that was made before. An
  // abort of this group ends it too.
  virtual Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) = 0;
  // Makes every pending and later call of every rank of the group return `status`.
  virtual void abort(const Status& status) = 0;
  // Ranks of other processes are waited for without looking at anything else. `stop` is asked now and then while a call
  // of this group, or of one split from it, waits for them; an error of it ends the group. Null: nobody is asked.
  virtual void watch(std::function<Status()> /*stop*/) {}
  // Where `asked` says that the job is to end, a peer whose process does not even answer is taken for lost within some
  // seconds, by calls that must not be left as well. Null: nobody is asked.
  virtual void hasten(std::function<bool()> /*asked*/) {}
  // That a peer has gone with its process, has left, or has said nothing for too long, and which: these ranks never
  // come together again. This rank has seen it, or heard of it by the abort of another one.
  virtual Status lost() const { return {}; }
  // Of the group that was joined: whether this rank of another process is still in it, as far as anybody knows here.
  virtual bool has(int /*rank*/) { return false; }
  // What this rank's device can do with devices of other processes, a text of less than `card_bytes`; empty: nothing.
  // Each rank is told the cards of all in the group that was joined, by rank. Groups that are split from it afterwards
  // may then reach from device to device; before, operands go through the host.
  static constexpr size_t card_bytes = 248;
  virtual std::string card() const { return {}; }
  virtual void introduce(std::vector<std::string> /*cards*/) {}
  // What this rank's process does from now on. A rank of another process that says something else of the call of this
  // number is noticed as soon as one of the two waits for the other, whatever groups they wait in: both calls fail.
  // Where nobody waits it costs no message.
  virtual void enter(const JobCall& /*call*/) {}
  // The ranks have come together in another group, which takes the place of this one: that this rank leaves it is no
  // loss to the others.
  virtual void retire() {}
};

// What `split` refuses: members that are not ascending ranks of the group, or not the caller's own.
Status check_members(const Communicator& communicator, const std::string& name, std::span<const int> members);

}  // namespace epl
