// libnccl.so.2 for tests: the functions that the pack calls, for one thread that drives all devices of a circle. Calls
// are checked when their group ends: who does not call what the others call, in kind, count, type and order, is found,
// and so is a call that would wait for ever because another rank makes none. In a circle over processes such calls do
// wait for ever, as with the real one, until they are aborted.
#include <algorithm>
#include <map>
#include <set>

#include "tests/cuda/machine/control.h"
#include "tests/cuda/machine/nccl/circle.h"
#include "tests/cuda/machine/nccl/meeting.h"

#define EPL_NCCL extern "C" __attribute__((visibility("default")))

extern "C" {
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxGetDevice(int* device);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
}

namespace epl::cuda_nccl {
namespace {

// A split that an end asks for.
struct Split {
  End* end;
  int color, key;
  void** made;
};

struct Library {
  std::mutex mutex;
  std::map<Circle*, std::unique_ptr<Circle>> circles;
  std::set<void*> ends;
  std::string last_error;
};
Library& library() {
  static Library* const one = new Library;  // never destroyed: a host's threads may call until the very end
  return *one;
}

// Of this thread.
struct Group {
  int depth = 0;
  std::vector<std::pair<End*, Call>> calls;
  std::vector<Split> splits;
};
Group& group() {
  static thread_local Group open;
  return open;
}

template <class F> int guarded(F&& f) {
  Library& all = library();
  const std::lock_guard lock(all.mutex);
  try {
    f(all);
    return kSuccess;
  } catch (const Refused& refused) {
    all.last_error = refused.what();
    epl_test_machine_refused(refused.what());
    return refused.code;
  }
}

End& end_of(Library& all, void* handle) {
  require(all.ends.count(handle) != 0, kInvalidArgument, "this is no end, or one that was destroyed");
  return *static_cast<End*>(handle);
}

Circle& make_circle(Library& all, const std::vector<int>& devices) {
  auto made = std::make_unique<Circle>();
  for (const int device : devices) {
    auto end = std::make_unique<End>();
    end->circle = made.get();
    end->rank = static_cast<int>(made->ends.size());
    end->device = device;
    require(cuDevicePrimaryCtxRetain(&end->context, device) == 0, kCudaFailed, "a device that cannot be used");
    require(cuCtxPushCurrent_v2(end->context) == 0, kCudaFailed, "the context of a device");
    const int code = cuEventCreate(&end->event, 2);
    void* popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
    require(code == 0, kCudaFailed, "an event");
    all.ends.insert(end.get());
    made->ends.push_back(std::move(end));
  }
  Circle& circle = *made;
  all.circles.emplace(&circle, std::move(made));
  return circle;
}

// All calls of one circle, in the order in which its ends made them.
void run_calls(Circle& circle, const std::vector<std::pair<End*, Call>>& calls) {
  if (circle.meeting) {
    for (const auto& [end, call] : calls)
      if (end->circle == &circle) circle.meeting->carry_out(circle.meeting, *end, call);
    return;
  }
  const size_t ranks = circle.ends.size();
  std::vector<std::vector<Call>> by_rank(ranks);
  for (const auto& [end, call] : calls)
    if (end->circle == &circle) by_rank[static_cast<size_t>(end->rank)].push_back(call);
  const size_t most = std::ranges::max_element(by_rank, {}, [](const auto& one) { return one.size(); })->size();
  for (size_t n = 0; n < most; ++n) {
    std::vector<Call> together;
    for (size_t r = 0; r < ranks; ++r) {
      require(n < by_rank[r].size(), kInvalidUsage,
              "rank " + std::to_string(r) + " of " + std::to_string(ranks) + " makes no call " + std::to_string(n + 1) +
                  ", and the others would wait for it for ever");
      together.push_back(by_rank[r][n]);
      require(agree(together.front(), together.back()), kInvalidUsage,
              "rank " + std::to_string(r) + " calls " + together.back().text() + ", rank 0 calls " +
                  together.front().text());
    }
    carry_out(circle, together);
  }
}

void run_splits(Library& all, Circle& circle, const std::vector<Split>& splits) {
  std::vector<const Split*> of_circle;
  for (const Split& split : splits)
    if (split.end->circle == &circle) of_circle.push_back(&split);
  require(!circle.meeting, kInvalidUsage, "this library splits no circle over processes");
  require(of_circle.size() == circle.ends.size(), kInvalidUsage, "not every rank splits");
  require(!circle.at_work(), kInvalidUsage, "a circle is split whose calls are not done, which may wait for ever");
  std::map<int, std::vector<const Split*>> by_color;
  for (const Split* split : of_circle) {
    *split->made = nullptr;
    if (split->color >= 0) by_color[split->color].push_back(split);
  }
  for (auto& [color, members] : by_color) {
    std::ranges::stable_sort(members, {}, [](const Split* one) { return std::pair(one->key, one->end->rank); });
    std::vector<int> devices;
    for (const Split* split : members) devices.push_back(split->end->device);
    Circle& made = make_circle(all, devices);
    for (size_t r = 0; r < members.size(); ++r) *members[r]->made = made.ends[r].get();
  }
}

// Whether something of it is in progress now.
bool end_group(Library& all) {
  Group done;
  std::swap(done, group());
  require(done.calls.empty() || epl_test_machine_collective_fails() == 0, kSystemFailed,
          "a collective fails as the test's settings want");
  std::set<Circle*> called, split;
  for (const auto& [end, call] : done.calls) called.insert(end->circle);
  for (const Split& one : done.splits) split.insert(one.end->circle);
  for (Circle* circle : called) run_calls(*circle, done.calls);
  for (Circle* circle : split) run_splits(all, *circle, done.splits);
  return std::ranges::any_of(called, [](const Circle* circle) { return circle->meeting != nullptr; });
}

int add(void* handle, const Call& call) {
  bool goes_on = false;
  const int code = guarded([&](Library& all) {
    End& end = end_of(all, handle);
    const bool reduces = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter;
    require(element_bytes(call.type) > 0, kInvalidArgument, "a type that there is not");
    require(!reduces || call.how == 0, kInvalidArgument, "this library adds up and does nothing else");
    require(call.root >= 0 && (end.circle->meeting || call.root < static_cast<int>(end.circle->ends.size())),
            kInvalidArgument, "a root outside of the circle");
    group().calls.emplace_back(&end, call);
    if (group().depth == 0) goes_on = end_group(all);
  });
  return code == kSuccess && goes_on ? kInProgress : code;
}

void drop_end(Library& all, void* handle) {
  End& end = end_of(all, handle);
  Circle& circle = *end.circle;
  cuEventDestroy_v2(end.event);
  cuDevicePrimaryCtxRelease_v2(end.device);
  all.ends.erase(handle);
  circle.ends[circle.meeting ? 0 : static_cast<size_t>(end.rank)].reset();
  if (std::ranges::none_of(circle.ends, [](const auto& one) { return one != nullptr; })) all.circles.erase(&circle);
}

}  // namespace
}  // namespace epl::cuda_nccl

