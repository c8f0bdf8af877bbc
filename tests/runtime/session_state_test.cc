// A session is saved, loaded and compared without the C API: what comes back goes on with the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/two_processes.h"
#include "tests/temporary_folder.h"

namespace epl::session_state_test {
namespace {

namespace fs = std::filesystem;

class SavedSession : public testing::Test {
 protected:
  std::unique_ptr<Session> session(int64_t ranks = 1) {
    return Session::create(host, two_process_plan(host, ranks).value(), {.seed = 7}).value();
  }
  static void train(Session& session, int steps) {
    for (int i = 0; i < steps; ++i) {
      StepMetrics metrics;
      ASSERT_TRUE(session.step(mlp_batch(session.host_state().steps_done()), metrics).ok());
    }
  }

  Host host = process_host();
  const TemporaryFolder temporary;
  const std::string folder = temporary / "saved";
};

TEST_F(SavedSession, GoesOnWithTheSameBits) {
  auto whole = session();
  train(*whole, 6);
  auto first = session();
  train(*first, 3);
  ASSERT_TRUE(save_session(*first, folder).ok());
  for (const int64_t ranks : {1, 2, 4}) {
    auto second = session(ranks);
    const Status loaded = load_session(*second, folder);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    EXPECT_EQ(second->state().hash().value(), first->state().hash().value());
    train(*second, 3);
    EXPECT_EQ(all_state(*second, {}), all_state(*whole, {})) << ranks;
    EXPECT_EQ(second->host_state().steps_done(), 6);
  }
}

TEST_F(SavedSession, KnowsItsKindsAndItsOptimizer) {
  auto made = session();
  const CompiledPlan& plan = made->plan();
  EXPECT_EQ(state_names(plan, StateKind::parameter), (std::vector<std::string>{"b1", "w1", "w2"}));
  EXPECT_TRUE(state_names(plan, StateKind::frozen).empty());
  EXPECT_EQ(state_names(plan, StateKind::optimizer).size(), 6u);
  train(*made, 1);
  ASSERT_TRUE(save_session(*made, folder).ok());
  EXPECT_EQ(load_checkpoint(folder)->facts.at("optimizer"), "adamw");
  EXPECT_TRUE(compare_session(*made, folder).value().empty());
  made->host_state().set_seed(8);
  const auto differences = compare_session(*made, folder).value();
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].key, "seed");
}

TEST_F(SavedSession, WithWhatIsNotANumberIsNotSaved) {
  auto made = session();
  Tensor b1 = made->state().get("b1").value().clone();
  b1.set(3, NAN);
  ASSERT_TRUE(made->state().set("b1", b1).ok());
  const Status refused = save_session(*made, folder);
  EXPECT_EQ(refused.code(), Code::not_finite);
  EXPECT_NE(refused.message().find("b1 holds nan"), std::string::npos) << refused.message();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(SavedSession, OfAnotherModelChangesNothing) {
  Checkpoint other;
  other.items = {{"w1", StateKind::parameter, Tensor::from_floats({2}, {1, 2})}};
  ASSERT_TRUE(save_checkpoint(folder, other).ok());
  auto made = session();
  const std::string before = all_state(*made, {});
  const Status refused = load_session(*made, folder);
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("w1 is f32[2], f32[12,16] is expected"), std::string::npos) << refused.message();
  EXPECT_EQ(all_state(*made, {}), before);
  EXPECT_TRUE(made->state().healthy());
}

}  // namespace
}  // namespace epl::session_state_test
