#include "core/backend/pack_circle.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "core/backend/pack_peers.h"
#include "core/base/text.h"

namespace epl {
namespace {

using Kind = Collective::Kind;

constexpr int64_t room_alignment = 256;
// How often a rank asks its device before it goes to the others: a call that is soon done costs one exchange, and one
// that takes long an exchange every few milliseconds.
constexpr int fewest_questions = 64, most_questions = 4096;

// What a rank tells the others in such an exchange.
struct Said {
  enum State : int32_t { at_work, done, failed };
  State state = at_work;
  char call[124] = {};  // zeros behind it

  std::string_view text() const { return {call, ::strnlen(call, sizeof call)}; }
};

std::string_view first_line(std::string_view card) { return card.substr(0, card.find('\n')); }

}  // namespace

std::string circle_card(const OpenedPack& opened) {
  const PackReason card, reason;
  if (!opened.meets() || opened.verbs->meets(opened.handle, &card.to, &reason.to) != 0) return {};
  return card.text;
}

bool can_meet(std::span<const std::string> cards) {
  const std::set<std::string_view> different(cards.begin(), cards.end());
  return cards.size() > 1 && different.size() == cards.size() && !cards.front().empty() &&
         std::ranges::all_of(cards,
                             [&](const std::string& card) { return first_line(card) == first_line(cards.front()); });
}

Result<std::unique_ptr<PackCircle>> PackCircle::join(const CircleMeans& means, Communicator& there, Stream& host_stream,
                                                     std::string& why) {
  struct Id {
    int32_t result = 0;
    unsigned char bytes[EPL_PACK_ID_BYTES] = {};
  } id;
  const OpenedPack& opened = *means.opened;
  const epl_pack_device& verbs = *opened.verbs;
  const PackReason reason;
  if (there.rank() == 0) id.result = verbs.new_id(opened.handle, id.bytes, &reason.to);
  EPL_TRY(there.run_on_host(host_stream, {.kind = Kind::broadcast,
                                          .dtype = DType::u8,
                                          .count = static_cast<int64_t>(sizeof id),
                                          .source = &id,
                                          .target = &id}));
  if (id.result != 0) {
    why = there.rank() == 0 ? reason.text : "rank 0 has not begun it";
    return std::unique_ptr<PackCircle>();
  }
  std::unique_ptr<PackCircle> made(new PackCircle(means, there, host_stream));
  Status own;
  const int32_t result =
      verbs.join_ranks(opened.handle, id.bytes, there.size(), there.rank(), &made->circle_, &reason.to);
  if (result != 0) own = pack_status(opened, result, reason, "joining others");
  EPL_ASSIGN(const int failed, made->await("joining others", nullptr, own));
  if (failed < 0) return made;
  why = failed == there.rank() ? own.message() : cat("rank ", failed, " has not joined");
  return std::unique_ptr<PackCircle>();
}

PackCircle::~PackCircle() {
  if (circle_ != nullptr) verbs().leave_circle(circle_);
  if (room_ == nullptr) return;
  verbs().release(means_.opened->handle, room_);
  means_.opened->in_use.fetch_sub(room_bytes_, std::memory_order_relaxed);
}

bool PackCircle::takes(const Collective& call) {
  if (call.count <= 0) return false;
  if (call.reduces()) return is_float(call.dtype) || call.dtype == DType::i64;
  return call.kind == Kind::all_gather || call.kind == Kind::broadcast;
}

Status PackCircle::run(PackStream& stream, const Collective& call) {
  if (ended_) return error(Code::cancelled, "the devices of group ", there_.group(), " have parted");
  // Whatever it is that ends the call: the stream must not wait for others, and names memory that may go next.
  struct Attempt {
    PackCircle& circle;
    PackStream& stream;
    bool is_well = false;
    ~Attempt() {
      if (is_well) return;
      circle.ended_ = true;
      circle.verbs().abort_circle(circle.circle_);
      const PackReason reason;
      circle.verbs().synchronize(stream.handle(), &reason.to);
    }
  } attempt{*this, stream};
  const bool in_order = call.reduces() && !(means_.any_order && call.reduction == Reduction::sum);
  const Status status = in_order ? reduce(stream, call) : collect(stream, call, call);
  attempt.is_well = status.ok();
  return status;
}

// Every rank gathers what it reduces, and more than it needs where each reduces a segment of its own.
Status PackCircle::reduce(PackStream& stream, const Collective& call) {
  const int64_t size = there_.size(), element = static_cast<int64_t>(dtype_bytes(call.dtype));
  const int64_t place = std::max(means_.room_bytes / size / room_alignment, int64_t{1}) * room_alignment;
  const int64_t most = std::min(place / element, call.count);
  const int segments = call.kind == Kind::reduce_scatter ? there_.size() : 1;
  if (const Status none = make_room(most * element * size); !none.ok()) stream.fail(none);  // others hear of it
  for (int64_t at = 0; at < call.count; at += most) {
    const int64_t count = std::min(most, call.count - at);
    for (int segment = 0; segment < segments; ++segment) {
      Collective part = call;
      part.kind = Kind::all_gather;
      part.count = count;
      part.source = static_cast<const char*>(call.source) + (segment * call.count + at) * element;
      part.target = room_;
      EPL_TRY(collect(stream, call, part));
      if (segments > 1 && segment != there_.rank()) continue;
      std::vector<const void*> sources;
      for (int64_t r = 0; r < size; ++r) sources.push_back(static_cast<const char*>(room_) + r * count * element);
      void* const target = static_cast<char*>(call.target) + at * element;
      const epl_pack_reduction reduction = {.struct_size = sizeof reduction,
                                            .sources = sources.data(),
                                            .targets = &target,
                                            .ranks = there_.size(),
                                            .target_count = 1,
                                            .count = count,
                                            .dtype = static_cast<int32_t>(call.dtype) + 1,
                                            .reduction = static_cast<int32_t>(call.reduction)};
      stream.issue("a reduction over ranks",
                   [&](const epl_pack_reason* reason) { return verbs().reduce(stream.handle(), &reduction, reason); });
    }
  }
  return {};
}

Status PackCircle::collect(PackStream& stream, const Collective& call, const Collective& part) {
  const bool sums = part.reduces();
  void* handle = stream.handle();
  const void* const source = part.source;
  // Who broadcasts has no target of its own.
  const bool gives = part.kind == Kind::broadcast && part.peer == there_.rank();
  void* const target = gives ? const_cast<void*>(source) : part.target;
  const epl_pack_collective given = {.struct_size = sizeof given,
                                     .kind = library_kind(part.kind),
                                     .dtype = sums ? static_cast<int32_t>(part.dtype) + 1 : 0,
                                     .count = sums ? part.count : part.bytes(),
                                     .streams = &handle,
                                     .sources = &source,
                                     .targets = &target,
                                     .root = part.peer,
                                     .reserved = 0};
  const std::string text = call.text();
  stream.issue(text, [&](const epl_pack_reason* reason) { return verbs().collect(circle_, &given, reason); });
  Status own = stream.take_failure();
  EPL_ASSIGN(const int failed, await(text, &stream, own));
  if (failed < 0) return {};
  if (failed == there_.rank()) return own;
  return error(Code::peer_failed, "rank ", failed, " of group ", there_.group(), ": its device has failed in ", text);
}

Result<int> PackCircle::await(const std::string& what, PackStream* stream, Status& own) {
  std::vector<Said> all(static_cast<size_t>(there_.size()));
  for (int questions = fewest_questions;; questions = std::min(2 * questions, most_questions)) {
    Said said;
    std::memcpy(said.call, what.data(), std::min(what.size(), sizeof said.call));
    const bool done = own.ok() && ask(stream, questions, own);
    said.state = !own.ok() ? Said::failed : done ? Said::done : Said::at_work;
    EPL_TRY(there_.run_on_host(host_stream_, {.kind = Kind::all_gather,
                                              .dtype = DType::u8,
                                              .count = static_cast<int64_t>(sizeof said),
                                              .source = &said,
                                              .target = all.data()}));
    if (!own.ok()) return there_.rank();
    for (int r = 0; r < there_.size(); ++r) {
      const Said& other = all[static_cast<size_t>(r)];
      if (other.text() != said.text()) {
        return invalid("rank ", r, " of group ", there_.group(), " called ", other.text(), ", rank ", there_.rank(),
                       " called ", said.text());
      }
      if (other.state == Said::failed) return r;
    }
    if (std::ranges::all_of(all, [](const Said& one) { return one.state == Said::done; })) return -1;
  }
}

bool PackCircle::ask(PackStream* stream, int times, Status& own) const {
  const PackReason reason;
  for (int i = 0; i < times; ++i) {
    const int32_t result = verbs().circle_done(circle_, stream == nullptr ? nullptr : stream->handle(), &reason.to);
    if (result == 0) return true;
    if (result != EPL_PACK_BUSY) {
      own = pack_status(*means_.opened, result, reason, "a call with other ranks");
      return false;
    }
    std::this_thread::yield();
  }
  return false;
}

// Nothing reads the old one any more: a call ends with its stream.
Status PackCircle::make_room(int64_t bytes) {
  if (bytes <= room_bytes_) return {};
  OpenedPack& opened = *means_.opened;
  if (room_ != nullptr) verbs().release(opened.handle, room_);
  opened.in_use.fetch_sub(room_bytes_, std::memory_order_relaxed);
  room_ = nullptr;
  room_bytes_ = 0;
  const PackReason reason;
  const int32_t result = verbs().allocate(opened.handle, static_cast<uint64_t>(bytes), &room_, &reason.to);
  if (result != 0) return pack_status(opened, result, reason, "room for sums over ranks");
  room_bytes_ = bytes;
  opened.in_use.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace epl
