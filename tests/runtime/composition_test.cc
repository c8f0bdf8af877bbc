// The catalogue of bugs that others have met where two options meet (composition.json), as tests: on one rank each row
// learns what PyTorch learns in float64, and under every layout of the standard list it learns the bits of one rank.
// The numbers with the bug put in, and programs with a fault put in, show that a bug would be seen.
#include "tests/runtime/composition.h"

#include "tests/thirds.h"

namespace epl::composition_test {
namespace {

using namespace composition;

constexpr double wide_tolerance = 2e-5, narrow_tolerance = 0.01;

// Empty where numbers are those expected. Of numbers as large as the loss of a start.
std::string difference(const std::vector<double>& found, const Json& expected, double tolerance) {
  const auto wanted = expected.get<std::vector<double>>();
  if (found.size() != wanted.size()) return cat(found.size(), " numbers of ", wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!(std::fabs(found[i] - wanted[i]) <= tolerance * std::max(1.0, std::fabs(wanted[i]))))
      return cat("number ", i, " is ", found[i], " and not ", wanted[i]);
  }
  return "";
}

// The keys of a layout with those of a row. A layout's own number of micro-batches stays.
Json joined(Json layout, const Json& row) {
  for (const auto& [key, value] : row.items()) {
    if (key != "pipeline.num_micro_batch" || !layout.contains(key)) layout[key] = value;
  }
  return layout;
}

std::vector<std::string> forward_nodes(const std::string& model) {
  std::vector<std::string> names;
  const auto graph = parse_graph(model_text(model));
  for (int n = 0; n < graph->node_count(); ++n) names.push_back(graph->node(NodeId{n}).name);
  return names;
}

std::vector<tools::StrategyRow> layouts() {
  const std::string path = "tests/cases/strategies.json";
  return tools::parse_strategies(read_page(path), path);
}

bool is_refusal(const Status& status) {
  return status.code() == Code::unsupported || status.code() == Code::invalid_argument;
}

// Why a layout may not fit so small a model, whatever the options: a part of the message, and a key of the layout,
// without which nobody can have this reason. So copies, micro-batches, splits and experts of one stage fit each model.
struct Reason {
  std::string_view says, key;
};
constexpr Reason reasons[] = {
    {" nodes cannot be ", "pipeline.num_stages"},     {"the schedule ", "pipeline.strategy"},
    {" needs the result of node ", "scopes"},         {" is made by another stage than ", "scopes"},
    {" is placed in two ways: by scope ", "scopes"},  {"batch.semantics = per_micro_batch", "batch.semantics"},
    {"one micro-batch by itself", "batch.semantics"},
};

bool has_reason(const Status& status, const Json& layout) {
  return is_refusal(status) && std::ranges::any_of(reasons, [&](const Reason& reason) {
           return layout.contains(reason.key) && status.message().find(reason.says) != std::string::npos;
         });
}

class Composition : public testing::TestWithParam<Row> {
 protected:
  // What one rank learns at the level of a layout, with as many independent micro-batches.
  const Learned& alone(const Json& layout) {
    Json one = Json::object();
    for (const char* key : {"reproducible.level", "batch.semantics", "communication.gradients_reduce_method"}) {
      if (layout.contains(key)) one[key] = layout[key];
    }
    if (one.contains("batch.semantics")) one["pipeline.num_micro_batch"] = layout.at("pipeline.num_micro_batch");
    Learned& found = alone_[tools::print_json(one)];
    if (!found.losses.empty()) return found;
    const auto plan = plan_of(GetParam(), 1, joined(one, GetParam().strategy));
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (plan.ok()) found = learned(GetParam(), *plan, "one rank");
    return found;
  }

  // What the row looks at beside the bits.
  void look(const CompiledPlan& plan, int64_t ranks, const Json& strategy, const std::string& said) const {
    if (GetParam().looks("narrow_sums")) {
      for (const LocalGraph& local : plan.entry(EntryKind::train)->locals)
        EXPECT_EQ(narrow_sums(local), std::vector<std::string>()) << said;
    }
    if (!GetParam().looks("more_gathers")) return;
    const auto other = plan_of(GetParam(), ranks, nothing_again(strategy));
    ASSERT_TRUE(other.ok()) << said << ": " << other.status().to_string();
    EXPECT_EQ(gathered_too_often(plan, **other), std::vector<std::string>()) << said;
  }

