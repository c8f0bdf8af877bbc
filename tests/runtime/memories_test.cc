// Values of a rank in two memories: state of the optimizer, or what the backward pass reads, is evicted to a memory
// that kernels cannot reach, and fetched before it is used. The bits are those of one memory, and each memory takes the
// bytes that the plan says.
#include <gtest/gtest.h>

#include <map>

#include "core/ir/rewriter.h"
#include "core/program/memory.h"
#include "core/program/transfer.h"
#include "core/runtime/rehearsal.h"
#include "core/strategy/segments.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::memories_test {
namespace {

constexpr std::string_view model = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,32] = param
  b1: f32[32] = param
  w2: f32[32,32] = param
  w3: f32[32,4] = param
  forward:
  h: f32[8,32] = linear(x, w1, b1)
  a: f32[8,32] = relu(h)
  g: f32[8,32] = linear(a, w2)
  r: f32[8,32] = relu(g)
  y: f32[8,4] = linear(r, w3)
  output y = y
}
)";
constexpr std::string_view in_stages = R"("pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";

struct Layout {
  int64_t micro_batches = 1, ranks = 1;
  std::string_view keys;
  std::string text() const { return cat(micro_batches, " micro-batches on ", ranks, " ranks ", keys); }
};
constexpr Layout layouts[] = {{1, 1}, {4, 1}, {2, 2}, {1, 2, R"("zero.level": "v0")"}, {2, 2, in_stages}};

std::string far_name(int kinds) {
  static const bool added = [] {
    for (int k = 1; k <= 4; ++k) add_backend(far_backend_of_two_memories(cat("far_memories", k), 3, k));
    return true;
  }();
  return added ? cat("far_memories", kinds) : std::string();
}

Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const Layout& layout) {
  auto options = layout_options(
      GraphModel::parse(model), layout.ranks,
      cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches, layout.keys.empty() ? "" : ", ", layout.keys, "}"));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  std::vector<Tensor> inputs = {Tensor({DType::f32, {8, 12}}), Tensor({DType::i64, {8}})};
  for (int64_t e = 0; e < inputs[0].elements(); ++e) inputs[0].set(e, philox_uniform(step, e) - 0.5);
  for (int i = 0; i < 8; ++i) inputs[1].set_int(i, (i + step) % 4);
  return inputs;
}

enum class Evicts : uint8_t { states, activations, both };

// A pass of the tests: each block fetches what lies elsewhere before it first uses that.
class Eviction {
 public:
  Eviction(LocalGraph& local, Evicts what) : local_(local), graph_(local.graph), what_(what), now_(graph_, out_) {}

