// The product equals, bit for bit, a scalar loop that spells out the order of summation, whatever the shape, the
// strides, the number of threads and the way it is cut.
#include "backends/cpu/kernels/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"

namespace epl::cpu::gemm_test {
namespace {

struct Case {
  GemmProblem p;
  std::vector<float> a, b, bias;
};

float at_a(const Case& c, int64_t i, int64_t k) { return c.a[i * c.p.a_row + k * c.p.a_col]; }
float at_b(const Case& c, int64_t k, int64_t j) { return c.b[k * c.p.b_row + j * c.p.b_col]; }

float chain(const Case& c, int64_t i, int64_t j, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum = std::fma(at_a(c, i, k), at_b(c, k, j), sum);
  return sum;
}

float unit_sum(const Case& c, int64_t i, int64_t j, int64_t begin, int64_t end) {
  float sum = chain(c, i, j, begin, std::min(begin + 256, end));
  for (int64_t k = begin + 256; k < end; k += 256) sum = sum + chain(c, i, j, k, std::min(k + 256, end));
  return sum;
}

float tree(const Case& c, int64_t i, int64_t j, int64_t first, int64_t count) {
  const int64_t length = c.p.k / c.p.units;
  if (count == 1) return unit_sum(c, i, j, first * length, (first + 1) * length);
  return tree(c, i, j, first, count / 2) + tree(c, i, j, first + count / 2, count / 2);
}

float expected(const Case& c, int64_t i, int64_t j) {
  const float sum = tree(c, i, j, 0, c.p.units);
  if (c.p.bias == GemmBias::rows) return sum + c.bias[i];
  if (c.p.bias == GemmBias::columns) return sum + c.bias[j];
  return sum;
}

std::vector<float> random_floats(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

// Strides of a matrix that is stored by rows or by columns, with some room between them.
void set_strides(std::mt19937& random, int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  const int64_t room = random() % 3;
  if (random() % 2) {
    row = columns + room, column = 1;
  } else {
    row = 1, column = rows + room;
  }
  if (random() % 8 == 0) row *= 2, column *= 2;
}

Case random_case(std::mt19937& random, int64_t m, int64_t n, int64_t k, int64_t units) {
  Case c;
  c.p.m = m, c.p.n = n, c.p.k = k, c.p.units = units;
  set_strides(random, m, k, c.p.a_row, c.p.a_col);
  set_strides(random, k, n, c.p.b_row, c.p.b_col);
  c.p.c_row = n + random() % 3;
  c.p.bias = static_cast<GemmBias>(random() % 3);
  // Exactly as long as the last element needs, so that a read behind it is seen by a sanitizer.
  c.a = random_floats(random, m > 0 && k > 0 ? (m - 1) * c.p.a_row + (k - 1) * c.p.a_col + 1 : 0);
  c.b = random_floats(random, n > 0 && k > 0 ? (k - 1) * c.p.b_row + (n - 1) * c.p.b_col + 1 : 0);
  c.bias = random_floats(random, c.p.bias == GemmBias::rows ? m : n);
  return c;
}

constexpr float untouched = -77.25f;

// The workspace is aligned and ends where it was said to end.
std::vector<float> run(const GemmProblem& p, GemmArguments arguments, int64_t c_size, int threads) {
  ThreadPool pool(threads);
  const int64_t bytes = gemm_workspace_bytes(p, threads);
  std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free);
  std::memset(workspace.get(), 0xff, bytes);  // not-a-numbers: what is read before it is written shows
  std::memset(static_cast<char*>(workspace.get()) + bytes, 0x5a, 64);
  std::vector<float> result(c_size, untouched);
  arguments.c = result.data();
  gemm(p, arguments, workspace.get(), pool);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(static_cast<unsigned char*>(workspace.get())[bytes + i], 0x5a) << "written behind the workspace";
  return result;
}

std::vector<float> run(const Case& c, int threads) {
  return run(c.p, {.a = c.a.data(), .b = c.b.data(), .bias = c.bias.data()}, c.p.m * c.p.c_row, threads);
}

bool same(float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0; }

void expect_exact(const Case& c, const std::vector<float>& result, const std::string& what) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < c.p.m; ++i) {
    for (int64_t j = 0; j < c.p.c_row; ++j) {
      const float value = result[i * c.p.c_row + j], wanted = j < c.p.n ? expected(c, i, j) : untouched;
      if (!same(value, wanted) && wrong++ == 0)
        ADD_FAILURE() << what << ": C[" << i << "," << j << "] is " << value << ", not " << wanted;
    }
  }
  EXPECT_EQ(wrong, 0) << what << " m " << c.p.m << " n " << c.p.n << " k " << c.p.k << " units " << c.p.units
                      << " strides " << c.p.a_row << "," << c.p.a_col << " " << c.p.b_row << "," << c.p.b_col;
}

