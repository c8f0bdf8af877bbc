// What the sessions of an engine share: its threads, with the bits that each has alone, and its memory.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

class EngineParts : public testing::Test {
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

TEST_F(EngineParts, AreSharedByItsSessions) {
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

TEST_F(EngineParts, MemoryIsBounded) {
  EXPECT_EQ(epl_engine_memory_bytes(nullptr), 0u);
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_plan* plan = nullptr;
  epl_session *first = nullptr, *second = nullptr;
  // What a session has by itself, and an engine that has room for one and a half of them.
  uint64_t one = 0;
  for (const bool bounded : {false, true}) {
    options.memory_bytes = bounded ? one + one / 2 : 0;
    must(epl_engine_create(&options, &engine));
    must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
    must(epl_plan_create(model, w.trainer, nullptr, nullptr, nullptr, &plan));
    const uint64_t before = epl_engine_memory_bytes(engine);
    must(epl_session_create(plan, nullptr, nullptr, &first));
    must(epl_session_step(first, w.inputs, 2, nullptr, nullptr));
    one = epl_engine_memory_bytes(engine) - before;
    EXPECT_EQ(one, static_cast<uint64_t>(epl_plan_memory_bytes_peak(plan, 0)));
    epl_error* error = epl_session_create(plan, nullptr, nullptr, &second);
    if (bounded) {
      EXPECT_EQ(epl_error_code(error), EPL_ERROR_OUT_OF_MEMORY);
      EXPECT_NE(std::strstr(epl_error_message(error, nullptr), "the plan's rank needs"), nullptr)
          << epl_error_message(error, nullptr);
      EXPECT_EQ(second, nullptr);
      // A tensor of what is left, and one byte more.
      const auto left = static_cast<int64_t>(options.memory_bytes - epl_engine_memory_bytes(engine));
      epl_tensor *fits = nullptr, *larger = nullptr;
      must(epl_tensor_create(engine, EPL_DTYPE_U8, &left, 1, &fits));
      const int64_t more = 1;
      EXPECT_EQ(taken(epl_tensor_create(engine, EPL_DTYPE_U8, &more, 1, &larger)), EPL_ERROR_OUT_OF_MEMORY);
      epl_tensor_destroy(fits);
      must(epl_tensor_create(engine, EPL_DTYPE_U8, &more, 1, &larger));
      epl_tensor_destroy(larger);
    }
    taken(error);
    epl_session_destroy(second);
    second = nullptr;
    epl_session_destroy(first);
    EXPECT_EQ(epl_engine_memory_bytes(engine), before);
    epl_plan_destroy(plan);
    epl_model_destroy(model);
    epl_engine_destroy(engine);
  }
}

// What a plan says of its session and of a predictor is what an engine must have room for, to the byte: in one process,
// and on ranks of which some decide about a step and others do not.
TEST_F(EngineParts, APlanKnowsItsMemoryToTheByte) {
  const std::string stages = R"({"pipeline.num_stages": 2, "pipeline.num_micro_batch": 2})";
  for (const auto& [ranks, strategy] : {std::pair<int64_t, std::string>(1, "{}"), {2, "{}"}, {2, stages}}) {
    SCOPED_TRACE(strategy + " on " + std::to_string(ranks));
    uint64_t needed = 0, predictor_needed = 0;
    // First with as much room as there is, then with what is needed, then with a byte less.
    for (const int less : {-1, 0, 1}) {
      epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
      options.memory_bytes = less < 0 ? 0 : needed - static_cast<uint64_t>(less);
      epl_engine* engine = nullptr;
      epl_model* model = nullptr;
      epl_strategy* layout = nullptr;
      epl_plan* plan = nullptr;
      epl_session* session = nullptr;
      epl_predictor* predictor = nullptr;
      must(epl_engine_create(&options, &engine));
      must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
      must(epl_strategy_parse(engine, strategy.data(), strategy.size(), &layout));
      epl_plan_options planned = EPL_PLAN_OPTIONS_INIT;
      planned.ranks = ranks;
      must(epl_plan_create(model, w.trainer, layout, &planned, nullptr, &plan));
      needed = 0;
      for (int64_t r = 0; r < ranks; ++r) needed += static_cast<uint64_t>(epl_plan_memory_bytes_peak(plan, r));
      EXPECT_EQ(epl_engine_memory_bytes(engine), 0u);
      EXPECT_EQ(taken(epl_session_create(plan, nullptr, nullptr, &session)),
                less > 0 ? EPL_ERROR_OUT_OF_MEMORY : EPL_OK);
      if (session != nullptr) {
        EXPECT_EQ(epl_engine_memory_bytes(engine), needed);
        must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
        EXPECT_EQ(epl_engine_memory_bytes(engine), needed);
      }
      if (less < 0) {
        epl_text* text = nullptr;
        must(epl_plan_describe(plan, EPL_STR("memory"), nullptr, &text));
        predictor_needed = epl::parse_json(epl_text_data(text, nullptr)).value().at("predictor_bytes").get<uint64_t>();
        epl_text_destroy(text);
        must(epl_predictor_create(session, nullptr, nullptr, &predictor));
        EXPECT_EQ(epl_engine_memory_bytes(engine), needed + predictor_needed);
        EXPECT_EQ(epl_predictor_memory_bytes(predictor), predictor_needed);
      }
      epl_predictor_destroy(predictor);
      epl_session_destroy(session);
      EXPECT_EQ(epl_engine_memory_bytes(engine), 0u);
      epl_plan_destroy(plan);
      epl_strategy_destroy(layout);
      epl_model_destroy(model);
      epl_engine_destroy(engine);
    }
  }
}

}  // namespace
