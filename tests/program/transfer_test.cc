// Transfers between ranks as instructions of a program: a local graph in text is lowered, printed, read again, and run
// by as many executors as the group has ranks.
#include "core/program/transfer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/runtime/executor.h"
#include "tests/backend/conformance.h"

namespace epl::transfer_test {
namespace {

constexpr int ranks = 4;

struct Case {
  std::string op;
  int64_t source, target;  // elements of a rank
};

class Between : public ::testing::TestWithParam<Case> {};

// Rank r holds the numbers r * 100 + i; element e of the result on rank r, counted by hand.
float expected(const Case& c, int rank, int64_t e) {
  const auto held = [](int64_t r, int64_t i) { return static_cast<float>(r * 100 + i); };
  float sum = 0;
  if (c.op == "all_reduce" || c.op == "reduce_scatter") {
    const int64_t at = c.op == "all_reduce" ? e : rank * c.target + e;
    for (int r = 0; r < ranks; ++r) sum += held(r, at);
    return sum;
  }
  const int64_t segment = c.op == "all_gather" ? c.source : c.source / ranks;
  return held(e / segment, c.op == "all_gather" ? e % segment : rank * segment + e % segment);
}

TEST_P(Between, MovesWhatItsRowSays) {
  const Case& c = GetParam();
  const std::string parts = c.op == "all_reduce" ? "" : cat(", parts=", ranks);
  const std::string text = cat("local class 0\naxis data ", ranks, " rank\nrun main 0\nin x f32[", c.source * ranks,
                               "] dim 0 over data is x\nout y f32[", c.target * ranks,
                               "] dim 0 over data is y\ngraph moves(x: f32[", c.source, "] batch 0) {\n  y: f32[",
                               c.target, "] = ", c.op, "(x) {axis=\"data\"", parts, "}\n  output y = y\n}\n");
  auto local = parse_local(text);
  ASSERT_TRUE(local.ok()) << local.status().to_string() << "\n" << text;
  TestHost memory;
  const Host host = memory.host();
  auto device = open_device("cpu", host);
  ASSERT_TRUE(device.ok());
  auto lowered = lower(*local, {.kernels = &(*device)->kernels()});
  ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
  auto program = parse_program(print_program(*lowered), (*device)->kernels());
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(print_program(*program), print_program(*lowered));
  ASSERT_EQ(program->groups, std::vector<ProgramGroup>{{.axis = "data"}});
  Mesh mesh = program->mesh;
  for (int r = 0; r < ranks; ++r) mesh.device.ranks.push_back(r);

  std::vector<float> x, y(static_cast<size_t>(c.target * ranks));
  for (int r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < c.source; ++i) x.push_back(static_cast<float>(r * 100 + i));
  }
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  auto group = (*device)->create_group("world", ranks);
  ASSERT_TRUE(group.ok());
  on_ranks(**device, *group, [&](int r, Communicator& world, Stream& stream) {
    StateLayout state;
    auto store = ParameterStore::create(**device, stream, state, mesh, r);
    auto arenas = allocate_each(**device, program->arena_bytes());
    ASSERT_TRUE(store.ok() && arenas.ok());
    auto executor = Executor::create(host, **device, stream, *program, 0, *store, *arenas, mesh, r);
    ASSERT_TRUE(executor.ok());
    const Status status =
        (*executor)->run({.inputs = inputs, .outputs = outputs}, {.world = &world, .of_program = {&world}});
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  for (int r = 0; r < ranks; ++r) {
    for (int64_t e = 0; e < c.target; ++e)
      EXPECT_EQ(y[static_cast<size_t>(r * c.target + e)], expected(c, r, e)) << "element " << e << " of rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(, Between,
                         ::testing::Values(Case{"all_reduce", 8, 8}, Case{"all_gather", 3, 12},
                                           Case{"reduce_scatter", 12, 3}, Case{"all_to_all", 12, 12}),
                         [](const auto& info) { return info.param.op; });

TEST(Transfer, RowsSayWhatTheyAreFor) {
  for (const TransferRow& row : transfer_table().rows) {
    EXPECT_FALSE(row.doc.empty()) << row.name;
    EXPECT_NE(row.run, nullptr) << row.name;
    if (row.op.empty()) continue;
    EXPECT_EQ(transfer_of(row.op), &row) << row.name;
  }
  EXPECT_EQ(transfer_of("add"), nullptr);
  EXPECT_EQ(find_transfer("launch"), nullptr) << "the word of the text form for what is not a transfer";
}

// Bytes as the cost model takes them: what a rank contributes, or gives to each other one.
TEST(Transfer, RowsSayWhatTheyCall) {
  using Kind = Collective::Kind;
  const TensorType large{DType::f32, {24, 4}}, small{DType::f32, {6, 4}}, owners{DType::i64, {24}};
  const auto calls = [](std::string_view name, std::vector<TensorType> from, std::vector<TensorType> to) {
    Instruction in;
    in.transfer = &transfer_named(name);
    in.query = std::make_unique<KernelQuery>();
    in.query->input_types = std::move(from);
    in.query->output_types = std::move(to);
    return group_calls(in, 4);
  };
  const auto expect = [](const std::vector<GroupCall>& made, Kind kind, double bytes, int64_t elements) {
    ASSERT_FALSE(made.empty()) << collective_name(kind);
    EXPECT_EQ(made.front().kind, kind);
    EXPECT_EQ(made.front().bytes, bytes) << collective_name(kind);
    EXPECT_EQ(made.front().elements, elements) << collective_name(kind);
  };
  expect(calls("all_reduce", {large}, {large}), Kind::all_reduce, 384, 96);
  expect(calls("reduce_scatter", {large}, {small}), Kind::reduce_scatter, 96, 24);
  expect(calls("all_gather", {small}, {large}), Kind::all_gather, 96, 24);
  expect(calls("all_to_all", {large}, {large}), Kind::all_to_all, 96, 24);
  expect(calls("dispatch_rows", {small, owners}, {large}), Kind::dispatch, 24, 6);
  expect(calls("combine_rows", {large, owners}, {small}), Kind::combine, 24, 6);
  expect(calls("send", {small}, {}), Kind::send, 96, 24);
  expect(calls("receive", {}, {small}), Kind::receive, 96, 24);
  EXPECT_EQ(calls("all_reduce", {large, small}, {large, small}).size(), 2u) << "one for each operand";
  EXPECT_EQ(calls("dispatch_rows", {small, owners}, {large}).size(), 1u);
  EXPECT_TRUE(calls("halo", {small}, {large}).empty()) << "messages that depend on the rank";
  EXPECT_TRUE(calls("copy", {small}, {small}).empty());
}

}  // namespace
}  // namespace epl::transfer_test
