// The threads of an engine: its sessions share them, with the bits that each has alone.
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

class EngineThreads : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 2, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
};

TEST_F(EngineThreads, AreSharedByItsSessions) {
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.threads = 3;
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  must(epl_engine_create(&options, &engine));
  must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
  const auto workers = [&] {
    epl_text* text = nullptr;
    must(epl_engine_describe(engine, &text));
    const epl::Json json = epl::parse_json(epl_text_data(text, nullptr)).value();
    epl_text_destroy(text);
    return json.at("workers").get<int>();
  };
  for (const int64_t ranks : {1, 2}) {
    epl_plan_options of = EPL_PLAN_OPTIONS_INIT;
    of.ranks = ranks;
    epl_plan* plan = nullptr;
    must(epl_plan_create(model, w.trainer, nullptr, &of, nullptr, &plan));
    EXPECT_EQ(workers(), 0);
    std::vector<epl_session*> sessions(6);
    for (epl_session*& session : sessions) must(epl_session_create(plan, nullptr, nullptr, &session));
    EXPECT_EQ(workers(), ranks == 1 ? 2 : 0);  // a rank of two has one of the three threads
    std::vector<std::thread> callers;
    for (epl_session* session : sessions) {
      callers.emplace_back([&w = w, session] {
        for (int i = 0; i < 50; ++i) must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
      });
    }
    for (std::thread& caller : callers) caller.join();
    std::set<uint64_t> hashes;
    for (epl_session* session : sessions) {
      uint64_t hash = 0;
      must(epl_session_hash(session, nullptr, &hash));
      hashes.insert(hash);
      epl_session_destroy(session);
    }
    EXPECT_EQ(hashes.size(), 1u);
    epl_plan_destroy(plan);
  }
  epl_model_destroy(model);
  epl_engine_destroy(engine);
}

}  // namespace
