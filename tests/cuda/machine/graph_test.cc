// Recordings on the machine: a graph is carried out when it is launched, in any order that it allows, and what may not
// be recorded is the driver's error.
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/cuda/machine/rig.h"

namespace epl::graph_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

// p[i] = 2 * p[i] + 1.
const std::string kDouble = cuda_rig::ptx_for_each("twice", "add.s32 %r2, %r2, %r2;\nadd.s32 %r2, %r2, 1;");
constexpr int kEnds = 4, kBytes = kEnds * sizeof(int);

// A machine with a stream that can be recorded, a kernel and memory of both sides.
class Recording {
 public:
  explicit Recording(const std::string& settings = "seed=1") : rig(settings) {
    void* host = nullptr;
    rig.must("cuMemHostAlloc", &host, size_t{kBytes}, 0u);
    pinned = static_cast<int*>(host);
    std::fill_n(pinned, kEnds, 1);
  }
  ~Recording() {
    rig.call("cuStreamSynchronize", stream);
    rig.call("cuMemFreeHost", static_cast<void*>(pinned));
  }
  Recording(const Recording&) = delete;

  void begin(int mode = 0) { rig.must("cuStreamBeginCapture_v2", stream, mode); }
  int end() { return rig.call("cuStreamEndCapture", stream, &graph); }
  // What can be launched of what was recorded.
  void* made() {
    rig.want(end());
    void* executable = nullptr;
    rig.must("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
    rig.must("cuGraphDestroy", graph);
    return executable;
  }
  void replay(void* executable, void* on = nullptr) {
    rig.must("cuGraphLaunch", executable, on == nullptr ? stream : on);
  }
  int twice(Address at, void* on) { return rig.launch(kernel, {.block = kEnds, .stream = on}, at); }
  int upload(Address to, const int* from) {
    return rig.call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(from), size_t{kBytes}, stream);
  }
  int first(Address at) {
    rig.must("cuStreamSynchronize", stream);
    return rig.download<int>(at, kEnds)[0];
  }

  Rig rig;
  void* const kernel = rig.function(kDouble, "twice");
  void* const stream = rig.stream();
  void* graph = nullptr;
  const Address memory = rig.upload(std::vector<int>(kEnds, 3));
  int* pinned = nullptr;
};

TEST(MachineGraph, IsCarriedOutWhenItIsLaunched) {
  Recording it;
  it.begin();
  int status = 0;
  it.rig.must("cuStreamIsCapturing", it.stream, &status);
  EXPECT_EQ(status, 1);
  it.rig.want(it.upload(it.memory, it.pinned));
  it.rig.want(it.twice(it.memory, it.stream));
  it.rig.want(it.twice(it.memory, it.stream));
  void* const executable = it.made();
  EXPECT_EQ(it.first(it.memory), 3) << "it was recorded and not carried out";
  it.replay(executable);
  EXPECT_EQ(it.first(it.memory), 7);
  it.pinned[0] = 10;  // is read when the graph is carried out
  it.replay(executable);
  EXPECT_EQ(it.first(it.memory), 43);
  EXPECT_EQ(it.rig.count("recorded"), 3u);
  EXPECT_EQ(it.rig.count("graphs"), 2u);
  it.rig.must("cuGraphExecDestroy", executable);
  EXPECT_EQ(it.rig.call("cuGraphLaunch", executable, it.stream), 1) << "it is gone";
  EXPECT_EQ(it.rig.findings(), "");
}

