// What virtual time means.
#include "backends/sim/sim.h"

#include <random>

#include "tests/backend/conformance.h"
#include "tests/thirds.h"

namespace epl::sim::sim_test {
namespace {

using Kind = Collective::Kind;

// Round numbers, so that expected times can be read off.
const Machine round_machine = {.name = "round",
                               .rates = {{DType::f32, WorkKind::product, 1e9},
                                         {DType::bf16, WorkKind::product, 4e9},
                                         {DType::f32, WorkKind::elementwise, 1e9}},
                               .memories = {{Machine::Memory::Kind::device, 1e9}, {Machine::Memory::Kind::host, 1e8}},
                               .links = {{.ranks = 0, .bandwidth = 1e9, .seconds = 1}},
                               .launch_seconds = 0.5};

// So fast that its numbers add up in other ways than round ones.
const Machine fast_machine = {
    .name = "fast",
    .rates = {{DType::f32, WorkKind::product, 19.5e12}, {DType::f32, WorkKind::elementwise, 19.5e12}},
    .memories = {{Machine::Memory::Kind::device, 2.039e12}, {Machine::Memory::Kind::host, 25e9}},
    .links = {{.ranks = 0, .bandwidth = 300e9, .seconds = 3e-6}},
    .launch_seconds = 4e-6};

double seconds(Kind kind, int ranks, int64_t bytes, const Machine& machine = round_machine) {
  return CostModel(machine).collective(kind, RankGroup::of_first(ranks), static_cast<double>(bytes));
}

KernelQuery work(double flops, double bytes, DType dtype = DType::f32) {
  return {.op = "anything", .input_types = {{dtype, {1}}}, .input_present = {true}, .flops = flops, .bytes = bytes};
}
void launch(Stream& stream, const KernelQuery& query) {
  stream.launch({}, query, nullptr, nullptr, nullptr, nullptr, {});
}

std::unique_ptr<Stream> make_stream(Device& device) { return device.create_stream(1).value(); }

struct Rank {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> communicator;
};
std::vector<Rank> make_ranks(Device& device, int count) {
  std::vector<Rank> ranks(count);
  auto group = device.create_group("world", count);
  for (int r = 0; r < count; ++r) {
    ranks[r].communicator = std::move((*group)[r]);
    ranks[r].stream = make_stream(device);
  }
  return ranks;
}

TEST(Sim, its_kernels_are_those_of_the_device_it_stands_for) {
  TestHost memory;
  auto cpu = open_device("cpu", memory.host());
  ASSERT_TRUE(cpu.ok()) << cpu.status().to_string();
  auto device = make_device(round_machine, *cpu);
  EXPECT_FALSE(device->executes());
  EXPECT_EQ(&device->kernels(), &(*cpu)->kernels());
  EXPECT_EQ(&device->stands_for(), cpu->get());
  EXPECT_FALSE(make_device(round_machine)->kernels().has("add"));
}

TEST(Sim, a_clock_is_of_simulated_streams_and_threads_are_of_those_of_the_host) {
  auto device = make_device(round_machine);
  auto simulated = make_stream(*device);
  EXPECT_NE(simulated->clock(), nullptr);
  EXPECT_EQ(simulated->host(), nullptr);
  TestHost memory;
  auto cpu = open_device("cpu", memory.host());
  ASSERT_TRUE(cpu.ok()) << cpu.status().to_string();
  auto stream = make_stream(**cpu);
  EXPECT_EQ(stream->clock(), nullptr);
  ASSERT_NE(stream->host(), nullptr);
  EXPECT_EQ(stream->host()->threads().size(), 1);
  EXPECT_NE(stream->host()->posts(), nullptr);
}

TEST(Sim, kernels_take_the_longer_of_computing_and_moving) {
  auto device = make_device(round_machine);
  auto stream = make_stream(*device);
  EXPECT_EQ(stream->clock()->seconds(), 0);
  launch(*stream, work(2e9, 1e9));
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 2.5);
  launch(*stream, work(1e9, 3e9));
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 6.0);
  launch(*stream, work(4e9, 0, DType::bf16));
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 7.5);
  stream->upload(nullptr, nullptr, 100000000);
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 9.0);
  stream->copy(nullptr, nullptr, 500000000);
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 10.5);
  stream->copy_rows({.bytes = 5000000, .rows = 100});  // one command
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 12.0);
}

