// Values of a rank in two memories (`offload.level`): what nobody uses is evicted to a memory that kernels cannot
// reach, that of a far device or a file, and fetched before it is used. The bits are those of one memory, and each
// memory takes the bytes that the plan says.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/program/memory.h"
#include "core/program/transfer.h"
#include "core/runtime/rehearsal.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

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

// What is elsewhere.
constexpr std::string_view some_values[] = {"states", "activations", "weights, gradients",
                                            "states, weights, gradients, activations"};
constexpr std::string_view all_values = some_values[3];

Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const Layout& layout,
                                                    std::string_view more = "") {
  auto options = layout_options(GraphModel::parse(model), layout.ranks,
                                cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches,
                                    layout.keys.empty() ? "" : ", ", layout.keys, more.empty() ? "" : ", ", more, "}"));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

std::string offload(std::string_view values, const std::string& folder = ".") {
  return cat(R"("offload.level": "v0", "offload.values": ")", values, R"(", "offload.folder": ")", folder, "\"");
}

std::shared_ptr<const CompiledPlan> evicted_plan(const std::string& device, const Layout& layout,
                                                 std::string_view values) {
  const auto plan = plan_on(device, layout, offload(values));
  EXPECT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

std::vector<Tensor> batch(int step) {
  std::vector<Tensor> inputs = {Tensor({DType::f32, {8, 12}}), Tensor({DType::i64, {8}})};
  for (int64_t e = 0; e < inputs[0].elements(); ++e) inputs[0].set(e, philox_uniform(step, e) - 0.5);
  for (int i = 0; i < 8; ++i) inputs[1].set_int(i, (i + step) % 4);
  return inputs;
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
  const Status status = (*session)->step(batch(0), metrics);
  ASSERT_TRUE(status.ok()) << layout << ": " << status.to_string();
  for (const MemoryKind memory : memory_kinds) {
    EXPECT_EQ((*session)->memory_bytes_used(memory), fullest(*plan, memory)) << layout;
    if (plan->options().device == "cpu" || memory == MemoryKind::file) continue;
    EXPECT_EQ(far_bytes(*plan->device(), memory), all_ranks(*plan, memory)) << layout;
  }
}

// With exact bytes in all memories.
Trained learn(const std::shared_ptr<const CompiledPlan>& plan, const std::string& layout) {
  expect_exact(plan, layout);
  return train(plan, layout, 4, batch);
}

TEST(Memories, GiveTheBitsOfOne) {
  EPL_ONE_OF_THREE();
  for (const Layout& layout : layouts) {
    const Trained here = train(plan_on("cpu", layout), layout.text(), 4, batch);
    for (const std::string_view values : some_values) {
      for (int kinds = 1; kinds <= 4; ++kinds) {
        const auto plan = evicted_plan(far_name(kinds), layout, values);
        ASSERT_TRUE(plan && !HasFailure());
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          reseed(*plan->device(), seed);
          const std::string said = cat(layout.text(), ", ", kinds, " kinds, seed ", seed, ", evicts ", values);
          expect_same(learn(plan, said), here, said);
        }
      }
    }
  }
}

TEST(Memories, AreFilesOnTheProcessor) {
  for (const Layout& layout : layouts) {
    const Trained here = train(plan_on("cpu", layout), layout.text(), 4, batch);
    for (const std::string_view values : some_values) {
      const TemporaryFolder folder;
      const auto plan = plan_on("cpu", layout, offload(values, folder.path()));
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const std::string said = cat(layout.text(), ", evicts ", values);
      EXPECT_GT(fullest(**plan, MemoryKind::file), 0) << said;
      EXPECT_EQ(fullest(**plan, MemoryKind::host), 0) << said;
      expect_same(learn(*plan, said), here, said);
    }
  }
}

