// What a process of a job does, as it tells the other processes, and what must then be the same in all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace epl {

struct JobCall {
  uint64_t number = 0;    // of the calls since the ranks joined, counted from 1
  std::string_view name;  // "epl_session_step"
  // What must be the same besides: lines "key: value", which change seldom, and numbers of this call alone. Keys and
  // name live as long as the group.
  std::shared_ptr<const std::string> lines;
  std::vector<std::pair<std::string_view, uint64_t>> numbers;
  uint64_t digest = 0;  // of all of it

  void sign();               // computes `digest`
  std::string text() const;  // all of it, a line for each
};

// A line of such a text. A key that would be read as two, or as more lines than one, is in quotes.
std::string told_line(std::string_view key, std::string_view value);
// Texts of lines "key: value" of two ranks, as JobCall::text gives them and others like it.
// "rank 0 is in save, rank 1 in step", or "learning_rate is 1 at rank 0 and 2 at rank 1": the
// first line that differs. Empty where they say the same.
std::string rank_difference(int rank, std::string_view text, int other_rank, std::string_view other_text);
// The same of a peer: "its KEY is A, here it is B".
std::string line_difference(std::string_view here, std::string_view there);
// The keys of all lines that are not in both.
std::vector<std::string> different_keys(std::string_view here, std::string_view there);

}  // namespace epl
