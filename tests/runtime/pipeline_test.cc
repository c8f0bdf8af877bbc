// Two stages of a pipeline on ranks of their own: the bits of one rank, memory known before the first step, and no more
// of it than what is alive at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/frontend/template.h"
#include "core/program/memory.h"
#include "core/program/transfer.h"
#include "core/runtime/session.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/graph_model.h"

namespace epl {
namespace {

constexpr std::string_view mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  g: f32[8,16] = matmul(a, w2)
  skip: f32[8,16] = add(g, a)
  r: f32[8,16] = relu(skip)
  y: f32[8,4] = matmul(r, w3)
  output y = y
}
)";

constexpr std::string_view mlp_stages = R"("scopes": [{"name": "first", "replicate": 1, "match": ["h*", "a"]},
                                                     {"name": "second", "replicate": 1, "match": ["*"]}])";
constexpr std::string_view gpt_stages = R"("scopes": [
  {"name": "first", "replicate": 1, "match": ["embedded", "hidden", "transformer.h.0*"]},
  {"name": "second", "replicate": 1, "match": ["*"]}])";

struct Job {
  std::shared_ptr<const Model> model;
  std::map<std::string, Shape> shapes;  // of inputs that the model leaves open
  std::string stages;                   // of a strategy
  double clip_norm = 0;
  std::vector<Tensor> (*batch)(int step) = nullptr;
};

Job mlp_job(double clip_norm) {
  return {.model = GraphModel::parse(mlp),
          .stages = std::string(mlp_stages),
          .clip_norm = clip_norm,
          .batch = [](int step) {
            Tensor x(TensorType{DType::f32, {8, 12}}), target(TensorType{DType::i64, {8}});
            for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
            for (int i = 0; i < 8; ++i) target.set_int(i, i == 3 ? -100 : (i + step) % 4);
            return std::vector<Tensor>{x, target};
          }};
}

// Its head shares the weights of its embedding, which stand in different stages.
Job gpt_job() {
  const ModelTemplate* row = template_table().find("gpt2");
  Attributes options;
  for (const Option& spec : row->options) options.set(spec.name, spec.value);
  for (const auto& [name, value] :
       {std::pair("layers", 2), {"width", 32}, {"heads", 2}, {"vocab", 64}, {"context", 16}}) {
    EXPECT_TRUE(options.has(name)) << name;
    options.set(name, int64_t{value});
  }
  const std::string path = cat(::testing::TempDir(), "/epl_pipeline_gpt_", ::getpid(), ".onnx");
  const Status written = row->write(options, path);
  EXPECT_TRUE(written.ok()) << written.to_string();
  auto model = load_model(path);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return {.model = *model,
          .shapes = {{(*model)->inputs()[0].name, {8, 16}}},
          .stages = std::string(gpt_stages),
          .batch = [](int step) {
            Tensor ids(TensorType{DType::i64, {8, 16}}), target(TensorType{DType::i64, {8, 16}});
            for (int i = 0; i < 128; ++i) {
              ids.set_int(i, (i * 7 + step) % 64);
              target.set_int(i, i % 11 == 0 ? -100 : ((i + 1) * 7 + step) % 64);
            }
            return std::vector<Tensor>{ids, target};
          }};
}

struct Layout {
  std::string schedule;  // of a pipeline of two stages; empty: one stage
  int64_t ranks = 1;
  int64_t micro_batches = 1;
  std::string device = "cpu";
  std::string text() const { return cat(schedule, " on ", ranks, " ranks with ", micro_batches, " micro-batches"); }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Job& job, const Layout& layout) {
  PlanOptions options;
  options.model = job.model;
  options.binding.input_shapes = job.shapes;
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = job.clip_norm;
  options.ranks = layout.ranks;
  options.device = layout.device;
  std::string strategy = cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches);
  if (!layout.schedule.empty()) strategy += cat(", \"pipeline.strategy\": \"", layout.schedule, "\", ", job.stages);
  EPL_ASSIGN(options.strategy, parse_strategy(strategy + "}"));
  return CompiledPlan::create(test_host(2), options);
}

struct Trained {
  std::vector<double> losses;
  double evaluated = 0;
  std::map<std::string, Tensor> state;
};

