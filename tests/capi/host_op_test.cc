// Ops of the host's own: they train as built-in ones do, with the same bits on one rank and on two, and what the host's
// functions say ends the call that asked.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/capi/world.h"
#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace {

using namespace epl::onnx::testing;

// y = x * w * scale, w being a row: the gradient of w is a sum over samples.
struct Gate {
  std::atomic<int> runs{0}, gradients{0}, fail_at{-1}, destroyed{0};
  std::atomic<int64_t> most_rows{0};
  bool bad_shape = false;

  static double scale(const char* attributes, size_t length) {
    return epl::parse_json({attributes, length}).value().at("scale").get<double>();
  }
  static epl_error* shape(void* userdata, const char*, size_t, const epl_op_tensor* in, size_t inputs,
                          epl_op_tensor* out, size_t outputs) {
    EXPECT_EQ(inputs, 2u);
    EXPECT_EQ(outputs, 1u);
    if (static_cast<Gate*>(userdata)->bad_shape)
      return epl_error_create(EPL_ERROR_UNSUPPORTED, EPL_STR("a gate of other shapes"));
    out[0].dtype = in[0].dtype;
    out[0].ndim = in[0].ndim;
    std::memcpy(out[0].dims, in[0].dims, sizeof out[0].dims);
    return nullptr;
  }
  static epl_error* run(void* userdata, const char* attributes, size_t length, const epl_op_tensor* in, size_t,
                        const epl_op_tensor* out, size_t) {
    auto* self = static_cast<Gate*>(userdata);
    if (self->runs++ == self->fail_at) return epl_error_create(EPL_ERROR_IO, EPL_STR("the gate is stuck"));
    const auto s = static_cast<float>(scale(attributes, length));
    const auto *x = static_cast<const float*>(in[0].data), *w = static_cast<const float*>(in[1].data);
    EXPECT_EQ(in[0].bytes, static_cast<uint64_t>(in[0].dims[0] * in[0].dims[1]) * sizeof(float));
    for (int64_t n = 0; n < in[0].dims[0]; ++n) {
      for (int64_t k = 0; k < in[0].dims[1]; ++k) {
        const int64_t i = n * in[0].dims[1] + k;
        static_cast<float*>(out[0].data)[i] = x[i] * w[k] * s;
      }
    }
    return nullptr;
  }
  static epl_error* gradient(void* userdata, const char* attributes, size_t length, const epl_op_tensor* in, size_t,
                             const epl_op_tensor* out, const epl_op_tensor* upstream, size_t,
                             const epl_op_tensor* gradients) {
    auto* self = static_cast<Gate*>(userdata);
    ++self->gradients;
    const auto s = static_cast<float>(scale(attributes, length));
    const auto *x = static_cast<const float*>(in[0].data), *w = static_cast<const float*>(in[1].data),
               *up = static_cast<const float*>(upstream[0].data);
    const int64_t rows = in[0].dims[0], columns = in[0].dims[1];
    EXPECT_EQ(out[0].dims[0], rows);
    EXPECT_EQ(upstream[0].dims[0], rows);
    self->most_rows = std::max(self->most_rows.load(), rows);
    for (int64_t i = 0; gradients[0].data != nullptr && i < rows * columns; ++i)
      static_cast<float*>(gradients[0].data)[i] = up[i] * w[i % columns] * s;
    for (int64_t k = 0; gradients[1].data != nullptr && k < columns; ++k) {
      double sum = 0;
      for (int64_t n = 0; n < rows; ++n) sum += up[n * columns + k] * x[n * columns + k] * s;
      static_cast<float*>(gradients[1].data)[k] = static_cast<float>(sum);
    }
    return nullptr;
  }
  static void destroy(void* userdata) { ++static_cast<Gate*>(userdata)->destroyed; }

  epl_op_options options(const char* sharding) {
    epl_op_options out = EPL_OP_OPTIONS_INIT;
    out.domain = "own", out.domain_length = 3;
    out.name = "Gate", out.name_length = 4;
    out.shape = shape, out.run = run, out.gradient = gradient;
    out.sharding = sharding;
    out.sharding_length = sharding ? std::strlen(sharding) : 0;
    out.userdata = this, out.destroy = destroy;
    return out;
  }
};

