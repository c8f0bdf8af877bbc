// A rank with several streams: programs say which instruction goes to which stream and what it waits for, and that is
// neither too little (the bits are right in whatever order streams take turns) nor too much (without any one of the
// waits they are wrong in some order).
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "core/program/transfer.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::far_streams_test {
namespace {

// Both inputs differ from sample to sample, so that one that comes late or early shows.
constexpr std::string_view model = R"(graph two(x: f32[8,12] batch 0, z: f32[8,3] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,4] = param
  w3: f32[3,4] = param
  forward:
  h: f32[8,16] = linear(x, w1)
  a: f32[8,16] = relu(h)
  y: f32[8,4] = linear(a, w2)
  s: f32[8,4] = linear(z, w3)
  v: f32[8,4] = add(y, s)
  output y = v
}
)";

struct Layout {
  int64_t micro_batches = 1, ranks = 1;
  std::string text() const { return cat(micro_batches, " micro-batches on ", ranks, " ranks"); }
};
constexpr Layout layouts[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}};

std::string far_name(int kinds) {
  static const bool added = [] {
    for (int k = 1; k <= 4; ++k) add_backend(far_backend(cat("far_streams", k), 1, k));
    return true;
  }();
  return added ? cat("far_streams", kinds) : std::string();
}

// What is allocated holds anything but what the step before it left there.
Host soiled_host() {
  Host host = test_host(2);
  host.allocate = [allocate = host.allocate](size_t bytes, size_t alignment) {
    void* made = allocate(bytes, alignment);
    if (made != nullptr) std::memset(made, 0x3c, bytes);
    return made;
  };
  return host;
}

Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const Layout& layout) {
  auto options = layout_options(GraphModel::parse(model), layout.ranks,
                                cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches, "}"));
  if (options.ok()) {
    options->device = device;
    options->train.loss.name = "mse";  // a target that comes late is a number as another one, and no index
  }
  EPL_TRY(options.status());
  return CompiledPlan::create(soiled_host(), *options);
}

std::vector<Tensor> batch(int step) {
  std::vector<Tensor> inputs = {Tensor({DType::f32, {8, 12}}), Tensor({DType::f32, {8, 3}}),
                                Tensor({DType::f32, {8, 4}})};
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t e = 0; e < inputs[i].elements(); ++e) inputs[i].set(e, philox_uniform(100 * step + i, e) - 0.5);
  return inputs;
}

// Of three steps.
struct Learned {
  std::vector<double> numbers;
  std::vector<Tensor> state;
  bool operator==(const Learned& other) const {
    return numbers == other.numbers &&
           std::ranges::equal(state, other.state, [](const Tensor& a, const Tensor& b) { return identical(a, b); });
  }
};