Trained train(const Job& job, const Layout& layout, int steps) {
  Trained out;
  auto plan = plan_of(job, layout);
  EXPECT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
  if (!plan.ok()) return out;
  auto session = Session::create(test_host(2), *plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return out;
  for (int s = 0; s < steps; ++s) {
    StepMetrics metrics;
    const Status status = (*session)->step(job.batch(s), metrics);
    EXPECT_TRUE(status.ok()) << layout.text() << ": " << status.to_string();
    if (!status.ok()) return out;
    out.losses.push_back(metrics.loss);
  }
  EXPECT_EQ((*session)->memory_bytes_used(), (*plan)->memory_bytes_peak()) << layout.text();
  EXPECT_TRUE((*session)->evaluate(job.batch(0), out.evaluated).ok());
  for (const StateSlot& slot : (*plan)->state().slots()) out.state.emplace(slot.name, *(*session)->state(slot.name));
  return out;
}

// The largest number of bytes that are alive together while a rank goes through its calls one by one, each micro-batch
// with values of its own: what no layout can do without.
int64_t largest_live(const Program& program) {
  struct Range {
    int64_t bytes = 0;
    int first = 0, last = 0;
  };
  std::vector<Range> ranges;
  int time = 0;
  std::map<int64_t, Range> alive;  // by address
  std::map<int, Range> held;       // by instruction
  const auto write = [&](int64_t address, int64_t bytes) {
    Range& range = alive.try_emplace(address, Range{bytes, time, time}).first->second;
    range.last = time;
  };
  const auto read = [&](int64_t address) {
    const auto at = alive.upper_bound(address);
    if (at != alive.begin()) std::prev(at)->second.last = time;
  };
  for (const BlockCall& call : program.calls) {
    const auto block = std::ranges::find(program.blocks, call.block, &Block::kind);
    for (int i = block->first; i < block->last; ++i, ++time) {
      const Instruction& in = program.instructions[static_cast<size_t>(i)];
      for (const Location& at : in.inputs) {
        if (at.space == Location::Space::arena) read(at.offset_of(call.micro_batch));
      }
      for (size_t o = 0; o < in.outputs.size(); ++o) {
        const Location& at = in.outputs[o];
        if (at.space != Location::Space::arena) continue;
        const bool over = std::ranges::find(in.inputs, at) != in.inputs.end();
        const int64_t address = at.offset_of(call.micro_batch);
        if (!over && alive.contains(address)) {
          ranges.push_back(alive[address]);
          alive.erase(address);
        }
        write(address, aligned_bytes(in.query->out(static_cast<int>(o)).bytes()));
      }
      if (in.workspace.space != Location::Space::arena) continue;
      // What a sum keeps from turn to turn is there from the first turn to the last.
      const bool holds = in.transfer && in.transfer->held_bytes;
      const int64_t bytes = in.workspace_bytes + (holds ? in.transfer->held_bytes(in, program.micro_batches()) : 0);
      Range& range = holds ? held.try_emplace(i, Range{aligned_bytes(bytes), time, time}).first->second
                           : ranges.emplace_back(Range{aligned_bytes(bytes), time, time});
      range.last = time;
    }
  }
  for (const auto& [address, range] : alive) ranges.push_back(range);
  for (const auto& [instruction, range] : held) ranges.push_back(range);
  int64_t fullest = 0;
  for (int t = 0; t < time; ++t) {
    int64_t bytes = 0;
    for (const Range& range : ranges) bytes += range.first <= t && t <= range.last ? range.bytes : 0;
    fullest = std::max(fullest, bytes);
  }
  return fullest;
}

class Pipeline : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static Job job() {
    const std::string& name = std::get<0>(GetParam());
    return name == "gpt" ? gpt_job() : mlp_job(name == "clipped" ? 0.5 : 0);
  }
  static std::string schedule() { return std::get<1>(GetParam()); }
};

TEST_P(Pipeline, LearnsTheBitsOfOneRank) {
  const Job work = job();
  const Trained one = train(work, {}, 4);
  ASSERT_EQ(one.losses.size(), 4u);
  for (const Layout& layout :
       {Layout{schedule(), 2, 1}, Layout{schedule(), 2, 2}, Layout{schedule(), 2, 4}, Layout{schedule(), 4, 2}}) {
    const Trained other = train(work, layout, 4);
    EXPECT_EQ(other.losses, one.losses) << layout.text();
    EXPECT_EQ(other.evaluated, one.evaluated) << layout.text();
    ASSERT_EQ(other.state.size(), one.state.size()) << layout.text();
    for (const auto& [name, value] : one.state)
      EXPECT_TRUE(identical(other.state.at(name), value)) << name << ", " << layout.text();
  }
}

