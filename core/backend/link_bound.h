// What ranks that do something together ask of the links of a machine: the way that is taken, with what it moves over
// each level of links, and the least seconds that any way needs.
//
// The least follows from cuts. A level joins blocks of ranks. What must leave or enter a block goes over the links that
// its ranks have at this level and at those above, all at one time. Of h blocks, and N bytes that each rank has:
//
//   kind            of all blocks together   of a block of g of n ranks
//   all_reduce      2 (h - 1) N              N
//   reduce_scatter  (h - 1) N                (n - g) N / n out, g N / n in
//   all_gather      (h - 1) N                (n - g) N / n in, g N / n out
//   all_to_all                               g (n - g) N / n
//   broadcast, send                          N
//
// N is all that a rank has in the end, or at first. For blocks of one rank the first line is 2 (n - 1) / n N for each
// rank, the bound of Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
// Blocks of several ranks are their processes: inside of a block all may be added before anything leaves it. Latencies
// do not count. The least of a call is that of the level that needs the most seconds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/backend/cost_model.h"

namespace epl {

struct LinkNeed {
  double seconds = 0;
  int level = -1;  // of Machine::links, that needs these; -1: nothing moves
  // By level, up to the one that joins all ranks: bytes of each of the links that a rank has from this level on.
  std::vector<double> bytes;
};
// `ranks`: by their numbers in the job, ascending; of a message its two ends. `bytes`: as of CostModel::collective.
LinkNeed link_need(const Machine& machine, std::span<const int> ranks, Collective::Kind kind, double bytes);

// What a way moves over the links of a level.
struct LinkUse {
  int level = 0;
  double bytes = 0;  // that a rank sends
  double seconds = 0;
};
struct LinkWay {
  bool two_levels = false;  // core/backend/two_level.h
  std::vector<LinkUse> uses;
  double seconds() const;
};
// The way that is taken. `elements`: that two levels may share out; 0: one level alone. Round a ring, what goes over
// the links inside of hosts takes no time of its own in the cost model, and is not told. Where a ring joins hosts of
// which one has fewer ranks, the model has the links of a full one, and promises less than the bound.
LinkWay link_way(const CostModel& cost, std::span<const int> ranks, Collective::Kind kind, double bytes,
                 int64_t elements);

// The least of many calls that a rank makes, in any order and at any times, where the ranks of a block do the same.
class LinkNeeds {
 public:
  explicit LinkNeeds(const Machine& machine) : machine_(machine) {}
  void add(const LinkNeed& call);
  LinkNeed least() const;

 private:
  const Machine& machine_;
  std::vector<std::vector<double>> bytes_;  // by the level that joins all ranks of a call, then by level
};

// "blocks of 8 ranks", or "any ranks".
std::string link_name(const Machine::Link& link);

}  // namespace epl
