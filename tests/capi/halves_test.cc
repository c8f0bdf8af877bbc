// What a host does between steps: gradients without an update and updates by gradients, rates, parameters frozen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "core/capi/objects.h"
#include "tests/temporary_folder.h"

namespace epl::capi::halves_test {
namespace {

void ok(epl_error* error) {
  ASSERT_EQ(error, nullptr) << epl_error_message(error, nullptr) << " " << epl_error_where(error, nullptr);
}
void refused(epl_error* error, int32_t code, const std::string& text) {
  EXPECT_EQ(epl_error_code(error), code);
  EXPECT_NE(std::string(epl_error_message(error, nullptr)).find(text), std::string::npos)
      << epl_error_message(error, nullptr);
  epl_error_destroy(error);
}

using Keys = std::map<std::string, std::string>;

class Halves : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = temporary.path() + "/mlp.onnx";
    ok(epl_engine_create(nullptr, &engine));
    ok(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[6,16,8,4],\"seed\":5}"), path.data(),
                            path.size(), nullptr));
    ok(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &model));
  }
  void TearDown() override {
    epl_model_destroy(model);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }

  epl_session* make(Keys keys, const std::string& strategy = "", int64_t ranks = 1, const std::string& frozen = "") {
    epl_trainer* trainer = nullptr;
    epl_strategy* spread = nullptr;
    epl_plan* plan = nullptr;
    epl_session* session = nullptr;
    ok(epl_trainer_create(engine, &trainer));
    for (const auto& [key, value] : keys)
      ok(epl_trainer_set(trainer, key.data(), key.size(), value.data(), value.size()));
    int64_t group = 0;
    if (!frozen.empty()) {
      ok(epl_trainer_add_group(trainer, frozen.data(), frozen.size(), &group));
      ok(epl_trainer_group_set(trainer, group, EPL_STR("frozen"), EPL_STR("true")));
    }
    ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
    if (!strategy.empty()) ok(epl_strategy_parse(engine, strategy.data(), strategy.size(), &spread));
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    ok(epl_plan_create(model, trainer, spread, &options, nullptr, &plan));
    if (plan) ok(epl_session_create(plan, nullptr, nullptr, &session));
    epl_trainer_destroy(trainer);
    epl_strategy_destroy(spread);
    epl_plan_destroy(plan);
    return session;
  }

  // Batch `number`, into a step or, for `halves`, into its two parts.
  double train(epl_session* session, int number, bool halves = false) {
    std::vector<float> x(48);
    std::vector<int64_t> target(8);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 101) + number));
    for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<int64_t>((i + static_cast<size_t>(number)) % 4);
    const int64_t x_dims[] = {8, 6}, target_dims[] = {8};
    epl_tensor* inputs[2] = {};
    ok(epl_tensor_create_copy(engine, EPL_DTYPE_F32, x_dims, 2, x.data(), 192, &inputs[0]));
    ok(epl_tensor_create_copy(engine, EPL_DTYPE_I64, target_dims, 1, target.data(), 64, &inputs[1]));
    metrics = EPL_METRICS_INIT;
    if (halves) {
      ok(epl_session_gradients(session, inputs, 2, nullptr, &metrics));
      const double loss = metrics.loss;
      ok(epl_session_apply(session, nullptr, &metrics));
      EXPECT_EQ(metrics.loss, loss);
    } else {
      ok(epl_session_step(session, inputs, 2, nullptr, &metrics));
    }
    for (epl_tensor* one : inputs) epl_tensor_destroy(one);
    return metrics.loss;
  }
  uint64_t hash(epl_session* session) {
    uint64_t value = 0;
    ok(epl_session_hash(session, nullptr, &value));
    return value;
  }
  std::vector<float> get(epl_session* session, const std::string& name) {
    epl_tensor* tensor = nullptr;
    ok(epl_session_get(session, name.data(), name.size(), nullptr, &tensor));
    std::vector<float> out(tensor ? epl_tensor_bytes(tensor) / 4 : 0);
    if (tensor) std::memcpy(out.data(), epl_tensor_data(tensor), out.size() * 4);
    epl_tensor_destroy(tensor);
    return out;
  }
  epl_error* set(epl_session* session, const std::string& name, const std::vector<float>& values) {
    epl_tensor* old = nullptr;
    ok(epl_session_get(session, name.data(), name.size(), nullptr, &old));
    int64_t dims[EPL_MAX_NDIM];
    for (int d = 0; d < epl_tensor_ndim(old); ++d) dims[d] = epl_tensor_dim(old, d);
    epl_tensor* tensor = nullptr;
    ok(epl_tensor_create_copy(engine, EPL_DTYPE_F32, dims, epl_tensor_ndim(old), values.data(), values.size() * 4,
                              &tensor));
    epl_error* error = epl_session_set(session, name.data(), name.size(), tensor, nullptr);
    epl_tensor_destroy(old);
    epl_tensor_destroy(tensor);
    return error;
  }
  std::vector<std::string> names(epl_session* session, int32_t kind) {
    std::vector<std::string> out;
    for (int64_t i = 0; i < epl_session_state_count(session, kind); ++i) {
      epl_tensor_info info = EPL_TENSOR_INFO_INIT;
      ok(epl_session_state_port(session, kind, i, &info));
      out.emplace_back(info.name, info.name_length);
    }
    return out;
  }
  void set_number(epl_session* session, const std::string& name, double value) {
    ok(epl_session_set_number(session, name.data(), name.size(), value));
  }
  double number(epl_session* session, const std::string& name) {
    double value = -1;
    ok(epl_session_get_number(session, name.data(), name.size(), &value));
    return value;
  }

  const TemporaryFolder temporary;
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_metrics metrics = EPL_METRICS_INIT;
};

