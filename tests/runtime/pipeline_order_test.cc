// Ranks of a pipeline do not wait for each other in a ring, whatever goes over how many stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "core/program/transfer.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/pipeline_job.h"

namespace epl::pipeline_order_test {
namespace {

// Goes through the calls of all virtual devices, as their programs say it: what is sent waits to be taken, and calls
// wait for what has been sent. Gives the virtual device that never gets to its end; -1: all do.
class Walk {
 public:
  explicit Walk(const std::vector<Program>& programs) : programs_(programs), at_(programs.size()) {
    for (const Program& program : programs) taken_.emplace_back(static_cast<size_t>(program.events), false);
  }

  int stuck() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t c = 0; c < programs_.size(); ++c) {
        while (step(c)) moved = true;
      }
    }
    for (size_t c = 0; c < programs_.size(); ++c) {
      if (at_[c].call < programs_[c].calls.size()) return static_cast<int>(c);
    }
    return -1;
  }

 private:
  struct At {
    size_t call = 0;
    int instruction = -1;  // of the block; -1: before the call
  };
  struct Sent {
    size_t virtual_device;
    int64_t event;
    Shape shape;
  };

  // The rest of a call.
  bool step(size_t c) {
    const Program& program = programs_[c];
    auto& [index, i] = at_[c];
    if (index == program.calls.size()) return false;
    const BlockCall& call = program.calls[index];
    const Block& block = program.blocks[static_cast<size_t>(program.find(call.id()))];
    if (i < 0) {
      for (const CallWait& wait : program.waits[index]) {
        if (wait.instruction < 0 && !taken_[c][static_cast<size_t>(wait.event)]) return false;
      }
      i = 0;
    }
    const auto self = static_cast<int>(c);
    for (; block.first + i < block.last; ++i) {
      const Instruction& in = program.instructions[static_cast<size_t>(block.first + i)];
      if (!in.transfer || in.transfer->counterpart.empty()) continue;
      const ProgramGroup& group = program.groups[static_cast<size_t>(in.group)];
      if (in.transfer->sends) {
        const int64_t iteration = program.loops(block.first + i) ? call.micro_batch : 0;
        const Sent sent{c, in.records + iteration, in.query->in(0).shape};
        if (group.peer == 0)
          on_the_way_[{self, group.virtual_device, group.channel}].push_back(sent);  // others: copies
        continue;
      }
      auto& waiting = on_the_way_[{group.virtual_device, self, group.channel}];
      if (waiting.empty()) return false;
      EXPECT_EQ(waiting.front().shape, in.query->out(0).shape) << in.name;
      taken_[waiting.front().virtual_device][static_cast<size_t>(waiting.front().event)] = true;
      waiting.pop_front();
    }
    ++index;
    i = -1;
    return true;
  }

  const std::vector<Program>& programs_;
  std::vector<At> at_;
  std::vector<std::vector<bool>> taken_;  // by virtual device, by event
  std::map<std::tuple<int, int, int64_t>, std::deque<Sent>> on_the_way_;
};

// Programs that would wait for ever are not run.
void expect_bits_without_rings(const Job& work, const Layout& layout, const Trained& one) {
  auto plan = plan_of(work, layout);
  ASSERT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
  for (const Entry& entry : (*plan)->entries()) ASSERT_EQ(Walk(entry.programs).stuck(), -1) << layout.text();
  expect_same(train(work, layout, 2), one, layout);
}

class Rings : public ::testing::TestWithParam<const char*> {};

TEST_P(Rings, AreNotMadeByConnectionsThatSkipStages) {
  const Job work = skipping_job();
  const Trained one = train(work, {}, 2);
  for (const Layout& layout : {Layout{GetParam(), 4, 4, "cpu", 4}, Layout{GetParam(), 4, 8, "cpu", 4},
                               Layout{GetParam(), 3, 8, "cpu", 3}, Layout{GetParam(), 8, 4, "cpu", 4}})
    expect_bits_without_rings(work, layout, one);
}

TEST_P(Rings, AreNotMadeByALossInSeveralStages) {
  const Job work = smoothed_job();
  const Trained one = train(work, {}, 2);
  for (const Layout& layout : {Layout{GetParam(), 2, 2}, Layout{GetParam(), 2, 4}, Layout{GetParam(), 4, 4, "cpu", 4}})
    expect_bits_without_rings(work, layout, one);
}

// Streams that may go on in any order, each as late as it can.
TEST_P(Rings, AreNotMadeFarAway) {
  static const bool added = (add_backend(far_backend("far_rings", 3)), true);
  ASSERT_TRUE(added);
  const Job work = skipping_job();
  const Trained here = train(work, {}, 2);
  expect_bits_without_rings(work, {GetParam(), 4, 4, "far_rings", 4}, here);
}

