// Decisions that are kept: the same plan again, refused where what they rest on differs, compared in words.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/compile/plan_decisions.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/thirds.h"

namespace epl::plan_file_test {
namespace {

PlanOptions options_of(std::string_view strategy, int64_t ranks) {
  PlanOptions options;
  options.model = GraphModel::parse(skip_mlp);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.ranks = ranks;
  options.strategy = *parse_strategy(strategy);
  return options;
}

std::shared_ptr<const CompiledPlan> plan_of(const PlanOptions& options) {
  auto plan = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

constexpr std::string_view version = "1.2.3";
constexpr std::string_view two_stages = R"({"pipeline.num_micro_batch": 2, "scopes": [
  {"name": "low", "replicate": 1, "match": ["h*", "a"]}, {"name": "high", "replicate": 1, "match": "*"}]})";
constexpr std::string_view split_stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "low", "split": 2, "match": ["h*", "a"]}, {"name": "high", "split": 2, "match": "*"}]})";

constexpr std::string_view pinned = R"({"default": {"split": 2, "dims": {"w1": 0, "g": 1}}})";

// Losses and weights of some steps, by name.
std::map<std::string, Tensor> trained(const std::shared_ptr<const CompiledPlan>& plan) {
  auto session = Session::create(test_host(2), plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  std::map<std::string, Tensor> out;
  Tensor losses(TensorType{DType::f64, {3}});
  for (int s = 0; s < 3; ++s) {
    StepMetrics metrics;
    const Status status = (*session)->step(skip_mlp_batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    losses.set(s, metrics.loss);
  }
  for (const StateSlot& slot : plan->state().slots()) out.emplace(slot.name, *(*session)->state().get(slot.name));
  out.emplace("losses", losses);
  return out;
}

TEST(PlanFile, GivesThePlanAgain) {
  for (const auto& [strategy, ranks] :
       {std::pair(std::string_view("{}"), 1),
        {R"({"default": {"split": 2}})", 4},
        {pinned, 4},
        {R"({"gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "a, g"})", 1},
        {R"({"memory.budget": "1GB"})", 2},
        {two_stages, 4},
        {split_stages, 8}}) {
    const auto made = plan_of(options_of(strategy, ranks));
    ASSERT_TRUE(made);
    auto file = parse_plan_file(print_plan_file(decisions_of(*made, version)));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    PlanOptions options = options_of("{}", 0);
    ASSERT_TRUE(take_decisions(*file, version, false, options).ok());
    EXPECT_EQ(options.ranks, ranks);
    options.decisions = std::make_shared<const PlanFile>(*file);
    const auto again = plan_of(options);
    ASSERT_TRUE(again);
    for (const Entry& entry : made->entries()) {
      for (const char* stage : {"plan", "local", "program"})
        EXPECT_EQ(*again->text(entry.kind, stage), *made->text(entry.kind, stage)) << strategy;
    }
    EXPECT_EQ(print_plan_file(decisions_of(*again, version)), print_plan_file(decisions_of(*made, version)));
    const auto wanted = trained(made);
    for (const auto& [name, value] : trained(again)) EXPECT_TRUE(identical(value, wanted.at(name))) << name;
  }
}

// Which goes on to say why.
TEST(PlanFile, IsOfDecisionsByName) {
  const auto made = plan_of(options_of(split_stages, 8));
  ASSERT_TRUE(made);
  const std::string text = print_plan_file(decisions_of(*made, version));
  for (const char* part : {"entry train\n", "entry predict\n", "taskgraph low ", "value w1 f32[12,16] @ [-, split]\n",
                           "node hb linear in ", "\nwhy \""})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(PlanFile, SaysWhatThePinsAre) {
  const auto made = plan_of(options_of(pinned, 2));
  ASSERT_TRUE(made);
  const std::string text = print_plan_file(decisions_of(*made, version));
  for (const char* part :
       {"pin \"w1\" 0\n", "pin \"g\" 1\n", "value w1 f32[12,16] @ [split, -]\n",
        "cut by rows, as the strategy asks for dimension 0 of w1: ", "as the strategy asks for dimension 1 of g: "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(PlanFile, IsRefusedWhereItsGroundsDiffer) {
  const PlanOptions wanted = options_of(two_stages, 2);
  const auto made = plan_of(wanted);
  ASSERT_TRUE(made);
  const PlanFile file = decisions_of(*made, version);
  const auto refusal = [&](std::string_view of_version, bool has_strategy, PlanOptions options) {
    return take_decisions(file, of_version, has_strategy, options).message();
  };
  EXPECT_EQ(refusal(version, true, wanted), "");
  EXPECT_EQ(refusal("1.2.4", false, wanted),
            "the plan file was made for another version of EPL: 1.2.3 there, 1.2.4 here; make it again");
  PlanOptions other = wanted;
  other.ranks = 4;
  EXPECT_NE(refusal(version, false, other).find("another number of ranks: 2 there, 4 here"), std::string::npos);
  other = wanted;
  other.strategy = *parse_strategy("{}");
  EXPECT_EQ(refusal(version, false, other), "");
  other.decisions = std::make_shared<const PlanFile>(file);
  EXPECT_NE(CompiledPlan::create(test_host(2), other).status().message().find("made for another strategy: {\"pipe"),
            std::string::npos);
  PlanFile numerics = file;
  numerics.facts["numerics"] = "1";
  other = wanted;
  EXPECT_NE(take_decisions(numerics, version, false, other).message().find("version of the numerics"),
            std::string::npos);
  // Another optimizer makes another graph.
  other = wanted;
  other.train.optimizer = "sgd";
  other.decisions = std::make_shared<const PlanFile>(file);
  const auto refused = CompiledPlan::create(test_host(2), other);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("another train graph"), std::string::npos) << refused.status().message();
}

TEST(PlanFile, DamageIsFound) {
  const auto made = plan_of(options_of("{}", 2));
  ASSERT_TRUE(made);
  const std::string text = print_plan_file(decisions_of(*made, version));
  ASSERT_TRUE(parse_plan_file(text).ok());
  for (size_t at = 0; at < text.size(); at += 37) {
    std::string changed = text;
    changed[at] = changed[at] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(parse_plan_file(changed).ok()) << at;
    EXPECT_FALSE(parse_plan_file(text.substr(0, at)).ok()) << at;
  }
  EXPECT_FALSE(parse_plan_file("").ok());
}

// Decisions that were changed and sealed again are an error of the file, whatever verifier finds them: never a mistake
// of ours. What is taken all the same trains.
TEST(PlanFile, DecisionsThatCannotBeCarriedOutAreOfTheFile) {
  int refused = 0;
  for (const auto& [strategy, ranks] :
       {std::pair(std::string_view(R"({"default": {"split": 2}})"), 2), {split_stages, 4}}) {
    const auto made = plan_of(options_of(strategy, ranks));
    ASSERT_TRUE(made);
    const PlanFile file = decisions_of(*made, version);
    PlanOptions options = options_of("{}", 0);
    ASSERT_TRUE(take_decisions(file, version, false, options).ok());
    const auto attempt = [&](const PlanFile& changed, const std::string& how) {
      options.decisions = std::make_shared<const PlanFile>(changed);
      const auto again = CompiledPlan::create(test_host(2), options);
      if (again.ok()) return;
      ++refused;
      EXPECT_NE(again.status().code(), Code::internal) << how << ": " << again.status().to_string();
    };
    for (size_t e = 0; e < file.entries.size(); ++e) {
      const std::string& text = file.entries[e].second;
      std::vector<std::string> lines;
      for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
        lines.push_back(text.substr(begin, end - begin));
      const auto with = [&](const std::vector<std::string>& all, const std::string& how) {
        PlanFile changed = file;
        changed.entries[e].second.clear();
        for (const std::string& line : all) changed.entries[e].second += line + "\n";
        attempt(changed, how);
      };
      for (size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].starts_with("why") || lines[i].starts_with("note") || is_left_out(lines[i])) continue;
        std::vector<std::string> changed = lines;
        if (i + 1 < lines.size()) std::swap(changed[i], changed[i + 1]);
        with(changed, cat("line ", i + 1, " swapped: ", lines[i]));
        changed = lines;
        changed.erase(changed.begin() + static_cast<long>(i));
        with(changed, cat("line ", i + 1, " gone: ", lines[i]));
        const size_t digit = lines[i].find_last_of("0123456789");
        if (digit == std::string::npos) continue;
        changed = lines;
        changed[i][digit] = changed[i][digit] == '9' ? '0' : static_cast<char>(changed[i][digit] + 1);
        with(changed, cat("line ", i + 1, " with another number: ", changed[i]));
      }
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(PlanFile, DifferencesAreSaidInWords) {
  const PlanFile whole = decisions_of(*plan_of(options_of("{}", 4)), version);
  const PlanFile staged = decisions_of(*plan_of(options_of(split_stages, 8)), version);
  EXPECT_TRUE(compare_plan_files(whole, whole).empty());
  const std::vector<std::string> found = compare_plan_files(whole, staged);
  const auto says = [&](std::string_view part) {
    return std::ranges::any_of(found, [&](const std::string& one) { return one.find(part) != std::string::npos; });
  };
  const std::string all = join(found, "\n");
  EXPECT_TRUE(says("ranks: 4; in the second 8")) << all;
  EXPECT_TRUE(says("train: task graph default: in the first alone")) << all;
  EXPECT_TRUE(says("train: task graph: in the second alone: low, high")) << all;
  EXPECT_TRUE(says("train: ranks of default: in the first alone")) << all;
  EXPECT_TRUE(says(" times train: tensor: [-, -]; in the second [-, split]: w1, ")) << all;
  // A change of one line is one sentence.
  const auto changed = [&](std::string_view from, std::string_view to) {
    PlanFile other = staged;
    const size_t at = other.entries[0].second.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) other.entries[0].second.replace(at, from.size(), to);
    return join(compare_plan_files(staged, other), "\n");
  };
  EXPECT_EQ(changed("run forward 1", "run backward 0"),
            "calls of train: ranks of low: 9, in the second 9; number 6 is forward 1, in the second backward 0");
  EXPECT_EQ(changed("value w1 f32[12,16] @ [-, split]", "value w1 f32[12,16] @ [-, -]"),
            "train: tensor w1: [-, split]; in the second [-, -]");
  EXPECT_EQ(changed("node hb linear in forward cut", "node hb linear in backward cut"),
            "train: node hb: forward cut [data.micro_batch.unit, -, split]; in the second backward cut "
            "[data.micro_batch.unit, -, split]");
}

}  // namespace
}  // namespace epl::plan_file_test