using namespace epl::cuda_nccl;

EPL_NCCL int ncclGetVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = 23203;
  return kSuccess;
}

EPL_NCCL const char* ncclGetErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kCudaFailed:
      return "unhandled cuda error";
    case kSystemFailed:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    default:
      return "invalid usage";
  }
}

EPL_NCCL const char* ncclGetLastError(void*) { return library().last_error.c_str(); }

EPL_NCCL int ncclCommInitAll(void** ends, int count, const int* ordinals) {
  return guarded([&](Library& all) {
    require(ends != nullptr && count > 0, kInvalidArgument, "a circle of no devices");
    std::vector<int> devices;
    for (int i = 0; i < count; ++i) {
      devices.push_back(ordinals == nullptr ? i : ordinals[i]);
      require(std::ranges::count(devices, devices.back()) == 1, kInvalidUsage,
              "device " + std::to_string(devices.back()) + " is twice in a circle");
    }
    const Circle& circle = make_circle(all, devices);
    for (int i = 0; i < count; ++i) ends[i] = circle.ends[static_cast<size_t>(i)].get();
  });
}

// Who asks for an id and who begins a rank are of different processes.
struct Id {
  char bytes[id_bytes];
};
EPL_NCCL int ncclGetUniqueId(Id* id) {
  if (id == nullptr) return kInvalidArgument;
  Meeting::new_id(id->bytes);
  return kSuccess;
}
// As far as it is read.
struct Settings {
  size_t size;
  unsigned magic, version;
  int blocking;
};
EPL_NCCL int ncclCommInitRankConfig(void** made, int ranks, Id id, int rank, const Settings* settings) {
  int device = 0;
  const bool has_context = cuCtxGetDevice(&device) == 0;
  const int code = guarded([&](Library& all) {
    require(made != nullptr && has_context, kInvalidUsage, "no context is current in this thread");
    require(settings != nullptr && settings->size >= sizeof *settings && settings->magic == 0xcafebeef &&
                settings->version >= 21400,
            kInvalidArgument, "settings that are not initialized");
    require(settings->blocking == 0, kInvalidUsage, "this library has no calls over processes that wait");
    const std::shared_ptr<Meeting> meeting = Meeting::begin(id.bytes, ranks, rank);
    Circle& circle = make_circle(all, {device});
    circle.meeting = meeting;
    circle.ends[0]->rank = rank;
    *made = circle.ends[0].get();
  });
  return code == kSuccess ? kInProgress : code;
}
EPL_NCCL int ncclCommGetAsyncError(void* handle, int* state) {
  return guarded([&](Library& all) {
    require(state != nullptr, kInvalidArgument, "nowhere to say it");
    const Circle& circle = *end_of(all, handle).circle;
    *state = circle.meeting && circle.meeting->in_progress() ? kInProgress : kSuccess;
  });
}