// A call waits for what an earlier one has sent, and for each micro-batch before its memory is written again.
TEST_P(Rings, WaitsComeAfterWhatTheyWaitFor) {
  auto made = plan_of(skipping_job(), {GetParam(), 4, 8, "cpu", 4});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Plan& plan = (*made)->entries().front().plan;
  const std::vector<Boundary> all = boundaries(plan);
  auto waits = send_waits(plan, all);
  ASSERT_TRUE(waits.ok()) << waits.status().to_string();
  for (size_t c = 0; c < waits->size(); ++c) {
    int sending = 0;
    for (size_t i = 0; i < plan.calls[c].size(); ++i) {
      const BlockCall& call = plan.calls[c][i];
      std::set<int> to;
      for (const Boundary& b : all) {
        if (b.from == static_cast<int>(c) && b.sent == call.id()) to.insert(b.to);
      }
      if (call.block != BlockKind::post) sending += static_cast<int>(to.size());
    }
    EXPECT_EQ(std::ssize((*waits)[c]), sending) << c;
    for (const SendWait& wait : (*waits)[c]) EXPECT_LT(wait.sent, wait.call);
  }
}

// A send waits for what was issued before it, and nothing waits for a send but where the plan says so.
TEST_P(Rings, SendsWaitForWhatWasIssuedBefore) {
  auto made = plan_of(skipping_job(), {GetParam(), 4, 8, "cpu", 4});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  int waiting = 0;
  for (const Program& program : (*made)->entry(EntryKind::train)->programs) {
    const auto sends = [&](int p) {
      const TransferRow* transfer = program.instructions[static_cast<size_t>(p)].transfer;
      return transfer != nullptr && transfer->sends;
    };
    for (const Block& block : program.blocks) {
      int before = -1;  // of the first stream
      std::set<int> sent;
      for (int p = block.first; p < block.last; ++p) {
        const Instruction& in = program.instructions[static_cast<size_t>(p)];
        EXPECT_EQ(in.stream != 0, sends(p)) << in.name;
        if (!sends(p)) {
          EXPECT_TRUE(in.waits.empty()) << in.name;
          before = p;
          sent.clear();
        } else if (sent.insert(in.stream).second && before >= 0) {
          ++waiting;
          ASSERT_EQ(in.waits.size(), 1U) << in.name;
          EXPECT_EQ(in.waits[0].event, program.instructions[static_cast<size_t>(before)].records) << in.name;
        }
      }
    }
    for (const std::vector<CallWait>& waits : program.waits)
      for (const CallWait& wait : waits) EXPECT_TRUE(wait.instruction < 0 || sends(wait.instruction)) << wait.event;
  }
  EXPECT_GT(waiting, 0);
}

INSTANTIATE_TEST_SUITE_P(, Rings, ::testing::Values("GPipe", "1F1B", "PreferBackwardOptimizer", "ZB-H1"),
                         [](const auto& info) {
                           std::string name = cat("_", info.param);
                           std::erase(name, '-');
                           return name.substr(1);
                         });

// Calls in an order in which ranks would wait for each other are refused by name.
TEST(Order, ThatMakesARingIsRefused) {
  auto made = plan_of(mlp_job(0), {"GPipe", 2, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Plan& known = (*made)->entries().front().plan;
  const auto refused = [&](int virtual_device, const BlockCall& first, const BlockCall& second) {
    Plan plan = known;
    std::vector<BlockCall>& calls = plan.calls[static_cast<size_t>(virtual_device)];
    std::iter_swap(std::ranges::find(calls, first), std::ranges::find(calls, second));
    return verify_plan(plan).to_string();
  };
  EXPECT_TRUE(verify_plan(known).ok());
  // The first stage goes on with micro-batch 1 only after the gradients of 0, which the second gives after both.
  const std::string ring = refused(0, {0, BlockKind::forward, 1}, {0, BlockKind::backward, 0});
  EXPECT_NE(ring.find("stage0 would wait in backward"), std::string::npos) << ring;
  EXPECT_NE(ring.find("which stage1 never gets to send"), std::string::npos) << ring;
}

// What is sent in each iteration of a loop that writes to one place must have been taken before the next iteration.
TEST(Order, ThatNeverFreesMemoryIsRefused) {
  auto made = plan_of(smoothed_job(), {"GPipe", 2, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Plan plan = (*made)->entries().front().plan;
  std::vector<BlockCall>& calls = plan.calls[1];
  const BlockCall pre{0, BlockKind::pre, 0};
  ASSERT_NE(std::ranges::find(calls, pre), calls.end());
  // The second stage comes to the loop when the first one has long gone forward.
  std::vector<BlockCall> late;
  for (int64_t m = 0; m < 2; ++m) late.push_back({0, BlockKind::pre, m});
  std::erase_if(calls, [](const BlockCall& call) { return call.block == BlockKind::pre; });
  const auto end = std::ranges::find(calls, BlockCall{1, BlockKind::backward, 0});
  ASSERT_NE(end, calls.end());
  calls.insert(end, late.begin(), late.end());
  const std::string ring = verify_plan(plan).to_string();
  EXPECT_NE(ring.find("stage0 would wait before pre 1 until stage1 takes loss, which it never"), std::string::npos)
      << ring;
}

}  // namespace
}  // namespace epl::pipeline_order_test