  void run() {
    if (what_ != Evicts::activations) {
      for (Value v : graph_.leaves(ValueKind::state)) local_.homes.push_back({graph_.value(v).name, MemoryKind::host});
    }
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      std::map<Value, Value> own;  // what others read
      for (Value v : node.inputs) {
        if (!v || own.contains(v) || !(is_away(v) || is_activation(v, node))) continue;
        own.emplace(v, now_[v]);
        now_.set(v, fetched(v, node));
      }
      now_.copy(n);
      for (const auto& [v, was] : own) now_.set(v, was);
      for (Value v : node.outputs) {
        if (v && is_read_backward(v)) away_.emplace(v, evicted(now_[v], node));
      }
    }
    for (const Graph::Update& update : graph_.updates) {
      if (!is_away(update.state)) continue;
      now_.set(update.next, evicted(now_[update.next], graph_.node(graph_.value(update.next).producer)));
    }
    now_.finish();
    for (LocalPort& port : local_.inputs) port.value = now_[port.value];
    for (LocalPort& port : local_.outputs) port.value = now_[port.value];
    local_.graph = std::move(out_);
  }

 private:
  bool is_away(Value v) const {
    return graph_.value(v).kind != ValueKind::result && local_.home(graph_.value(v).name) != MemoryKind::device;
  }
  bool is_activation(Value v, const Node& reader) const { return away_.contains(v) && reader.phase == Phase::backward; }
  bool is_read_backward(Value v) const {
    const Node& producer = graph_.node(graph_.value(v).producer);
    if (what_ == Evicts::states || producer.phase != Phase::forward || producer.op->view || producer.op->boundary)
      return false;
    return std::ranges::any_of(graph_.nodes(), [&](const Node& node) {
      return node.phase == Phase::backward && std::ranges::find(node.inputs, v) != node.inputs.end();
    });
  }

  Value moved(std::string_view op, Value v, const Node& beside, Attributes attributes = {}) {
    Node node{.name = out_.unique_name(cat(out_.value(v).name, ".", op)), .op = &op_named(op)};
    node.attributes = std::move(attributes);
    node.inputs = {v};
    node.phase = beside.phase;
    node.region = beside.region;
    return out_.node(out_.add_node(std::move(node), {out_.type(v)})).outputs[0];
  }
  Value evicted(Value v, const Node& beside) { return moved("evict", v, beside, {{"memory", std::string("host")}}); }
  Value fetched(Value v, const Node& reader) {
    const auto known = fetched_.find({v, reader.region});
    if (known != fetched_.end()) return known->second;
    const Value there = away_.contains(v) ? away_.at(v) : out_.find(graph_.value(v).name);
    return fetched_[{v, reader.region}] = moved("fetch", there, reader);
  }

  LocalGraph& local_;
  const Graph graph_;
  const Evicts what_;
  Graph out_;
  GraphRewriter now_;
  std::map<Value, Value> away_;                         // results, as they are elsewhere
  std::map<std::pair<Value, int32_t>, Value> fetched_;  // by block
};

// The same plan with values in the second memory. No plan is made as a constant.
void evict(const CompiledPlan& plan, Evicts what) {
  auto& entries = const_cast<std::vector<Entry>&>(plan.entries());
  std::vector<StateLayout> layouts_of;
  for (int c = 0; c < plan.virtual_devices(); ++c) {
    std::vector<Program*> programs;
    for (Entry& entry : entries) {
      LocalGraph& local = entry.locals[static_cast<size_t>(c)];
      Eviction(local, what).run();
      auto read = parse_local(print_local(local));
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(print_local(*read), print_local(local));
      auto made = lower(local, {.kernels = &plan.device()->kernels(),
                                .device = plan.device().get(),
                                .threads = plan.threads_per_rank(),
                                .splits_keep_bits = sums_by_segments(entry.plan)});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      Program& program = entry.programs[static_cast<size_t>(c)];
      const auto take_indices = [](const auto& from, auto& to) {
        ASSERT_EQ(from.size(), to.size());
        for (size_t i = 0; i < from.size(); ++i) to[i].index = from[i].index;  // of all virtual devices
      };
      take_indices(program.inputs, made->inputs);
      take_indices(program.outputs, made->outputs);
      take_indices(program.scalars, made->scalars);
      program = std::move(*made);
      std::erase_if(program.state, [&](const StateSlot& slot) { return !plan.state_of(c).find(slot.name); });
      programs.insert(entry.kind == EntryKind::predict ? programs.begin() : programs.end(), &program);
    }
    auto linked = link(programs);
    ASSERT_TRUE(linked.ok()) << linked.status().to_string();
    layouts_of.push_back(*linked);
    const_cast<StateLayout&>(plan.state_of(c)) = *std::move(linked);
  }
  const_cast<StateLayout&>(plan.state()) = StateLayout::all(layouts_of);
}

std::shared_ptr<const CompiledPlan> evicted_plan(const std::string& device, const Layout& layout, Evicts what) {
  auto plan = plan_on(device, layout);
  EXPECT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
  if (plan.ok()) evict(**plan, what);
  return plan.ok() ? *plan : nullptr;
}

int64_t fullest(const CompiledPlan& plan, MemoryKind memory) {
  int64_t most = 0;
  for (int c = 0; c < plan.virtual_devices(); ++c) most = std::max(most, PlanMemory(plan).peak(c, memory));
  return most;
}

// As the memories of the machine hold it for all ranks.
int64_t all_ranks(const CompiledPlan& plan, MemoryKind memory) {
  int64_t bytes = 0;
  for (int rank = 0; rank < plan.options().ranks; ++rank)
    bytes += PlanMemory(plan).peak(plan.virtual_device_of_rank(rank), memory);
  return bytes;
}