 private:
  std::map<std::string, Learned> alone_;
};

TEST_P(Composition, LearnsWhatFloat64Learns) {
  const Row& row = GetParam();
  const double tolerance = row.narrow() ? narrow_tolerance : wide_tolerance;
  const auto plan = plan_of(row, 1, row.strategy);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Learned one = learned(row, *plan, "one rank");
  EXPECT_EQ(difference(one.losses, row.numbers.at("losses"), tolerance), "");
  EXPECT_TRUE(row.numbers.at("norms").empty() || difference(one.norms, row.numbers.at("norms"), tolerance).empty());
  if (!row.numbers.contains("wrong_losses")) return;
  // With the bug it would be seen, and not by a hair.
  EXPECT_NE(difference(one.losses, row.numbers.at("wrong_losses"), 5 * tolerance), "");
}

TEST_P(Composition, HasTheBitsOfOneRankInEveryLayout) {
  EPL_ONE_OF_THREE();
  const Row& row = GetParam();
  const std::vector<std::string> nodes = forward_nodes(row.model);
  std::set<std::string> seen;
  int compared = 0;
  size_t number = std::hash<std::string>()(row.name);
  for (const tools::StrategyRow& layout : layouts()) {
    if (EPL_SANITIZED && number++ % 27 != 0) continue;  // other ones for each row
    const int64_t ranks = layout.layout.ranks();
    Json own = tools::strategy_of(layout.layout, {}, nodes);
    if (layout.layout.split > 1) own["reproducible.level"] = "layout";
    const Json strategy = joined(own, row.strategy);
    const std::string said = cat(layout.name, ": ", ranks, " ranks, ", tools::print_json(strategy));
    if (!seen.insert(said.substr(said.find(": "))).second) continue;
    const auto plan = plan_of(row, ranks, strategy);
    if (!plan.ok()) {
      // No option of the row is why, and what is has been listed.
      EXPECT_TRUE(has_reason(plan.status(), own)) << said << ": " << plan.status().to_string();
      EXPECT_FALSE(plan_of(row, ranks, own).ok()) << said << ": " << plan.status().to_string();
      continue;
    }
    EXPECT_EQ(learned(row, *plan, said), alone(own)) << said;
    look(**plan, ranks, strategy, said);
    ++compared;
  }
  EXPECT_TRUE(EPL_SANITIZED || compared >= 50) << compared << " layouts";
}

INSTANTIATE_TEST_SUITE_P(Rows, Composition, testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name; });

// A transfer of these rows that is not carried out: each rank goes on with what it has.
TransferRow left_out(TransferRow row) {
  row.run = [](const TransferCall& call) {
    for (size_t i = 0; i < call.sources.size(); ++i) {
      const int64_t bytes = std::min(call.in.query->input_types[i].bytes(), call.in.query->output_types[i].bytes());
      if (call.targets[i] != call.sources[i]) call.stream.copy(call.targets[i], call.sources[i], bytes);
    }
    return Status();
  };
  return row;
}

// The sum of sums.
TransferRow done_twice(TransferRow row) {
  row.run = [](const TransferCall& call) {
    EPL_TRY(transfer_named("all_reduce").run(call));
    TransferCall again = call;
    const std::vector<const void*> sources(call.targets.begin(), call.targets.end());
    again.sources = sources;
    again.source = call.target;
    return transfer_named("all_reduce").run(again);
  };
  return row;
}

// A plan in which some rows of transfers are other ones, for gradients: twice the sum of all would be divided by twice
// the count. Each takes the place of the one of its name.
MadePlan with_faults(const Row& row, int64_t ranks, const Json& strategy, const std::vector<const TransferRow*>& faults,
                     int& replaced) {
  auto plan = plan_of(row, ranks, strategy);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  // Made by this test, for it alone.
  auto& programs = const_cast<Entry*>((*plan)->entry(EntryKind::train))->programs;
  for (Program& program : programs) {
    for (Instruction& in : program.instructions) {
      const bool of_gradients = std::ranges::any_of(in.query ? in.query->input_types : std::vector<TensorType>(),
                                                    [](const TensorType& type) { return type.elements() > 1; });
      if (in.transfer == nullptr || !of_gradients) continue;
      const auto fault = std::ranges::find(faults, in.transfer->name, &TransferRow::name);
      if (fault == faults.end()) continue;
      in.transfer = *fault;
      ++replaced;
    }
  }
  return *plan;
}

const Row& row_named(const std::vector<Row>& all, std::string_view name) {
  return *std::ranges::find(all, name, &Row::name);
}