// Slots are of one size and stay as long as the loop, which may cost a little over what the unrolled calls need; what
// is laid out is packed tightly.
TEST_P(Pipeline, NeedsWhatIsAliveAtOnce) {
  for (const int64_t micro_batches : {1, 2, 4, 8}) {
    const Layout layout{schedule(), 2, micro_batches};
    auto plan = plan_of(job(), layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    for (const Program& program : (*plan)->entries().front().programs) {
      const int64_t live = largest_live(program);
      EXPECT_GE(aligned_bytes(program.arena_bytes), live) << layout.text();
      EXPECT_LE(static_cast<double>(program.arena_bytes), 1.5 * static_cast<double>(live)) << layout.text();
      EXPECT_LE(program.arena_bytes, program.arena_live_bytes * 105 / 100) << layout.text();
    }
  }
}

std::string refusal(std::string_view scopes, int64_t ranks = 2) {
  Job job = mlp_job(0);
  job.stages = cat("\"scopes\": ", scopes);
  auto plan = plan_of(job, {"1F1B", ranks, 2});
  return plan.ok() ? "" : plan.status().message();
}

TEST(Stages, ThatCannotBeAreRefusedByName) {
  const auto two = [](std::string_view first, std::string_view second) {
    return cat(R"([{"name": "one", "replicate": 1, "match": [")", first,
               R"("]}, {"name": "two", "replicate": 1, "match": [")", second, R"("]}])");
  };
  EXPECT_EQ(refusal(two("h*", "*")), "");
  EXPECT_NE(refusal(two("y", "*")).find("stage one needs"), std::string::npos) << refusal(two("y", "*"));
  EXPECT_NE(refusal(two("nobody*", "*")).find("scope one matches no node: nobody*"), std::string::npos)
      << refusal(two("nobody*", "*"));
  EXPECT_NE(refusal(two("h*", "*"), 3).find("2 stages of 1 ranks on 3"), std::string::npos)
      << refusal(two("h*", "*"), 3);
}

// A stream may run ahead of another as far as their events allow, and does.
TEST_P(Pipeline, LearnsTheSameBitsFarAway) {
  static const bool added = (add_backend(far_backend("far_pipeline", 5)), true);
  ASSERT_TRUE(added);
  const Job work = job();
  const Trained here = train(work, {}, 2);
  for (const int64_t micro_batches : {1, 2, 4}) {
    const Layout layout{schedule(), 2, micro_batches, "far_pipeline"};
    const Trained there = train(work, layout, 2);
    EXPECT_EQ(there.losses, here.losses) << layout.text();
    for (const auto& [name, value] : here.state) EXPECT_TRUE(identical(there.state.at(name), value)) << name;
  }
}

// No node gives it, and on the far device it comes by an upload.
TEST(Stages, GiveBackAnInputAsItCame) {
  std::string text(mlp);
  text.insert(text.rfind('}'), "  output given = x\n");
  Job work = mlp_job(0);
  work.model = GraphModel::parse(text);
  static const bool added = (add_backend(far_backend("far_leaves", 9)), true);
  ASSERT_TRUE(added);
  for (const char* device : {"cpu", "far_leaves"}) {
    auto plan = plan_of(work, {"1F1B", 2, 2, device});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(test_host(2), *plan, 7);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const Tensor x = work.batch(0)[0];
    std::vector<Tensor> inputs = {x}, outputs;
    for (const Port& port : (*plan)->entry(EntryKind::predict)->outputs) outputs.emplace_back(port.global_type);
    const Status status = (*session)->predict(inputs, outputs);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(identical(outputs.at(1), x)) << device;
  }
}

// On a simulated machine: two stages of eight micro-batches are done well before one rank that has both.
TEST_P(Pipeline, StagesWorkSideBySide) {
  const auto seconds = [&](const Layout& layout) {
    auto plan = plan_of(job(), layout);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return 0.0;
    auto session = Session::create(test_host(2), *plan, 7);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    StepMetrics metrics;
    const Status status = (*session)->step(job().batch(0), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return (*session)->virtual_seconds();
  };
  const double one = seconds({"", 1, 8, "sim"}), two = seconds({schedule(), 2, 8, "sim"});
  EXPECT_GT(two, 0.5 * one);
  EXPECT_LT(two, 0.8 * one) << one;
}

TEST_P(Pipeline, PlansReadBack) {
  auto made = plan_of(job(), {schedule(), 2, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const Entry& entry : (*made)->entries()) {
    const std::string text = print_plan(entry.plan);
    auto plan = parse_plan(text, entry.plan.graph);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(print_plan(*plan), text);
    for (size_t t = 0; t < entry.programs.size(); ++t) {
      auto local = parse_local(print_local(entry.locals[t]));
      ASSERT_TRUE(local.ok()) << local.status().to_string();
      EXPECT_EQ(print_local(*local), print_local(entry.locals[t]));
      auto program = parse_program(print_program(entry.programs[t]), (*made)->device()->kernels());
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      EXPECT_EQ(print_program(*program), print_program(entry.programs[t]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Pipeline, ::testing::Combine(::testing::Values("mlp", "clipped", "gpt"), ::testing::Values("GPipe", "1F1B")),
    [](const auto& info) {
      return cat(std::get<0>(info.param), std::get<1>(info.param) == "GPipe" ? "_gpipe" : "_one_f_one_b");
    });

}  // namespace
}  // namespace epl
