// A test that goes through all cases or all layouts is one of three in ./test, and all three in ./test --ci. Which one
// follows from the commit, so that three commits in a row see every test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace epl {

// 1, 2 or 3, by the name of the test alone: what is added or renamed leaves the others where they are.
inline int third_of(std::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<int>((hash >> 32) % 3) + 1;
}

// EPL_TEST_THIRD names the third to run; where it says nothing, all run.
inline bool is_left_out(std::string_view name) {
  const char* said = std::getenv("EPL_TEST_THIRD");
  const int third = said ? std::atoi(said) : 0;
  return third >= 1 && third <= 3 && third_of(name) != third;
}

inline bool of_another_third() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return is_left_out(std::string(test.test_suite_name()) + "." + test.name());
}

}  // namespace epl

// At the start of a test.
#define EPL_ONE_OF_THREE() \
  if (::epl::of_another_third()) GTEST_SKIP() << "of another third, which another commit or --ci runs"