TEST(Gemm, EqualsTheScalarOrderOnRandomShapes) {
  std::mt19937 random(1);
  for (int i = 0; i < 250; ++i) {
    auto size = [&](int64_t most) { return static_cast<int64_t>(1 + random() % (random() % 3 ? 12 : most)); };
    const int64_t units = int64_t{1} << (random() % 3 ? 0 : random() % 4);
    const Case c = random_case(random, size(90), size(150), units * size(700 / units), units);
    expect_exact(c, run(c, 1 + i % 3), "random shape");
    if (HasFailure()) return;
  }
}

TEST(Gemm, EqualsTheScalarOrderOnChosenShapes) {
  std::mt19937 random(2);
  const int64_t shapes[][4] = {{1, 1, 1, 1},       {1, 1, 513, 1},    {1, 130, 256, 1},  {2, 100, 257, 1},
                               {3, 70, 300, 1},    {4, 49, 512, 2},   {5, 33, 64, 8},    {6, 16, 256, 1},
                               {7, 17, 511, 1},    {8, 250, 40, 4},   {13, 9, 100, 1},   {14, 32, 90, 2},
                               {15, 64, 77, 1},    {29, 8, 64, 16},   {300, 1, 50, 1},   {200, 40, 32, 8},
                               {160, 300, 300, 1}, {33, 1100, 20, 1}, {150, 20, 2048, 4}};
  for (const auto& s : shapes) {
    const Case c = random_case(random, s[0], s[1], s[2], s[3]);
    for (int threads : {1, 2, 3}) expect_exact(c, run(c, threads), "chosen shape");
    if (HasFailure()) return;
  }
}

// Operands that come from a gathering pack.
void gather_a(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
              int64_t stride) {
  const Case& c = *static_cast<const Case*>(context);
  for (int64_t j = 0; j < depth; ++j)
    for (int64_t i = 0; i < count; ++i) to[j * stride + i] = at_a(c, first + i, k + j) * static_cast<float>(batch + 1);
}
void gather_b(const void* context, int64_t, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
              int64_t stride) {
  const Case& c = *static_cast<const Case*>(context);
  for (int64_t j = 0; j < depth; ++j)
    for (int64_t i = 0; i < count; ++i) to[j * stride + i] = at_b(c, k + j, first + i);
}

// Both operands stored by rows or by columns.
Case laid_out_case(std::mt19937& random, int64_t m, int64_t n, int64_t k, bool a_by_rows, bool b_by_rows) {
  Case c;
  c.p.m = m, c.p.n = n, c.p.k = k, c.p.c_row = n;
  c.p.a_row = a_by_rows ? k : 1, c.p.a_col = a_by_rows ? 1 : m;
  c.p.b_row = b_by_rows ? n : 1, c.p.b_col = b_by_rows ? 1 : k;
  c.p.bias = static_cast<GemmBias>(random() % 3);
  c.a = random_floats(random, m * k);
  c.b = random_floats(random, k * n);
  c.bias = random_floats(random, std::max(m, n));
  return c;
}

// Each height of a tile is code of its own, for each way in which the operands are read, and which heights there are
// depends on the processor. Up to 44 rows are one to four tiles of AVX-512's 14 rows and up to eight of AVX2's 6; 80
// columns are whole panels and one of a single vector, 75 have an edge; the panels of few rows are wider.
TEST(Gemm, EveryHeightOfATileInEveryLayout) {
  std::mt19937 random(8);
  for (int64_t m = 1; m <= 44; ++m) {
    for (int layout = 0; layout < 8; ++layout) {
      const int64_t n = (layout & 4 ? 75 : 80) + (m < 6 ? 80 : 0);
      const Case c = laid_out_case(random, m, n, 11, layout & 1, layout & 2);
      expect_exact(c, run(c, 1), "height and layout");
      if (HasFailure()) return;
    }
  }
}

// Units of up to 16 go two at a time, each height in code of its own; 32 of them do not fit into one block of k.
TEST(Gemm, ShortUnitsOfEveryHeightAndLength) {
  std::mt19937 random(9);
  for (int64_t m = 1; m <= 30; ++m) {
    for (const int64_t length : {1, 3, 8, 16, 17}) {
      for (const int64_t units : {2, 4, 8, 32}) {
        const int64_t n = 32 + random() % 48;
        Case c = laid_out_case(random, m, n, units * length, random() % 2, random() % 2);
        c.p.units = units;
        expect_exact(c, run(c, 1), "short units");
        if (HasFailure()) return;
      }
    }
  }
}

