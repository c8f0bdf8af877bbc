// What the communicators of a device that computes mean, for groups of one rank to more ranks than cores.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/pack.h"
#include "tests/backend/conformance.h"

namespace epl::communicator_test {
namespace {

using Kind = Collective::Kind;

// The canonical order spelled out: the tree over the largest power of two of ranks, then the rest.
float tree_sum(const std::vector<std::vector<float>>& x, int64_t i, int first, int ranks) {
  if (ranks == 1) return x[first][i];
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1)));
  return tree_sum(x, i, first, left) + tree_sum(x, i, first + left, ranks - left);
}

// Numbers of very different size, so that another order of summation gives other bits.
std::vector<std::vector<float>> uneven_numbers(int ranks, int64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> x(ranks, std::vector<float>(count));
  for (auto& rank : x)
    for (float& v : rank) v = normal(random) * std::exp2(static_cast<float>(random() % 20));
  return x;
}

TEST_P(Ranks, know_their_places) {
  for (int r = 0; r < ranks(); ++r) {
    EXPECT_EQ(group[r]->rank(), r);
    EXPECT_EQ(group[r]->size(), ranks());
  }
}

TEST_P(Ranks, sums_follow_the_tree_bit_for_bit) {
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{1000}, int64_t{300001}}) {
    const auto x = uneven_numbers(ranks(), count);
    auto in_place = x;
    std::vector<std::vector<float>> y(ranks(), std::vector<float>(count));
    on_ranks(
        *device, group,
        [&](int r, Communicator& c, Stream& s) {
          EXPECT_TRUE(run(c, s,
                          {.kind = Kind::all_reduce,
                           .dtype = DType::f32,
                           .count = count,
                           .source = x[r].data(),
                           .target = y[r].data(),
                           .reduction = Reduction::sum})
                          .ok());
          EXPECT_TRUE(run(c, s,
                          {.kind = Kind::all_reduce,
                           .dtype = DType::f32,
                           .count = count,
                           .source = in_place[r].data(),
                           .target = in_place[r].data(),
                           .reduction = Reduction::sum})
                          .ok());
        },
        count > 1000 ? 2 : 1);
    for (int64_t i = 0; i < count; ++i) {
      const float expected = tree_sum(x, i, 0, ranks());
      for (int r = 0; r < ranks(); ++r) {
        ASSERT_EQ(y[r][i], expected) << "element " << i << " of rank " << r;
        ASSERT_EQ(in_place[r][i], expected) << "element " << i << " of rank " << r;
      }
    }
  }
}

TEST_P(Ranks, sum_several_operands_together) {
  const std::vector<int64_t> counts = {1, 17, 0, 1000};
  std::vector<std::vector<std::vector<float>>> x;
  for (int64_t count : counts) x.push_back(uneven_numbers(ranks(), count));
  auto y = x;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Collective> calls;
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t bytes = counts[i] * static_cast<int64_t>(sizeof(float));
      auto buffer = device->of_rank(r).allocate(bytes);
      ASSERT_TRUE(buffer.ok());
      void* const data = (*buffer)->data();
      s.upload(data, x[i][r].data(), bytes);
      calls.push_back(
          {.kind = Kind::all_reduce, .dtype = DType::f32, .count = counts[i], .source = data, .target = data});
      buffers.push_back(std::move(buffer).value());
    }
    const Status status = c.run_together(s, calls);
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < counts.size(); ++i)
      s.download(y[i][r].data(), calls[i].target, counts[i] * static_cast<int64_t>(sizeof(float)));
    EXPECT_TRUE(s.synchronize().ok());
  });
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int r = 0; r < ranks(); ++r) {
      for (int64_t e = 0; e < counts[i]; ++e)
        ASSERT_EQ(y[i][r][e], tree_sum(x[i], e, 0, ranks())) << "element " << e << " of " << i << " at rank " << r;
    }
  }
}

TEST_P(Ranks, reduce_every_number_type) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      const int64_t count = 100;
      std::vector<Tensor> x;
      for (int r = 0; r < ranks(); ++r) {
        x.emplace_back(TensorType{dtype, {count}});
        for (int64_t i = 0; i < count; ++i) x[r].set(i, static_cast<double>((i * 7 + r * 13) % 11) - 5);
      }
      std::vector<Tensor> y;
      for (int r = 0; r < ranks(); ++r) y.emplace_back(TensorType{dtype, {count}});
      on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
        EXPECT_TRUE(run(c, s,
                        {.kind = Kind::all_reduce,
                         .dtype = dtype,
                         .count = count,
                         .source = x[r].data(),
                         .target = y[r].data(),
                         .reduction = reduction})
                        .ok());
      });
      for (int64_t i = 0; i < count; ++i) {
        double expected = x[0].get(i);
        for (int r = 1; r < ranks(); ++r) {
          const double v = x[r].get(i);
          expected = reduction == Reduction::sum   ? expected + v
                     : reduction == Reduction::max ? std::max(expected, v)
                                                   : std::min(expected, v);
        }
        for (int r = 0; r < ranks(); ++r) ASSERT_EQ(y[r].get(i), expected) << dtype_name(dtype) << " element " << i;
      }
    }
  }
}