// Two streams that part and meet: both orders are right, and without the wait neither is.
int parts_and_meets(const std::string& settings, bool waits, std::string* findings) {
  Recording it(settings);
  void *const beside = it.rig.stream(), *const part = it.rig.event(), *const meet = it.rig.event();
  const Address other = it.rig.upload(std::vector<int>(kEnds, 5));
  it.begin();
  it.rig.want(it.upload(it.memory, it.pinned));
  it.rig.must("cuEventRecord", part, it.stream);
  it.rig.must("cuStreamWaitEvent", beside, part, 0u);
  it.rig.want(it.twice(other, beside));
  it.rig.want(it.twice(it.memory, it.stream));
  if (waits) it.rig.must("cuEventRecord", meet, it.stream);
  if (waits) it.rig.must("cuStreamWaitEvent", beside, meet, 0u);
  it.rig.must("cuMemcpyDtoDAsync_v2", other, it.memory, size_t{kBytes}, beside);
  it.rig.must("cuEventRecord", meet, beside);
  it.rig.must("cuStreamWaitEvent", it.stream, meet, 0u);
  void* const executable = it.made();
  for (int i = 0; i < 3; ++i) it.replay(executable);
  const int code = it.rig.call("cuStreamSynchronize", it.stream);
  *findings = it.rig.findings();
  return code == 0 ? it.first(other) : -1;
}

TEST(MachineGraph, StreamsPartAndMeet) {
  for (int seed = 1; seed < 6; ++seed) {
    std::string findings;
    const std::string settings = "seed=" + std::to_string(seed);
    EXPECT_EQ(parts_and_meets(settings, true, &findings), 3) << seed;
    EXPECT_EQ(findings, "") << seed;
    EXPECT_EQ(parts_and_meets(settings, false, &findings), -1) << seed;
    EXPECT_NE(findings.find("race"), std::string::npos) << findings;
  }
}

// A launch comes behind what its stream has, and behind the launch before, on whatever stream that was: the first node
// reads what the last one writes.
TEST(MachineGraph, IsCarriedOutOnceAtATime) {
  for (int seed = 1; seed < 6; ++seed) {
    Recording it("seed=" + std::to_string(seed));
    void *const beside = it.rig.stream(), *const part = it.rig.event(), *const read = it.rig.event();
    const Address other = it.rig.upload(std::vector<int>(kEnds));
    it.begin();
    it.rig.must("cuEventRecord", part, it.stream);
    it.rig.must("cuStreamWaitEvent", beside, part, 0u);
    it.rig.must("cuMemcpyDtoDAsync_v2", other, it.memory, size_t{kBytes}, beside);
    it.rig.must("cuEventRecord", read, beside);
    it.rig.want(it.twice(other, beside));
    it.rig.must("cuStreamWaitEvent", it.stream, read, 0u);
    it.rig.want(it.twice(it.memory, it.stream));
    it.rig.must("cuEventRecord", part, beside);
    it.rig.must("cuStreamWaitEvent", it.stream, part, 0u);
    void* const executable = it.made();
    it.rig.must("cuMemsetD32Async", it.memory, 1u, size_t{kEnds}, it.stream);
    it.replay(executable);
    it.replay(executable, beside);
    EXPECT_EQ(it.rig.call("cuStreamSynchronize", beside), 0) << seed << ": " << it.rig.findings();
    EXPECT_EQ(it.first(it.memory), 7) << seed;
    EXPECT_EQ(it.first(other), 7) << seed;
  }
}

TEST(MachineGraph, WhatMayNotBeRecordedEndsTheRecording) {
  struct Row {
    const char* what;
    int code;
    std::function<int(Recording&, void* event)> call;
  };
  int pageable[kEnds] = {};
  Address made = 0;
  const Row rows[] = {
      {"waiting for the stream", 900,
       [](Recording& it, void*) { return it.rig.call("cuStreamSynchronize", it.stream); }},
      {"asking the stream", 900, [](Recording& it, void*) { return it.rig.call("cuStreamQuery", it.stream); }},
      {"waiting for the context", 900, [](Recording& it, void*) { return it.rig.synchronize(); }},
      {"memory", 900, [&](Recording& it, void*) { return it.rig.call("cuMemAlloc_v2", &made, size_t{16}); }},
      {"a release", 900, [](Recording& it, void*) { return it.rig.call("cuMemFree_v2", it.memory); }},
      {"pageable memory", 900, [&](Recording& it, void*) { return it.upload(it.memory, pageable); }},
      {"an event that is not of it", 905,
       [](Recording& it, void* event) { return it.rig.call("cuStreamWaitEvent", it.stream, event, 0u); }},
      {"waiting for an event of it", 907,
       [](Recording& it, void* event) {
         it.rig.must("cuEventRecord", event, it.stream);
         return it.rig.call("cuEventSynchronize", event);
       }},
      {"the end of the stream", 900, [](Recording& it, void*) { return it.rig.call("cuStreamDestroy_v2", it.stream); }},
  };
  for (const Row& row : rows) {
    Recording it;
    void* const event = it.rig.event();
    it.rig.must("cuEventRecord", event, it.stream);
    it.begin();
    it.rig.want(it.twice(it.memory, it.stream));
    EXPECT_EQ(row.call(it, event), row.code) << row.what;
    EXPECT_EQ(it.twice(it.memory, it.stream), 901) << row.what;
    EXPECT_EQ(it.end(), 901) << row.what;
    EXPECT_EQ(it.graph, nullptr) << row.what;
    it.rig.want(it.twice(it.memory, it.stream));
    EXPECT_EQ(it.first(it.memory), 7) << row.what << ": the stream goes on";
  }
}

