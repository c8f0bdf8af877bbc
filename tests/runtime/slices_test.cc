// Processes that are each given the samples of their own ranks alone, and outputs that the strategy merges: of the
// full batch, with the same bits under every layout, or of what a process has. A process is a session of some ranks
// here.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <map>
#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/session.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/two_processes.h"

namespace epl::slices_test {
namespace {

struct Layout {
  std::string name, strategy;  // without the braces
  std::vector<int> ranks;      // of each process
  int world() const {
    int all = 0;
    for (const int count : ranks) all += count;
    return all;
  }
};

constexpr std::string_view stages = R"("scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";
constexpr std::string_view split_stages = R"("scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}])";

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"alone", "", {1}},
      {"threads", R"("pipeline.num_micro_batch": 2)", {4}},
      {"two", "", {1, 1}},
      {"uneven", R"("pipeline.num_micro_batch": 2)", {1, 3}},
      {"stages", cat(R"("pipeline.num_micro_batch": 4, )", stages), {1, 1}},
      {"copies_of_stages", cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", )", stages), {1, 1, 2}},
      {"split_stages", cat(R"("pipeline.num_micro_batch": 2, )", split_stages), {3, 1}}};
  return all;
}

constexpr std::string_view merges = R"("outputs.KEY": "y")";

std::string strategy_of(const Layout& layout, const std::string& key) {
  std::string merge(merges);
  merge.replace(merge.find("KEY"), 3, key);
  return cat("{", layout.strategy, layout.strategy.empty() ? "" : ", ", merge, "}");
}

// What a process has seen.
struct Seen {
  std::vector<double> losses;
  std::map<std::string, Tensor> outputs;  // "train", "evaluate", "predict"
  std::string state, failure;
  SampleRange samples;  // that its ranks work on
};

// The inputs as a process passes them; nothing for what none of its ranks reads.
std::vector<Tensor> slices_of(const Session& session, const Entry& entry, std::span<const Tensor> batch) {
  std::vector<Tensor> out;
  const int first = session.world().options().first_rank;
  const int ranks = session.world().options().ranks == 0 ? session.world().size() : session.world().options().ranks;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const SampleRange range = samples_read(session.plan(), entry, i, first, ranks);
    out.push_back(range.count == 0 ? Tensor() : take_samples(batch[i], 0, 8, range.first, range.count));
  }
  return out;
}

Status see(Session& session, Seen& seen) {
  const CompiledPlan& plan = session.plan();
  const auto inputs = [&](EntryKind kind, int step) { return slices_of(session, *plan.entry(kind), mlp_batch(step)); };
  for (int step = 0; step < 3; ++step) {
    StepMetrics metrics;
    EPL_TRY(session.step(inputs(EntryKind::train, step), metrics));
    seen.losses.push_back(metrics.loss);
  }
  EPL_ASSIGN(seen.outputs["train"], session.results().output(EntryKind::train, "y"));
  double loss = 0;
  EPL_TRY(session.evaluate(inputs(EntryKind::evaluate, 7), loss));
  seen.losses.push_back(loss);
  EPL_ASSIGN(seen.outputs["evaluate"], session.results().output(EntryKind::evaluate, "y"));
  const Entry& predict = *plan.entry(EntryKind::predict);
  std::vector<Tensor> full = {Tensor(predict.outputs[0].global_type)};
  EPL_TRY(session.predict(inputs(EntryKind::predict, 9), full));
  seen.outputs["predict"] = session.results().given_output(predict, 0, full[0], 8).clone();
  seen.state = all_state(session, seen.losses);
  seen.samples =
      samples_of_ranks(plan, predict, session.world().options().first_rank,
                       session.world().options().ranks == 0 ? session.world().size() : session.world().options().ranks);
  return {};
}

// By process.
std::vector<Seen> seen_by(const Layout& layout, const std::string& key) {
  const Host host = process_host();
  const auto plan = strategy_plan(host, layout.world(), strategy_of(layout, key));
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  const auto rendezvous = memory_rendezvous();
  std::vector<Seen> seen(layout.ranks.size());
  std::vector<std::thread> processes;
  int first = 0;
  for (size_t p = 0; p < layout.ranks.size(); ++p) {
    processes.emplace_back([&, p, first] {
      auto session = Session::create(host, *plan,
                                     {.seed = 7,
                                      .first_rank = first,
                                      .ranks = layout.ranks[p],
                                      .rendezvous = rendezvous,
                                      .join_seconds = 30,
                                      .slices = true});
      const Status status = session.ok() ? see(**session, seen[p]) : session.status();
      if (!status.ok()) seen[p].failure = status.to_string();
    });
    first += layout.ranks[p];
  }
  for (std::thread& process : processes) process.join();
  for (const Seen& one : seen) EXPECT_EQ(one.failure, "") << layout.name;
  return seen;
}