void expect_exact(const std::shared_ptr<const CompiledPlan>& plan, const std::string& layout) {
  auto session = Session::create(test_host(2), plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(batch(0), metrics).ok()) << layout;
  for (const MemoryKind memory : {MemoryKind::device, MemoryKind::host}) {
    EXPECT_EQ((*session)->memory_bytes_used(memory), fullest(*plan, memory)) << layout;
    EXPECT_EQ(far_bytes(*plan->device(), memory), all_ranks(*plan, memory)) << layout;
  }
}

// With exact bytes in both memories.
Trained learn(const std::shared_ptr<const CompiledPlan>& plan, const std::string& layout) {
  expect_exact(plan, layout);
  return train(plan, layout, 4, batch);
}

TEST(Memories, GiveTheBitsOfOne) {
  for (const Layout& layout : layouts) {
    const Trained here = train(plan_on("cpu", layout), layout.text(), 4, batch);
    for (const Evicts what : {Evicts::states, Evicts::activations, Evicts::both}) {
      for (int kinds = 1; kinds <= 4; ++kinds) {
        const auto plan = evicted_plan(far_name(kinds), layout, what);
        ASSERT_TRUE(plan && !HasFailure());
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          reseed(*plan->device(), seed);
          const std::string said =
              cat(layout.text(), ", ", kinds, " kinds, seed ", seed, ", evicts ", static_cast<int>(what));
          expect_same(learn(plan, said), here, said);
        }
      }
    }
  }
}

TEST(Memories, TakeWhatThePlanSays) {
  for (const Layout& layout : layouts) {
    auto one = plan_on(far_name(4), layout);
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    EXPECT_EQ(fullest(**one, MemoryKind::host), 0) << layout.text();
    const auto states = evicted_plan(far_name(4), layout, Evicts::states);
    ASSERT_TRUE(states && !HasFailure());
    for (int c = 0; c < states->virtual_devices(); ++c) {
      int64_t there = 0;
      for (const StateSlot& slot : states->state_of(c).slots()) {
        EXPECT_EQ(slot.memory == MemoryKind::host, slot.kind == ValueKind::state) << slot.name;
        if (slot.memory == MemoryKind::host && !slot.is_represented()) there += aligned_bytes(slot.local.bytes());
      }
      EXPECT_GT(there, 0) << layout.text();
      EXPECT_EQ(states->state_of(c).bytes(MemoryKind::host), there) << layout.text();
      EXPECT_EQ(states->state_of(c).bytes() + there, (*one)->state_of(c).bytes()) << layout.text();
      // New state is written over the old: the second memory has no arena.
      EXPECT_EQ(PlanMemory(*states).peak(c, MemoryKind::host), there) << layout.text();
      EXPECT_LT(PlanMemory(*states).peak(c), PlanMemory(**one).peak(c)) << layout.text();
    }
    const auto activations = evicted_plan(far_name(4), layout, Evicts::activations);
    ASSERT_TRUE(activations && !HasFailure());
    EXPECT_GT(PlanMemory(*activations).arenas(0)[MemoryKind::host], 0) << layout.text();
    EXPECT_EQ(activations->state_of(0).bytes(), (*one)->state_of(0).bytes()) << layout.text();
  }
}

