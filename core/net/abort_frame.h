// What a rank says when it ends a group.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace epl::net {

// Its reason, and of each group that it ends how many calls its sender has completed. Such a call has been answered by
// all ranks, so that it completes on each: ranks agree on which calls took place.
struct Completed {
  uint64_t group = 0, calls = 0;
};
struct Abort {
  Status why;
  std::vector<Completed> completed;
  Status lost;  // that a rank is gone for good, and which
};

inline std::string packed(const Abort& abort) {
  const uint64_t numbers[] = {
      abort.completed.size(),   static_cast<uint64_t>(abort.why.code()),  static_cast<uint64_t>(abort.why.rank()),
      abort.why.where().size(), static_cast<uint64_t>(abort.lost.rank()), abort.lost.message().size()};
  std::string text(reinterpret_cast<const char*>(numbers), sizeof numbers);
  for (const Completed& one : abort.completed) text.append(reinterpret_cast<const char*>(&one), sizeof one);
  return text + abort.lost.message() + abort.why.where() + abort.why.message();
}

// Of a text that cannot be read, an abort that says so.
inline Abort unpacked(std::string_view text) {
  Abort out{error(Code::peer_failed, "a peer ended the group for a reason that cannot be read"), {}, {}};
  uint64_t numbers[6] = {};
  if (text.size() < sizeof numbers) return out;
  std::memcpy(numbers, text.data(), sizeof numbers);
  text.remove_prefix(sizeof numbers);
  const auto [count, code, rank, where, lost_rank, lost] = numbers;
  if (count > text.size() / sizeof out.completed[0]) return out;
  out.completed.resize(count);
  std::memcpy(out.completed.data(), text.data(), count * sizeof out.completed[0]);
  text.remove_prefix(count * sizeof out.completed[0]);
  if (lost > text.size()) return out;
  if (lost > 0) {
    out.lost = Status(Code::peer_failed, std::string(text.substr(0, lost))).of_rank(static_cast<int64_t>(lost_rank));
    text.remove_prefix(lost);
  }
  const bool known = code > 0 && code <= static_cast<uint64_t>(last_code) && where <= text.size();
  if (known) {
    out.why = Status(static_cast<Code>(code), std::string(text.substr(where)), std::string(text.substr(0, where)))
                  .of_rank(static_cast<int64_t>(rank));
  }
  return out;
}

}  // namespace epl::net