epl::Tensor weight(const epl::Shape& shape, int seed) {
  epl::Tensor out(epl::TensorType{epl::DType::f32, shape});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, std::sin(static_cast<double>(seed * 100 + i)));
  return out;
}

// x w1, gated, w2. The gate is the host's operator, or two of the standard's.
Message gated(bool own) {
  std::vector<Message> nodes = {node("MatMul", {"x", "net.a"}, {"h"})};
  std::vector<Message> initializers = {tensor("net.a", weight({4, 6}, 1)), tensor("net.gate", weight({6}, 2)),
                                       tensor("net.b", weight({6, 2}, 3))};
  if (own) {
    nodes.push_back(node("Gate", {"h", "net.gate"}, {"g"}, {attribute("scale", 0.5f)}, "own"));
  } else {
    initializers.push_back(tensor("half", epl::Tensor::from_floats({}, {0.5f})));
    nodes.push_back(node("Mul", {"h", "net.gate"}, {"m"}));
    nodes.push_back(node("Mul", {"m", "half"}, {"g"}));
  }
  nodes.push_back(node("MatMul", {"g", "net.b"}, {"y"}));
  return model({.nodes = nodes,
                .initializers = initializers,
                .inputs = {port("x", {"batch", "4"})},
                .outputs = {port("y", {"batch", "2"})}},
               {}, {.own_domain = own});
}

class HostOps : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 2, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  epl_model* load(epl_engine* engine, const Message& bytes) {
    epl_model* made = nullptr;
    must(epl_model_load_bytes(engine, bytes.data(), bytes.size(), nullptr, nullptr, &made));
    return made;
  }
  epl_plan* plan_of(const epl_model* model, int64_t ranks, const char* strategy = "{}") {
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    epl_strategy* asked = nullptr;
    epl_plan* plan = nullptr;
    must(epl_strategy_parse(w.engine, TEXT(strategy), &asked));
    must(epl_plan_create(model, w.trainer, asked, &options, nullptr, &plan));
    epl_strategy_destroy(asked);
    return plan;
  }
  struct Trained {
    uint64_t hash = 0;
    double loss = 0;
    std::vector<float> gate;
  };
  Trained train(const epl_model* model, int64_t ranks, const char* strategy = "{}") {
    epl_plan* plan = plan_of(model, ranks, strategy);
    epl_session* session = nullptr;
    epl_tensor* gate = nullptr;
    epl_metrics metrics = EPL_METRICS_INIT;
    Trained out;
    must(epl_session_create(plan, nullptr, nullptr, &session));
    for (int i = 0; i < 5; ++i) must(epl_session_step(session, w.inputs, 2, nullptr, &metrics));
    must(epl_session_hash(session, nullptr, &out.hash));
    must(epl_session_get(session, EPL_STR("net.gate"), nullptr, &gate));
    const auto* values = static_cast<const float*>(epl_tensor_data(gate));
    out.gate.assign(values, values + 6);
    out.loss = metrics.loss;
    epl_tensor_destroy(gate);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    return out;
  }

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
  Gate gate;  // of the world's engine, which calls its destroy at the test's end
};

TEST_F(HostOps, TrainAsBuiltInOnesDoOnAnyNumberOfRanks) {
  epl_model* built_in = load(w.engine, gated(false));
  const Trained expected = train(built_in, 1);
  epl_model_destroy(built_in);
  for (const char* sharding : {"n k, k -> n k", "n k, k -> n k | unshardable k", static_cast<const char*>(nullptr)}) {
    Gate own;
    epl_engine* engine = nullptr;
    must(epl_engine_create(nullptr, &engine));
    const epl_op_options options = own.options(sharding);
    must(epl_engine_add_op(engine, &options));
    epl_model* model = load(engine, gated(true));
    const Trained one = train(model, 1);
    EXPECT_NEAR(one.loss, expected.loss, 1e-5);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(one.gate[i], expected.gate[i], 1e-5) << i;
    EXPECT_NE(one.gate[0], weight({6}, 2).get(0));  // it has learnt
    EXPECT_EQ(own.runs, 5);
    EXPECT_GE(own.gradients, 5);
    own.most_rows = 0;
    for (const char* strategy : {"{}", "{\"reproducible.level\":\"layout\"}"}) {
      const Trained base = train(model, 1, strategy);
      for (int64_t ranks : {2, 4}) EXPECT_EQ(train(model, ranks, strategy).hash, base.hash) << ranks << strategy;
    }
    EXPECT_EQ(own.destroyed, 0);
    epl_engine_destroy(engine);
    EXPECT_EQ(own.destroyed, 0);  // the model has it
    epl_model_destroy(model);
    EXPECT_EQ(own.destroyed, 1);
  }
}

