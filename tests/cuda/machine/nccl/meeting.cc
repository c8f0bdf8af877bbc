#include "tests/cuda/machine/nccl/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/cuda/machine/control.h"

extern "C" {
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
}

namespace epl::cuda_nccl {
namespace {

constexpr size_t most_ranks = 8, most_bytes = size_t{1} << 20;

// What a rank says it calls.
struct Said {
  int kind, type, how, root;
  uint64_t count;
  bool operator==(const Said&) const = default;
};
Said said(const Call& call) { return {static_cast<int>(call.kind), call.type, call.how, call.root, call.count}; }

}  // namespace

struct Meeting::Page {
  struct Slot {
    std::atomic<uint64_t> put, taken;  // how many calls
    Said call;
    char source[most_bytes];
  };
  std::atomic<uint32_t> joined;
  Slot slots[most_ranks];
};
struct Meeting::Turn {
  std::shared_ptr<Meeting> meeting;
  Call call;
  uint64_t number;  // from 1 on
};

void Meeting::new_id(char* id) {
  static std::atomic<int> made{0};
  std::memset(id, 0, id_bytes);
  std::snprintf(id, id_bytes, "/epl_test_nccl_%d_%d", static_cast<int>(::getpid()), ++made);
}

std::shared_ptr<Meeting> Meeting::begin(const char* id, int ranks, int rank) {
  require(ranks > 0 && ranks <= static_cast<int>(most_ranks) && rank >= 0 && rank < ranks, kInvalidArgument,
          "so many ranks, or such a rank");
  require(id[0] == '/' && std::memchr(id, 0, id_bytes) != nullptr, kInvalidArgument, "this is no id");
  std::shared_ptr<Meeting> made(new Meeting);
  made->ranks_ = static_cast<size_t>(ranks), made->rank_ = static_cast<size_t>(rank), made->bytes_ = sizeof(Page);
  const int file = ::shm_open(id, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  require(file >= 0 && ::ftruncate(file, static_cast<off_t>(made->bytes_)) == 0, kCudaFailed, "shared memory");
  void* const at = ::mmap(nullptr, made->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  require(at != MAP_FAILED, kCudaFailed, "shared memory");
  made->page_ = static_cast<Page*>(at);
  made->id_ = id;
  ++made->page_->joined;
  return made;
}

Meeting::~Meeting() {
  if (!all_here_ && !id_.empty()) ::shm_unlink(id_.c_str());
  if (page_ != nullptr) ::munmap(page_, bytes_);
}

bool Meeting::in_progress() {
  if (!all_here_) {
    if (page_->joined < ranks_) return true;
    all_here_ = true;
    ::shm_unlink(id_.c_str());  // by all: the others have it open
  }
  return std::exchange(issuing_, false);
}

// False: not yet.
bool Meeting::put(const Turn& turn, const char* source) {
  if (aborted_) return true;
  for (size_t r = 0; r < ranks_; ++r)
    if (page_->slots[r].taken + 1 < turn.number) return false;
  Page::Slot& own = page_->slots[rank_];
  own.call = said(turn.call);
  if (source != nullptr) std::memcpy(own.source, source, sizes_of(turn.call, ranks_).given);
  own.put = turn.number;
  return true;
}

bool Meeting::take(const Turn& turn, char* target) {
  if (aborted_) return true;
  std::vector<const char*> sources;
  for (size_t r = 0; r < ranks_; ++r) {
    const Page::Slot& slot = page_->slots[r];
    if (slot.put < turn.number) return false;
    if (!(slot.call == said(turn.call))) return false;  // as the real one: it waits for ever
    sources.push_back(slot.source);
  }
  finish(turn.call, sources, rank_, target);
  page_->slots[rank_].taken = turn.number;
  return true;
}

void Meeting::carry_out(const std::shared_ptr<Meeting>& self, const End& end, const Call& call) {
  const auto [given, taken] = sizes_of(call, ranks_);
  if (given == 0) return;
  require(given <= most_bytes, kInvalidUsage, "more bytes than this library brings to other processes");
  require(all_here_ && !issuing_, kInvalidUsage, "a call while the one before is in progress");
  issuing_ = true;
  const uint64_t number = ++calls_;
  require(cuCtxPushCurrent_v2(end.context) == 0, kCudaFailed, "the context");
  const auto issue = [&](const void* memory, size_t bytes, bool writes, int (*run)(void*, char* const*)) {
    const epl_test_machine_rows rows = {reinterpret_cast<uint64_t>(memory), static_cast<int64_t>(bytes), 1,
                                        static_cast<int64_t>(bytes), writes ? 1 : 0};
    return epl_test_machine_issue(
        call.stream, call.text().c_str(), &rows, 1, run, [](void* turn) { delete static_cast<Turn*>(turn); },
        new Turn{self, call, number});
  };
  // A rank that has nothing to give says so all the same, by what it writes to.
  const bool gives = call.kind != Kind::broadcast || static_cast<int>(rank_) == call.root;
  int code = gives ? issue(call.source, given, false,
                           [](void* context, char* const* places) {
                             const Turn& turn = *static_cast<Turn*>(context);
                             return turn.meeting->put(turn, places[0]) ? 0 : 1;
                           })
                   : issue(call.target, taken, true, [](void* context, char* const*) {
                       const Turn& turn = *static_cast<Turn*>(context);
                       return turn.meeting->put(turn, nullptr) ? 0 : 1;
                     });
  if (code == 0)
    code = issue(call.target, taken, true, [](void* context, char* const* places) {
      const Turn& turn = *static_cast<Turn*>(context);
      return turn.meeting->take(turn, places[0]) ? 0 : 1;
    });
  void* popped = nullptr;
  cuCtxPopCurrent_v2(&popped);
  require(code == 0, kCudaFailed, call.text() + " gave " + std::to_string(code));
}

}  // namespace epl::cuda_nccl
