// Every way to cut the batch over ranks and micro-batches, in both orders: each unit is computed once, and sums in the
// order of the layout are the binary tree over all units.
#include "core/strategy/batch_layout.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/text.h"
#include "core/strategy/scope_layout.h"

namespace epl::batch_layout_test {
namespace {

using Texts = std::vector<std::string>;

// The binary tree over these terms, as text: "((0+1)+2)".
std::string tree(const Texts& terms) {
  if (terms.size() == 1) return terms[0];
  size_t left = 1;
  while (left * 2 < terms.size()) left *= 2;
  const auto middle = terms.begin() + static_cast<std::ptrdiff_t>(left);
  return cat("(", tree({terms.begin(), middle}), "+", tree({middle, terms.end()}), ")");
}

Texts units_from(int64_t first, int64_t count) {
  Texts units;
  for (int64_t u = first; u < first + count; ++u) units.push_back(cat(u));
  return units;
}

struct Cut {
  std::string scopes;  // of a strategy
  int64_t ranks = 1, units = 16;
  MicroBatches in_time = {};
};

// What ranks and micro-batches have, by coordinates: each run a sum by itself.
using Sums = std::map<std::vector<int64_t>, Texts>;

// Sums along one axis.
Sums along(const Sums& sums, size_t axis) {
  std::map<std::vector<int64_t>, std::vector<Texts>> groups;
  for (const auto& [at, runs] : sums) {
    std::vector<int64_t> rest = at;
    rest[axis] = 0;
    groups[rest].push_back(runs);
  }
  Sums out;
  for (const auto& [at, members] : groups) {
    for (size_t run = 0; run < members[0].size(); ++run) {
      Texts terms;
      for (const Texts& runs : members) terms.push_back(runs[run]);
      out[at].push_back(tree(terms));
    }
  }
  return out;
}

void join_runs(Sums& sums) {
  for (auto& [at, runs] : sums) runs = {tree(runs)};
}

// The sum over the batch as the TaskGraph of a leaf makes it.
std::string sum_of(const LeafMesh& leaf) {
  const Mesh& mesh = leaf.mesh;
  const BatchLayout batch = leaf.batch.empty() ? BatchLayout::over_all_axes(mesh) : leaf.batch;
  Sums sums;
  for (int rank : mesh.device.ranks) {
    for (int64_t m = 0; m < mesh.size(micro_batch_axis); ++m) {
      MeshCoordinates coordinates = mesh.coordinates(rank, m);
      const int64_t first = batch.first_unit(mesh, coordinates);
      Texts runs;
      for (int64_t run = 0; run < batch.runs(mesh); ++run)
        runs.push_back(tree(units_from(first + run * batch.run_stride(mesh), batch.units_of_run(mesh))));
      for (size_t axis = 0; axis < mesh.axes.size(); ++axis)  // ranks along other axes compute the same
        coordinates.at[axis] = batch.cuts_over(static_cast<int>(axis)) ? coordinates.at[axis] : 0;
      sums[coordinates.at] = runs;
    }
  }
  if (!batch.loops_in_runs(mesh)) join_runs(sums);
  for (int axis : batch.order_of_sums()) {
    sums = along(sums, static_cast<size_t>(axis));
    if (mesh.axes[axis].kind == MeshAxis::Kind::time) join_runs(sums);
  }
  return sums.size() == 1 ? sums.begin()->second[0] : cat(sums.size(), " sums");
}

Result<std::vector<LeafMesh>> meshes_of(const Cut& cut) {
  EPL_ASSIGN(const Strategy strategy, parse_strategy(cat("{", cut.scopes, "}")));
  EPL_ASSIGN(const ScopeLayout layout, lay_out_scopes(strategy, cut.ranks));
  EPL_ASSIGN(const BatchAxes axes, find_batch_axes(layout));
  return make_meshes(layout, axes, cut.units, cut.in_time);
}

std::string stages(const std::vector<int>& copies) {
  Texts scopes;
  for (int degree : copies) scopes.push_back(cat(R"({"replicate": )", degree, R"(, "match": "*"})"));
  return cat("\"scopes\": [", join(scopes, ", "), "]");
}

constexpr BatchOrder orders[] = {BatchOrder::ranks, BatchOrder::micro_batches};

TEST(BatchLayout, SumsAreTheTreeOverAllUnitsInBothOrders) {
  for (const BatchOrder order : orders) {
    for (const int64_t micro_batches : {1, 2, 4}) {
      for (const Cut& cut : {Cut{.ranks = 1}, Cut{.ranks = 4}, Cut{stages({4, 1}), 5}, Cut{stages({1, 4}), 5},
                             Cut{stages({2, 4}), 6}, Cut{stages({4, 2, 1}), 7}, Cut{R"("default": {"split": 2})", 8},
                             Cut{R"("default": {"split": 4}, "cluster.colocate_split_and_replicate": true,
                    "scopes": [{"replicate": 1, "match": "a"}])",
                                 4}}) {
        Cut here = cut;
        here.in_time = {micro_batches, order};
        const auto meshes = meshes_of(here);
        ASSERT_TRUE(meshes.ok()) << meshes.status().to_string();
        for (const LeafMesh& leaf : *meshes)
          EXPECT_EQ(sum_of(leaf), tree(units_from(0, here.units))) << cut.scopes << " in " << micro_batches;
      }
    }
  }
}

// The axis that cuts the batch first may be of any size: what is behind it are subtrees.
TEST(BatchLayout, KeepsTheTreeWhereItSaysSo) {
  for (const BatchOrder order : orders) {
    for (const int64_t ranks : {1, 2, 3, 6}) {
      for (const int64_t micro_batches : {1, 2, 3}) {
        const MicroBatches in_time{micro_batches, order};
        const auto axes = BatchAxes::find({ranks});
        const Cut cut{.ranks = ranks, .units = 2 * ranks * micro_batches, .in_time = in_time};
        const std::string sum = sum_of((*meshes_of(cut))[0]), wanted = tree(units_from(0, cut.units));
        EXPECT_EQ(sum == wanted, axes->keep_the_tree(in_time)) << ranks << " ranks, " << micro_batches << ": " << sum;
      }
    }
  }
  EXPECT_TRUE(BatchAxes::find({3})->keep_the_tree({2, BatchOrder::ranks}));
  EXPECT_FALSE(BatchAxes::find({3})->keep_the_tree({2, BatchOrder::micro_batches}));
}

// All ranks share each micro-batch, so what other copies cut lies side by side: there is one run.
TEST(BatchLayout, MicroBatchesAreRunsOfUnitsWhereTheyComeFirst) {
  const auto meshes = meshes_of({stages({4, 1}), 5, 8, {2, BatchOrder::micro_batches}});
  ASSERT_TRUE(meshes.ok()) << meshes.status().to_string();
  const Mesh& four = (*meshes)[0].mesh;
  const Mesh& one = (*meshes)[1].mesh;
  const BatchLayout of_four = (*meshes)[0].batch, of_one = (*meshes)[1].batch;
  EXPECT_TRUE(of_four.time_first(four));
  EXPECT_EQ(of_four.first_unit(four, four.coordinates(2, 1)), 6);
  EXPECT_EQ(of_one.first_unit(one, one.coordinates(4, 1)), 4);
  EXPECT_EQ(of_one.runs(one), 1);
  EXPECT_EQ(of_one.units_of_run(one), 4);
  EXPECT_FALSE(of_one.loops_in_runs(one));
}

}  // namespace
}  // namespace epl::batch_layout_test