// A file of PyTorch's exporter, and what PyTorch's own training of it gives (generate_gate.py).
TEST_F(HostOps, TrainAsInPyTorch) {
  const std::string path = EPL_SOURCE_DIR "/tests/capi/files/gate.onnx";
  const double losses[] = {0.6909845, 0.6547003, 0.6226003, 0.5932487, 0.5657593},
               expected[] = {0.5159931, 0.7208996, 0.9129513, 1.1079501, 1.3021300, 1.4970425};
  const epl_op_options options = gate.options("n k, k -> n k");
  must(epl_engine_add_op(w.engine, &options));
  epl_model* model = nullptr;
  epl_trainer* trainer = nullptr;
  int64_t group = 0;
  must(epl_model_load(w.engine, path.data(), path.size(), nullptr, nullptr, &model));
  must(epl_trainer_create(w.engine, &trainer));
  must(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("sgd")));
  must(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.1));
  must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), world_batch));
  must(epl_trainer_add_group(trainer, EPL_STR("gate"), &group));  // it has no dot in its name, as constants do
  uint64_t hash = 0;
  for (int64_t ranks : {1, 2}) {
    epl_plan_options of = EPL_PLAN_OPTIONS_INIT;
    of.ranks = ranks;
    epl_plan* plan = nullptr;
    epl_session* session = nullptr;
    epl_tensor* trained = nullptr;
    epl_metrics metrics = EPL_METRICS_INIT;
    must(epl_plan_create(model, trainer, nullptr, &of, nullptr, &plan));
    must(epl_session_create(plan, nullptr, nullptr, &session));
    for (const double loss : losses) {
      must(epl_session_step(session, w.inputs, 2, nullptr, &metrics));
      EXPECT_NEAR(metrics.loss, loss, 1e-5);
    }
    must(epl_session_get(session, EPL_STR("gate"), nullptr, &trained));
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(static_cast<const float*>(epl_tensor_data(trained))[i], expected[i], 1e-5) << i;
    uint64_t now = 0;
    must(epl_session_hash(session, nullptr, &now));
    if (ranks == 1) hash = now;
    EXPECT_EQ(now, hash);
    epl_tensor_destroy(trained);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
  }
  epl_trainer_destroy(trainer);
  epl_model_destroy(model);
}

TEST_F(HostOps, PlansAreSavedAndLoaded) {
  const epl_op_options options = gate.options("n k, k -> n k");
  must(epl_engine_add_op(w.engine, &options));
  epl_model* model = load(w.engine, gated(true));
  epl_plan *plan = plan_of(model, 2), *again = nullptr;
  const std::string path = folder + "/a.plan";
  must(epl_plan_save(plan, path.data(), path.size(), nullptr));
  must(epl_plan_load(model, w.trainer, nullptr, nullptr, path.data(), path.size(), nullptr, &again));
  epl_plan_destroy(again);
  epl_plan_destroy(plan);
  epl_model_destroy(model);
}

TEST_F(HostOps, RowsAreSharedOut) {
  const epl_op_options options = gate.options("n k, k -> n k");
  must(epl_engine_add_op(w.engine, &options));
  epl_model* model = load(w.engine, gated(true));
  train(model, 1);
  EXPECT_LE(gate.most_rows, world_batch);
  gate.most_rows = 0;
  train(model, 2);
  EXPECT_LE(gate.most_rows, world_batch / 2);
  epl_model_destroy(model);
}