TEST_P(Ranks, half_sums_round_at_every_addition) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::vector<Tensor> x, y;
    for (int r = 0; r < ranks(); ++r) {
      x.emplace_back(TensorType{dtype, {1000}});
      y.emplace_back(TensorType{dtype, {1000}});
      for (int64_t i = 0; i < 1000; ++i) x[r].set(i, normal(random));
    }
    on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
      EXPECT_TRUE(run(c, s,
                      {.kind = Kind::all_reduce,
                       .dtype = dtype,
                       .count = 1000,
                       .source = x[r].data(),
                       .target = y[r].data(),
                       .reduction = Reduction::sum})
                      .ok());
    });
    const auto sum = [&](auto& self, int64_t i, int first, int count) -> double {
      if (count == 1) return x[first].get(i);
      const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
      Tensor rounded({dtype, {}});
      rounded.set(0, self(self, i, first, left) + self(self, i, first + left, count - left));
      return rounded.get(0);
    };
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(y[0].get(i), sum(sum, i, 0, ranks()));
  }
}

TEST_P(Ranks, a_nan_reaches_everyone) {
  for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
    for (int from = 0; from < ranks(); ++from) {
      std::vector<float> x(ranks(), 1.0f), y(ranks());
      x[from] = std::numeric_limits<float>::quiet_NaN();
      on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
        EXPECT_TRUE(run(c, s,
                        {.kind = Kind::all_reduce,
                         .dtype = DType::f32,
                         .count = 1,
                         .source = &x[r],
                         .target = &y[r],
                         .reduction = reduction})
                        .ok());
      });
      for (float v : y) EXPECT_TRUE(std::isnan(v));
    }
  }
}

TEST_P(Ranks, gather_in_the_order_of_ranks) {
  for (int64_t bytes : {int64_t{0}, int64_t{3}, int64_t{5000}}) {
    std::vector<std::vector<uint8_t>> x(ranks()), y(ranks()), in_place(ranks());
    std::vector<uint8_t> expected;
    for (int r = 0; r < ranks(); ++r) {
      x[r].assign(bytes, static_cast<uint8_t>(r + 1));
      y[r].resize(bytes * ranks());
      in_place[r].resize(bytes * ranks());
      std::fill_n(in_place[r].begin() + r * bytes, bytes, static_cast<uint8_t>(r + 1));
      expected.insert(expected.end(), x[r].begin(), x[r].end());
    }
    on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
      EXPECT_TRUE(
          run(c, s, {.kind = Kind::all_gather, .count = bytes, .source = x[r].data(), .target = y[r].data()}).ok());
      EXPECT_TRUE(run(c, s,
                      {.kind = Kind::all_gather,
                       .count = bytes,
                       .source = in_place[r].data() + r * bytes,
                       .target = in_place[r].data()})
                      .ok());
    });
    for (int r = 0; r < ranks(); ++r) {
      EXPECT_EQ(y[r], expected);
      EXPECT_EQ(in_place[r], expected);
    }
  }
}

TEST_P(Ranks, broadcast_from_every_root) {
  for (int root = 0; root < ranks(); ++root) {
    std::vector<std::vector<int>> x(ranks());
    for (int r = 0; r < ranks(); ++r) x[r].assign(1000, r);
    on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
      EXPECT_TRUE(
          run(c, s,
              {.kind = Kind::broadcast, .count = 4000, .source = x[r].data(), .target = x[r].data(), .peer = root})
              .ok());
    });
    for (auto& values : x) EXPECT_EQ(values, std::vector<int>(1000, root));
  }
}