// A sum over ranks that is left out, or taken twice, is seen.
TEST(CompositionFaults, InProgramsAreSeen) {
  const std::vector<Row>& all = rows();
  const Row& row = row_named(all, "pipeline_zero");
  const Json full = {{"zero.level", "off"}}, shards = {{"zero.level", "v1"}};
  const Learned right = learned(row, *plan_of(row, 2, full), "no fault");
  EXPECT_EQ(difference(right.losses, row.numbers.at("losses"), wide_tolerance), "");
  const TransferRow no_sum = left_out(transfer_named("all_reduce")), twice = done_twice(transfer_named("all_reduce")),
                    no_scatter = left_out(transfer_named("reduce_scatter"));
  struct Fault {
    const TransferRow& row;
    Json strategy;
  };
  for (const Fault& fault : {Fault{no_sum, full}, Fault{twice, full}, Fault{no_scatter, shards}}) {
    int replaced = 0;
    const MadePlan plan = with_faults(row, 2, fault.strategy, {&fault.row}, replaced);
    EXPECT_GT(replaced, 0) << fault.row.name;
    const Learned wrong = learned(row, plan, "a fault");
    EXPECT_NE(wrong, right) << fault.row.name;
    EXPECT_NE(difference(wrong.losses, row.numbers.at("losses"), wide_tolerance), "") << fault.row.name;
  }
}

// Where PyTorch has no number with a row's bug put in, the row says what shows it.
std::vector<Row> shown_by(std::string_view means) {
  std::vector<Row> found;
  for (const Row& row : rows()) {
    if (row.json.value("shown_by", "") == means) found.push_back(row);
  }
  EXPECT_FALSE(found.empty()) << means;
  return found;
}

TEST(CompositionFaults, EachRowHasANumberOrSaysWhatShowsItsBug) {
  size_t said = 0;
  for (const Row& row : rows()) {
    EXPECT_NE(row.numbers.contains("wrong_losses"), row.json.contains("shown_by")) << row.name;
    said += row.json.contains("shown_by");
  }
  // An error of the row's options fails the row (HasTheBitsOfOneRankInEveryLayout), so a refusal needs no test here.
  size_t shown = 0;
  for (const char* means : {"sum_left_out", "narrow_sums", "more_gathers", "refusal"}) shown += shown_by(means).size();
  EXPECT_EQ(shown, said);
}

// Of two copies of two stages, with all options of the row.
TEST(CompositionFaults, SumsThatStagesLeaveOutAreSeen) {
  const TransferRow no_sum = left_out(transfer_named("all_reduce")),
                    no_scatter = left_out(transfer_named("reduce_scatter"));
  for (const Row& row : shown_by("sum_left_out")) {
    const Json strategy = joined({{"pipeline.num_stages", 2}, {"pipeline.num_micro_batch", 2}}, row.strategy);
    const auto plan = plan_of(row, 4, strategy);
    ASSERT_TRUE(plan.ok()) << row.name << ": " << plan.status().to_string();
    const Learned right = learned(row, *plan, "no fault");
    int replaced = 0;
    const MadePlan faulty = with_faults(row, 4, strategy, {&no_sum, &no_scatter}, replaced);
    EXPECT_GT(replaced, 0) << row.name;
    EXPECT_NE(learned(row, faulty, "a fault"), right) << row.name;
  }
}

// As if each use that is computed again had a gather of its own.
TEST(CompositionFaults, WeightsThatAreGatheredAgainAreFound) {
  for (const Row& row : shown_by("more_gathers")) {
    const auto plan = plan_of(row, 2, row.strategy), kept = plan_of(row, 2, nothing_again(row.strategy));
    ASSERT_TRUE(plan.ok() && kept.ok()) << plan.status().to_string() << kept.status().to_string();
    EXPECT_EQ(gathered_too_often(**plan, **kept), std::vector<std::string>()) << row.name;
    for (Program& program : const_cast<Entry*>((*plan)->entry(EntryKind::train))->programs) {
      std::vector<Instruction> more;
      for (const Instruction& in : program.instructions) {
        for (int time = 0; in.transfer && in.transfer->name == "all_gather" && time < 2; ++time) {
          Instruction& again = more.emplace_back();
          again.transfer = in.transfer;
          again.inputs = in.inputs;
        }
      }
      std::ranges::move(more, std::back_inserter(program.instructions));
    }
    EXPECT_NE(gathered_too_often(**plan, **kept), std::vector<std::string>()) << row.name;
  }
}