// Where several threads cut the rows into tasks, the last task has what is left: any height, thinner than the others.
TEST(Gemm, EveryRestOfRowsThatAreCut) {
  std::mt19937 random(9);
  for (int64_t rest = 1; rest <= 14; ++rest) {
    for (int layout = 0; layout < 4; ++layout) {
      const Case c = laid_out_case(random, 56 + rest, 33, 1024, layout & 1, layout & 2);
      const std::vector<float> full = run(c, 1), cut = run(c, 5);
      ASSERT_EQ(0, std::memcmp(cut.data(), full.data(), full.size() * sizeof(float)))
          << "rest " << rest << ", layout " << layout;
    }
  }
}

// All rows in every task, and several tasks: A is packed once for all of them, in one or more blocks of k, of one or
// more units, from rows, from columns or by a gather.
TEST(Gemm, TasksThatShareTheirRows) {
  std::mt19937 random(10);
  const int64_t shapes[][4] = {{64, 288, 300, 1}, {23, 300, 600, 2}, {100, 300, 128, 8}, {50, 320, 192, 32}};
  for (const auto& s : shapes) {
    for (int layout = 0; layout < 8; ++layout) {
      Case c = laid_out_case(random, s[0], s[1], s[2], layout & 1, layout & 2);
      c.p.units = s[3];
      const std::vector<float> full = run(c, 1);
      if (layout == 0) expect_exact(c, full, "rows for one thread");
      GemmArguments arguments{.a = c.a.data(), .b = c.b.data(), .bias = c.bias.data()};
      GemmProblem p = c.p;
      if (layout & 4) p.pack_a = gather_a, arguments.a = nullptr, arguments.a_context = &c;
      const int threads = layout % 4 == 3 ? 5 : 2;
      const std::vector<float> result = run(p, arguments, p.m * p.c_row, threads);
      ASSERT_EQ(0, std::memcmp(result.data(), full.data(), full.size() * sizeof(float)))
          << s[0] << " rows, layout " << layout << ", " << threads << " threads";
    }
  }
}

// A C larger than the caches is computed in long passes: several blocks of a unit, several units, or some of them, with
// a rest of any length, of rows, of columns or by a gather.
TEST(Gemm, LongPassesWhereCIsLarge) {
  std::mt19937 random(11);
  const int64_t shapes[][4] = {{1100, 490, 700, 1}, {530, 1010, 1043, 1}, {700, 760, 512, 4}, {760, 700, 2080, 4}};
  for (const auto& s : shapes) {
    const int layout = static_cast<int>(random() % 4);
    Case c = laid_out_case(random, s[0], s[1], s[2], layout & 1, layout & 2);
    c.p.units = s[3];
    const std::vector<float> full = run(c, 1);
    for (int i = 0; i < 500; ++i) {
      const int64_t row = static_cast<int64_t>(random()) % c.p.m, column = static_cast<int64_t>(random()) % c.p.n;
      ASSERT_TRUE(same(full[row * c.p.c_row + column], expected(c, row, column)))
          << s[0] << ": " << row << " " << column;
    }
    GemmProblem p = c.p;
    p.pack_a = gather_a;
    p.pack_b = gather_b;
    GemmArguments gathered{.bias = c.bias.data(), .a_context = &c, .b_context = &c};
    ASSERT_EQ(run(p, gathered, p.m * p.c_row, 2), full) << s[0] << " rows";
  }
}

TEST(Gemm, EmptySumsAreTheBias) {
  std::mt19937 random(3);
  Case c = random_case(random, 5, 20, 0, 1);
  expect_exact(c, run(c, 2), "no k");
  c = random_case(random, 0, 20, 7, 1);
  EXPECT_TRUE(run(c, 2).empty());
  c = random_case(random, 3, 0, 7, 1);
  c.p.c_row = 2;
  EXPECT_EQ(run(c, 2), std::vector<float>(6, untouched));
}