TEST(Memories, StandInTexts) {
  for (const Layout& layout : layouts) {
    const auto plan = evicted_plan(far_name(4), layout, Evicts::both);
    ASSERT_TRUE(plan && !HasFailure());
    for (const Program& program : plan->entry(EntryKind::train)->programs) {
      const std::string text = print_program(program);
      const auto again = parse_program(text, plan->device()->kernels());
      ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << text;
      EXPECT_EQ(print_program(*again), text);
      for (const char* part : {"beside host arena", "host.state@", "host.@", " at host."})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
  }
}

// Copies go to and fro on streams of their own where a device has them.
TEST(Memories, AreReachedOnStreamsThatCopy) {
  const auto plan = evicted_plan(far_name(4), layouts[0], Evicts::states);
  ASSERT_TRUE(plan && !HasFailure());
  int fetches = 0, evicts = 0;
  for (const Instruction& in : plan->entry(EntryKind::train)->programs[0].instructions) {
    if (!in.transfer || !(in.transfer->fetches || in.transfer->evicts)) continue;
    ++(in.transfer->fetches ? fetches : evicts);
    EXPECT_NE(in.stream, 0) << in.name;
  }
  EXPECT_EQ(fetches, evicts);
  EXPECT_GT(fetches, 0);
}

TEST(Memories, AreSimulated) {
  for (const Layout& layout : layouts) {
    const auto plan = evicted_plan(far_name(4), layout, Evicts::both);
    ASSERT_TRUE(plan && !HasFailure());
    const auto rehearsal = rehearse(test_host(2), plan);
    ASSERT_TRUE(rehearsal.ok()) << layout.text() << ": " << rehearsal.status().to_string();
    EXPECT_GT(rehearsal->trace.end(), 0) << layout.text();
  }
}

// What lies in the second memory is saved from there and loaded to there.
TEST(Memories, AreSavedAndLoaded) {
  for (const Layout& layout : layouts) {
    const TemporaryFolder folder;
    const auto here = Session::create(test_host(2), plan_on("cpu", layouts[0]).value(), {.seed = 7}).value();
    StepMetrics metrics;
    ASSERT_TRUE(here->step(batch(0), metrics).ok());
    ASSERT_TRUE(save_session(*here, folder / "here").ok());
    const auto plan = evicted_plan(far_name(4), layout, Evicts::states);
    ASSERT_TRUE(plan && !HasFailure());
    const auto there = Session::create(test_host(2), plan, {.seed = 7}).value();
    const Status loaded = load_session(*there, folder / "here");
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    ASSERT_TRUE(here->step(batch(1), metrics).ok());
    ASSERT_TRUE(there->step(batch(1), metrics).ok());
    ASSERT_TRUE(save_session(*there, folder / "there").ok());
    const auto again = Session::create(test_host(2), plan_on("cpu", layouts[0]).value(), {.seed = 7}).value();
    ASSERT_TRUE(load_session(*again, folder / "there").ok());
    for (const StateSlot& slot : here->plan().state().slots()) {
      EXPECT_TRUE(identical(*there->state().get(slot.name), *here->state().get(slot.name))) << slot.name;
      EXPECT_TRUE(identical(*again->state().get(slot.name), *here->state().get(slot.name))) << slot.name;
    }
  }
}

// Kernels reach one memory, and a device has the memories that it says.
TEST(Memories, AreRefusedByName) {
  auto plan = plan_on(far_name(4), layouts[0]);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Entry& entry = *(*plan)->entry(EntryKind::train);
  LowerOptions options{.kernels = &(*plan)->device()->kernels(), .device = (*plan)->device().get(), .threads = 1};
  auto local = parse_local(print_local(entry.locals[0]));
  ASSERT_TRUE(local.ok()) << local.status().to_string();
  const std::string state = local->graph.value(local->graph.leaves(ValueKind::state).front()).name;
  local->homes.push_back({state, MemoryKind::host});
  const Status read = lower(*local, options).status();
  EXPECT_EQ(read.code(), Code::invalid_argument) << read.to_string();
  EXPECT_NE(read.message().find(cat("reads ", state, ", which is in memory host")), std::string::npos)
      << read.to_string();

  auto one = plan_on("cpu", layouts[0]);
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  auto away = parse_local(print_local((*one)->entry(EntryKind::train)->locals[0]));
  ASSERT_TRUE(away.ok()) << away.status().to_string();
  Eviction(*away, Evicts::states).run();
  options = {.kernels = &(*one)->device()->kernels(), .device = (*one)->device().get(), .threads = 1};
  const Status refused = lower(*away, options).status();
  EXPECT_EQ(refused.code(), Code::unsupported) << refused.to_string();
  EXPECT_NE(refused.message().find("memory of the kind host"), std::string::npos) << refused.to_string();
}

}  // namespace
}  // namespace epl::memories_test