// Of one rank, as samples.
const Seen& expected() {
  static const Seen all = seen_by(layouts().front(), "global_concat").front();
  return all;
}

class Slices : public testing::TestWithParam<Layout> {};

TEST_P(Slices, GiveWhatTheFullBatchGives) {
  const bool cut = GetParam().strategy.find("split") != std::string::npos;  // bits may differ
  for (const Seen& seen : seen_by(GetParam(), "global_concat")) {
    if (!cut) {
      EXPECT_EQ(seen.state, expected().state);
    }
    for (const auto& [entry, value] : seen.outputs) {
      ASSERT_EQ(value.type(), expected().outputs.at(entry).type());
      for (int64_t i = 0; i < value.elements(); ++i)
        ASSERT_NEAR(value.get(i), expected().outputs.at(entry).get(i), cut ? 1e-5 : 0) << entry << " " << i;
    }
  }
}

double sum_of(const Tensor& samples, int64_t first, int64_t count, int64_t column) {
  double sum = 0;
  for (int64_t row = first; row < first + count; ++row) sum += samples.get(row * 4 + column);
  return sum;
}

// Each merging against the samples one after another, of the full batch and of the process.
TEST_P(Slices, OutputsAreMerged) {
  const std::vector<Seen> concat = seen_by(GetParam(), "global_concat");
  for (const char* key : {"global_mean", "global_sum", "local_concat", "local_mean", "local_sum"}) {
    const bool local = std::string(key).starts_with("local"), mean = std::string(key).ends_with("mean");
    const std::vector<Seen> seen = seen_by(GetParam(), key);
    for (size_t p = 0; p < seen.size(); ++p) {
      EXPECT_EQ(seen[p].losses, concat[p].losses) << key << ": merging changes no step";
      const SampleRange range = local ? seen[p].samples : SampleRange{0, 8};
      ASSERT_GT(range.count, 0);
      for (const auto& [entry, value] : seen[p].outputs) {
        const Tensor& samples = concat[p].outputs.at(entry);
        if (std::string(key) == "local_concat") {
          ASSERT_TRUE(identical(value, take_samples(samples, 0, 8, range.first, range.count))) << entry;
          continue;
        }
        ASSERT_EQ(value.shape(), (Shape{4})) << key;
        for (int64_t column = 0; column < 4; ++column) {
          const double sum = sum_of(samples, range.first, range.count, column);
          ASSERT_EQ(value.get(column), static_cast<float>(mean ? sum / static_cast<double>(range.count) : sum))
              << key << " of " << entry;
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Layout>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, Slices, testing::ValuesIn(layouts()), name_of);

// Which samples they are.
TEST(Slices, AreNamedByThePlan) {
  const Host host = process_host();
  const auto ranges = [&](const Layout& layout, size_t input) {
    const auto plan = strategy_plan(host, layout.world(), strategy_of(layout, "global_sum")).value();
    std::string out;
    int first = 0;
    for (const int ranks : layout.ranks) {
      const SampleRange range = samples_read(*plan, plan->entries().front(), input, first, ranks);
      out += cat(out.empty() ? "" : ", ", range.first, "+", range.count);
      first += ranks;
    }
    return out;
  };
  EXPECT_EQ(ranges(layouts()[0], 0), "0+8");
  EXPECT_EQ(ranges(layouts()[2], 0), "0+4, 4+4");
  EXPECT_EQ(ranges(layouts()[3], 1), "0+2, 2+6");
  EXPECT_EQ(ranges(layouts()[4], 0), "0+8, 0+0") << "the second stage has no use for x";
  EXPECT_EQ(ranges(layouts()[4], 1), "0+0, 0+8") << "nor the first for the target";
  EXPECT_EQ(ranges(layouts()[5], 0), "0+4, 4+4, 0+0");
  // What ranks work on, whether they read an input or not.
  const auto plan = strategy_plan(host, 4, strategy_of(layouts()[5], "global_sum")).value();
  const auto worked_on = [&](int first, int ranks) {
    return samples_of_ranks(*plan, plan->entries().front(), first, ranks);
  };
  EXPECT_EQ(worked_on(1, 1), (SampleRange{4, 4}));
  EXPECT_EQ(worked_on(2, 1), (SampleRange{0, 4}));
  EXPECT_EQ(worked_on(1, 2), (SampleRange{0, 8})) << "the second half of one stage, the first of the other";
}

TEST(Slices, OthersAreRefused) {
  const Host host = process_host();
  const Layout two = layouts()[2];
  const auto plan = strategy_plan(host, 2, strategy_of(two, "global_sum")).value();
  const auto rendezvous = memory_rendezvous();
  std::vector<std::string> said(2), skipped(2);
  std::barrier joined(2);  // who gives up before the other has joined ends its joining
  std::vector<std::thread> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back([&, rank] {
      auto session =
          Session::create(
              host, plan,
              {.seed = 7, .first_rank = rank, .ranks = 1, .rendezvous = rendezvous, .join_seconds = 30, .slices = true})
              .value();
      joined.arrive_and_wait();
      StepMetrics metrics;
      said[static_cast<size_t>(rank)] = session->step(mlp_batch(0), metrics).message();
      // A number that is none, in a sample of the second process alone.
      std::vector<Tensor> batch = mlp_batch(0);
      batch[0].set(6 * 12 + 5, std::nan(""));
      const Status status = session->step(slices_of(*session, plan->entries().front(), batch), metrics);
      skipped[static_cast<size_t>(rank)] = status.ok() ? metrics.skipped.message() : status.to_string();
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(said[0], "input x is f32[4,12] in this process, samples 0 to 3 of 8; got f32[8,12]");
  EXPECT_EQ(said[1], "input x is f32[4,12] in this process, samples 4 to 7 of 8; got f32[8,12]");
  for (const std::string& text : skipped) EXPECT_NE(text.find("input x holds nan at [6,5]"), std::string::npos) << text;
}

TEST(MergedOutputs, OfFewerSamplesAreOfThese) {
  const Host host = process_host();
  const auto plan = strategy_plan(host, 2, R"({"outputs.global_mean": "y"})").value();
  auto session = Session::create(host, plan, {.seed = 7}).value();
  std::vector<Tensor> batch = mlp_batch(3), full = {Tensor(TensorType{DType::f32, {8, 4}})};
  for (Tensor& input : batch) input = take_samples(input, 0, 8, 0, 5);
  double loss = 0;
  ASSERT_TRUE(session->evaluate(batch, loss).ok());
  const Tensor mean = session->results().output(EntryKind::evaluate, "y").value();
  ASSERT_TRUE(session->predict(std::span(batch).first(1), full).ok());
  EXPECT_TRUE(identical(session->results().given_output(*plan->entry(EntryKind::predict), 0, full[0], 5), mean));
  for (int64_t column = 0; column < 4; ++column)
    EXPECT_EQ(mean.get(column), static_cast<float>(sum_of(full[0], 0, 5, column) / 5));
}

TEST(MergedOutputs, WhatCannotBeIsRefused) {
  const Host host = process_host();
  const auto refused = [&](const std::string& strategy) { return strategy_plan(host, 1, strategy).status().message(); };
  EXPECT_EQ(refused(R"({"outputs.global_mean": "y", "outputs.local_sum": "*"})"),
            "output y is in outputs.global_mean and in outputs.local_sum");
  EXPECT_EQ(refused(R"({"outputs.global_mean": "y, loss"})"), "");
  EXPECT_EQ(refused(R"({"outputs.local_sum": "*"})"), "") << "a pattern takes what it can";
  EXPECT_NE(refused(R"({"outputs.local_mean": "loss"})").find("is a value of the full batch"), std::string::npos);
  EXPECT_NE(refused(R"({"outputs.global_sum": "z"})").find("no output is called \"z\""), std::string::npos);
  // What no key names is not kept.
  auto session = Session::create(host, strategy_plan(host, 1, "{}").value(), {.seed = 7}).value();
  EXPECT_EQ(session->results().output(EntryKind::train, "y").status().code(), Code::not_found);
}

TEST(MergedOutputs, IntegersAddUp) {
  Tensor votes(TensorType{DType::i64, {2, 4, 3}});
  for (int i = 0; i < 24; ++i) votes.set_int(i, (int64_t{1} << 60) + i);
  const Tensor sum = merge_samples(votes, {Merging::global_sum, 1}, 4, 1, 2);
  ASSERT_EQ(sum.shape(), (Shape{2, 3}));
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(sum.get_int(o * 3 + i), votes.get_int(o * 12 + 3 + i) + votes.get_int(o * 12 + 6 + i));
  }
}

}  // namespace
}  // namespace epl::slices_test
