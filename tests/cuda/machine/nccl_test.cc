// The stand-in for NCCL: right sums and copies over devices, and mistakes that the real one answers by waiting for
// ever, each of which is found and named.
#include "backends/cuda/api/nccl.h"

#include <utility>

#include "tests/cuda/machine/rig.h"

namespace epl::nccl_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

// Two devices in one circle, each with a stream and memory.
class Pair {
 public:
  Pair() : nccl(*cuda::open_nccl(EPL_TEST_LIBRARIES).value()) {
    contexts[0] = rig.context;
    rig.must("cuDevicePrimaryCtxRetain", &contexts[1], 1);
    const int ordinals[] = {0, 1};
    rig.want(nccl.begin_all(ends, 2, ordinals));
    for (int r = 0; r < 2; ++r) {
      on(r, [&] {
        streams[r] = rig.stream();
        source[r] = rig.upload(std::vector<float>{1.5f + static_cast<float>(r), 4, 5, 6});
        target[r] = rig.upload(std::vector<float>(8));
      });
    }
  }
  ~Pair() {
    for (cuda::NcclEnd end : ends) nccl.destroy(end);
  }
  Pair(const Pair&) = delete;

  template <class F> void on(int rank, const F& f) {
    rig.must("cuCtxPushCurrent_v2", contexts[rank]);
    f();
    void* popped = nullptr;
    rig.must("cuCtxPopCurrent_v2", &popped);
  }
  // A sum of `count[r]` floats by each rank that makes a call.
  int sum(std::vector<size_t> count, std::vector<int> type = {cuda::nccl_f32, cuda::nccl_f32}) {
    nccl.group_start();
    for (size_t r = 0; r < count.size(); ++r) {
      const int code = nccl.all_reduce(at(source[r]), at(target[r]), count[r], type[r], cuda::nccl_sum, ends[r],
                                       static_cast<cuda::StreamHandle>(streams[r]));
      if (code != 0) {
        nccl.group_end();
        return code;
      }
    }
    return nccl.group_end();
  }
  // Off the first rank, alone.
  int split(cuda::NcclEnd (&made)[2]) {
    nccl.group_start();
    rig.want(nccl.split(ends[0], 0, 0, &made[0], nullptr));
    rig.want(nccl.split(ends[1], cuda::nccl_no_color, 0, &made[1], nullptr));
    return nccl.group_end();
  }
  std::vector<float> result(int rank, size_t count) {
    std::vector<float> values;
    on(rank, [&] {
      rig.must("cuStreamSynchronize", streams[rank]);
      values = rig.download<float>(target[rank], count);
    });
    return values;
  }
  static void* at(Address address) { return reinterpret_cast<void*>(address); }

  Rig rig{"devices=h100,h100"};
  const cuda::Nccl& nccl;
  void* contexts[2] = {};
  void* streams[2] = {};
  cuda::NcclEnd ends[2] = {};
  Address source[2] = {}, target[2] = {};
};

TEST(Nccl, AddsUpAndGathers) {
  Pair pair;
  pair.rig.want(pair.sum({3, 3}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.result(r, 3), (std::vector<float>{4, 8, 10}));
  pair.nccl.group_start();
  for (int r = 0; r < 2; ++r)
    pair.rig.want(pair.nccl.all_gather(Pair::at(pair.source[r]), Pair::at(pair.target[r]), 2, cuda::nccl_f32,
                                       pair.ends[r], static_cast<cuda::StreamHandle>(pair.streams[r])));
  pair.rig.want(pair.nccl.group_end());
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.result(r, 4), (std::vector<float>{1.5f, 4, 2.5f, 4}));
  EXPECT_EQ(pair.rig.findings(), "");
}

TEST(Nccl, RanksThatDisagreeAreFound) {
  Pair pair;
  EXPECT_NE(pair.sum({3, 2}), 0);
  EXPECT_NE(pair.rig.last_error().find("rank 1 calls ncclAllReduce of 2 x f32, rank 0 calls ncclAllReduce of 3 x f32"),
            std::string::npos)
      << pair.rig.last_error();
  EXPECT_NE(pair.sum({2, 2}, {cuda::nccl_f32, cuda::nccl_f64}), 0);
  EXPECT_NE(pair.sum({2}), 0);
  EXPECT_NE(pair.rig.last_error().find("rank 1 of 2 makes no call 1, and the others would wait for it for ever"),
            std::string::npos)
      << pair.rig.last_error();
  EXPECT_NE(std::string(pair.nccl.text(5)).find("would wait for it for ever"), std::string::npos);
}

