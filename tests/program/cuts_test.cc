// Every op, every factor that its rules allow, over 2 and 4 ranks, in equal shards and in uneven ones: what `partition`
// makes of a node that is cut there computes what the op computes, on ranks that go through their local graph side by
// side.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/ir/evaluate.h"
#include "core/ir/partition_rule.h"
#include "core/program/local_graph.h"
#include "core/program/reshard.h"
#include "core/program/shards.h"
#include "core/strategy/batch_cut.h"
#include "tests/ops/variants.h"
#include "tests/thirds.h"

namespace epl::cuts_test {
namespace {

using Values = std::vector<Tensor>;  // of one rank, by value

double element(const Tensor& t, int64_t i) {
  return is_float(t.dtype()) ? t.get(i) : static_cast<double>(t.get_int(i));
}
void set_element(Tensor& t, int64_t i, double x) {
  is_float(t.dtype()) ? t.set(i, x) : t.set_int(i, static_cast<int64_t>(x));
}

// What transfers do, by their meaning alone.
class Ranks {
 public:
  Ranks(const LocalGraph& local, int64_t ranks) : graph_(local.graph), values_(static_cast<size_t>(ranks)) {
    for (Values& values : values_) values.resize(static_cast<size_t>(graph_.value_count()));
  }
  Tensor& at(size_t rank, Value v) { return values_[rank][static_cast<size_t>(v.index)]; }

  size_t size() const { return values_.size(); }

  Status run() {
    for (int i = 0; i < graph_.value_count(); ++i) {
      if (graph_.value(Value{i}).kind != ValueKind::constant) continue;
      for (Values& values : values_) values[static_cast<size_t>(i)] = graph_.value(Value{i}).data;
    }
    for (const Node& node : graph_.nodes()) {
      for (size_t r = 0; r < values_.size(); ++r) EPL_TRY(compute(node, r));
    }
    return {};
  }

 private:
  Status compute(const Node& node, size_t rank) {
    const std::string& op = node.op->name;
    if (node.op->boundary) {
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        Tensor& out = at(rank, node.outputs[o]) = Tensor(graph_.type(node.outputs[o]));
        EPL_TRY(op == "batch_slice"                            ? slice(node, rank, out)
                : op == "all_gather"                           ? gather(node.inputs[o], out)
                : op == "all_reduce" || op == "reduce_scatter" ? reduce(node, node.inputs[o], rank, out)
                : op == "halo"                                 ? read_over(node, rank, out)
                                                               : unsupported(op));
      }
      return {};
    }
    std::vector<Tensor> inputs;
    for (Value v : node.inputs) inputs.push_back(v ? at(rank, v) : Tensor());
    EPL_ASSIGN(const std::vector<Tensor> outputs, evaluate_op(*node.op, node.attributes, inputs, node.units));
    for (size_t o = 0; o < node.outputs.size(); ++o) at(rank, node.outputs[o]) = outputs[o];
    return {};
  }

  Status slice(const Node& node, size_t rank, Tensor& out) {
    const Tensor& x = at(rank, node.inputs[0]);
    const auto dim = static_cast<size_t>(node.attributes.integer("dim"));
    const Attribute* said = node.attributes.find("outer");
    const int64_t outer = said ? std::get<int64_t>(*said) : 1, size = out.shape()[dim], full = x.shape()[dim];
    int64_t inner = 1;
    for (size_t d = dim + 1; d < x.shape().size(); ++d) inner *= x.shape()[d];
    for (int64_t i = 0; i < out.elements(); ++i) {
      const int64_t in_run = i / inner % size % (size / outer), run = i / inner % size / (size / outer);
      const int64_t at = run * (full / outer) + static_cast<int64_t>(rank) * (size / outer) + in_run;
      set_element(out, i, element(x, (i / inner / size * full + at) * inner + i % inner));
    }
    return {};
  }

  Status gather(Value shards, Tensor& out) {
    int64_t to = 0;
    for (size_t r = 0; r < values_.size(); ++r) {
      const Tensor& x = at(r, shards);
      // Ranks behind this one have not come to the node, but to its operand.
      for (int64_t i = 0; i < x.elements(); ++i) set_element(out, to++, element(x, i));
    }
    return {};
  }

