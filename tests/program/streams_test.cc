// The order of streams, on programs drawn by a seed: whatever touches the same bytes is ordered, and every wait is
// needed for that.
#include <gtest/gtest.h>

#include <random>

#include "core/program/lowering.h"
#include "core/program/transfer.h"

namespace epl::streams_test {
namespace {

constexpr int64_t line = 64;

// One run of an instruction, in the order in which a rank issues them.
struct Run {
  int call, instruction;
  int64_t micro_batch;
};

struct Range {
  int64_t begin, end;
  bool writes;
};

class Drawn {
 public:
  explicit Drawn(uint64_t seed) : random_(seed) {
    const int64_t micro_batches = 1 + below(4);
    program_.mesh.axes = {{"data", 1}, {"micro_batch", micro_batches, MeshAxis::Kind::time}};
    program_.streams = 1 + static_cast<int>(1 + below(3));
    program_.memories[0].arena_bytes = 16 * line;
    program_.memories[0].state_bytes = 4 * line;
    program_.scalar_bytes = 2 * line;
    for (int r = 0; r < 3; ++r) {
      std::vector<int64_t>& table = program_.offset_tables.emplace_back();
      for (int64_t m = 0; m < micro_batches; ++m) table.push_back(line * below(13));
    }
    draw_calls(micro_batches);
    for (const BlockKind kind : {BlockKind::forward, BlockKind::backward, BlockKind::post}) {
      Block block{{.kind = kind}, size(), 0};
      for (int64_t n = 1 + below(6); n > 0; --n) draw_instruction();
      block.last = size();
      program_.blocks.push_back(block);
    }
    program_.commit_begin = size() - static_cast<int>(below(2));
    program_.waits.resize(program_.calls.size());
  }
  Program& program() { return program_; }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int size() const { return static_cast<int>(program_.instructions.size()); }

  // Forward and backward in any order in which a micro-batch comes to the second after the first.
  void draw_calls(int64_t micro_batches) {
    int64_t forward = 0, backward = 0;
    while (backward < micro_batches) {
      const bool goes_forward = forward < micro_batches && (forward == backward || below(2) == 0);
      program_.calls.push_back(goes_forward ? BlockCall{.block = BlockKind::forward, .micro_batch = forward++}
                                            : BlockCall{.block = BlockKind::backward, .micro_batch = backward++});
    }
    program_.calls.push_back({.block = BlockKind::post});
  }

  Location location(bool written) {
    if (!written && below(8) == 0) return {.space = Location::Space::scalar, .offset = line * below(2)};
    if (below(4) == 0) return {.space = Location::Space::state, .offset = line * below(3)};
    if (below(2) == 0) return {.space = Location::Space::arena, .offset = line * below(13)};
    const auto table = static_cast<int32_t>(below(std::ssize(program_.offset_tables)));
    return {.space = Location::Space::arena,
            .offset_table = table,
            .offset = program_.offset_tables[static_cast<size_t>(table)][0]};
  }

  void draw_instruction() {
    Instruction& in = program_.instructions.emplace_back();
    in.name = cat("i", size() - 1);
    in.stream = static_cast<int>(below(program_.streams));
    in.query = std::make_unique<KernelQuery>();
    const auto type = [&] { return TensorType{DType::f32, {(1 + below(2)) * line / 4}}; };
    for (int64_t n = below(3); n > 0; --n) {
      in.inputs.push_back(location(false));
      in.query->input_types.push_back(type());
      in.query->input_present.push_back(true);
    }
    for (int64_t n = below(2) + (in.inputs.empty() ? 1 : 0); n > 0; --n) {
      in.outputs.push_back(location(true));
      in.query->output_types.push_back(type());
      in.query->output_present.push_back(true);
    }
  }

  std::mt19937_64 random_;
  Program program_;
};

// Says what a program orders, by going from run to run.
class Checked {
 public:
  explicit Checked(const Program& program) : program_(program) {
    for (int c = 0; c < std::ssize(program.calls); ++c) {
      const BlockCall& call = program.calls[static_cast<size_t>(c)];
      const Block& block = program.blocks[static_cast<size_t>(program.find(call.id()))];
      for (int p = block.first; p < block.last; ++p) runs_.push_back({c, p, call.micro_batch});
    }
    before_.assign(runs_.size(), std::vector<bool>(runs_.size() + 1, false));
    for (size_t j = 0; j < runs_.size(); ++j) find_before(j);
  }