TEST(Nccl, AnEndIsOfItsDeviceAndLivesUntilItIsDestroyed) {
  Pair pair;
  std::swap(pair.streams[0], pair.streams[1]);
  EXPECT_NE(pair.sum({3, 3}), 0) << "streams of other devices";
  std::swap(pair.streams[0], pair.streams[1]);
  const int twice[] = {0, 0};
  cuda::NcclEnd more[2];
  EXPECT_NE(pair.nccl.begin_all(more, 2, twice), 0);
  pair.rig.want(pair.split(more));
  EXPECT_NE(more[0], nullptr);
  EXPECT_EQ(more[1], nullptr);
  pair.rig.want(pair.nccl.abort(more[0]));
  EXPECT_NE(pair.nccl.abort(more[0]), 0) << "it is gone";
}

TEST(Nccl, ASplitComesWhenAllCallsAreDone) {
  Pair pair;
  cuda::NcclEnd made[2] = {};
  pair.rig.want(pair.sum({3, 3}));
  EXPECT_NE(pair.split(made), 0);
  EXPECT_NE(pair.rig.last_error().find("a circle is split whose calls are not done"), std::string::npos)
      << pair.rig.last_error();
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.result(r, 3), (std::vector<float>{4, 8, 10}));
  pair.rig.want(pair.split(made));
  pair.rig.want(pair.nccl.destroy(made[0]));
}

// Ranks as those of two processes, here of one: they find each other by an id, and no call waits.
class Apart : public Pair {
 public:
  Apart() { rig.want(nccl.new_id(&id_)); }
  ~Apart() {
    for (cuda::NcclEnd end : apart) {
      if (end != nullptr) nccl.abort(end);
    }
  }
  int begin(int rank) {
    cuda::NcclSettings settings;
    int code = 0;
    on(rank, [&] { code = nccl.begin_rank(&apart[rank], 2, id_, rank, &settings); });
    return code;
  }
  int state(int rank) {
    int state = -1;
    rig.want(nccl.state(apart[rank], &state));
    return state;
  }
  int sum_of(int rank, size_t count = 3) {
    return nccl.all_reduce(at(source[rank]), at(target[rank]), count, cuda::nccl_f32, cuda::nccl_sum, apart[rank],
                           static_cast<cuda::StreamHandle>(streams[rank]));
  }
  // Whether the stream is done, after so many questions.
  bool done(int rank, int questions) {
    int code = cuda::code_not_ready;
    on(rank, [&] {
      for (int i = 0; i < questions && code == cuda::code_not_ready; ++i)
        code = rig.call("cuStreamQuery", streams[rank]);
    });
    if (code != cuda::code_not_ready) rig.want(code);
    return code == 0;
  }

  cuda::NcclEnd apart[2] = {};

 private:
  cuda::NcclId id_;
};

TEST(Nccl, RanksOfSeveralProcessesWaitInNoCall) {
  Apart pair;
  EXPECT_EQ(pair.begin(0), cuda::nccl_in_progress);
  EXPECT_EQ(pair.state(0), cuda::nccl_in_progress) << "rank 1 has not come";
  EXPECT_NE(pair.sum_of(0), 0) << "nothing may be called before";
  EXPECT_EQ(pair.begin(1), cuda::nccl_in_progress);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.state(r), cuda::nccl_success);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(pair.sum_of(0), cuda::nccl_in_progress);
    EXPECT_NE(pair.sum_of(0), cuda::nccl_in_progress) << "the one before is not issued";
    EXPECT_EQ(pair.state(0), cuda::nccl_in_progress);
    EXPECT_EQ(pair.state(0), cuda::nccl_success);
    EXPECT_FALSE(pair.done(0, 50)) << "rank 1 has not called it";
    EXPECT_EQ(pair.sum_of(1), cuda::nccl_in_progress);
    while (pair.state(1) != cuda::nccl_success) {
    }
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(pair.done(r, 1000));
    for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.result(r, 3), (std::vector<float>{4, 8, 10}));
  }
  EXPECT_EQ(pair.rig.findings(), "");
}

TEST(Nccl, AnAbortEndsWhatWaitsForAnotherProcess) {
  Apart pair;
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.begin(r), cuda::nccl_in_progress);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(pair.state(r), cuda::nccl_success);
  EXPECT_EQ(pair.sum_of(0, 3), cuda::nccl_in_progress);
  EXPECT_EQ(pair.sum_of(1, 2), cuda::nccl_in_progress) << "as the real one, it does not see that they disagree";
  for (int r = 0; r < 2; ++r) EXPECT_FALSE(pair.done(r, 50));
  for (int r = 0; r < 2; ++r) {
    pair.rig.want(pair.nccl.abort(std::exchange(pair.apart[r], nullptr)));
    EXPECT_TRUE(pair.done(r, 50));
  }
}

}  // namespace
}  // namespace epl::nccl_test
