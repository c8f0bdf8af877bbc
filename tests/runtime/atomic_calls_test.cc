// A call happens or it does not. In every layout of the list tests/cases/strategies.json, commands that a call gives to
// the streams of a rank fail, one at a time, agreements among them, in each way in which commands fail. Then either
// nothing has changed, and the next step is that of a session which never met the failure; or the session says that its
// state is lost. The layouts share most of their commands, so each layout tries some of them; ./test --all tries all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <thread>

#include "core/base/hash.h"
#include "core/net/rendezvous.h"
#include "tests/backend/failing_device.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"
#include "tools/layouts.h"

namespace epl::tools {

// Whenever a program of tests starts, GoogleTest prints all parameters, and byte by byte what has no PrintTo.
static void PrintTo(const StrategyRow& row, std::ostream* out) { *out << row.name; }

}  // namespace epl::tools

namespace epl::atomic_calls_test {
namespace {

// Enough nodes for eight stages, sizes that eight ranks divide, and a draw for each element.
constexpr std::string_view deep = R"(graph deep(x: f32[8,16] batch 0) {
  w1: f32[16,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,16] = param
  w4: f32[16,8] = param
  forward:
  h1: f32[8,16] = linear(x, w1, b1)
  a1: f32[8,16] = relu(h1)
  h2: f32[8,16] = matmul(a1, w2)
  d2: f32[8,16], m2: bool[8,16] = dropout(h2) {ratio=0.3}
  s2: f32[8,16] = add(d2, a1)
  h3: f32[8,16] = matmul(s2, w3)
  a3: f32[8,16] = relu(h3)
  y: f32[8,8] = matmul(a3, w4)
  output y = y
}
)";

// The standard list. Each start of the program names all tests, so the list is read once there.
const std::vector<tools::StrategyRow>& standard_list() {
  static const std::vector<tools::StrategyRow> list = [] {
    const std::string path = EPL_SOURCE_DIR "/tests/cases/strategies.json";
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return tools::parse_strategies(text, path);
  }();
  return list;
}

// Those of at most so many ranks. Of some the first step compares gradients, and has more commands than later ones.
std::vector<tools::StrategyRow> rows(int64_t most_ranks = 8) {
  std::vector<tools::StrategyRow> out;
  std::ranges::copy_if(standard_list(), std::back_inserter(out), [&](const tools::StrategyRow& row) {
    return row.layout.ranks() <= most_ranks && !row.layout.keys.contains("gradient_checkpoint.check_gradients");
  });
  return out;
}