TEST_P(Ranks, scattered_sums_are_segments_of_the_whole) {
  const int64_t count = 1000;
  const auto x = uneven_numbers(ranks(), count * ranks());
  auto in_place = x;
  std::vector<std::vector<float>> y(ranks(), std::vector<float>(count));
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    EXPECT_TRUE(run(c, s,
                    {.kind = Kind::reduce_scatter,
                     .dtype = DType::f32,
                     .count = count,
                     .source = x[r].data(),
                     .target = y[r].data()})
                    .ok());
    float* own = in_place[r].data() + r * count;
    EXPECT_TRUE(run(c, s,
                    {.kind = Kind::reduce_scatter,
                     .dtype = DType::f32,
                     .count = count,
                     .source = in_place[r].data(),
                     .target = own})
                    .ok());
  });
  for (int r = 0; r < ranks(); ++r) {
    for (int64_t i = 0; i < count; ++i) {
      const float expected = tree_sum(x, r * count + i, 0, ranks());
      ASSERT_EQ(y[r][i], expected) << "element " << i << " of rank " << r;
      ASSERT_EQ(in_place[r][r * count + i], expected) << "element " << i << " of rank " << r;
    }
  }
}

TEST_P(Ranks, all_to_all_transposes_segments) {
  const int64_t count = 100;
  std::vector<std::vector<int32_t>> x(ranks()), y(ranks(), std::vector<int32_t>(count * ranks()));
  for (int r = 0; r < ranks(); ++r) {
    for (int64_t i = 0; i < count * ranks(); ++i) x[r].push_back(static_cast<int32_t>(r * 100000 + i));
  }
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    EXPECT_TRUE(run(c, s,
                    {.kind = Kind::all_to_all,
                     .dtype = DType::i32,
                     .count = count,
                     .source = x[r].data(),
                     .target = y[r].data()})
                    .ok());
    if (ranks() == 1) return;
    const Status status = r == 0 ? run(c, s,
                                       {.kind = Kind::all_to_all,
                                        .dtype = DType::i32,
                                        .count = count,
                                        .source = x[r].data(),
                                        .target = x[r].data()})
                                 : Status();
    EXPECT_EQ(status.code(), r == 0 ? Code::invalid_argument : Code::ok)
        << "in place it would overwrite what a peer has not read";
  });
  for (int r = 0; r < ranks(); ++r) {
    for (int p = 0; p < ranks(); ++p) {
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(y[r][p * count + i], x[p][r * count + i]);
    }
  }
}

// Rows of different lengths, more than fit into one round of shared memory, with owners that are no ranks among them.
TEST_P(Ranks, rows_go_to_their_owners_and_back) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{37, 5}, {700, 333}, {0, 4}, {3, 0}}) {
    const int64_t count = rows * width, all = rows * ranks();
    std::vector<int64_t> owners(static_cast<size_t>(all) + 1);
    for (int64_t i = 0; i < all; ++i) owners[i] = i % 11 == 3 ? -1 : i % 13 == 5 ? ranks() : i * i / 3 % ranks();
    const auto owner = [&](int64_t i) {
      return owners[i] >= 0 && owners[i] < ranks() ? owners[i] : i / std::max<int64_t>(rows, 1);
    };
    std::vector<std::vector<float>> x(ranks()), there(ranks()), back(ranks());
    on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
      for (int64_t i = 0; i < count; ++i) x[r].push_back(static_cast<float>(r * 1000000 + i));
      there[r].assign(count * ranks() + 1, -1);
      back[r].assign(count + 1, -1);
      x[r].push_back(-2);
      EXPECT_TRUE(run(c, s,
                      {.kind = Kind::dispatch,
                       .dtype = DType::f32,
                       .count = count,
                       .source = x[r].data(),
                       .target = there[r].data(),
                       .rows = rows,
                       .owners = owners.data()})
                      .ok());
      std::vector<float> answers = there[r];
      for (float& one : answers) one *= 2;
      EXPECT_TRUE(run(c, s,
                      {.kind = Kind::combine,
                       .dtype = DType::f32,
                       .count = count,
                       .source = answers.data(),
                       .target = back[r].data(),
                       .rows = rows,
                       .owners = owners.data()})
                      .ok());
    });
    for (int r = 0; r < ranks(); ++r) {
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(back[r][i], 2 * x[r][i]) << i << " of rank " << r;
      EXPECT_EQ(back[r][count], -1);
      for (int64_t i = 0; i < all; ++i) {
        for (int64_t k = 0; k < width; ++k) {
          const float given = owner(i) == r ? x[i / rows][i % rows * width + k] : -1;
          ASSERT_EQ(there[r][i * width + k], given) << "row " << i << " of rank " << r;
        }
      }
    }
  }
}