// A sum whose type is narrowed is found.
TEST(CompositionFaults, NarrowSumsAreFound) {
  for (const Row& row : shown_by("narrow_sums")) {
    const auto plan = plan_of(row, 2, joined({{"pipeline.num_micro_batch", 2}}, row.strategy));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    LocalGraph local = (*plan)->entry(EntryKind::train)->locals.front();
    EXPECT_EQ(narrow_sums(local), std::vector<std::string>()) << row.name;
    int narrowed = 0;
    for (const NodeId n : local.graph.node_ids()) {
      const Node& node = local.graph.node(n);
      if (node.op->name != "accumulate" && node.op->name != "reduce_scatter") continue;
      for (const Value v : node.outputs) local.graph.value(v).type.dtype = DType::bf16;
      narrowed += static_cast<int>(node.outputs.size());
    }
    EXPECT_GT(narrowed, 0) << row.name;
    EXPECT_EQ(std::ssize(narrow_sums(local)), narrowed) << row.name;
  }
}

// A layout that asks for what does not go together counts as one that is refused.
TEST(CompositionFaults, RefusalsAreNoticed) {
  const std::vector<Row>& all = rows();
  const auto plan = plan_of(row_named(all, "pipeline_zero"), 2,
                            {{"zero.level", "v1"}, {"pipeline.num_micro_batch", 2}, {"batch.order", "ranks"}});
  ASSERT_FALSE(plan.ok());
  EXPECT_TRUE(is_refusal(plan.status())) << plan.status().to_string();
  EXPECT_FALSE(has_reason(plan.status(), {{"scopes", Json::array()}})) << plan.status().to_string();
  // Too many stages are a reason, but not of a layout of one stage.
  const Json stages = {{"pipeline.num_stages", 64}};
  const auto many = plan_of(row_named(all, "pipeline_zero"), 64, stages);
  ASSERT_FALSE(many.ok());
  EXPECT_TRUE(has_reason(many.status(), stages)) << many.status().to_string();
  EXPECT_FALSE(has_reason(many.status(), {{"zero.level", "v1"}}));
}

constexpr std::string_view opening = R"(# Bugs that do not happen here

Made from the table of rows in `tests/runtime/composition.json`; do not edit.

Most bugs of distributed training lie where two options meet. This page lists those that others have met, with the
public issues that tell of them. Here each is a row of a test, so none of them comes back unseen.

The test trains a small model with the row's options under every layout of `tests/cases/strategies.json`: copies,
micro-batches, stages under every schedule, splits, experts, and options that save memory. Three things must hold:

- On one rank the losses, and the norms where gradients are clipped, are those of PyTorch in float64.
- Every layout has the bits of one rank: losses, norms, weights and states. Beside a split both are at
  `reproducible.level` = `layout`.
- No layout is refused for the row's options, and each uses as many bytes as its plan says.

Where the bug changes numbers, PyTorch's numbers with the bug put in are in the table as well
(`tests/runtime/composition_numbers.json`). They differ from the right ones by five times what the test allows, or more.
The other rows name what shows the bug (`shown_by`), and a test puts that into our own programs: a sum that two stages
leave out, a sum in 16 bits, a weight that is gathered again. One of them is an error, and an error fails each row.

One design excludes most of these bugs. The full step is one graph with global shapes: forward pass, loss, gradients,
norm and update. A strategy writes tables beside that graph, and one function makes the programs of all ranks from both
([ARCHITECTURE.md](../ARCHITECTURE.md)). So options do not call each other.

| where these meet | others have met | why not here |
|---|---|---|
)";

std::string link(const std::string& seen) {
  const size_t mark = seen.find_first_of("#:");
  const std::string repository = "https://github.com/" + seen.substr(0, mark);
  if (seen[mark] == '#') return cat("[", seen, "](", repository, "/issues/", seen.substr(mark + 1), ")");
  return cat("[", seen.substr(0, mark), "](", repository, "/blob/main/", seen.substr(mark + 1), ")");
}

std::string sentences(const Json& list) {
  std::string out;
  for (const Json& one : list) out += cat(out.empty() ? "" : " ", one.get<std::string>());
  return out;
}

TEST(CompositionDocumentation, IsTheTable) {
  std::string text(opening);
  for (const Row& row : rows()) {
    std::string seen;
    for (const Json& one : row.json.at("seen")) seen += cat(seen.empty() ? "" : ", ", link(one));
    text += cat("| ", row.json.at("options").get<std::string>(), " | ", sentences(row.json.at("symptom")), " (", seen,
                ") | ", sentences(row.json.at("here")), " |\n");
  }
  expect_page("docs/composition.md", text, "test_runtime");
}

}  // namespace
}  // namespace epl::composition_test
