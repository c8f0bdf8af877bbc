// Plans that are found: never slower than the strategy as it is, with the bits of one rank, with what is set kept, and
// with notes that say what decided.
#include "core/runtime/auto_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "core/compile/plan_decisions.h"
#include "core/compile/plan_memory.h"
#include "core/compile/search_keys.h"
#include "core/compile/search_model.h"
#include "core/runtime/rehearsal.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::auto_parallel_test {
namespace {

constexpr int layers = 4;

std::string model() {
  std::string text = "graph layers(x: f32[32,48] batch 0) {\n  last: f32[48,4] = param\n";
  for (int i = 0; i < layers; ++i) text += cat("  h.", i, ".w: f32[48,48] = param\n  h.", i, ".b: f32[48] = param\n");
  text += "  forward:\n";
  std::string from = "x";
  for (int i = 0; i < layers; ++i) {
    const std::string b = cat("h.", i, ".");
    text += cat("  ", b, "fc: f32[32,48] = linear(", from, ", ", b, "w, ", b, "b)\n  ", b, "act: f32[32,48] = gelu(", b,
                "fc)\n  ", b, "sum: f32[32,48] = add(", from, ", ", b, "act)\n");
    from = b + "sum";
  }
  return text + cat("  y: f32[32,4] = matmul(", from, ", last)\n  output y = y\n}\n");
}

PlanOptions options_of(int64_t ranks, const std::string& keys, const std::string& level = "data") {
  auto options = layout_options(GraphModel::parse(model()), ranks, at_level(level, keys));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *std::move(options);
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t ranks, const std::string& keys,
                                                    const std::string& level = "data") {
  return plan_in_parallel(test_host(2), options_of(ranks, keys, level));
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {32, 48}}), target(TensorType{DType::i64, {32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

const std::string found = R"("auto.auto_parallel": true)";

TEST(AutoParallel, IsNeverSlowerAndHasTheBitsOfOneRank) {
  const auto one = plan_of(1, "");
  for (const int64_t ranks : {2, 4}) {
    const auto plain = plan_of(ranks, ""), plan = plan_of(ranks, found);
    ASSERT_TRUE(plain.ok()) << ranks << ": " << plain.status().to_string();
    ASSERT_TRUE(plan.ok()) << ranks << ": " << plan.status().to_string();
    const auto before = seconds_of_step(test_host(2), *plain), seconds = seconds_of_step(test_host(2), *plan);
    ASSERT_TRUE(before.ok()) << before.status().to_string();
    ASSERT_TRUE(seconds.ok()) << seconds.status().to_string();
    EXPECT_LE(*seconds, *before * (1 + 1e-9)) << ranks;
    expect_same(train(plan, "found", 3, batch), train(one, "one", 3, batch), cat(ranks, " ranks"));
  }
}

// What the units of a batch do not allow is not proposed.
TEST(AutoParallel, ProposesWhatIsPossible) {
  for (const int64_t ranks : {2, 3, 8}) {
    const auto plan = plan_of(ranks, found);
    ASSERT_TRUE(plan.ok()) << ranks << ": " << plan.status().to_string();
    const std::string notes = join((*plan)->entry(EntryKind::train)->plan.notes, "\n");
    EXPECT_EQ(notes.find("is not possible"), std::string::npos) << ranks << ": " << notes;
  }
}

// Splits give the bits of one rank at this level, and others do not.
TEST(AutoParallel, MaySplitAtLevelLayout) {
  const auto one = plan_of(1, "", "layout"), plan = plan_of(4, found, "layout");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  expect_same(train(plan, "found", 3, batch), train(one, "one", 3, batch), "layout");
  const std::string notes = join((*plan)->entry(EntryKind::train)->plan.notes, "\n");
  EXPECT_NE(notes.find("by the cost model no plan takes less than "), std::string::npos) << notes;
}

TEST(AutoParallel, SaysWhatDecided) {
  const auto plan = plan_of(4, found);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::vector<std::string>& notes = (*plan)->entry(EntryKind::train)->plan.notes;
  const auto is_ours = [](const std::string& note) { return note.starts_with("auto.auto_parallel: "); };
  EXPECT_GE(std::ranges::count_if(notes, is_ours), 3) << join(notes, "\n");
  const auto first = std::ranges::find_if(notes, is_ours);
  ASSERT_NE(first, notes.end());
  EXPECT_NE(first->find(" ms for a step, rehearsed"), std::string::npos) << *first;
}

// The page of a plan shows what was made, the one that is taken first, and what less memory costs.
TEST(AutoParallel, TellsWhatItHasLookedAt) {
  const auto plan = plan_of(4, found);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::vector<SearchTrial>& searched = (*plan)->options().searched;
  ASSERT_GE(searched.size(), 3u);
  EXPECT_TRUE(searched.front().rehearsed);
  EXPECT_EQ(searched.front().decides, "");
  EXPECT_EQ(searched.front().bytes, PlanMemory(**plan).peak());
  EXPECT_FALSE(searched.back().rehearsed);
  for (size_t i = 1; i < searched.size(); ++i) {
    EXPECT_GT(searched[i].bytes, 0) << searched[i].plan;
    const bool made = searched[i].rehearsed, same = made == searched[i - 1].rehearsed;
    if (!same) continue;
    EXPECT_GE(searched[i].seconds, searched[i - 1].seconds) << searched[i].plan;
    EXPECT_TRUE(made || searched[i].bytes < searched[i - 1].bytes) << searched[i].plan;
  }
  EXPECT_TRUE(plan_of(4, "").value()->options().searched.empty());
}

TEST(AutoParallel, KeepsWhatIsSet) {
  const auto plan = plan_of(4, found + R"(, "pipeline.num_stages": 2, "pipeline.num_micro_batch": 4)");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ((*plan)->entry(EntryKind::train)->plan.stages() % 2, 0);
  EXPECT_EQ((*plan)->virtual_devices(), 2);
  EXPECT_EQ((*plan)->entry(EntryKind::train)->plan.micro_batches(), 4);
}

TEST(AutoParallel, RefusesScopesBesideIt) {
  for (const char* scopes :
       {R"("default": {"split": 2})", R"("scopes": [{"match": "h.0*", "replicate": 1}, {"replicate": 1}])"}) {
    const auto plan = plan_of(2, cat(found, ", ", scopes));
    EXPECT_EQ(plan.status().code(), Code::unsupported) << scopes;
    EXPECT_NE(plan.status().message().find("auto.auto_parallel"), std::string::npos) << plan.status().to_string();
  }
}

// A plan file has what was found, so the strategy that it was made for reads it.
TEST(AutoParallel, IsTakenFromAPlanFile) {
  PlanOptions options = options_of(4, found);
  const auto plan = plan_in_parallel(test_host(2), options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto file = std::make_shared<const PlanFile>(decisions_of(**plan, "test"));
  ASSERT_TRUE(take_decisions(*file, "test", true, options).ok());
  options.decisions = file;
  const auto again = plan_in_parallel(test_host(2), options);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ((*again)->text(EntryKind::train, "program").value(), (*plan)->text(EntryKind::train, "program").value());
}

// Notes with seconds of rehearsals too.
TEST(AutoParallel, FindsTheSamePlanEachTime) {
  for (const char* level : {"data", "layout"}) {
    const auto first = plan_of(4, found, level), second = plan_of(4, found, level);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    EXPECT_EQ((*first)->text(EntryKind::train, "program").value(),
              (*second)->text(EntryKind::train, "program").value());
    EXPECT_EQ((*first)->entry(EntryKind::train)->plan.notes, (*second)->entry(EntryKind::train)->plan.notes);
  }
}

// A clock that goes on whenever it is asked, so that a deadline comes at the same place each time.
class Asked {
 public:
  // A call that may ask so often; `cancels` ends it instead.
  Result<std::shared_ptr<const CompiledPlan>> plan(PlanOptions options, int64_t most, bool cancels = false) {
    StopToken token;
    asked_ = 0;
    const std::function<double()> clock = [&] {
      const int64_t now = ++asked_;
      if (cancels && now > most) token.cancel();
      return static_cast<double>(now);
    };
    options.stop = Stop(&token, &clock, cancels ? 1e18 : static_cast<double>(most));
    return plan_in_parallel(test_host(2), options);
  }
  int64_t all() const { return asked_; }

 private:
  std::atomic<int64_t> asked_{0};
};

TEST(AutoParallel, TakesTheBestSoFarAtADeadline) {
  const std::string note = "the deadline of the call ended the search";
  const auto notes = [](const CompiledPlan& plan) { return join(plan.entry(EntryKind::train)->plan.notes, "\n"); };
  const PlanOptions options = options_of(4, found);
  Asked clock;
  const auto full = clock.plan(options, 1'000'000'000);
  ASSERT_TRUE(full.ok()) << full.status().to_string();
  EXPECT_EQ(notes(**full).find(note), std::string::npos);
  const int64_t all = clock.all();
  const auto plain = seconds_of_step(test_host(2), *plan_of(4, ""));
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ(clock.plan(options, 1).status().code(), Code::deadline_exceeded) << "there is no plan yet";
  int early = 0;
  for (int64_t eighths = 1; eighths < 8; ++eighths) {
    const auto plan = clock.plan(options, all * eighths / 8);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), Code::deadline_exceeded) << plan.status().to_string();
      continue;
    }
    ++early;
    EXPECT_NE(notes(**plan).find(note), std::string::npos) << eighths;
    const auto seconds = seconds_of_step(test_host(2), *plan);
    ASSERT_TRUE(seconds.ok()) << seconds.status().to_string();
    EXPECT_LE(*seconds, *plain * (1 + 1e-9)) << eighths;
  }
  EXPECT_GT(early, 0);
  EXPECT_EQ(clock.plan(options, all / 2, true).status().code(), Code::cancelled);
}

// Other processes would take another one.
TEST(AutoParallel, HasOnePlanForAllProcesses) {
  PlanOptions options = options_of(4, found);
  options.local_ranks = 2;
  Asked clock;
  const auto full = clock.plan(options, 1'000'000'000);
  ASSERT_TRUE(full.ok()) << full.status().to_string();
  EXPECT_EQ(clock.plan(options, clock.all() * 7 / 8).status().code(), Code::deadline_exceeded);
}

TEST(SplitsToTry, AreThoseThatChangeNoBits) {
  EXPECT_TRUE(splits_to_try(options_of(8, "").strategy, 8).empty());
  EXPECT_EQ(splits_to_try(options_of(8, "", "layout").strategy, 8), (std::vector<int64_t>{2, 4, 8}));
  EXPECT_EQ(splits_to_try(options_of(6, "", "run").strategy, 6), (std::vector<int64_t>{2}));
}

RehearsedForm rehearsed(const std::string& name, const PlanOptions& options) {
  const auto plan = layout_plan(options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  const auto rehearsal = rehearse(test_host(2), *plan);
  EXPECT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  return {.name = name, .plan = *plan, .trace = rehearsal->trace};
}

RehearsedForm form_of(int64_t split) {
  PlanOptions options = options_of(split, "", "layout");
  options.strategy = of_one_copy(options.strategy, split);
  return rehearsed(cat("split of ", split), options);
}

TEST(SearchModel, FindsLayersAndWhatTheyHave) {
  const auto made = search_problem_of({form_of(1), form_of(2)}, 4);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const SearchProblem& problem = *made;
  // What comes behind the layers is one more.
  ASSERT_EQ(std::ssize(problem.layers), layers + 1);
  // A split may cut layers that are alike in other ways.
  const auto uncut = search_problem_of({form_of(1)}, 4);
  ASSERT_TRUE(uncut.ok()) << uncut.status().to_string();
  EXPECT_EQ(uncut->layers[1], uncut->layers[2]);
  EXPECT_NE(uncut->layers[0], uncut->layers[layers]);
  EXPECT_EQ(problem.batch, 32);
  EXPECT_EQ(problem.units, 8);
  EXPECT_EQ(problem.gradients, 1);
  EXPECT_NEAR(problem.states, 2, 0.01);  // the two moments of AdamW
  double weights = 0, half = 0;
  for (const int kind : problem.layers) {
    const SearchLayer &whole = problem.forms[0].kinds[kind], &cut = problem.forms[1].kinds[kind];
    weights += whole.weights;
    EXPECT_EQ(whole.parameters, kind == problem.layers[layers] ? 1 : 2);
    half += cut.weights;
    EXPECT_GT(whole.forward.of(32), 0);
    EXPECT_GT(whole.backward.of(32), whole.forward.of(32) / 2);
    EXPECT_GE(cut.forward.once, 0);
  }
  EXPECT_EQ(weights, 4.0 * (layers * (48 * 48 + 48) + 48 * 4));
  EXPECT_LT(half, 0.6 * weights);
  // Products and what gelu takes wait for the backward pass: of each layer two results or three.
  const SearchLayer& inner = problem.forms[0].kinds[problem.layers[1]];
  EXPECT_GE(inner.kept, 4.0 * 48);
  EXPECT_LE(inner.kept, 3 * 4.0 * 48);
  EXPECT_EQ(inner.enters, 4.0 * 48);
}

// By the closed form, of one rank and so many micro-batches.
double bytes_of_one_rank(const PlanOptions& options, int64_t micro_batches) {
  const auto problem = search_problem_of({rehearsed("", options)}, 1);
  EXPECT_TRUE(problem.ok()) << problem.status().to_string();
  SearchCandidate one{.row = &one_stage(), .micro_batches = micro_batches};
  one.begins = {0};
  one.again.assign(problem->layers.size(), 0);
  return cost_of(*problem, one).bytes;
}

// Nearly all bytes are of weights, whose gradients are added in pairs: of eight micro-batches three sums wait, and
// beside them are the full sums and the gradient of the last one.
TEST(SearchModel, KnowsSumsThatWait) {
  auto options = layout_options(GraphModel::parse(R"(graph wide(x: f32[8,64] batch 0) {
  a: f32[64,4096] = param
  b: f32[4096,8] = param
  forward:
  h: f32[8,4096] = matmul(x, a)
  r: f32[8,4096] = gelu(h)
  y: f32[8,8] = matmul(r, b)
  output y = y
}
)"),
                                1, "{}");
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  const double bytes = bytes_of_one_rank(*options, 8);
  ASSERT_TRUE(set_config(options->strategy, "pipeline.num_micro_batch", "8").ok());
  const auto plan = layout_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto peak = static_cast<double>(PlanMemory(**plan).peak());
  EXPECT_GE(bytes, 0.9 * peak);
  EXPECT_LE(bytes, 1.2 * peak);
}

// A device of its own memory has a copy of the samples, which are the first stage's.
TEST(SearchModel, KnowsWhatTheCallerGives) {
  constexpr double given = 4.0 * 64 * 4096, weights = 4.0 * 4096 * 8;
  auto options = layout_options(GraphModel::parse(R"(graph long(x: f32[64,4096] batch 0) {
  a: f32[4096,8] = param
  forward:
  y: f32[64,8] = matmul(x, a)
  output y = y
}
)"),
                                1, "{}");
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_LT(bytes_of_one_rank(*options, 1), given + 4 * weights);
  add_backend(far_backend("far_search", 5));
  options->device = "far_search";
  EXPECT_GE(bytes_of_one_rank(*options, 1), given + 4 * weights);
  const double half = bytes_of_one_rank(*options, 2);
  EXPECT_LT(half, 0.6 * given + 7 * weights);
  EXPECT_GT(half, 0.5 * given + 4 * weights);
}

// Four experts whose weights are two tensors, and gates for all of them.
PlanOptions mixture_on(int64_t ranks, const std::string& keys = "") {
  auto options = layout_options(GraphModel::parse(R"(graph mixture(x: f32[32,48] batch 0) {
  gate.w: f32[48,4] = param
  experts.w1: f32[4,48,16] = param
  experts.w2: f32[4,16,48] = param
  out.w: f32[48,4] = param
  forward:
  scores: f32[32,4] = matmul(x, gate.w)
  gates: f32[32,4] = softmax(scores) {axis=1}
  weights: f32[32,4,1] = reshape(gates) {shape=[32,4,1]}
  alike: f32[32,1,48] = reshape(x) {shape=[32,1,48]}
  taken: f32[32,4,48] = mul(weights, alike)
  tokens: f32[4,32,48] = transpose(taken) {perm=[1,0,2]}
  inner: f32[4,32,16] = matmul(tokens, experts.w1)
  act: f32[4,32,16] = relu(inner)
  answers: f32[4,32,48] = matmul(act, experts.w2)
  given: f32[1,32,48] = sum(answers) {axes=[0]}
  flat: f32[32,48] = reshape(given) {shape=[32,48]}
  y: f32[32,4] = matmul(flat, out.w)
  output y = y
}
)"),
                                ranks, at_level("data", keys));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *std::move(options);
}

RehearsedForm shared_experts(const std::string& pattern, int64_t experts) {
  PlanOptions options = mixture_on(experts);
  options.strategy = of_shared_experts(options.strategy, pattern, experts);
  RehearsedForm form = rehearsed(cat("experts over ", experts, " ranks"), options);
  form.experts = experts;
  return form;
}

// Each rank has a share of the experts and all other weights, and a candidate of that form has the bits of one rank.
TEST(SearchModel, SharesOutExperts) {
  const RehearsedForm one = rehearsed("", mixture_on(1));
  const std::string pattern = pattern_of_experts(*one.plan->entry(EntryKind::train)->plan.graph);
  EXPECT_EQ(pattern, "param:*experts*");
  const auto made = search_problem_of({one, shared_experts(pattern, 2), shared_experts(pattern, 4)}, 4);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const SearchProblem& problem = *made;
  constexpr double experts = 4.0 * 2 * 4 * 48 * 16, others = 4.0 * 2 * 48 * 4;
  for (const SearchForm& form : problem.forms) {
    double weights = 0, expert_weights = 0;
    for (const int kind : problem.layers) {
      weights += form.kinds[kind].weights;
      expert_weights += form.kinds[kind].expert_weights;
    }
    const bool shared = form.experts > 1;
    EXPECT_EQ(form.ranks, 1) << form.name;
    EXPECT_EQ(weights, shared ? others : others + experts) << form.name;
    EXPECT_EQ(expert_weights, shared ? experts / static_cast<double>(form.experts) : 0) << form.name;
  }
  const auto alone = layout_plan(mixture_on(1));
  for (const size_t form : {1, 2}) {
    SearchCandidate candidate{.form = form, .row = &one_stage(), .copies = 4};
    candidate.again.assign(problem.layers.size(), 0);
    ASSERT_TRUE(is_possible(problem, candidate));
    PlanOptions options = mixture_on(4);
    options.strategy = with_candidate(options.strategy, problem, candidate, pattern);
    const auto plan = layout_plan(options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const std::vector<TaskGraph>& parts = (*plan)->entry(EntryKind::train)->plan.task_graphs;
    EXPECT_TRUE(std::ranges::any_of(parts, [](const TaskGraph& part) { return !part.experts.empty(); }));
    expect_same(train(plan, "experts", 3, batch), train(alone, "alone", 3, batch), problem.forms[form].name);
  }
}

TEST(AutoParallel, LooksForExperts) {
  const auto plan = plan_in_parallel(test_host(2), mixture_on(2, found));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  expect_same(train(plan, "found", 3, batch), train(layout_plan(mixture_on(1)), "alone", 3, batch), "2 ranks");
}

TEST(ExpertsToTry, AreCountedByNamesOrInATensor) {
  const auto count = [](const PlanOptions& options) {
    return number_of_experts(*layout_plan(options).value()->entry(EntryKind::train)->plan.graph);
  };
  EXPECT_EQ(pattern_of_experts(*form_of(1).plan->entry(EntryKind::train)->plan.graph), "");
  EXPECT_EQ(count(options_of(1, "")), 0);
  EXPECT_EQ(count(mixture_on(1)), 4);
  const auto apart = layout_options(GraphModel::parse(R"(graph apart(x: f32[8,6] batch 0) {
  experts.0.w: f32[6,5] = param
  experts.1.w: f32[6,5] = param
  experts.2.w: f32[6,5] = param
  forward:
  a: f32[8,5] = matmul(x, experts.0.w)
  b: f32[8,5] = matmul(x, experts.1.w)
  c: f32[8,5] = matmul(x, experts.2.w)
  ab: f32[8,5] = add(a, b)
  y: f32[8,5] = add(ab, c)
  output y = y
}
)"),
                                    1, "{}");
  ASSERT_TRUE(apart.ok()) << apart.status().to_string();
  EXPECT_EQ(count(*apart), 3);
}

}  // namespace
}  // namespace epl::auto_parallel_test