TEST(Sim, a_stamp_is_the_time_at_which_a_stream_comes_to_it) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 2);
  double before = -1, behind = -1;
  launch(*ranks[0].stream, work(1e9, 0));
  ranks[0].stream->clock()->stamp(&before);
  EXPECT_DOUBLE_EQ(before, 1.5);
  ASSERT_TRUE(ranks[0].communicator->run(*ranks[0].stream, {.kind = Kind::barrier}).ok());
  ranks[0].stream->clock()->stamp(&behind);
  EXPECT_EQ(behind, -1);  // the other rank has not come
  launch(*ranks[1].stream, work(4e9, 0));
  ASSERT_TRUE(ranks[1].communicator->run(*ranks[1].stream, {.kind = Kind::barrier}).ok());
  EXPECT_DOUBLE_EQ(behind, 4.5 + 1);
}

TEST(Sim, a_core_for_each_thread) {
  Machine machine = round_machine;
  machine.is_core = true;
  auto device = make_device(machine);
  auto stream = device->create_stream(4).value();
  launch(*stream, work(2e9, 4e9));
  EXPECT_DOUBLE_EQ(stream->clock()->seconds(), 0.5 + 1);
}

TEST(Sim, memory_is_counted) {
  Machine machine = round_machine;
  machine.memories[0].bytes = 1000;
  auto device = make_device(machine);
  auto held = device->allocate(600);
  ASSERT_TRUE(held.ok());
  auto refused = device->allocate(600);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::out_of_memory);
  EXPECT_NE(refused.status().message().find("640 of 1,000"), std::string::npos) << refused.status().message();
  held->reset();
  EXPECT_TRUE(device->allocate(600).ok());
}

TEST(Sim, an_event_carries_time_between_streams) {
  auto device = make_device(round_machine);
  auto a = make_stream(*device), b = make_stream(*device);
  auto event = device->create_event();
  b->wait(*event);  // never recorded
  EXPECT_TRUE(b->clock()->settled());
  launch(*a, work(2e9, 0));
  a->record(*event);
  launch(*a, work(9e9, 0));
  launch(*b, work(1e9, 0));
  b->wait(*event);
  EXPECT_DOUBLE_EQ(b->clock()->seconds(), 2.5);
  launch(*b, work(1e9, 0));
  b->wait(*event);  // in the past
  EXPECT_DOUBLE_EQ(b->clock()->seconds(), 4.0);
}

TEST(Sim, a_collective_begins_when_the_last_rank_has_come) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 4);
  for (int r = 0; r < 4; ++r) {
    EXPECT_TRUE(ranks[0].stream->clock()->settled() == (r == 0));
    launch(*ranks[r].stream, work(r * 1e9, 0));
    ASSERT_TRUE(ranks[r].communicator->run(*ranks[r].stream, {.kind = Kind::barrier}).ok());
    launch(*ranks[r].stream, work(1e9, 0));
  }
  for (Rank& rank : ranks) {
    EXPECT_TRUE(rank.stream->clock()->settled());
    EXPECT_DOUBLE_EQ(rank.stream->clock()->seconds(), 3.5 + 2 + 1.5);  // two rounds of a second
    EXPECT_TRUE(rank.stream->synchronize().ok());
  }
}

TEST(Sim, costs_of_collectives) {
  EXPECT_EQ(seconds(Kind::all_reduce, 1, 1 << 20), 0);
  EXPECT_DOUBLE_EQ(seconds(Kind::all_reduce, 4, 4), 2 + 8e-9);            // two rounds of everything
  EXPECT_DOUBLE_EQ(seconds(Kind::all_reduce, 4, 100000000000), 4 + 150);  // twice three quarters
  EXPECT_DOUBLE_EQ(seconds(Kind::all_gather, 4, 1000000000), 2 + 3);
  EXPECT_DOUBLE_EQ(seconds(Kind::broadcast, 8, 0), 3);
  EXPECT_DOUBLE_EQ(seconds(Kind::broadcast, 4, 100000000000), 5 + 150);
  EXPECT_DOUBLE_EQ(seconds(Kind::barrier, 5, 0), 3);
  for (int ranks = 1; ranks < 100; ++ranks) {
    EXPECT_LE(seconds(Kind::all_reduce, ranks, 1000), seconds(Kind::all_reduce, ranks, 2000));
    EXPECT_LE(seconds(Kind::barrier, ranks, 0), seconds(Kind::barrier, ranks + 1, 0));
  }
}