  Status reduce(const Node& node, Value summands, size_t rank, Tensor& out) {
    const Attribute* said = node.attributes.find("reduction");
    const std::string reduction = said ? std::get<std::string>(*said) : "sum";
    const int64_t first = node.op->name == "all_reduce" ? 0 : static_cast<int64_t>(rank) * out.elements();
    for (int64_t i = 0; i < out.elements(); ++i) {
      double all = element(at(0, summands), first + i);
      for (size_t r = 1; r < values_.size(); ++r) {
        const double x = element(at(r, summands), first + i);
        all = reduction == "sum" ? all + x : reduction == "max" ? std::max(all, x) : std::min(all, x);
      }
      set_element(out, i, all);
    }
    return {};
  }

  // Some elements, along a dimension, of the value that the shards make; outside of it is padding.
  Status read_over(const Node& node, size_t rank, Tensor& out) {
    const Attributes& a = node.attributes;
    const auto dim = static_cast<size_t>(a.integer("dim"));
    const int64_t own = at(0, node.inputs[0]).shape()[dim], size = out.shape()[dim];
    const int64_t first = a.integer("first") + static_cast<int64_t>(rank) * a.integer("step");
    int64_t inner = 1;
    for (size_t d = dim + 1; d < out.shape().size(); ++d) inner *= out.shape()[d];
    for (int64_t i = 0; i < out.elements(); ++i) {
      const int64_t wanted = first + i / inner % size, owner = wanted / own;
      const bool inside = wanted >= 0 && owner < static_cast<int64_t>(values_.size());
      const double padding = a.flag("lowest") ? -std::numeric_limits<double>::infinity() : 0.0;
      set_element(out, i,
                  inside ? element(at(static_cast<size_t>(owner), node.inputs[0]),
                                   (i / inner / size * own + wanted % own) * inner + i % inner)
                         : padding);
    }
    return {};
  }

  const Graph& graph_;
  std::vector<Values> values_;  // by rank
};

// A node of the op alone, cut along one factor.
Plan plan_of(const OpDef& op, const Sample& sample, const OutputTypes& outputs, int factor, int64_t ranks) {
  auto graph = std::make_shared<Graph>();
  Node node{.name = "n", .op = &op, .attributes = sample.attributes};
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    const SampleOperand& operand = sample.operands[i];
    node.inputs.push_back(operand.present ? graph->add_input(cat("x", i), operand.type) : Value{});
  }
  const std::vector<Value> made = graph->node(graph->add_node(node, outputs)).outputs;
  for (size_t o = 0; o < made.size(); ++o) graph->outputs.push_back({cat("y", o), made[o]});

  Plan plan;
  plan.graph = graph;
  plan.rules = *node_rules(*graph);
  Mesh mesh{.axes = {{"data", 1, MeshAxis::Kind::rank},
                     {"micro_batch", 1, MeshAxis::Kind::time},
                     {"unit", 1, MeshAxis::Kind::unit},
                     {"split", ranks, MeshAxis::Kind::rank}}};
  for (int r = 0; r < ranks; ++r) mesh.device.ranks.push_back(r);
  plan.meshes = {mesh};
  plan.task_graphs.push_back({.scope = "all", .nodes = 1});
  plan.calls = {{{.block = BlockKind::main}}};
  plan.node_task_graph = {0};
  plan.node_block = {BlockKind::main};
  plan.node_cloned = {false};
  find_value_task_graphs(plan);
  for (const Value v : graph->value_ids())
    plan.shardings.push_back({.dims = std::vector<Cuts>(graph->type(v).shape.size())});
  ExtendedRule rule = *node_extended_rule(*graph, graph->node(NodeId{0}));
  plan.node_shardings.emplace_back().factors.resize(
      static_cast<size_t>(factor) < rule.added ? rule.added : rule.rule.factors.size());
  const int64_t size = rule.rule.factors[static_cast<size_t>(factor)].size;
  plan.node_shardings.back().factors[static_cast<size_t>(factor)] = {{.axes = {3}, .of = size % ranks == 0 ? 0 : size}};
  return plan;
}

void expect_same(const Tensor& found, const Tensor& wanted) {
  ASSERT_EQ(found.type(), wanted.type());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double x = element(found, i), y = element(wanted, i);
    if (std::isnan(y) || std::isinf(y)) {
      ASSERT_TRUE(std::isnan(y) ? std::isnan(x) : x == y) << "element " << i << " is " << x << ", not " << y;
    } else {
      ASSERT_NEAR(x, y, 1e-11 * (1 + std::abs(y))) << "element " << i;
    }
  }
}

