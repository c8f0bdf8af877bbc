// The catalogue of bugs that others have met where two options meet (composition.json): its rows, the small models that
// they train, and what a layout of the standard list learns of a row.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/compile/plan_memory.h"
#include "core/program/local_graph.h"
#include "core/program/transfer.h"
#include "core/runtime/session.h"
#include "tests/page.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/graph_model.h"
#include "tests/runtime/narrow_sums.h"
#include "tools/json.h"
#include "tools/layouts.h"

namespace epl::composition {

using tools::Json;

struct Row {
  std::string name, model;
  Json json;      // all of the row
  Json strategy;  // its keys
  Json numbers;   // of PyTorch in float64; `wrong_losses` with the bug put in, where that is a number
  bool looks(std::string_view at) const {
    for (const Json& one : json.value("looks", Json::array())) {
      if (one == at) return true;
    }
    return false;
  }
  // 16 bits in the arithmetic.
  bool narrow() const { return strategy.contains("amp.level") || json.dump().find("\"bf16\"") != std::string::npos; }
  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
};

inline const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    const Json numbers = tools::parse_json(read_page("tests/runtime/composition_numbers.json"));
    std::vector<Row> out;
    for (const Json& one : tools::parse_json(read_page("tests/runtime/composition.json")))
      out.push_back({one.at("name"), one.at("model"), one, one.at("strategy"), numbers.at(one.at("name"))});
    return out;
  }();
  return all;
}

// Tokens in, scores of the next one out: a norm, two products with a connection around them, a scale of one element.
inline std::string token_model(const std::string& kind) {
  const std::string head = kind == "tied" ? "wte" : "head";
  return cat("graph tokens(ids: i64[8,4] batch 0) {\n  wte: f32[16,8] = param\n  scale: f32[8] = param\n",
             "  shift: f32[8] = param\n  w1: f32[8,16] = param\n  b1: f32[16] = param\n  w2: f32[16,8] = param\n",
             "  tiny: f32[1] = param\n", kind == "tied" ? "" : "  head: f32[16,8] = param\n",
             kind == "unused" ? "  idle: f32[3] = param\n" : "", R"(  forward:
  e: f32[8,4,8] = gather(wte, ids)
  n: f32[8,4,8], n.1: f32[8,4,1], n.2: f32[8,4,1] = layer_norm(e, scale, shift) {axis=2}
  h: f32[8,4,16] = linear(n, w1, b1)
  a: f32[8,4,16] = gelu(h)
  o: f32[8,4,8] = matmul(a, w2)
  r: f32[8,4,8] = add(e, o)
  s: f32[8,4,8] = mul(r, tiny)
  y: f32[8,4,16] = matmul(s, )",
             head, ") {transpose_b=true}\n  output y = y\n}\n");
}

// A weight that three products share.
inline constexpr std::string_view again_model = R"(graph again(ids: i64[8,4] batch 0) {
  wte: f32[16,8] = param
  w: f32[8,8] = param
  head: f32[16,8] = param
  forward:
  e: f32[8,4,8] = gather(wte, ids)
  h: f32[8,4,8] = matmul(e, w)
  a: f32[8,4,8] = gelu(h)
  g: f32[8,4,8] = matmul(a, w)
  t: f32[8,4,8] = tanh(g)
  o: f32[8,4,8] = matmul(t, w)
  r: f32[8,4,8] = add(e, o)
  y: f32[8,4,16] = matmul(r, head) {transpose_b=true}
  output y = y
}
)";

inline std::string model_text(const std::string& name) {
  if (name == "again") return std::string(again_model);
  return name == "experts" ? std::string(four_experts) : token_model(name);
}

// As `weights` of composition_reference.py.
inline std::map<std::string, Tensor> initial(const std::string& model) {
  const auto graph = parse_graph(model_text(model));
  EPL_CHECK(graph.ok(), graph.status().to_string());
  std::map<std::string, Tensor> out;
  int number = 0;
  for (const Value v : graph->leaves(ValueKind::parameter)) {
    const ValueInfo& info = graph->value(v);
    Tensor value(info.type);
    const double one = info.name == "scale" || info.name == "tiny" ? 1 : 0;
    for (int64_t i = 0; i < value.elements(); ++i)
      value.set(i, one + 0.4 * std::sin(0.7 * static_cast<double>(i) + number));
    out.emplace(info.name, std::move(value));
    ++number;
  }
  return out;
}

// As `batch` there. More than eight samples are those of independent micro-batches.
inline std::vector<Tensor> batch(const std::string& model, int64_t samples, int64_t step) {
  if (model == "experts") {
    Tensor x(TensorType{DType::f32, {samples, 16}}), target(TensorType{DType::i64, {samples}});
    for (int64_t i = 0; i < samples * 16; ++i)
      x.set(i, std::sin(0.3 * static_cast<double>(i) + static_cast<double>(step)));
    for (int64_t i = 0; i < samples; ++i) target.set_int(i, (i + step) % 8);
    return {x, target};
  }
  Tensor ids(TensorType{DType::i64, {samples, 4}}), target(TensorType{DType::i64, {samples, 4}});
  for (int64_t i = 0; i < samples * 4; ++i) {
    const int64_t b = i / 4;
    ids.set_int(i, (7 * i + i * i / 5 + 3 * step) % 16);
    target.set_int(i, i % 4 <= (3 * b + b / 4 + step) % 4 ? (5 * i + step) % 16 : -100);
  }
  return {ids, target};
}