  // Pairs of different streams that touch a byte, which one of them writes, in no order.
  int missing() const {
    int count = 0;
    for (size_t j = 0; j < runs_.size(); ++j) {
      count += stream(j) != 0 && !before_[j][runs_.size()] && reads_numbers(j);
      for (size_t i = 0; i < j; ++i) count += stream(i) != stream(j) && !before_[j][i] && touch(i, j);
    }
    return count;
  }

 private:
  const Instruction& in(size_t run) const { return program_.instructions[static_cast<size_t>(runs_[run].instruction)]; }
  int stream(size_t run) const { return in(run).stream; }

  // The last run is the upload of the host's numbers, which comes before all.
  void add(size_t j, size_t i) {
    before_[j][i] = true;
    for (size_t k = 0; i < runs_.size() && k < before_[i].size(); ++k) before_[j][k] = before_[j][k] || before_[i][k];
  }

  void find_before(size_t j) {
    if (stream(j) == 0) add(j, runs_.size());
    const int commit = program_.commit_begin;
    if (runs_[j].instruction >= commit) add(j, runs_.size());  // the host waits for all streams
    for (size_t i = 0; i < j; ++i) {
      const bool committed = runs_[i].instruction < commit && runs_[j].instruction >= commit;
      if (stream(i) == stream(j) || committed) add(j, i);
    }
    const auto wait = [&](int event) {
      if (event == program_.numbers_event) add(j, runs_.size());
      for (size_t i = 0; i < j; ++i) {
        const int iteration = program_.loops(runs_[i].instruction) ? static_cast<int>(runs_[i].micro_batch) : 0;
        if (in(i).records >= 0 && in(i).records + iteration == event) add(j, i);
      }
    };
    for (const Wait& one : in(j).waits) wait(one.event + (one.each ? static_cast<int>(runs_[j].micro_batch) : 0));
    for (const CallWait& one : program_.waits[static_cast<size_t>(runs_[j].call)])
      if (one.instruction == runs_[j].instruction) wait(one.event);
  }

  std::vector<Range> ranges(size_t run) const {
    std::vector<Range> made;
    const auto add_range = [&](const Location& at, const TensorType& type, bool writes) {
      if (at.space == Location::Space::scalar) return;
      const int64_t begin =
          (at.space == Location::Space::state ? 1000 * line : 0) + program_.offset_of(at, runs_[run].micro_batch);
      made.push_back({begin, begin + type.bytes(), writes});
    };
    for (size_t i = 0; i < in(run).inputs.size(); ++i)
      add_range(in(run).inputs[i], in(run).query->in(static_cast<int>(i)), false);
    for (size_t o = 0; o < in(run).outputs.size(); ++o)
      add_range(in(run).outputs[o], in(run).query->out(static_cast<int>(o)), true);
    return made;
  }

  bool touch(size_t i, size_t j) const {
    const std::vector<Range> others = ranges(j);
    return std::ranges::any_of(ranges(i), [&](const Range& a) {
      return std::ranges::any_of(
          others, [&](const Range& b) { return (a.writes || b.writes) && a.begin < b.end && b.begin < a.end; });
    });
  }

  bool reads_numbers(size_t run) const {
    return std::ranges::any_of(in(run).inputs, [](const Location& at) { return at.space == Location::Space::scalar; });
  }