// Of a tensor, what a rank has; no number where that is padding.
Tensor poisoned_shard(const Mesh& mesh, int rank, const Tensor& full, const Sharding& sharding) {
  Tensor shard(local_type(mesh, full.type(), sharding));
  for (int64_t i = 0; i < shard.elements(); ++i) set_element(shard, i, is_float(shard.dtype()) ? NAN : 1);
  for_each_run(full.type(), sharding, mesh, mesh.coordinates(rank), [&](int64_t global, int64_t local, int64_t bytes) {
    std::memcpy(static_cast<std::byte*>(shard.data()) + local, static_cast<const std::byte*>(full.data()) + global,
                static_cast<size_t>(bytes));
  });
  return shard;
}

// Whether windows may slide over shards, which depends on sizes.
bool slides(const OpDef& op, const Sample& sample, const OutputTypes& results, int factor, int64_t ranks) {
  std::vector<const TensorType*> types;
  for (const TensorType& type : results) types.push_back(&type);
  const OpQuery query(op, sample.attributes, sample.types(), types);
  const ExtendedRule rule = *extended_rule(query);
  if (static_cast<size_t>(factor) >= rule.rule.factors.size() || rule.window(factor) < 0) return false;
  return rule.rule.factors[static_cast<size_t>(factor)].size % ranks == 0 &&
         rule.row->halo.of(query, rule.window(factor), ranks);
}

void expect_result(Ranks& all, const LocalGraph& local, const std::vector<Tensor>& wanted) {
  const Status status = all.run();
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < all.size(); ++r) {
    for (size_t o = 0; o < wanted.size(); ++o) {
      SCOPED_TRACE(cat("output ", o, " on rank ", r));
      expect_same(all.at(r, local.graph.outputs[o].value), wanted[o]);
    }
  }
}

void expect_same_on(const OpDef& op, const Sample& sample, const OutputTypes& results, int factor, int64_t ranks,
                    const std::vector<Tensor>& inputs, const std::vector<Tensor>& wanted) {
  auto locals = partition(plan_of(op, sample, results, factor, ranks));
  ASSERT_TRUE(locals.ok()) << locals.status().to_string();
  const LocalGraph& local = locals->at(0);
  Ranks all(local, ranks);
  for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (const Value v = local.graph.find(cat("x", i))) all.at(r, v) = inputs[i];
    }
  }
  expect_result(all, local, wanted);
}

// What a rank computes in padding gets nowhere, whatever that is. Results that the caller gets are full.
class CutNodes : public ::testing::TestWithParam<const OpDef*> {
 protected:
  // 5 over 4 ranks: one of them has padding alone.
  static void check(const OpDef& op, const Sample& sample, const ExtendedRule& rule, const OutputTypes& outputs,
                    size_t f, int64_t size, int& cuts) {
    const Sample larger = resized(op, sample, rule.rule, outputs, {static_cast<int>(f)}, size);
    OutputTypes results;
    if (rule.rule.factors[f].size < 2 || !rule_of(op, larger, results).ok()) return;
    const std::vector<Tensor> inputs = larger.values(3);
    auto wanted = evaluate_op(op, larger.attributes, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
    for (int64_t ranks : {2, 4}) {
      SCOPED_TRACE(cat(key_of(larger), ": factor ", f, f < rule.added ? "" : ", added,", " over ", ranks, " ranks"));
      if (rule.window(static_cast<int>(f)) >= 0 && !slides(op, larger, results, static_cast<int>(f), ranks)) continue;
      Plan plan = plan_of(op, larger, results, static_cast<int>(f), ranks);
      auto locals = partition(plan);
      ASSERT_TRUE(locals.ok()) << locals.status().to_string();
      const LocalGraph& local = locals->at(0);
      Ranks all(local, ranks);
      for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (const Value v = local.graph.find(cat("x", i))) all.at(r, v) = inputs[i];
        }
      }
      expect_result(all, local, *wanted);
      ++cuts;
      if (!plan.node_shardings.back().uneven()) continue;
      SCOPED_TRACE("with operands that lie in shards, whose padding is not zero");
      const OperandShardings operands = operand_shardings(plan, NodeId{0});
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (const Value v = plan.graph->find(cat("x", i))) plan.shardings[v] = operands.inputs[i];
      }
      locals = partition(plan);
      ASSERT_TRUE(locals.ok()) << locals.status().to_string();
      Ranks poisoned(locals->at(0), ranks);
      for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          const Value v = locals->at(0).graph.find(cat("x", i));
          if (v) poisoned.at(r, v) = poisoned_shard(plan.mesh(), static_cast<int>(r), inputs[i], operands.inputs[i]);
        }
      }
      expect_result(poisoned, locals->at(0), *wanted);
    }
  }
};