// Nobody removes or shortens a file that has no name, and a process that is killed leaves none.
TEST(Memories, AreFilesWithoutNames) {
  const TemporaryFolder folder;
  const auto plan = plan_on("cpu", layouts[0], offload(all_values, folder.path()));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto session = Session::create(test_host(2), *plan, {.seed = 7}).value();
  StepMetrics metrics;
  ASSERT_TRUE(session->step(batch(0), metrics).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Memories, AreNotMadeInAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  const auto plan = plan_on("cpu", layouts[0], offload("states", folder / "gone"));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Status status = Session::create(test_host(2), *plan, {.seed = 7}).status();
  EXPECT_EQ(status.code(), Code::not_found) << status.to_string();
  EXPECT_NE(status.message().find("offload.folder"), std::string::npos) << status.to_string();
}

// The files of this process that lie in a folder and have no name there.
std::vector<int> files_in(const std::string& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(folder + "/")) found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

// While it lives every write to these files finds a full disk.
class FullDisk {
 public:
  explicit FullDisk(std::vector<int> files) : files_(std::move(files)) {
    const int full = ::open("/dev/full", O_RDWR | O_CLOEXEC);
    for (const int file : files_) {
      kept_.push_back(::dup(file));
      EXPECT_EQ(::dup2(full, file), file);
    }
    ::close(full);
  }
  ~FullDisk() {
    for (size_t i = 0; i < files_.size(); ++i) {
      EXPECT_EQ(::dup2(kept_[i], files_[i]), files_[i]);
      ::close(kept_[i]);
    }
  }
  FullDisk(const FullDisk&) = delete;

 private:
  std::vector<int> files_, kept_;
};

// One in memory and one in files, which make the same steps.
struct Learners {
  explicit Learners(std::string_view values) {
    std::filesystem::create_directory(folder / "files");
    plan = plan_on("cpu", layouts[0], offload(values, folder / "files")).value();
    here = Session::create(test_host(2), plan_on("cpu", layouts[0]).value(), {.seed = 7}).value();
    there = Session::create(test_host(2), plan, {.seed = 7}).value();
  }
  void both(int step) {
    StepMetrics one, other;
    const Status first = here->step(batch(step), one), second = there->step(batch(step), other);
    ASSERT_TRUE(first.ok() && second.ok()) << first.to_string() << ", " << second.to_string();
    EXPECT_EQ(one.loss, other.loss);
    EXPECT_EQ(here->state().hash().value(), there->state().hash().value());
  }
  // A step in files that fails and names their place.
  void fails(int step, const std::string& words) {
    StepMetrics metrics;
    const Status status = there->step(batch(step), metrics);
    EXPECT_FALSE(status.ok());
    for (const std::string& said : {std::string("offload.folder"), folder / "files", words})
      EXPECT_NE(status.message().find(said), std::string::npos) << status.to_string();
  }
  std::vector<int> files() const { return files_in(folder / "files"); }

  const TemporaryFolder folder;
  std::shared_ptr<const CompiledPlan> plan;
  std::unique_ptr<Session> here, there;
};

// A disk that fails, as one that does so under a file: the step is an error, and a checkpoint goes on.
TEST(Memories, ThatFailAreErrors) {
  for (const std::string_view values : {"weights", "states"}) {
    Learners learners(values);
    learners.both(0);
    ASSERT_TRUE(save_session(*learners.there, learners.folder / "saved").ok());
    for (const int file : learners.files()) ASSERT_EQ(::ftruncate(file, 0), 0);
    learners.fails(1, "another program has shortened it");
    // What is read for the update comes when the weights change already.
    EXPECT_EQ(learners.there->state().healthy(), values == "weights");
    learners.there = Session::create(test_host(2), learners.plan, {.seed = 7}).value();
    ASSERT_TRUE(load_session(*learners.there, learners.folder / "saved").ok());
    learners.both(1);
  }
}

// Of a step that has changed nothing nothing is lost, and the next one finds room.
TEST(Memories, ThatAreFullAreErrors) {
  Learners learners("activations");
  learners.both(0);
  {
    const FullDisk full(learners.files());
    for (int i = 0; i < 2; ++i) learners.fails(1, "No space left on device");
    EXPECT_TRUE(learners.there->state().healthy());
  }
  learners.both(1);
}

TEST(Memories, ThatAreFullInTheUpdateLoseTheState) {
  Learners learners("states");
  learners.both(0);
  {
    const FullDisk full(learners.files());
    learners.fails(1, "No space left on device");
  }
  StepMetrics metrics;
  EXPECT_EQ(learners.there->step(batch(1), metrics).code(), Code::state_lost);
}

TEST(Memories, OutliveTheirFolder) {
  Learners learners(all_values);
  learners.both(0);
  std::filesystem::remove_all(learners.folder / "files");
  for (int step = 1; step < 3; ++step) learners.both(step);
}

TEST(Memories, TakeWhatThePlanSays) {
  for (const Layout& layout : layouts) {
    auto one = plan_on(far_name(4), layout);
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    EXPECT_EQ(fullest(**one, MemoryKind::host), 0) << layout.text();
    const auto states = evicted_plan(far_name(4), layout, "states");
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
    const auto activations = evicted_plan(far_name(4), layout, "activations");
    ASSERT_TRUE(activations && !HasFailure());
    EXPECT_GT(PlanMemory(*activations).arenas(0)[MemoryKind::host], 0) << layout.text();
    EXPECT_EQ(activations->state_of(0).bytes(), (*one)->state_of(0).bytes()) << layout.text();
  }
}

TEST(Memories, StandInTexts) {
  for (const Layout& layout : layouts) {
    const auto plan = evicted_plan(far_name(4), layout, all_values);
    ASSERT_TRUE(plan && !HasFailure());
    const Entry& entry = *plan->entry(EntryKind::train);
    const std::string decided = print_plan(entry.plan);
    EXPECT_NE(decided.find(" memory host"), std::string::npos) << decided;
    const auto read = parse_plan(decided, entry.plan.graph);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(print_plan(*read), decided);
    for (const LocalGraph& local : entry.locals) {
      const auto again = parse_local(print_local(local));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(print_local(*again), print_local(local));
    }
    for (const Program& program : entry.programs) {
      const std::string text = print_program(program);
      const auto again = parse_program(text, plan->device()->kernels());
      ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << text;
      EXPECT_EQ(print_program(*again), text);
      for (const char* part : {"beside host arena", "host.state@", "host.@", " at host."})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
  }
}

// Copies go to and fro on streams of their own where a device has them, and what is fetched comes before it is used.
TEST(Memories, AreReachedOnStreamsThatCopy) {
  const auto plan = evicted_plan(far_name(4), layouts[0], "states");
  ASSERT_TRUE(plan && !HasFailure());
  const Program& program = plan->entry(EntryKind::train)->programs[0];
  int fetches = 0, evicts = 0, launches = 0;
  for (const Instruction& in : program.instructions) {
    const bool computes = !in.transfer;
    launches += computes && &in - program.instructions.data() >= program.commit_begin ? 1 : 0;
    if (computes || !(in.transfer->fetches || in.transfer->evicts)) continue;
    ++(in.transfer->fetches ? fetches : evicts);
    EXPECT_NE(in.stream, 0) << in.name;
    EXPECT_TRUE(in.transfer->fetches || launches > 0) << in.name;
  }
  EXPECT_EQ(fetches, evicts);
  EXPECT_GT(fetches, 0);
}

TEST(Memories, AreSimulated) {
  for (const Layout& layout : layouts) {
    for (const std::string& device : {far_name(4), std::string("cpu")}) {
      const auto plan = evicted_plan(device, layout, all_values);
      ASSERT_TRUE(plan && !HasFailure());
      const auto rehearsal = rehearse(test_host(2), plan);
      ASSERT_TRUE(rehearsal.ok()) << layout.text() << ": " << rehearsal.status().to_string();
      EXPECT_GT(rehearsal->trace.end(), 0) << layout.text();
    }
  }
}

// Layers whose results take far more than their weights.
std::string deep_model() {
  std::string text = "graph deep(x: f32[8,256,64] batch 0) {\n  last: f32[64,4] = param\n";
  for (int i = 0; i < 8; ++i) text += cat("  w", i, ": f32[64,64] = param\n");
  text += "  forward:\n  r0: f32[8,256,64] = sigmoid(x)\n";
  for (int i = 0; i < 8; ++i) {
    text += cat("  h", i, ": f32[8,256,64] = matmul(r", i, ", w", i, ")\n  a", i, ": f32[8,256,64] = gelu(h", i,
                ")\n  r", i + 1, ": f32[8,256,64] = add(r", i, ", a", i, ")\n");
  }
  return text + "  p: f32[8,64] = sum(r8) {axes=[1], keep=false}\n  y: f32[8,4] = matmul(p, last)\n  output y = y\n}\n";
}

// By default those results move whose copies take no time. A simulated step is then nearly as fast, with less memory.
TEST(Memories, AreUsedWhileKernelsCompute) {
  const auto plan_of = [](const std::string& keys) {
    auto options = layout_options(GraphModel::parse(deep_model()), 1, cat("{", keys, "}"));
    if (options.ok()) options->device = far_name(4);
    return layout_plan(options);
  };
  const auto kept = plan_of(""), moved = plan_of(R"("offload.level": "v0")");
  ASSERT_TRUE(kept.ok() && moved.ok()) << moved.status().to_string();
  const Plan& plan = (*moved)->entry(EntryKind::train)->plan;
  const auto lies = [&](const std::string& name) { return plan.value_memory[plan.graph->find(name)]; };
  EXPECT_EQ(lies("h0"), MemoryKind::host);
  EXPECT_EQ(lies("r8"), MemoryKind::device) << "the backward pass does not take it";
  EXPECT_LT(PlanMemory(**moved).arena(), PlanMemory(**kept).arena() * 3 / 4);
  const auto slow = rehearse(test_host(2), *moved), fast = rehearse(test_host(2), *kept);
  ASSERT_TRUE(slow.ok() && fast.ok()) << slow.status().to_string();
  EXPECT_LT(slow->trace.end() * 0.85, fast->trace.end());
}

// What lies in the second memory is saved from there and loaded to there.
TEST(Memories, AreSavedAndLoaded) {
  for (const Layout& layout : layouts) {
    for (const std::string& device : {far_name(4), std::string("cpu")}) {
      const TemporaryFolder folder;
      const auto here = Session::create(test_host(2), plan_on("cpu", layouts[0]).value(), {.seed = 7}).value();
      StepMetrics metrics;
      ASSERT_TRUE(here->step(batch(0), metrics).ok());
      ASSERT_TRUE(save_session(*here, folder / "here").ok());
      const auto plan = evicted_plan(device, layout, "states, weights");
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

  const auto away = evicted_plan(far_name(4), layouts[0], "states"), one = plan_on("cpu", layouts[0]).value();
  ASSERT_TRUE(away && !HasFailure());
  options = {.kernels = &one->device()->kernels(), .device = one->device().get(), .threads = 1};
  const Status refused = lower(away->entry(EntryKind::train)->locals[0], options).status();
  EXPECT_EQ(refused.code(), Code::unsupported) << refused.to_string();
  EXPECT_NE(refused.message().find("memory of the kind host"), std::string::npos) << refused.to_string();

  const Status unknown = plan_on("cpu", layouts[0], offload("weigths")).status();
  EXPECT_EQ(unknown.code(), Code::not_found) << unknown.to_string();
  EXPECT_NE(unknown.message().find("did you mean weights?"), std::string::npos) << unknown.to_string();
}

}  // namespace
}  // namespace epl::memories_test