struct Layout {
  const char* name;
  const char* strategy;
  int64_t ranks;
};
constexpr Layout layouts[] = {
    {"one rank", "", 1},
    {"copies", R"({"default":{"replicate":1}})", 2},
    {"zero", R"({"default":{"replicate":1},"zero.level":"v0"})", 2},
    {"split", R"({"default":{"split":2}})", 2},
    {"micro-batches", R"({"pipeline.num_micro_batch":4})", 1},
    {"pipeline", R"({"auto.auto_parallel":false,"pipeline.num_stages":2,"pipeline.num_micro_batch":2})", 2},
};

TEST_F(Halves, AreAStepBitForBitInEveryLayout) {
  for (const char* optimizer : {"adamw", "momentum"}) {
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(layout.name);
      const Keys keys = {
          {"optimizer", optimizer}, {"optimizer.lr", "0.05"}, {"clip_norm", "0.3"}, {"keep_gradients", "true"}};
      epl_session* plain = make({{"optimizer", optimizer}, {"optimizer.lr", "0.05"}, {"clip_norm", "0.3"}},
                                layout.strategy, layout.ranks);
      epl_session* whole = make(keys, layout.strategy, layout.ranks);
      epl_session* halves = make(keys, layout.strategy, layout.ranks);
      if (!plain || !whole || !halves) continue;
      for (int i = 0; i < 4; ++i) train(plain, i);
      for (int i = 0; i < 4; ++i) {
        const double loss = train(whole, i), norm = metrics.gradient_norm;
        EXPECT_EQ(train(halves, i, true), loss);
        EXPECT_EQ(metrics.gradient_norm, norm);
        EXPECT_EQ(metrics.step, i + 1);
        EXPECT_EQ(hash(halves), hash(whole)) << "step " << i;
        for (const std::string& name : names(whole, EPL_STATE_GRADIENT)) EXPECT_EQ(get(halves, name), get(whole, name));
      }
      EXPECT_EQ(hash(whole), hash(plain));  // the option changes no bit
      epl_session_destroy(plain);
      epl_session_destroy(whole);
      epl_session_destroy(halves);
    }
  }
}

TEST_F(Halves, GradientsAreThoseOfTheUpdate) {
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    epl_session* session = make({{"optimizer", "sgd"}, {"optimizer.lr", "0.5"}, {"keep_gradients", "true"}},
                                layout.strategy, layout.ranks);
    if (!session) continue;
    const std::vector<std::string> parameters = names(session, EPL_STATE_PARAMETER);
    ASSERT_EQ(names(session, EPL_STATE_GRADIENT).size(), parameters.size());
    std::map<std::string, std::vector<float>> before;
    for (const std::string& name : parameters) before[name] = get(session, name);
    train(session, 0);
    for (const std::string& name : parameters) {
      std::vector<float> gradient = get(session, name + ".gradient"), expected = before[name];
      double size = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] -= 0.5F * gradient[i];
        size += std::abs(gradient[i]);
      }
      EXPECT_GT(size, 0) << name;
      EXPECT_EQ(get(session, name), expected) << name;
    }
    epl_session_destroy(session);
  }
}

TEST_F(Halves, AnUpdateTakesTheGradientsOfTheHost) {
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    epl_session* session = make({{"optimizer", "sgd"}, {"optimizer.lr", "0.5"}, {"keep_gradients", "true"}},
                                layout.strategy, layout.ranks);
    if (!session) continue;
    const std::string name = names(session, EPL_STATE_PARAMETER).front();
    train(session, 0);
    std::vector<float> expected = get(session, name), ones(expected.size(), 1.0F);
    ok(set(session, name + ".gradient", ones));
    for (const std::string& other : names(session, EPL_STATE_GRADIENT)) {
      if (other != name + ".gradient") ok(set(session, other, std::vector<float>(get(session, other).size(), 0.0F)));
    }
    for (float& one : expected) one -= 0.5F;
    std::map<std::string, std::vector<float>> before;
    for (const std::string& other : names(session, EPL_STATE_PARAMETER)) before[other] = get(session, other);
    ok(epl_session_apply(session, nullptr, &metrics));
    EXPECT_EQ(metrics.step, 2);
    for (const auto& [other, value] : before) EXPECT_EQ(get(session, other), other == name ? expected : value) << other;
    ones[0] = NAN;
    refused(set(session, name + ".gradient", ones), EPL_ERROR_NOT_FINITE, "would hold nan (element 0)");
    epl_session_destroy(session);
  }
}