TEST_P(CutNodes, ComputeWhatOneRankComputes) {
  EPL_ONE_OF_THREE();
  const OpDef& op = *GetParam();
  if (op.boundary || op.takes_any_operands) GTEST_SKIP() << "no split cuts it";
  int equal = 0, uneven = 0;
  for (const std::string& text : op.samples) {
    const Sample sample = parse_sample(op, text)->with_floats(DType::f64);
    OutputTypes outputs;
    ASSERT_TRUE(rule_of(op, sample, outputs).ok()) << text;
    std::vector<const TensorType*> types;
    for (const TensorType& type : outputs) types.push_back(&type);
    const ExtendedRule rule = *extended_rule(OpQuery(op, sample.attributes, sample.types(), types));
    for (size_t f = 0; f < rule.rule.factors.size(); ++f) {
      if (f < rule.added && (rule.rule.factors[f].unshardable || op.random)) continue;
      check(op, sample, rule, outputs, f, 8, equal);
      for (int64_t size : {7, 5}) check(op, sample, rule, outputs, f, size, uneven);
    }
  }
  EXPECT_GT(equal, 0);
  EXPECT_GT(uneven, 0);
}

// A rank adds nothing to the rows that others have: zeros keep their sign.
TEST(CutRows, KeepNegativeZeros) {
  const OpDef& op = op_named("gather");
  const Sample sample = parse_sample(op, "f64[4,3], i64[5](0..4)")->with_floats(DType::f64);
  OutputTypes results;
  const auto rule = rule_of(op, sample, results);
  ASSERT_TRUE(rule.ok()) << rule.status().to_string();
  Tensor table(TensorType{DType::f64, {4, 3}});
  for (int64_t i = 0; i < table.elements(); ++i) table.set(i, -0.0);
  const int rows = static_cast<int>(rule->factors.size());  // behind the rule's own factors
  auto locals = partition(plan_of(op, sample, results, rows, 2));
  ASSERT_TRUE(locals.ok()) << locals.status().to_string();
  const LocalGraph& local = locals->at(0);
  Ranks all(local, 2);
  for (size_t r = 0; r < 2; ++r) {
    all.at(r, local.graph.find("x0")) = table;
    all.at(r, local.graph.find("x1")) = sample.values(3)[1];
  }
  ASSERT_TRUE(all.run().ok());
  const Tensor& found = all.at(0, local.graph.outputs[0].value);
  for (int64_t i = 0; i < found.elements(); ++i) EXPECT_TRUE(std::signbit(found.get(i))) << i;
}

// Windows of every kind over shards, forward and their gradients: strides, dilations, uneven padding, windows that
// reach over several shards, one to three dimensions.
struct Windows {
  std::string text;  // of a sample: x and attributes
  std::string weights = "";
  bool counts_alike = true;  // all averages divide by the same number
};
const std::vector<Windows> windows = {
    {"f64[2,2,8,4] {pads=[1,1,1,1]}", "f64[4,2,3,3]"},
    {"f64[2,2,8,4] {pads=[2,0,0,1]}", "f64[4,2,3,2]"},
    {"f64[2,2,10,4]", "f64[2,2,3,3]"},  // fewer windows than elements
    {"f64[2,2,8,3] {pads=[4,1,4,1]}", "f64[2,2,9,3]"},
    {"f64[2,2,16,4] {strides=[2,1],pads=[1,1,1,1]}", "f64[3,2,3,3]"},
    {"f64[2,2,16,4] {strides=[2,2],pads=[3,3,3,3]}", "f64[3,2,7,7]"},
    {"f64[2,2,16,4] {strides=[2,2]}", "f64[3,2,1,1]"},
    {"f64[2,2,24,4] {strides=[3,1]}", "f64[3,2,2,1]"},
    {"f64[2,2,8,4] {dilations=[2,1],pads=[2,0,2,0]}", "f64[4,2,3,1]"},
    {"f64[2,4,8] {pads=[1,1],groups=2}", "f64[4,2,3]"},
    {"f64[2,4,8] {pads=[2,0]}", "f64[2,4,3]"},
    {"f64[1,2,8,4,8] {pads=[1,0,1,1,0,1]}", "f64[2,2,3,1,3]"},
    {"f64[1,2,4,16,4] {strides=[1,2,1],pads=[0,1,1,0,1,1]}", "f64[2,2,1,4,3]"},
    {"f64[2,2,8,4] {kernel=[2,2],strides=[2,2]}"},
    {"f64[2,2,16,4] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1]}", "", false},
    {"f64[2,2,16,8] {kernel=[3,3],strides=[2,2],pads=[0,0,1,1],count_include_pad=true}"},
    {"f64[2,2,16,8] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=true}"},
    {"f64[2,2,8] {kernel=[5],pads=[2,2],count_include_pad=true}"},
    {"f64[2,2,10] {kernel=[3]}"},
    {"f64[2,2,16] {kernel=[3],strides=[2],ceil=true}", "", false},
    {"f64[1,2,8,4,8] {kernel=[3,1,3],pads=[1,0,1,1,0,1],count_include_pad=true}"},
};