TEST_F(HostOps, AnErrorEndsTheStepAndChangesNothing) {
  for (int64_t ranks : {1, 2}) {
    Gate own;
    epl_engine* engine = nullptr;
    must(epl_engine_create(nullptr, &engine));
    const epl_op_options options = own.options("n k, k -> n k");
    must(epl_engine_add_op(engine, &options));
    epl_model* model = load(engine, gated(true));
    epl_plan* plan = plan_of(model, ranks);
    epl_session* session = nullptr;
    must(epl_session_create(plan, nullptr, nullptr, &session));
    must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
    uint64_t before = 0, after = 0;
    must(epl_session_hash(session, nullptr, &before));
    own.fail_at = own.runs.load();
    epl_error* error = epl_session_step(session, w.inputs, 2, nullptr, nullptr);
    EXPECT_EQ(epl_error_code(error), EPL_ERROR_IO);
    EXPECT_STREQ(epl_error_message(error, nullptr), "the gate is stuck");
    EXPECT_NE(std::string(epl_error_where(error, nullptr)), "");  // the node
    epl_error_destroy(error);
    EXPECT_EQ(epl_session_steps(session), 1);
    must(epl_session_hash(session, nullptr, &after));
    EXPECT_EQ(after, before);
    must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));  // it goes on
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    epl_model_destroy(model);
    epl_engine_destroy(engine);
  }
}

TEST_F(HostOps, WhatCannotBePlannedIsNamed) {
  const Message bytes = gated(true);
  epl_model* model = load(w.engine, bytes);
  epl_plan* plan = nullptr;
  const auto refused = [&](int32_t code, const char* words) {
    epl_error* error = epl_plan_create(model, w.trainer, w.strategy, nullptr, nullptr, &plan);
    EXPECT_EQ(epl_error_code(error), code) << epl_error_message(error, nullptr);
    EXPECT_NE(std::strstr(epl_error_message(error, nullptr), words), nullptr) << epl_error_message(error, nullptr);
    epl_error_destroy(error);
    EXPECT_EQ(plan, nullptr);
  };
  refused(EPL_ERROR_UNSUPPORTED, "own.Gate");  // nobody has added it
  Gate bad;
  epl_op_options options = gate.options(nullptr);
  options.gradient = nullptr;
  must(epl_engine_add_op(w.engine, &options));
  EXPECT_EQ(taken(epl_engine_add_op(w.engine, &options)), EPL_ERROR_MISUSE);  // twice
  refused(EPL_ERROR_UNSUPPORTED, "own.Gate");                                 // its model was loaded before
  epl_model_destroy(model);
  model = load(w.engine, bytes);
  refused(EPL_ERROR_UNSUPPORTED, "the op has no gradient");
  epl_model_destroy(model);

  epl_engine* engine = nullptr;
  must(epl_engine_create(nullptr, &engine));
  options = bad.options("n k, k -> n k");
  bad.bad_shape = true;
  must(epl_engine_add_op(engine, &options));
  model = load(engine, bytes);
  refused(EPL_ERROR_UNSUPPORTED, "a gate of other shapes");
  epl_model_destroy(model);
  epl_engine_destroy(engine);
}

TEST_F(HostOps, ARuleThatIsNoneIsRefused) {
  epl_op_options options = gate.options("n k k -> n k +");
  EXPECT_EQ(taken(epl_engine_add_op(w.engine, &options)), EPL_ERROR_INVALID_ARGUMENT);
  options = gate.options("k n, k -> k n");  // of other sizes than the model's
  must(epl_engine_add_op(w.engine, &options));
  EXPECT_EQ(gate.destroyed, 0);
  epl_model* model = load(w.engine, gated(true));
  epl_plan* plan = nullptr;
  epl_plan_options two = EPL_PLAN_OPTIONS_INIT;
  two.ranks = 2;
  epl_error* error = epl_plan_create(model, w.trainer, w.strategy, &two, nullptr, &plan);
  EXPECT_NE(std::strstr(epl_error_message(error, nullptr), "the sharding rule \"k n, k -> k n\""), nullptr)
      << epl_error_message(error, nullptr);
  epl_error_destroy(error);
  epl_model_destroy(model);
  options = gate.options(nullptr);
  options.domain = "", options.domain_length = 0;
  EXPECT_EQ(taken(epl_engine_add_op(w.engine, &options)), EPL_ERROR_INVALID_ARGUMENT);
}

}  // namespace