EPL_NCCL int ncclCommSplit(void* handle, int color, int key, void** made, void* settings) {
  return guarded([&](Library& all) {
    require(made != nullptr && settings == nullptr, kInvalidArgument, "a split");
    group().splits.push_back({&end_of(all, handle), color, key, made});
    if (group().depth == 0) end_group(all);
  });
}

EPL_NCCL int ncclCommDestroy(void* handle) {
  return guarded([&](Library& all) { drop_end(all, handle); });
}
EPL_NCCL int ncclCommAbort(void* handle) {
  return guarded([&](Library& all) {
    if (const Circle& circle = *end_of(all, handle).circle; circle.meeting) circle.meeting->abort();
    drop_end(all, handle);
  });
}

EPL_NCCL int ncclGroupStart() {
  ++group().depth;
  return kSuccess;
}

EPL_NCCL int ncclGroupEnd() {
  bool goes_on = false;
  const int code = guarded([&](Library& all) {
    require(group().depth > 0, kInvalidUsage, "a group that ends and has not begun");
    if (--group().depth == 0) goes_on = end_group(all);
  });
  return code == kSuccess && goes_on ? kInProgress : code;
}

EPL_NCCL int ncclAllReduce(const void* source, void* target, size_t count, int type, int how, void* end, void* stream) {
  return add(end, {Kind::all_reduce, source, target, count, type, how, 0, stream});
}
EPL_NCCL int ncclReduceScatter(const void* source, void* target, size_t count, int type, int how, void* end,
                               void* stream) {
  return add(end, {Kind::reduce_scatter, source, target, count, type, how, 0, stream});
}
EPL_NCCL int ncclAllGather(const void* source, void* target, size_t count, int type, void* end, void* stream) {
  return add(end, {Kind::all_gather, source, target, count, type, 0, 0, stream});
}
EPL_NCCL int ncclBroadcast(const void* source, void* target, size_t count, int type, int root, void* end,
                           void* stream) {
  return add(end, {Kind::broadcast, source, target, count, type, 0, root, stream});
}