// An op on its own operands, along each dimension of its windows.
int expect_cuts(const OpDef& op, const Attributes& attributes, const std::vector<Tensor>& inputs) {
  Sample sample{.attributes = attributes};
  for (const Tensor& x : inputs) sample.operands.push_back({.present = true, .type = x.type()});
  auto wanted = evaluate_op(op, attributes, inputs);
  EXPECT_TRUE(wanted.ok()) << wanted.status().to_string();
  OutputTypes results;
  std::vector<const TensorType*> types;
  for (const Tensor& y : *wanted) results.push_back(y.type());
  for (const TensorType& type : results) types.push_back(&type);
  const ExtendedRule rule = *extended_rule(OpQuery(op, attributes, sample.types(), types));
  int cuts = 0;
  for (int f = 0; f < static_cast<int>(rule.rule.factors.size()); ++f) {
    for (int64_t ranks : {2, 4}) {
      if (rule.window(f) < 0 || !slides(op, sample, results, f, ranks)) continue;
      SCOPED_TRACE(cat(op.name, " along dimension ", rule.window(f), " over ", ranks, " ranks"));
      expect_same_on(op, sample, results, f, ranks, inputs, *wanted);
      ++cuts;
    }
  }
  return cuts;
}

Attributes with(Attributes attributes, std::string_view name, const Attribute& value) {
  attributes.set(std::string(name), value);
  return attributes;
}

TEST(CutWindows, ReadOverTheBordersOfTheirShards) {
  for (const Windows& w : windows) {
    SCOPED_TRACE(w.text);
    for (const char* name : {"conv", "max_pool", "avg_pool"}) {
      const bool conv = std::string_view(name) == "conv";
      const size_t attributes = w.text.find('{');
      if (conv != !w.weights.empty()) continue;
      if (std::string_view(name) == "avg_pool" && !w.counts_alike) continue;
      if (std::string_view(name) == "max_pool" && w.text.find("count_include_pad") != std::string::npos) continue;
      const std::string text = conv ? cat(w.text.substr(0, attributes), ", ", w.weights,
                                          attributes == std::string::npos ? "" : cat(" ", w.text.substr(attributes)))
                                    : w.text;
      const OpDef& op = op_named(name);
      auto sample = parse_sample(op, text);
      ASSERT_TRUE(sample.ok()) << sample.status().to_string();
      const std::vector<Tensor> in = sample->values(5);
      const Attributes& a = sample->attributes;
      const auto y = evaluate_op(op, a, in);
      ASSERT_TRUE(y.ok()) << y.status().to_string();
      const Attributes grad = with(a, "shape", in[0].shape());
      EXPECT_GT(expect_cuts(op, a, in), 0);
      if (conv) {
        EXPECT_GT(expect_cuts(op_named("conv_grad_input"), grad, {(*y)[0], in[1]}), 0);
        EXPECT_GT(expect_cuts(op_named("conv_grad_weight"), with(a, "shape", in[1].shape()), {in[0], (*y)[0]}), 0);
      } else if (y->size() > 1) {
        EXPECT_GT(expect_cuts(op_named("max_pool_grad"), grad, *y), 0);
      } else {
        EXPECT_GT(expect_cuts(op_named("avg_pool_grad"), grad, *y), 0);
      }
    }
  }
}

// Where nothing stands out, padding is not what a window finds.
TEST(CutWindows, FindElementsAmongTheLowest) {
  const OpDef& op = op_named("max_pool");
  const Sample sample = *parse_sample(op, "f64[1,1,8,2] {kernel=[3,3],pads=[1,1,1,1]}");
  std::vector<Tensor> in = sample.values(1);
  for (int64_t i = 0; i < in[0].elements(); ++i) in[0].set(i, -std::numeric_limits<double>::infinity());
  EXPECT_GT(expect_cuts(op, sample.attributes, in), 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, CutNodes, ::testing::ValuesIn(op_table().all()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl::cuts_test
