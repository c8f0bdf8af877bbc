// Sums in two levels have the bits of those in one, and are taken where they are faster.
#include "core/backend/two_level.h"

#include <cmath>
#include <numeric>
#include <random>

#include "backends/sim/sim.h"
#include "tests/backend/conformance.h"

namespace epl::two_level_test {
namespace {

using Kind = Collective::Kind;

// Hosts of so many ranks. A message takes as long inside of them as between them.
Machine hosts_of(int64_t ranks, double message = 1e-5) {
  Machine machine = processor_core();
  machine.links = {{.ranks = ranks, .bandwidth = 100e9, .seconds = message},
                   {.ranks = 0, .bandwidth = 1e9, .seconds = message}};
  return machine;
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(TwoLevels, AreOfHostsThatAreSubtrees) {
  const Machine machine = hosts_of(4);
  EXPECT_EQ(ranks_inside(machine, first_ranks(16)), 4);
  EXPECT_EQ(ranks_inside(machine, first_ranks(12)), 4);
  EXPECT_EQ(ranks_inside(machine, first_ranks(4)), 1) << "one host";
  EXPECT_EQ(ranks_inside(machine, first_ranks(1)), 1);
  EXPECT_EQ(ranks_inside(machine, first_ranks(6)), 2) << "the second host has one block, the first one two";
  EXPECT_EQ(ranks_inside(hosts_of(8), first_ranks(12)), 4);
  EXPECT_EQ(ranks_inside(hosts_of(6), first_ranks(12)), 2);
  EXPECT_EQ(ranks_inside(machine, std::vector<int>{0, 2, 4, 6}), 2);
  EXPECT_EQ(ranks_inside(machine, std::vector<int>{0, 4, 8}), 1);
  EXPECT_EQ(ranks_inside(machine, std::vector<int>{2, 3, 4, 5}), 2);
  EXPECT_EQ(ranks_inside(machine, std::vector<int>{0, 1, 2, 4, 5, 6}), 1) << "three are no subtree";
  EXPECT_EQ(ranks_inside(processor_core(), first_ranks(16)), 1) << "there are no hosts";
  Machine rings = machine;
  rings.links.back().rings = true;
  EXPECT_EQ(ranks_inside(rings, first_ranks(16)), 1);
}

std::vector<std::unique_ptr<Communicator>> in_levels(Device& device, int ranks, const CostModel& cost) {
  auto group = device.create_group("world", ranks);
  EXPECT_TRUE(group.ok()) << group.status().to_string();
  std::vector<std::unique_ptr<Communicator>> made;
  for (auto& one : *group) {
    auto levels = in_two_levels(std::move(one), first_ranks(ranks), cost);
    EXPECT_TRUE(levels.ok()) << levels.status().to_string();
    made.push_back(std::move(*levels));
  }
  return made;
}

// Of an all-reduce of so many floats on a simulated device.
double seconds(int ranks, int64_t count, const Machine& machine, bool levels) {
  const auto device = sim::make_device(machine);
  auto group = levels ? in_levels(*device, ranks, CostModel(machine)) : device->create_group("world", ranks).value();
  std::vector<std::unique_ptr<Stream>> streams;
  for (const auto& one : group) {
    streams.push_back(device->create_stream(1).value());
    EXPECT_TRUE(one->run(*streams.back(), {.kind = Kind::all_reduce, .dtype = DType::f32, .count = count}).ok());
  }
  for (const auto& stream : streams) EXPECT_EQ(stream->clock()->seconds(), streams.front()->clock()->seconds());
  return streams.front()->clock()->seconds();
}

TEST(TwoLevels, AreTakenWhereTheyAreFaster) {
  const Machine machine = hosts_of(4);
  const std::vector<int> ranks = first_ranks(16);
  constexpr int64_t large = 25'000'000, small = 16;
  EXPECT_NEAR(seconds(16, large, machine, true), two_level_seconds(CostModel(machine), ranks, 4, 4.0 * large), 1e-12);
  EXPECT_LT(seconds(16, large, machine, true), seconds(16, large, machine, false) / 4);
  EXPECT_EQ(seconds(16, small, machine, true), seconds(16, small, machine, false)) << "messages count for more";
  // Of one element more, the last one goes in one level.
  EXPECT_NEAR(seconds(16, large + 1, machine, true) - seconds(16, large, machine, true), seconds(16, 1, machine, false),
              1e-6);
}

TEST(TwoLevels, HaveTheBitsOfOne) {
  TestHost memory;
  const auto device = open_device("cpu", memory.host());
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  // Of the last two, hosts have other numbers of ranks.
  for (const auto& [ranks, host] :
       {std::pair{8, 4}, std::pair{8, 2}, std::pair{12, 4}, std::pair{6, 2}, std::pair{12, 8}, std::pair{6, 4}}) {
    for (const int64_t count : {int64_t{3}, int64_t{1000}, int64_t{4097}}) {
      // Messages take no time, so that all that can be divided goes in two levels.
      auto levels = in_levels(**device, ranks, CostModel(hosts_of(host, 0)));
      auto flat = (*device)->create_group("flat", ranks).value();
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      std::vector<std::vector<float>> x(static_cast<size_t>(ranks), std::vector<float>(static_cast<size_t>(count)));
      for (auto& of_rank : x) {
        for (float& v : of_rank) v = normal(random) * std::exp2(static_cast<float>(random() % 20));
      }
      auto one = x, two = x, in_place = x;
      const auto sum = [&](Communicator& c, Stream& s, const std::vector<float>& from, std::vector<float>& to) {
        const Status status = c.run(s, {.kind = Kind::all_reduce,
                                        .dtype = DType::f32,
                                        .count = count,
                                        .source = from.data(),
                                        .target = to.data()});
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_TRUE(s.synchronize().ok());
      };
      on_ranks(**device, flat, [&](int r, Communicator& c, Stream& s) { sum(c, s, x[r], one[r]); });
      on_ranks(**device, levels, [&](int r, Communicator& c, Stream& s) {
        sum(c, s, x[r], two[r]);
        sum(c, s, in_place[r], in_place[r]);
      });
      EXPECT_EQ(one, two) << ranks << " ranks, " << count << " elements";
      EXPECT_EQ(one, in_place) << ranks << " ranks, " << count << " elements";
    }
  }
}

}  // namespace
}  // namespace epl::two_level_test
