// Ids, ranges of ids, and tables by id.
#include "core/ir/by.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace epl::by_test {
namespace {

std::vector<int> indices_of(IdRange<NodeId> range) {
  std::vector<int> found;
  for (const NodeId n : range) found.push_back(n.index);
  return found;
}

TEST(IdRange, GoesForwardAndBack) {
  const IdRange<NodeId> range(0, 3);
  EXPECT_EQ(indices_of(range), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(indices_of(range.reversed()), (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(indices_of(range.reversed().reversed()), indices_of(range));
  EXPECT_EQ(indices_of(IdRange<NodeId>(0, 0).reversed()), std::vector<int>());
}

TEST(IdRange, BeginsAfterAnId) {
  const IdRange<NodeId> range(0, 3);
  EXPECT_EQ(indices_of(range.after(NodeId{0})), (std::vector<int>{1, 2}));
  EXPECT_EQ(indices_of(range.after(NodeId{2})), std::vector<int>());
  EXPECT_EQ(indices_of(range.after(NodeId())), indices_of(range));
  EXPECT_EQ(indices_of(range.reversed().after(NodeId{1})), (std::vector<int>{0}));
}

TEST(By, TruthValuesAreSetByTheirId) {
  ByValue<bool> table(3);
  table[Value{1}] = true;
  EXPECT_EQ(table, (ByValue<bool>{false, true, false}));
  EXPECT_EQ(std::ranges::count(table, true), 1);
}

// A vector whose elements hold tables moves them when it grows.
TEST(By, MovesWithoutErrors) {
  EXPECT_TRUE(std::is_nothrow_move_constructible_v<ByNode<bool>>);
  EXPECT_TRUE(std::is_nothrow_move_constructible_v<ByNode<std::vector<int>>>);
}

TEST(By, ElementsStayWhenATableGrows) {
  ByNode<int> table{5, 6};
  table.resize(4, -1);
  EXPECT_EQ(table, (ByNode<int>{5, 6, -1, -1}));
  int sum = 0;
  for (const NodeId n : table.ids()) sum += n.index * table[n];
  EXPECT_EQ(sum, 6 - 2 - 3);
}

}  // namespace
}  // namespace epl::by_test