// Two streams a rank, events between them, collectives on the second: the times are the same whoever is driven first.
double overlapped_step(Device& device, const std::vector<int>& order) {
  const int count = static_cast<int>(order.size());
  auto ranks = make_ranks(device, count);
  std::vector<std::unique_ptr<Stream>> side;
  std::vector<std::unique_ptr<Event>> events;
  for (int r = 0; r < count; ++r) side.push_back(make_stream(device));
  for (int r : order) {
    for (int layer = 0; layer < 10; ++layer) {
      launch(*ranks[r].stream, work((r * 7 + layer) % 5 * 1e8, 0));
      events.push_back(device.create_event());
      ranks[r].stream->record(*events.back());
      side[r]->wait(*events.back());
      EXPECT_TRUE(ranks[r]
                      .communicator
                      ->run(*side[r], {.kind = Kind::all_reduce,
                                       .dtype = DType::f32,
                                       .count = 1000,
                                       .source = nullptr,
                                       .target = nullptr,
                                       .reduction = Reduction::sum})
                      .ok());
    }
    events.push_back(device.create_event());
    side[r]->record(*events.back());
    ranks[r].stream->wait(*events.back());
  }
  double last = 0;
  for (Rank& rank : ranks) {
    EXPECT_TRUE(rank.stream->clock()->settled());
    last = std::max(last, rank.stream->clock()->seconds());
  }
  return last;
}

TEST(Sim, time_does_not_depend_on_who_is_driven_first) {
  auto device = make_device(round_machine);
  std::vector<int> order = {0, 1, 2, 3, 4, 5, 6, 7};
  const double expected = overlapped_step(*device, order);
  EXPECT_GT(expected, 30);  // ten all-reduces of three rounds
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    EXPECT_EQ(overlapped_step(*device, order), expected);
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr int many_ranks = 1024;  // which watches each lock of each, in one thread, and takes 25 times as long
#else
constexpr int many_ranks = 16384;
#endif

TEST(Sim, sixteen_thousand_ranks_fit) {
  EPL_ONE_OF_THREE();
  auto device = make_device(fast_machine);
  auto ranks = make_ranks(*device, many_ranks);
  for (Rank& rank : ranks) {
    for (int i = 0; i < 10; ++i) {
      launch(*rank.stream, work(1e9, 0));
      ASSERT_TRUE(rank.communicator
                      ->run(*rank.stream, {.kind = Kind::all_reduce,
                                           .dtype = DType::f32,
                                           .count = 1 << 20,
                                           .source = nullptr,
                                           .target = nullptr,
                                           .reduction = Reduction::sum})
                      .ok());
    }
  }
  const double end = ranks[0].stream->clock()->seconds();
  EXPECT_GT(end, 10 * seconds(Kind::all_reduce, many_ranks, 4 << 20, fast_machine));
  for (Rank& rank : ranks) ASSERT_EQ(rank.stream->clock()->seconds(), end);
}

TEST(Sim, an_abort_shows_when_a_stream_is_synchronized) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 2);
  for (Rank& rank : ranks) ASSERT_TRUE(rank.communicator->run(*rank.stream, {.kind = Kind::barrier}).ok());
  ASSERT_TRUE(ranks[0].communicator->run(*ranks[0].stream, {.kind = Kind::barrier}).ok());
  EXPECT_FALSE(ranks[0].stream->clock()->settled());
  ranks[1].communicator.reset();
  EXPECT_TRUE(ranks[0].stream->clock()->settled());
  EXPECT_EQ(ranks[0].stream->synchronize().code(), Code::peer_failed);
  EXPECT_NE(ranks[0].stream->synchronize().message().find("rank 1"), std::string::npos);
  EXPECT_EQ(ranks[0].communicator->run(*ranks[0].stream, {.kind = Kind::barrier}).code(), Code::peer_failed);
  EXPECT_TRUE(ranks[1].stream->synchronize().ok()) << "it made no call that failed";
}