TEST_F(Halves, NeedTheirKeysOfTheTrainer) {
  epl_session* plain = make({});
  refused(epl_session_apply(plain, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT, "keep_gradients = true");
  refused(epl_session_set_number(plain, EPL_STR("frozen:*"), 1), EPL_ERROR_INVALID_ARGUMENT, "freezable = true");
  EXPECT_EQ(epl_session_state_count(plain, EPL_STATE_GRADIENT), 0);
  epl_session_destroy(plain);
}

TEST_F(Halves, RatesAreReadAndSet) {
  epl_session* session = make({{"optimizer", "sgd"}, {"optimizer.lr", "0.5"}});
  EXPECT_EQ(number(session, "learning_rate"), 0.5);
  set_number(session, "learning_rate", 0);
  const uint64_t before = hash(session);
  train(session, 0);
  EXPECT_EQ(hash(session), before);
  EXPECT_EQ(metrics.learning_rate, 0);
  set_number(session, "learning_rate", 0.25);
  set_number(session, "learning_rate_scale", 0.5);
  EXPECT_EQ(number(session, "learning_rate"), 0.25);
  train(session, 0);
  EXPECT_EQ(metrics.learning_rate, 0.125);
  epl_session* other = make({{"optimizer", "sgd"}, {"optimizer.lr", "0.125"}});
  train(other, 0);
  EXPECT_EQ(hash(session), hash(other));
  refused(epl_session_set_number(session, EPL_STR("learning_rate:0"), 1), EPL_ERROR_NOT_FOUND, "no parameter group");
  refused(epl_session_set_number(session, EPL_STR("learning_rate"), -1), EPL_ERROR_INVALID_ARGUMENT, "from 0 on");
  refused(epl_session_set_number(session, EPL_STR("learning_rat"), 1), EPL_ERROR_NOT_FOUND, "learning_rate");
  epl_session_destroy(session);
  epl_session_destroy(other);
}

// Those that are frozen keep their bits, and the others those of a plan that never trained the frozen ones.
TEST_F(Halves, FrozenParametersAreLeftAlone) {
  for (const char* optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}) {
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(std::string(optimizer) + ", " + layout.name);
      Keys keys = {
          {"optimizer", optimizer}, {"optimizer.lr", "0.05"}, {"clip_norm", "0.3"}, {"optimizer.weight_decay", "0.1"}};
      epl_session* all = make(keys);
      const std::string name = names(all, EPL_STATE_PARAMETER).back();
      epl_session_destroy(all);
      epl_session* never = make(keys, layout.strategy, layout.ranks, name);
      keys["freezable"] = "true";
      epl_session* session = make(keys, layout.strategy, layout.ranks);
      if (!never || !session) continue;
      set_number(session, "frozen:" + name, 1);
      EXPECT_EQ(number(session, "frozen:" + name), 1);
      EXPECT_EQ(number(session, "frozen:*"), 0);
      const std::vector<float> before = get(session, name);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(train(session, i), train(never, i));
      }
      EXPECT_EQ(get(session, name), before);
      for (const std::string& state : names(session, EPL_STATE_OPTIMIZER)) {
        if (!state.starts_with(name + ".")) continue;
        for (float one : get(session, state)) EXPECT_EQ(one, 0) << state;
      }
      for (const std::string& other : names(never, EPL_STATE_PARAMETER))
        EXPECT_EQ(get(session, other), get(never, other));
      set_number(session, "frozen:*", 0);
      train(session, 3);
      EXPECT_NE(get(session, name), before);
      epl_session_destroy(never);
      epl_session_destroy(session);
    }
  }
}

TEST_F(Halves, ACheckpointKeepsRatesAndWhatIsFrozen) {
  const Keys keys = {{"optimizer", "adamw"}, {"freezable", "true"}, {"keep_gradients", "true"}};
  epl_session* session = make(keys);
  epl_session* other = make(keys);
  const std::string name = names(session, EPL_STATE_PARAMETER).front(), path = temporary.path() + "/checkpoint";
  train(session, 0);
  set_number(session, "learning_rate", 0.03125);
  set_number(session, "frozen:" + name, 1);
  ok(epl_session_save(session, path.data(), path.size(), nullptr, nullptr));
  ok(epl_session_load(other, path.data(), path.size(), nullptr, nullptr));
  EXPECT_EQ(number(other, "learning_rate"), 0.03125);
  EXPECT_EQ(number(other, "frozen:" + name), 1);
  train(session, 1);
  train(other, 1);
  EXPECT_EQ(hash(other), hash(session));
  epl_session_destroy(session);
  epl_session_destroy(other);
}

}  // namespace
}  // namespace epl::capi::halves_test