using MadePlan = std::shared_ptr<const CompiledPlan>;

inline Result<MadePlan> plan_of(const Row& row, int64_t ranks, const Json& strategy) {
  PlanOptions options;
  options.model = GraphModel::parse(model_text(row.model));
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = row.json.value("optimizer", "sgd");
  options.train.clip_norm = row.json.value("clip_norm", 0.0);
  options.train.optimizer_options = {{"lr", 0.5}};
  const Json given = row.json.value("optimizer_options", Json::object());
  for (const auto& [name, value] : given.items()) {
    if (value.is_string()) {
      options.train.optimizer_options.set(name, value.get<std::string>());
    } else {
      options.train.optimizer_options.set(name, value.get<double>());
    }
  }
  options.ranks = ranks;
  options.evaluate = options.predict = false;
  EPL_ASSIGN(options.strategy, parse_strategy(tools::print_json(strategy)));
  return CompiledPlan::create(test_host(1), options);
}

struct Learned {
  std::vector<double> losses, norms;
  uint64_t state = 0;  // of all of it
  bool operator==(const Learned&) const = default;
  friend void PrintTo(const Learned& one, std::ostream* out) {
    for (const double loss : one.losses) *out << loss << " ";
    for (const double norm : one.norms) *out << "norm " << norm << " ";
    *out << "state " << one.state;
  }
};

// Four steps from the initial weights.
inline Learned learned(const Row& row, const MadePlan& plan, const std::string& said) {
  Learned out;
  const auto made = Session::create(test_host(1), plan, {.seed = 7});
  EXPECT_TRUE(made.ok()) << said << ": " << made.status().to_string();
  if (!made.ok()) return out;
  Session& session = **made;
  for (const auto& [name, value] : initial(row.model)) {
    const Status set = session.state().set(name, value);
    EXPECT_TRUE(set.ok()) << said << ": " << set.to_string();
  }
  const int64_t samples = plan->entries().front().samples.batch;
  for (int64_t step = 0; step < 4; ++step) {
    StepMetrics metrics;
    const Status status = session.step(batch(row.model, samples, step), metrics);
    EXPECT_TRUE(status.ok() && metrics.skipped.ok())
        << said << ": " << status.to_string() << metrics.skipped.to_string();
    if (!status.ok()) return out;
    out.losses.push_back(metrics.loss);
    if (metrics.gradient_norm >= 0) out.norms.push_back(metrics.gradient_norm);
  }
  EXPECT_EQ(session.memory_bytes_used(), PlanMemory(*plan).peak()) << said;
  Hash64 hash;
  std::set<std::string> names;
  for (const StateSlot& slot : plan->state().slots()) names.insert(slot.name);
  for (const std::string& name : names) {
    const auto value = session.state().view(name);
    EXPECT_TRUE(value.ok()) << said << ": " << value.status().to_string();
    if (value.ok()) hash.add(value->data(), static_cast<size_t>(value->bytes()));
  }
  out.state = hash.value();
  return out;
}

// How often each weight is gathered, by its position in the state of a virtual device.
using Gathers = std::map<std::pair<size_t, int64_t>, int>;
inline Gathers gathers(const CompiledPlan& plan) {
  Gathers count;
  const std::vector<Program>& programs = plan.entry(EntryKind::train)->programs;
  for (size_t p = 0; p < programs.size(); ++p) {
    for (const Instruction& in : programs[p].instructions) {
      if (in.transfer == nullptr || in.transfer->name != "all_gather") continue;
      for (const Location& from : in.inputs) {
        if (from.space == Location::Space::state) ++count[{p, from.offset}];
      }
    }
  }
  return count;
}

// Those that are gathered more often than once for the forward pass and once for the backward pass, and than where
// nothing is computed again.
inline std::vector<std::string> gathered_too_often(const CompiledPlan& plan, const CompiledPlan& nothing_again) {
  std::vector<std::string> found;
  const Gathers before = gathers(nothing_again);
  for (const auto& [weight, times] : gathers(plan)) {
    const auto kept = before.find(weight);
    if (times > std::max(2, kept == before.end() ? 0 : kept->second))
      found.push_back(cat("at ", weight.second, " of the state: ", times, " times"));
  }
  return found;
}

// Without what is computed again.
inline Json nothing_again(Json strategy) {
  strategy.erase("gradient_checkpoint.type");
  strategy.erase("gradient_checkpoint.check_gradients");
  return strategy;
}

}  // namespace epl::composition