  const Program& program_;
  std::vector<Run> runs_;
  std::vector<std::vector<bool>> before_;  // by run: which others are over when it begins
};

// Each wait in turn is left out, and then an order is missing.
template <class One> int left_out(const Program& program, std::vector<One>& waits, uint64_t seed) {
  const std::vector<One> all = waits;
  for (size_t w = 0; w < all.size(); ++w) {
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
    EXPECT_GT(Checked(program).missing(), 0) << "seed " << seed << ": nothing needs the wait for " << all[w].event;
    waits = all;
  }
  return static_cast<int>(all.size());
}

TEST(Streams, AreOrderedByTheFewestWaits) {
  int unordered = 0, waits = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Drawn drawn(seed);
    Program& program = drawn.program();
    unordered += Checked(program).missing();
    order_streams(program, 4);
    ASSERT_EQ(Checked(program).missing(), 0) << "seed " << seed;
    for (Instruction& in : program.instructions) waits += left_out(program, in.waits, seed);
    for (std::vector<CallWait>& of_call : program.waits) waits += left_out(program, of_call, seed);
  }
  EXPECT_GT(unordered, 1000) << "nothing was to be ordered";
  EXPECT_GT(waits, 500);
}

// What is waited for in every iteration stands once, however many iterations there are.
TEST(Streams, AProgramDoesNotGrowWithItsIterations) {
  for (const int64_t micro_batches : {2, 8}) {
    Program program;
    program.mesh.axes = {{"data", 1}, {"micro_batch", micro_batches, MeshAxis::Kind::time}};
    program.streams = 2;
    program.memories[0].arena_bytes = 2 * line;
    program.blocks = {{{.kind = BlockKind::forward}, 0, 2}};
    for (int64_t m = 0; m < micro_batches; ++m)
      program.calls.push_back({.block = BlockKind::forward, .micro_batch = m});
    program.waits.resize(program.calls.size());
    program.commit_begin = 2;
    for (int i = 0; i < 2; ++i) {
      Instruction& in = program.instructions.emplace_back();
      in.stream = 1 - i;
      in.query = std::make_unique<KernelQuery>();
      in.query->output_types = {{DType::f32, {line / 4}}};
      in.query->output_present = {true};
      in.outputs = {{.space = Location::Space::arena, .offset = i * line}};
    }
    Instruction& reader = program.instructions[1];
    reader.inputs = program.instructions[0].outputs;
    reader.query->input_types = program.instructions[0].query->output_types;
    reader.query->input_present = {true};
    order_streams(program, 4);
    EXPECT_EQ(reader.waits, (std::vector<Wait>{{.event = program.instructions[0].records, .each = true}}));
    EXPECT_TRUE(program.instructions[0].waits.empty());
    for (size_t m = 0; m < program.waits.size(); ++m) {  // the room is written again when it has been read
      ASSERT_EQ(program.waits[m].size(), m == 0 ? 0U : 1U);
      if (m == 0) continue;
      EXPECT_EQ(program.waits[m][0].event, reader.records + static_cast<int>(m) - 1);
      EXPECT_EQ(program.waits[m][0].instruction, 0);
    }
  }
}

// A device that carries commands out as they are issued begins a copy when it has computed what stands before it, and
// the host waits for copies where the state begins to change. Programs for other devices say nothing of that.
TEST(Streams, CopiesSayWhenTheyAreIssued) {
  for (const int kinds : {1, 4}) {
    Program program;
    program.mesh.axes.push_back({"data", 1});
    program.streams = 2;
    program.memories[0].arena_bytes = 3 * line;
    program.blocks = {{{.kind = BlockKind::post}, 0, 3}};
    program.calls.push_back({.block = BlockKind::post});
    program.waits.resize(1);
    program.commit_begin = 2;
    for (int i = 0; i < 3; ++i) {
      Instruction& in = program.instructions.emplace_back();
      in.query = std::make_unique<KernelQuery>();
      in.query->output_types = {{DType::f32, {line / 4}}};
      in.query->output_present = {true};
      in.outputs = {{.space = Location::Space::arena, .offset = i * line}};
    }
    Instruction& copy = program.instructions[1];
    copy.stream = 1;
    copy.transfer = &transfer_named("fetch");
    order_streams(program, kinds);
    std::vector<Wait> of_copy, behind;
    if (kinds == 1) {
      of_copy = {{.event = program.instructions[0].records}};
      behind = {{.event = copy.records}};
      EXPECT_GE(copy.records, 0);
    }
    EXPECT_EQ(copy.waits, of_copy) << kinds;
    EXPECT_EQ(program.instructions[2].waits, behind) << kinds;
  }
}

}  // namespace
}  // namespace epl::streams_test