// A step that is refused, because its numbers are not finite, is an answer too.
Learned learn(const std::shared_ptr<const CompiledPlan>& plan) {
  Learned out;
  const Entry& entry = *plan->entry(EntryKind::train);
  auto session = Session::create(soiled_host(), plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  for (int s = 0; session.ok() && s < 3; ++s) {
    StepMetrics metrics;
    const Status status = (*session)->step(batch(s), metrics);
    out.numbers.insert(out.numbers.end(), {status.ok() ? 1.0 : 0.0, metrics.loss, metrics.gradient_norm});
    for (const Port& port : entry.outputs) {
      const auto output = (*session)->results().output(EntryKind::train, port.name);
      for (int64_t e = 0; output.ok() && e < output->elements(); ++e) out.numbers.push_back(output->get(e));
    }
  }
  for (const StateSlot& slot : plan->state().slots())
    if (session.ok()) out.state.push_back(*(*session)->state().get(slot.name));
  return out;
}

Program& program_of(const CompiledPlan& plan) {
  return const_cast<Program&>(plan.entry(EntryKind::train)->programs[0]);  // no plan is made as a constant
}

TEST(FarStreams, ADeviceWithOneHasTheProgramsOfTheProcessor) {
  for (const Layout& layout : layouts) {
    auto plan = plan_on("cpu", layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto far = plan_on(far_name(1), layout);
    ASSERT_TRUE(far.ok()) << far.status().to_string();
    for (const auto& one : {*plan, *far}) {
      const Program& program = program_of(*one);
      EXPECT_EQ(program.streams, 1) << layout.text();
      EXPECT_EQ(program.events, 0) << layout.text();
      EXPECT_EQ(program.numbers_event, -1) << layout.text();
      for (const Instruction& in : program.instructions) EXPECT_TRUE(in.waits.empty() && in.records < 0) << in.name;
      for (const auto& waits : program.waits) EXPECT_TRUE(waits.empty());
    }
  }
}

TEST(FarStreams, EachKindOfWorkHasItsOwn) {
  for (int kinds = 1; kinds <= 4; ++kinds) {
    auto plan = plan_on(far_name(kinds), {2, 2});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Program& program = program_of(**plan);
    std::set<int> computing, collectives, in_copies, out_copies;
    for (const Instruction& in : program.instructions) {
      auto& streams = !in.transfer               ? computing
                      : in.group >= 0            ? collectives
                      : in.port >= 0             ? out_copies
                      : in.transfer->from_caller ? in_copies
                                                 : computing;
      streams.insert(in.stream);
    }
    EXPECT_EQ(computing, std::set{0}) << kinds;
    ASSERT_EQ(collectives.size(), 1U) << kinds;  // along one axis
    ASSERT_EQ(in_copies.size(), 1U) << kinds;
    ASSERT_EQ(out_copies.size(), 1U) << kinds;
    EXPECT_EQ(*collectives.begin() != 0, kinds >= 2) << kinds;
    EXPECT_EQ(*in_copies.begin() != 0, kinds >= 3) << kinds;
    EXPECT_EQ(*out_copies.begin() != 0, kinds >= 4) << kinds;
    EXPECT_EQ(program.streams, kinds);
  }
}

TEST(FarStreams, TextHasThemAll) {
  for (const Layout& layout : layouts) {
    auto plan = plan_on(far_name(4), layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Program& program = program_of(**plan);
    const std::string text = print_program(program);
    auto again = parse_program(text, (*plan)->device()->kernels());
    ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << text;
    EXPECT_EQ(print_program(*again), text);
    EXPECT_EQ(again->streams, program.streams);
    EXPECT_EQ(again->events, program.events);
  }
}

TEST(FarStreams, LearnTheSameBitsInAnyOrder) {
  for (const Layout& layout : layouts) {
    auto plan = plan_on("cpu", layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Learned here = learn(*plan);
    for (int kinds = 1; kinds <= 4; ++kinds) {
      auto far = plan_on(far_name(kinds), layout);
      ASSERT_TRUE(far.ok()) << far.status().to_string();
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        reseed(*(*far)->device(), seed);
        EXPECT_TRUE(learn(*far) == here) << layout.text() << ", " << kinds << " kinds, seed " << seed;
      }
    }
  }
}

// Leaves out one wait after the other: of every call, and of a single one.
class Omissions {
 public:
  explicit Omissions(const Layout& layout) : layout_(layout) {}

  void run() {
    auto plan = plan_on(far_name(4), layout_);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    plan_ = *plan;
    right_ = learn(plan_);
    Program& program = program_of(*plan_);
    for (Instruction& in : program.instructions) try_without(in.waits, in.name);
    for (std::vector<CallWait>& waits : program.waits) try_without(waits, "a call");
    EXPECT_TRUE(learn(plan_) == right_) << "all are back";
  }
  int planted() const { return planted_; }

 private:
  template <class One> void try_without(std::vector<One>& waits, const std::string& of) {
    const std::vector<One> all = waits;
    for (size_t w = 0; w < all.size(); ++w) {
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      ++planted_;
      EXPECT_TRUE(shows()) << layout_.text() << ": nothing needs wait " << w << " of " << of << ", for event "
                           << all[w].event << "\n"
                           << print_program(program_of(*plan_));
      waits = all;
    }
  }

  bool shows() {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      reseed(*plan_->device(), seed);
      if (!(learn(plan_) == right_)) return true;
    }
    return false;
  }

  const Layout layout_;
  std::shared_ptr<const CompiledPlan> plan_;
  Learned right_;
  int planted_ = 0;
};

TEST(FarStreams, NoWaitCanBeLeftOut) {
  int planted = 0;
  for (const Layout& layout : layouts) {
    Omissions omissions(layout);
    omissions.run();
    planted += omissions.planted();
  }
  EXPECT_GE(planted, 20);
}

}  // namespace
}  // namespace epl::far_streams_test