std::vector<std::string> forward_nodes(std::string_view model) {
  std::vector<std::string> names;
  const auto graph = parse_graph(model);
  for (int n = 0; n < graph->node_count(); ++n) names.push_back(graph->node(NodeId{n}).name);
  return names;
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(const tools::StrategyRow& row, bool keep_gradients,
                                                    const std::string& device = "cpu") {
  const std::string_view model = row.layout.experts ? four_experts : deep;
  const std::string strategy = tools::print_json(tools::strategy_of(row.layout, {}, forward_nodes(model)));
  auto options = layout_options(GraphModel::parse(model), row.layout.ranks(), strategy);
  if (options.ok()) {
    options->device = device;
    options->train.keep_gradients = keep_gradients;
    options->train.schedule = {.name = "linear", .options = {{"total_steps", int64_t{1000000}}}};
  }
  return layout_plan(options);
}

// Independent micro-batches are of the model's size each.
std::vector<Tensor> batch(const Entry& entry, int64_t step) {
  const int64_t samples = entry.samples.batch;
  Tensor x(TensorType{DType::f32, {samples, 16}}), t(TensorType{DType::i64, {samples}});
  for (int64_t i = 0; i < samples * 16; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int64_t i = 0; i < samples; ++i) t.set_int(i, (i + step) % 8);
  return {x, t};
}

// Everything that a later call follows from.
uint64_t all_of(Session& session) {
  Hash64 hash;
  for (const StateSlot& slot : session.plan().state().slots()) {
    const auto value = session.state().view(slot.name);
    EXPECT_TRUE(value.ok()) << value.status().to_string();
    if (value.ok()) hash.add(value->data(), static_cast<size_t>(value->bytes()));
  }
  const Progress::Numbers progress = session.host_state().progress();
  const double numbers[] = {static_cast<double>(session.host_state().steps_done()),
                            static_cast<double>(session.host_state().seed()), session.host_state().rate_scale().scale,
                            static_cast<double>(progress.steps), progress.loss};
  hash.add(numbers, sizeof numbers);
  return hash.value();
}

// What a session gives of its last step, if there was one.
std::vector<double> outputs_of(Session& session) {
  std::vector<double> out;
  if (session.host_state().steps_done() == 0) return out;
  for (const char* name : {"loss", "gradient_norm"}) out.push_back(session.results().step_scalar(name).value());
  return out;
}

enum class Kind { step, gradients, apply, evaluate, predict };

// A sanitizer looks for faults in memory and threads, for which a smaller sample of the commands is enough: it is 20
// times slower.
constexpr int64_t apart = EPL_SANITIZED ? 7 : 1;
constexpr int64_t most_of_a_call = 40 / apart;

// The commands of a call that a layout tries beside agreements: all, or every n-th, from where another layout may not
// begin.
class Sample {
 public:
  Sample(const std::vector<FailingDevice::Counted>& counted, std::string_view layout, int64_t most = most_of_a_call) {
    int64_t commands = 0;
    for (const FailingDevice::Counted& stream : counted) commands += stream.commands;
    if (std::getenv("EPL_TEST_WHOLE") == nullptr) stride_ = std::max<int64_t>(1, commands / most);
    turn_ = static_cast<int64_t>(hash64(std::as_bytes(std::span(layout))) % static_cast<uint64_t>(stride_));
  }
  // Once for each command, in their order: the number of this one in the sample, if it is there.
  std::optional<int64_t> next() {
    const int64_t turn = turn_++;
    if (turn % stride_ != 0) return std::nullopt;
    return turn / stride_;
  }

 private:
  int64_t stride_ = 1, turn_ = 0;
};

// The session that is made to fail, and one that is not.
class Pair {
 public:
  explicit Pair(const std::shared_ptr<const CompiledPlan>& plan) {
    device = std::make_shared<FailingDevice>(plan->device());
    failing = Session::create(test_host(2), plan, {.seed = 7, .device = device}).value();
    twin = Session::create(test_host(2), plan, {.seed = 7}).value();
    const Entry& entry = *plan->entry(EntryKind::predict);
    for (const Port& port : entry.outputs) predicted.emplace_back(port.global_type);
  }

  Status call(Session& session, Kind kind, const Stop& stop = {}) {
    const CallOptions options{.stop = stop};
    std::vector<Tensor> inputs = batch(session.plan().entries().front(), step);
    StepMetrics metrics;
    double loss = 0;
    switch (kind) {
      case Kind::step:
        return session.step(inputs, metrics, options);
      case Kind::gradients:
        return session.gradients(inputs, metrics, options);
      case Kind::apply:
        return session.apply(metrics, options);
      case Kind::evaluate:
        return session.evaluate(inputs, loss, options);
      case Kind::predict:
        inputs.resize(session.plan().entry(EntryKind::predict)->inputs.size());
        return session.predict(inputs, predicted, options);
    }
    return {};
  }

  // What both do.
  void both(Kind kind, const std::string& said) {
    device->arm();
    const Status one = call(*failing, kind), other = call(*twin, kind);
    counted = device->counted();
    ASSERT_TRUE(one.ok()) << said << ": " << one.to_string();
    ASSERT_TRUE(other.ok()) << said << ": " << other.to_string();
    if (kind == Kind::step || kind == Kind::apply) ++step;
    ASSERT_EQ(all_of(*failing), all_of(*twin)) << said;
    ASSERT_EQ(outputs_of(*failing), outputs_of(*twin)) << said;
  }

  // As from a checkpoint.
  void restore() {
    for (const StateSlot& slot : twin->plan().state().slots())
      ASSERT_TRUE(failing->state().set(slot.name, twin->state().get(slot.name).value()).ok());
    failing->host_state().set_steps_done(twin->host_state().steps_done());
    failing->state().restored();
  }

  std::shared_ptr<FailingDevice> device;
  std::unique_ptr<Session> failing, twin;
  std::vector<FailingDevice::Counted> counted;  // by the last call of both
  std::vector<Tensor> predicted;
  int64_t step = 0;
};

class AtomicCalls : public testing::TestWithParam<tools::StrategyRow> {
 protected:
  // One failure of one call, and the step behind it.
  void fail_once(Pair& pair, Kind kind, int stream, int64_t command, Fails how, bool before_agreement) {
    StopToken token;
    const Stop stop = how == Fails::calls ? Stop(&token, nullptr, 0) : Stop();
    pair.device->call = [&] { token.cancel(); };
    pair.device->arm(stream, command, how);
    const Status status = pair.call(*pair.failing, kind, stop);
    const std::string said = cat("call ", static_cast<int>(kind), ", stream ", stream, ", command ", command, " (",
                                 pair.device->failed_command(), ") ", fails_name(how), ": ", status.to_string());
    const bool failed = pair.device->has_failed();
    pair.device->arm();
    ASSERT_TRUE(failed) << said;
    ++tries_;
    if (status.ok()) {  // it was too late to cancel it
      ASSERT_EQ(how, Fails::calls) << said;
      ASSERT_TRUE(pair.call(*pair.twin, kind).ok()) << said;
      pair.step += kind == Kind::step || kind == Kind::apply ? 1 : 0;
    } else if (!pair.failing->state().healthy()) {
      ASSERT_FALSE(before_agreement) << said;
      ASSERT_TRUE(kind == Kind::step || kind == Kind::apply || kind == Kind::gradients) << said;
      ASSERT_NE(how, Fails::calls) << said;
      ASSERT_EQ(pair.call(*pair.failing, Kind::step).code(), Code::state_lost) << said;
      ASSERT_NO_FATAL_FAILURE(pair.restore());
      return pair.both(Kind::step, cat("the step behind ", said));
    }
    ASSERT_EQ(all_of(*pair.failing), all_of(*pair.twin)) << said;
    ASSERT_EQ(outputs_of(*pair.failing), outputs_of(*pair.twin)) << said;
    pair.both(Kind::step, cat("the step behind ", said));
  }

  // Each command of a call; `before` is done first each time.
  void fail_everywhere(Pair& pair, Kind kind, bool every_way, FunctionRef<void()> before) {
    before();
    ASSERT_NO_FATAL_FAILURE(pair.both(kind, "undisturbed"));
    const std::vector<FailingDevice::Counted> counted = pair.counted;
    Sample sample(counted, GetParam().name);
    for (size_t stream = 0; stream < counted.size(); ++stream) {
      for (int64_t command = 0; command < counted[stream].commands; ++command) {
        const int64_t agreement = counted[stream].agreement;
        const bool agrees = command == agreement;
        const std::optional<int64_t> turn = sample.next();
        if (!turn && !agrees) continue;
        // In turns, so that each way meets each kind of command in some layout.
        for (size_t way = 0; way < std::size(ways_to_fail); ++way) {
          if (!every_way && !agrees && way != static_cast<size_t>(*turn) % std::size(ways_to_fail)) continue;
          const Fails how = ways_to_fail[way];
          before();
          ASSERT_NO_FATAL_FAILURE(fail_once(pair, kind, static_cast<int>(stream), command, how,
                                            command < agreement || (agrees && how != Fails::afterwards)));
        }
      }
    }
  }

  int tries_ = 0;
};

TEST_P(AtomicCalls, HappenOrDoNot) {
  EPL_ONE_OF_THREE();
  const auto plan = plan_of(GetParam(), false);
  if (!plan.ok()) {
    ASSERT_EQ(plan.status().code(), Code::unsupported) << plan.status().to_string();
    GTEST_SKIP() << plan.status().to_string();
  }
  Pair pair(*plan);
  const auto nothing = [] {};
  const bool small = (*plan)->options().ranks <= 2;
  for (const Kind kind : {Kind::step, Kind::evaluate, Kind::predict})
    ASSERT_NO_FATAL_FAILURE(fail_everywhere(pair, kind, small && kind == Kind::step, nothing));
  EXPECT_GT(tries_, 50 / apart);
}

std::string row_name(const testing::TestParamInfo<tools::StrategyRow>& info) {
  std::string name = cat(info.index, "_", info.param.name);
  std::ranges::replace_if(name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Layouts, AtomicCalls, testing::ValuesIn(rows()), row_name);

class AtomicHalves : public AtomicCalls {};

TEST_P(AtomicHalves, HappenOrDoNot) {
  EPL_ONE_OF_THREE();
  const auto plan = plan_of(GetParam(), true);
  if (!plan.ok()) GTEST_SKIP() << plan.status().to_string();
  Pair pair(*plan);
  const auto nothing = [] {};
  ASSERT_NO_FATAL_FAILURE(fail_everywhere(pair, Kind::gradients, false, nothing));
  const auto gradients = [&] { pair.both(Kind::gradients, "gradients"); };
  ASSERT_NO_FATAL_FAILURE(fail_everywhere(pair, Kind::apply, false, gradients));
  EXPECT_GT(tries_, 50 / apart);
}

INSTANTIATE_TEST_SUITE_P(Layouts, AtomicHalves, testing::ValuesIn(rows(4)), row_name);

// Where commands are carried out later than they are given, and errors come up when somebody waits.
class AtomicCallsFarAway : public AtomicCalls {};

TEST_P(AtomicCallsFarAway, HappenOrDoNot) {
  EPL_ONE_OF_THREE();
  static const bool added = (add_backend(far_backend_of_two_memories("far_atomic", 5)), true);
  const auto plan = plan_of(GetParam(), false, added ? "far_atomic" : "");
  if (!plan.ok()) GTEST_SKIP() << plan.status().to_string();
  Pair pair(*plan);
  const auto nothing = [] {};
  for (const Kind kind : {Kind::step, Kind::evaluate})
    ASSERT_NO_FATAL_FAILURE(fail_everywhere(pair, kind, false, nothing));
  EXPECT_GT(tries_, 50 / apart);
}

INSTANTIATE_TEST_SUITE_P(Layouts, AtomicCallsFarAway, testing::ValuesIn(rows(2)), row_name);

// A job of two processes, which are sessions of a rank each here, and the same in one process.
class Job {
 public:
  explicit Job(const std::shared_ptr<const CompiledPlan>& plan) {
    const auto rendezvous = memory_rendezvous();
    for (auto& one : devices) one = std::make_shared<FailingDevice>(plan->device());
    both([&](int r) {
      const SessionOptions options{
          .seed = 7, .device = devices[r], .first_rank = r, .ranks = 1, .rendezvous = rendezvous, .join_seconds = 30};
      sessions[r] = Session::create(test_host(1), plan, options).value();
    });
    twin = Session::create(test_host(2), plan, {.seed = 7}).value();
  }
  template <class F> static void both(const F& f) {
    std::thread other([&] { f(1); });
    f(0);
    other.join();
  }
  // Of each process.
  std::array<Status, 2> steps(const Stop& stop = {}, int stopped = -1) {
    std::array<Status, 2> out;
    const std::vector<Tensor> inputs = batch(twin->plan().entries().front(), step);
    both([&](int r) {
      StepMetrics metrics;
      out[static_cast<size_t>(r)] = sessions[r]->step(inputs, metrics, {.stop = r == stopped ? stop : Stop()});
    });
    return out;
  }
  void twin_step() {
    StepMetrics metrics;
    ASSERT_TRUE(twin->step(batch(twin->plan().entries().front(), step), metrics).ok());
    ++step;
  }
  // What is in shards is put together by both.
  void expect_alike(const std::string& said) {
    for (const StateSlot& slot : twin->plan().state().slots()) {
      const Tensor wanted = twin->state().get(slot.name).value();
      both([&](int r) {
        const auto value = sessions[r]->state().get(slot.name);
        EXPECT_TRUE(value.ok()) << said << ": " << value.status().to_string();
        EXPECT_TRUE(value.ok() && identical(*value, wanted)) << said << ": " << slot.name << " of process " << r;
      });
    }
    for (const auto& session : sessions)
      EXPECT_EQ(session->host_state().steps_done(), twin->host_state().steps_done()) << said;
  }

  // As from a checkpoint.
  void restore() {
    for (const StateSlot& slot : twin->plan().state().slots()) {
      const Tensor value = twin->state().get(slot.name).value();
      both([&](int r) { EXPECT_TRUE(sessions[r]->state().set(slot.name, value).ok()) << slot.name; });
    }
    for (const auto& session : sessions) {
      session->host_state().set_steps_done(twin->host_state().steps_done());
      session->state().restored();
    }
  }

  std::shared_ptr<FailingDevice> devices[2];
  std::unique_ptr<Session> sessions[2], twin;
  int64_t step = 0;
};

class AtomicCallsOverProcesses : public testing::TestWithParam<tools::StrategyRow> {};

TEST_P(AtomicCallsOverProcesses, HappenInAllOrInNone) {
  EPL_ONE_OF_THREE();
  const auto plan = plan_of(GetParam(), false);
  if (!plan.ok()) GTEST_SKIP() << plan.status().to_string();
  Job job(*plan);
  for (auto& device : job.devices) device->arm();
  for (const Status& status : job.steps()) ASSERT_TRUE(status.ok()) << status.to_string();
  job.twin_step();
  const std::vector<FailingDevice::Counted> counted[] = {job.devices[0]->counted(), job.devices[1]->counted()};
  size_t turn = 0;
  for (size_t p = 0; p < 2; ++p) {
    Sample sample(counted[p], GetParam().name, most_of_a_call / 2);
    for (size_t stream = 0; stream < counted[p].size(); ++stream) {
      const int64_t agreement = counted[p][stream].agreement;
      const int64_t end = agreement < 0 ? counted[p][stream].commands : agreement + 1;
      for (int64_t command = 0; command < end; ++command) {
        if (!sample.next() && command != end - 1) continue;
        constexpr Fails ways[] = {Fails::refuses, Fails::later, Fails::no_memory, Fails::calls};
        const Fails how = ways[turn++ % std::size(ways)];
        StopToken token;
        job.devices[p]->call = [&] { token.cancel(); };
        job.devices[p]->arm(static_cast<int>(stream), command, how);
        const auto codes = job.steps(how == Fails::calls ? Stop(&token, nullptr, 0) : Stop(), static_cast<int>(p));
        const std::string said =
            cat("process ", p, ", stream ", stream, ", command ", command, " (", job.devices[p]->failed_command(), ") ",
                fails_name(how), ": ", codes[0].to_string(), "; ", codes[1].to_string());
        job.devices[p]->arm();
        ASSERT_EQ(codes[0].ok(), codes[1].ok()) << said;
        if (codes[0].ok()) job.twin_step();
        // Behind the agreement, of which a side stream knows nothing, state is lost, for both.
        if (agreement < 0 && !job.sessions[p]->state().healthy()) {
          for (const Status& status : job.steps()) ASSERT_EQ(status.code(), Code::state_lost) << said;
          ASSERT_NO_FATAL_FAILURE(job.restore());
        }
        for (const auto& session : job.sessions) ASSERT_TRUE(session->state().healthy()) << said;
        job.expect_alike(said);
        for (const Status& status : job.steps()) ASSERT_TRUE(status.ok()) << said << ", then " << status.to_string();
        job.twin_step();
        job.expect_alike(said);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(turn, static_cast<size_t>(15 / apart));
}

// On two ranks.
std::vector<tools::StrategyRow> pairs() {
  std::vector<tools::StrategyRow> out = rows(2);
  std::erase_if(out, [](const tools::StrategyRow& row) { return row.layout.ranks() != 2; });
  return out;
}
INSTANTIATE_TEST_SUITE_P(Layouts, AtomicCallsOverProcesses, testing::ValuesIn(pairs()), row_name);

// Else the test above would show nothing: what fails behind the agreement tears the state, and the session knows.
TEST(TornCalls, AreSaid) {
  for (const tools::StrategyRow& row : rows()) {
    if (row.layout.ranks() != 2 || row.layout.experts) continue;
    const auto plan = plan_of(row, false);
    if (!plan.ok()) continue;
    Pair pair(*plan);
    ASSERT_NO_FATAL_FAILURE(pair.both(Kind::step, row.name));
    const auto first = std::ranges::find_if(pair.counted, [](const auto& one) { return one.agreement >= 0; });
    ASSERT_NE(first, pair.counted.end());
    pair.device->arm(static_cast<int>(first - pair.counted.begin()), first->agreement, Fails::afterwards);
    EXPECT_FALSE(pair.call(*pair.failing, Kind::step).ok()) << row.name;
    EXPECT_FALSE(pair.failing->state().healthy()) << row.name;
    EXPECT_EQ(pair.call(*pair.failing, Kind::evaluate).code(), Code::state_lost) << row.name;
  }
}

}  // namespace
}  // namespace epl::atomic_calls_test