TEST(Sim, ranks_that_disagree_are_told) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 2);
  ASSERT_TRUE(ranks[0].communicator->run(*ranks[0].stream, {.kind = Kind::barrier}).ok());
  EXPECT_EQ(ranks[1]
                .communicator
                ->run(*ranks[1].stream,
                      {.kind = Kind::broadcast, .count = 4, .source = nullptr, .target = nullptr, .peer = 0})
                .code(),
            Code::misuse);
  EXPECT_EQ(ranks[0].stream->synchronize().code(), Code::misuse);
}

TEST(Sim, messages_take_time_of_two_ranks) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 3);
  launch(*ranks[0].stream, work(1e9, 0));
  ASSERT_TRUE(ranks[1]
                  .communicator
                  ->run(*ranks[1].stream, {.kind = Kind::receive, .dtype = DType::f32, .count = 250000000, .peer = 0})
                  .ok());
  EXPECT_FALSE(ranks[1].stream->clock()->settled());
  ASSERT_TRUE(
      ranks[0]
          .communicator->run(*ranks[0].stream, {.kind = Kind::send, .dtype = DType::f32, .count = 250000000, .peer = 1})
          .ok());
  EXPECT_TRUE(ranks[1].stream->clock()->settled());
  EXPECT_DOUBLE_EQ(ranks[1].stream->clock()->seconds(), 1.5 + seconds(Kind::send, 2, 1000000000));
  EXPECT_EQ(ranks[2].stream->clock()->seconds(), 0);
  EXPECT_EQ(ranks[2].communicator->run(*ranks[2].stream, {.kind = Kind::send, .count = 1, .peer = 2}).code(),
            Code::invalid_argument);
}

TEST(Sim, subgroups_meet_without_the_rest) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 4);
  std::vector<std::unique_ptr<Communicator>> pair;
  for (int r : {1, 3}) {
    auto subgroup = ranks[r].communicator->split("odd", std::vector<int>{1, 3});
    ASSERT_TRUE(subgroup.ok());
    pair.push_back(std::move(*subgroup));
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pair[i]->rank(), static_cast<int>(i));
    ASSERT_TRUE(pair[i]->run(*ranks[2 * i + 1].stream, {.kind = Kind::barrier}).ok());
  }
  EXPECT_DOUBLE_EQ(ranks[3].stream->clock()->seconds(), 1);
  EXPECT_EQ(ranks[0].stream->clock()->seconds(), 0);
}

TEST(Sim, ranks_may_be_driven_by_threads) {
  auto device = make_device(round_machine);
  auto ranks = make_ranks(*device, 8);
  std::vector<std::thread> threads;
  for (Rank& rank : ranks) {
    threads.emplace_back([&rank] {
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(rank.communicator->run(*rank.stream, {.kind = Kind::barrier}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Rank& rank : ranks) EXPECT_DOUBLE_EQ(rank.stream->clock()->seconds(), 300);
}

// Pairs of ranks have a link that is quicker than the one that joins all pairs.
TEST(Sim, neighbours_have_their_own_link) {
  Machine pairs = round_machine;
  pairs.links.insert(pairs.links.begin(), {.ranks = 2, .bandwidth = 1e9, .seconds = 0.25});
  auto device = make_device(pairs);
  auto ranks = make_ranks(*device, 4);
  const auto barrier_of = [&](int a, int b) {
    const double before = ranks[a].stream->clock()->seconds();
    const std::vector<int> members = {a, b};
    std::vector<std::unique_ptr<Communicator>> both;
    for (int r : members) {
      auto subgroup = ranks[r].communicator->split(cat(a, "-", b), members);
      EXPECT_TRUE(subgroup.ok()) << subgroup.status().to_string();
      both.push_back(std::move(*subgroup));
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(both[i]->run(*ranks[members[i]].stream, {.kind = Kind::barrier}).ok());
    return ranks[a].stream->clock()->seconds() - before;
  };
  EXPECT_DOUBLE_EQ(barrier_of(2, 3), 0.25);
  EXPECT_DOUBLE_EQ(barrier_of(0, 1), 0.25);
  EXPECT_DOUBLE_EQ(barrier_of(1, 2), 1) << "one block of two ends between them";
}

}  // namespace
}  // namespace epl::sim::sim_test