// Rows and columns of a mesh: each rank is in one of each, and both go on by themselves.
TEST_P(Ranks, subgroups_are_groups) {
  const int columns = ranks() % 2 == 0 ? 2 : 1, rows = ranks() / columns;
  std::vector<float> by_row(ranks()), by_column(ranks());
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<int> row, column;
    for (int i = 0; i < columns; ++i) row.push_back(r / columns * columns + i);
    for (int i = 0; i < rows; ++i) column.push_back(r % columns + i * columns);
    auto first = c.split(cat("row ", r / columns), row), second = c.split(cat("column ", r % columns), column);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ((*first)->size(), columns);
    EXPECT_EQ((*second)->rank(), r / columns);
    EXPECT_EQ((*second)->group(), cat("column ", r % columns));
    const float x = static_cast<float>(r);
    for (auto [subgroup, y] : {std::pair(first->get(), &by_row[r]), std::pair(second->get(), &by_column[r])}) {
      EXPECT_TRUE(
          run(*subgroup, s, {.kind = Kind::all_reduce, .dtype = DType::f32, .count = 1, .source = &x, .target = y})
              .ok());
    }
    EXPECT_TRUE(run(c, s, {.kind = Kind::barrier}).ok());  // nobody leaves a subgroup before all are done with it
  });
  for (int r = 0; r < ranks(); ++r) {
    float row = 0, column = 0;
    for (int p = 0; p < ranks(); ++p) {
      row += p / columns == r / columns ? static_cast<float>(p) : 0;
      column += p % columns == r % columns ? static_cast<float>(p) : 0;
    }
    EXPECT_EQ(by_row[r], row);
    EXPECT_EQ(by_column[r], column);
  }
}

TEST_P(Ranks, a_subgroup_ends_with_its_group) {
  if (ranks() == 1) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<int> all;
    for (int i = 0; i < ranks(); ++i) all.push_back(i);
    auto subgroup = c.split("all", all);
    ASSERT_TRUE(subgroup.ok());
    EXPECT_EQ(c.split("all", std::vector<int>{r}).status().code(), Code::misuse) << "the name is taken";
    EXPECT_EQ(c.split("others", std::vector<int>{r == 0 ? 1 : 0}).status().code(), Code::invalid_argument);
    EXPECT_TRUE(run(**subgroup, s, {.kind = Kind::barrier}).ok());
    if (r == 0) c.abort(error(Code::cancelled, "enough"));
    EXPECT_EQ(run(**subgroup, s, {.kind = Kind::barrier}).code(), Code::cancelled);
  });
}

TEST_P(Ranks, a_barrier_lets_nobody_through_early) {
  std::atomic<int> arrived{0};
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    for (int round = 1; round <= 50; ++round) {
      if (r == round % ranks()) std::this_thread::yield();
      ++arrived;
      EXPECT_TRUE(run(c, s, {.kind = Kind::barrier}).ok());
      EXPECT_GE(arrived.load(), round * ranks());
      EXPECT_TRUE(run(c, s, {.kind = Kind::barrier}).ok());
    }
  });
}

// Buffers are rewritten right after each call: a peer that still read them would see the next round's numbers.
TEST_P(Ranks, operands_are_free_when_the_call_returns) {
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<float> x(64);
    for (int round = 0; round < 200; ++round) {
      std::fill(x.begin(), x.end(), static_cast<float>(round + r));
      ASSERT_TRUE(run(c, s,
                      {.kind = Kind::all_reduce,
                       .dtype = DType::f32,
                       .count = 64,
                       .source = x.data(),
                       .target = x.data(),
                       .reduction = Reduction::sum})
                      .ok());
      const float expected = static_cast<float>(round * ranks() + ranks() * (ranks() - 1) / 2);
      ASSERT_EQ(x, std::vector<float>(64, expected));
    }
  });
}

TEST_P(Ranks, an_abort_ends_pending_and_later_calls) {
  if (ranks() == 1) return;  // never waits
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // let the others wait
      c.abort(error(Code::deadline_exceeded, "too slow"));
    }
    for (int i = 0; i < 2; ++i) {
      const Status status = run(c, s, {.kind = Kind::barrier});
      EXPECT_EQ(status.code(), Code::deadline_exceeded);
      EXPECT_EQ(status.message(), "too slow");
    }
    c.abort(error(Code::cancelled, "the first reason stands"));
    EXPECT_EQ(run(c, s, {.kind = Kind::barrier}).code(), Code::deadline_exceeded);
  });
}

