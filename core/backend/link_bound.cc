#include "core/backend/link_bound.h"

#include <algorithm>

#include "core/backend/two_level.h"
#include "core/base/text.h"

namespace epl {
namespace {

using Kind = Collective::Kind;

int level_of(const Machine& machine, int64_t first, int64_t last) {
  return static_cast<int>(&machine.link(first, last) - machine.links.data());
}

// How many ranks of a group each block inside of what a level joins has.
std::vector<double> blocks_of(const Machine& machine, std::span<const int> ranks, int level) {
  const int64_t size = level == 0 ? 1 : std::max<int64_t>(machine.links[static_cast<size_t>(level) - 1].ranks, 1);
  std::vector<double> blocks;
  int64_t last = -1;
  for (const int rank : ranks) {
    if (rank / size != last) blocks.push_back(0);
    last = rank / size;
    ++blocks.back();
  }
  return blocks;
}

// Bytes that a block of `g` of the ranks gives to or gets from the others, whichever are more.
double of_block(Kind kind, double ranks, double g, double bytes) {
  switch (kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
    case Kind::send:
    case Kind::receive:
      return bytes;
    case Kind::reduce_scatter:
    case Kind::all_gather:
      return std::max(ranks - g, g) * bytes;
    case Kind::all_to_all:
    case Kind::dispatch:
    case Kind::combine:
      return g * (ranks - g) * bytes;
    case Kind::barrier:
      break;
  }
  return 0;
}

// Bytes that all blocks give to each other.
double of_all(Kind kind, double ranks, double blocks, double bytes) {
  if (kind == Kind::all_reduce) return 2 * (blocks - 1) * bytes;
  if (kind == Kind::reduce_scatter || kind == Kind::all_gather) return (blocks - 1) * ranks * bytes;
  return 0;
}

// Of links from one level to another that some call uses.
double bandwidth(const Machine& machine, const std::vector<bool>& used, size_t from, size_t to) {
  double sum = 0;
  for (size_t l = from; l <= to; ++l) sum += used[l] ? machine.links[l].bandwidth : 0;
  return sum;
}

void take(LinkNeed& need, double seconds, size_t level) {
  if (seconds <= need.seconds) return;
  need.seconds = seconds;
  need.level = static_cast<int>(level);
}

}  // namespace

LinkNeed link_need(const Machine& machine, std::span<const int> ranks, Kind kind, double bytes) {
  LinkNeed need;
  if (ranks.size() < 2 || kind == Kind::barrier || bytes <= 0) return need;
  const auto size = static_cast<double>(ranks.size());
  const auto top = static_cast<size_t>(level_of(machine, ranks.front(), ranks.back()));
  std::vector<std::vector<double>> blocks;  // by level; of the last one, what it joins is one block
  for (size_t l = 0; l <= top; ++l) blocks.push_back(blocks_of(machine, ranks, static_cast<int>(l)));
  std::vector<bool> used(top + 1);
  for (size_t l = 0; l <= top; ++l) used[l] = (l < top ? blocks[l + 1].size() : 1) < blocks[l].size();
  for (size_t l = 0; l <= top; ++l) {
    // Where a level joins nobody of the group, blocks are those of the next one, and so is what they need.
    double most = of_all(kind, size, static_cast<double>(blocks[l].size()), bytes) / size;
    for (const double g : blocks[l]) most = std::max(most, of_block(kind, size, g, bytes) / g);
    need.bytes.push_back(most);
    if (used[l]) take(need, most / bandwidth(machine, used, l, top), l);
  }
  return need;
}

double LinkWay::seconds() const {
  double sum = 0;
  for (const LinkUse& use : uses) sum += use.seconds;
  return sum;
}

LinkWay link_way(const CostModel& cost, std::span<const int> ranks, Kind kind, double bytes, int64_t elements) {
  LinkWay way;
  if (ranks.size() < 2) return way;
  const Machine& machine = cost.machine();
  const auto add = [&](Kind one, const RankGroup& group, double of_rank) {
    const int level = level_of(machine, group.first, group.last);
    const double sent = cost.moving(one, group, of_rank) * machine.links[static_cast<size_t>(level)].bandwidth;
    way.uses.push_back({level, sent, cost.collective(one, group, of_rank)});
  };
  const int64_t inside = elements > 0 && kind == Kind::all_reduce ? ranks_inside(machine, ranks) : 1;
  const bool has_levels = inside > 1 && inside < std::ssize(ranks) && elements >= inside;
  way.two_levels = has_levels && two_levels_pay(cost, ranks, inside, bytes);
  if (way.two_levels) {
    const TwoLevels groups = two_levels_of(ranks, inside);
    const double segment = bytes / static_cast<double>(inside);
    add(Kind::reduce_scatter, groups.near, segment);
    add(Kind::all_reduce, groups.far, segment);
    add(Kind::all_gather, groups.near, segment);
  } else {
    add(kind, {std::ssize(ranks), ranks.front(), ranks.back()}, bytes);
  }
  return way;
}

void LinkNeeds::add(const LinkNeed& call) {
  if (call.bytes.empty()) return;
  const size_t top = call.bytes.size() - 1;
  if (bytes_.size() <= top) bytes_.resize(top + 1);
  bytes_[top].resize(top + 1, 0);
  for (size_t l = 0; l <= top; ++l) bytes_[top][l] += call.bytes[l];
}

// Calls that a level joins go over links up to that level alone, whatever other calls do.
LinkNeed LinkNeeds::least() const {
  LinkNeed need;
  if (bytes_.empty()) return need;
  const std::vector<bool> all(bytes_.size(), true);
  need.bytes.resize(bytes_.size(), 0);
  for (size_t l = 0; l < bytes_.size(); ++l) {
    for (size_t top = l; top < bytes_.size(); ++top) {
      if (!bytes_[top].empty()) need.bytes[l] += bytes_[top][l];
      take(need, need.bytes[l] / bandwidth(machine_, all, l, top), l);
    }
  }
  return need;
}

std::string link_name(const Machine::Link& link) {
  return link.ranks == 0 ? std::string("any ranks") : cat("blocks of ", link.ranks, " ranks");
}

}  // namespace epl