TEST(MachineGraph, EndsAsItHasBegun) {
  Recording it;
  void *const beside = it.rig.stream(), *const event = it.rig.event(), *const blocking = it.rig.stream(0);
  EXPECT_EQ(it.rig.call("cuStreamBeginCapture_v2", static_cast<void*>(nullptr), 0), 900) << "the context's own stream";
  EXPECT_EQ(it.end(), 401) << "it is not recorded";
  it.begin();
  EXPECT_EQ(it.rig.call("cuStreamBeginCapture_v2", it.stream, 0), 401) << "it is recorded already";
  it.rig.want(it.twice(it.memory, it.stream));
  it.rig.must("cuEventRecord", event, it.stream);
  it.rig.must("cuStreamWaitEvent", beside, event, 0u);
  it.rig.want(it.twice(it.memory, beside));
  EXPECT_EQ(it.end(), 904) << "what is beside it is not waited for";
  EXPECT_EQ(it.rig.call("cuStreamWaitEvent", it.stream, event, 0u), 907) << "an event of a recording that is gone";

  it.begin();
  it.rig.must("cuEventRecord", event, it.stream);
  it.rig.must("cuStreamWaitEvent", beside, event, 0u);
  EXPECT_EQ(it.rig.call("cuStreamEndCapture", beside, &it.graph), 903);
  EXPECT_EQ(it.end(), 901);

  it.begin();
  int code = 0;
  std::thread other([&] {
    it.rig.must("cuCtxPushCurrent_v2", it.rig.context);
    code = it.end();
  });
  other.join();
  EXPECT_EQ(code, 908);
  EXPECT_EQ(it.end(), 901);

  it.rig.must("cuStreamBeginCapture_v2", blocking, 2);
  Address made = 0;
  it.rig.must("cuMemAlloc_v2", &made, size_t{16});  // this kind of recording does not forbid it
  EXPECT_EQ(it.rig.call("cuMemsetD8_v2", made, static_cast<unsigned char>(0), size_t{16}), 906);
  EXPECT_EQ(it.rig.call("cuStreamEndCapture", blocking, &it.graph), 901);
}

// The plan of a step that keeps no address: memory and modules that went are found.
TEST(MachineGraph, AStalePointerIsFound) {
  Recording it;
  const Address gone = it.rig.upload(std::vector<int>(kEnds));
  void* const module = it.rig.load(kDouble);
  void* function = nullptr;
  it.rig.must("cuModuleGetFunction", &function, module, "twice");
  it.begin();
  it.rig.want(it.rig.launch(function, {.block = kEnds, .stream = it.stream}, it.memory));
  void* const unloaded = it.made();
  it.begin();
  it.rig.want(it.twice(gone, it.stream));
  void* const freed = it.made();
  it.rig.must("cuModuleUnload", module);
  EXPECT_EQ(it.rig.call("cuGraphLaunch", unloaded, it.stream), 400);
  it.rig.must("cuMemFree_v2", gone);
  it.replay(freed);
  EXPECT_EQ(it.rig.call("cuStreamSynchronize", it.stream), 700);
  EXPECT_NE(it.rig.findings().find("freed"), std::string::npos) << it.rig.findings();
}

}  // namespace
}  // namespace epl::graph_test