TEST_P(Ranks, a_rank_that_leaves_is_named) {
  if (ranks() == 1) return;  // has no peers
  const int lost = ranks() - 1;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    float x = 1;
    EXPECT_TRUE(run(c, s,
                    {.kind = Kind::all_reduce,
                     .dtype = DType::f32,
                     .count = 1,
                     .source = &x,
                     .target = &x,
                     .reduction = Reduction::sum})
                    .ok());
    if (r == lost) {
      group[r].reset();
      return;
    }
    const Status status = run(c, s,
                              {.kind = Kind::all_reduce,
                               .dtype = DType::f32,
                               .count = 1,
                               .source = &x,
                               .target = &x,
                               .reduction = Reduction::sum});
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_NE(status.message().find(cat("rank ", lost)), std::string::npos) << status.message();
    EXPECT_EQ(x, static_cast<float>(ranks())) << "nothing is written by a call that fails";
  });
}

TEST_P(Ranks, different_calls_are_misuse_on_every_rank) {
  if (ranks() == 1) return;  // always agrees
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<float> x(8, 1.0f);
    const Status status =
        r == 1 ? run(c, s, {.kind = Kind::broadcast, .count = 4, .source = x.data(), .target = x.data(), .peer = 0})
               : run(c, s,
                     {.kind = Kind::all_reduce,
                      .dtype = DType::f32,
                      .count = 8,
                      .source = x.data(),
                      .target = x.data(),
                      .reduction = Reduction::sum});
    EXPECT_EQ(status.code(), Code::misuse);
    EXPECT_NE(status.message().find("all_reduce(8 x f32, sum)"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("broadcast(4 x u8, root 0)"), std::string::npos) << status.message();
    EXPECT_EQ(run(c, s, {.kind = Kind::barrier}).code(), Code::misuse);
  });
}

TEST_P(Ranks, a_bad_argument_fails_for_all) {
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<float> x(8, 1.0f);
    const Status status = r == 0 ? run(c, s,
                                       {.kind = Kind::all_reduce,
                                        .dtype = DType::boolean,
                                        .count = 8,
                                        .source = x.data(),
                                        .target = x.data(),
                                        .reduction = Reduction::sum})
                                 : run(c, s, {.kind = Kind::barrier});
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  });
}

// A device that computes nothing has only time to show, which sim_test looks at.
std::vector<Way> computing_backends() {
  TestHost memory;
  std::vector<Way> ways;
  for (const std::string& name : backend_names()) {
    auto device = open_device(name, memory.host());
    if (!device.ok() || !(*device)->executes() || name.starts_with("far")) continue;
    ways.push_back({name, ""});
    if (join_all(**device, 1, "shared").status().code() == Code::unsupported) continue;
    ways.push_back({name, "shared"});
    if (!(*device)->shares_host_memory()) continue;  // it meets ranks of the processor, by any of these
    ways.push_back({name, "sockets"});               // as between hosts
    for (const PackRow& row : pack_table().rows) {
      if (row.carries && open_pack(EPL_PACK_FOLDER, row.name).ok()) ways.push_back({name, row.name});
    }
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(, Ranks,
                         testing::Combine(testing::ValuesIn(computing_backends()), testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& info) {
                           const Way& way = std::get<0>(info.param);
                           return cat(way.device, way.transport.empty() ? "" : "_by_", way.transport, "_",
                                      std::get<1>(info.param));
                         });

INSTANTIATE_TEST_SUITE_P(Far, Ranks,
                         testing::Values(std::tuple(Way{"far"}, 3), std::tuple(Way{"far"}, 8),
                                         std::tuple(Way{"far_in_other_order"}, 2)),
                         [](const auto& info) {
                           return cat(std::get<0>(info.param).device, "_", std::get<1>(info.param));
                         });

// Some of a machine's GPUs: two ranks on one of them, or all of them; one place each of them. The device `cuda` of the
// ways above is all that there are.
std::vector<std::tuple<Way, int>> named_gpus() {
  TestHost memory;
  if (!open_device("cuda:0,1", memory.host(), {.ranks = 2}).ok()) return {};
  return {{Way{"cuda:0"}, 3}, {Way{"cuda:1,0,1"}, 3}, {Way{"cuda:0,1"}, 5}};
}

INSTANTIATE_TEST_SUITE_P(Named, Ranks, testing::ValuesIn(named_gpus()), [](const auto& info) {
  std::string name = cat(std::get<0>(info.param).device, "_", std::get<1>(info.param));
  std::ranges::replace_if(name, [](char c) { return c == ':' || c == ','; }, '_');
  return name;
});

TEST_P(Backend, a_group_needs_a_rank) {
  EXPECT_EQ(device->create_group("world", 0).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace epl::communicator_test