TEST(Gemm, CutsAndThreadsLeaveTheBits) {
  std::mt19937 random(4);
  for (const auto& s : {std::array<int64_t, 3>{150, 130, 600}, {7, 200, 300}, {64, 512, 784}}) {
    Case c = random_case(random, s[0], s[1], s[2], 1);
    c.p.bias = GemmBias::none;
    const std::vector<float> full = run(c, 1);
    for (int threads : {2, 3, 5})
      EXPECT_EQ(0, std::memcmp(run(c, threads).data(), full.data(), full.size() * sizeof(float)));
    const int64_t row = 1 + random() % (s[0] - 1), column = 1 + random() % (s[1] - 1);
    GemmProblem part = c.p;
    part.m = c.p.m - row;
    part.n = c.p.n - column;
    const std::vector<float> corner =
        run(part, {.a = c.a.data() + row * c.p.a_row, .b = c.b.data() + column * c.p.b_col}, part.m * part.c_row, 2);
    for (int64_t i = 0; i < part.m; ++i)
      for (int64_t j = 0; j < part.n; ++j)
        ASSERT_TRUE(same(corner[i * part.c_row + j], full[(i + row) * c.p.c_row + j + column])) << i << " " << j;
  }
}

TEST(Gemm, RunsOfUnitsAreSubtrees) {
  std::mt19937 random(5);
  Case c = random_case(random, 40, 50, 8 * 300, 8);
  c.p.bias = GemmBias::none;
  const std::vector<float> full = run(c, 2);
  for (int64_t shards : {2, 4, 8}) {
    std::vector<std::vector<float>> sums;
    for (int64_t i = 0; i < shards; ++i) {
      GemmProblem part = c.p;
      part.k = c.p.k / shards;
      part.units = 8 / shards;
      sums.push_back(run(part, {.a = c.a.data() + i * part.k * c.p.a_col, .b = c.b.data() + i * part.k * c.p.b_row},
                         part.m * part.c_row, 2));
    }
    for (; sums.size() > 1;) {
      std::vector<std::vector<float>> next;
      for (size_t i = 0; i < sums.size(); i += 2) {
        for (size_t e = 0; e < sums[i].size(); ++e) sums[i][e] = sums[i][e] + sums[i + 1][e];
        next.push_back(sums[i]);
      }
      sums = next;
    }
    for (int64_t i = 0; i < c.p.m; ++i)
      ASSERT_EQ(0, std::memcmp(&sums[0][i * c.p.c_row], &full[i * c.p.c_row], c.p.n * sizeof(float)))
          << shards << " shards, row " << i;
  }
}

// Gathered operands, and C in runs of columns, as convolutions use them.
TEST(Gemm, GathersOperandsAndScattersColumns) {
  std::mt19937 random(6);
  Case c = random_case(random, 30, 7 * 11, 530, 2);
  const std::vector<float> full = run(c, 1);
  GemmProblem p = c.p;
  p.pack_a = gather_a;
  p.pack_b = gather_b;
  p.c_run = 11, p.c_jump = 500, p.c_row = 13;
  for (int threads : {1, 2, 3}) {
    const std::vector<float> result =
        run(p, {.bias = c.bias.data(), .a_context = &c, .b_context = &c}, 7 * 500, threads);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j)
        ASSERT_TRUE(same(result[j / 11 * 500 + i * 13 + j % 11], full[i * c.p.c_row + j])) << i << " " << j;
  }
}

TEST(Gemm, BatchesAreIndependentProducts) {
  std::mt19937 random(7);
  GemmProblem p;
  p.m = 9, p.n = 21, p.k = 300, p.a_row = 300, p.a_col = 1, p.b_row = 21, p.b_col = 1, p.c_row = 21;
  p.batch[1] = {.count = 3, .a = 9 * 300, .b = 0, .c = 2 * 9 * 21};  // B is shared by the outer dimension
  p.batch[2] = {.count = 2, .a = 3 * 9 * 300, .b = 300 * 21, .c = 9 * 21};
  const std::vector<float> a = random_floats(random, 6 * 9 * 300), b = random_floats(random, 2 * 300 * 21);
  const std::vector<float> all = run(p, {.a = a.data(), .b = b.data()}, 6 * 9 * 21, 2);
  GemmProblem one = p;
  one.batch[1] = one.batch[2] = {};
  for (int64_t x = 0; x < 3; ++x) {
    for (int64_t y = 0; y < 2; ++y) {
      const std::vector<float> c =
          run(one, {.a = a.data() + x * 9 * 300 + y * 3 * 9 * 300, .b = b.data() + y * 300 * 21}, 9 * 21, 1);
      EXPECT_EQ(0, std::memcmp(c.data(), all.data() + (x * 2 + y) * 9 * 21, c.size() * sizeof(float))) << x << " " << y;
    }
  }
}

}  // namespace
}  // namespace epl::cpu::gemm_test
