// Models and machines in numbers, and pairs of them: what a search is asked for, and what it is held against.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/credibility/transformer.h"
#include "core/base/status.h"

namespace epl::plans {

// A transformer, in some of whose layers experts may stand for the feed-forward network.
struct Model {
  const char* name;
  credibility::Transformer sizes;
  int64_t experts = 0;  // of each such layer, of which a token goes through `chosen`; 0: none
  int64_t chosen = 1;
  int64_t every = 2;  // of so many layers the last one has them
};

// Hosts of a device that a backend has a sheet of, or that a file here describes; or of processor cores.
struct Cluster {
  const char* name;
  const char* device;
  int64_t host = 8;         // ranks of a host
  double core_bytes = 0;    // that a core has; 0: the device is no core
  double core_network = 0;  // bytes per second of a core to other hosts
  double beside = 0;        // bytes of the host's memory for each of its ranks; 0: no limit
};

struct Pair {
  const char* model;
  const char* cluster;
  int64_t ranks = 1, batch = 1;
};

std::span<const Model> models();
std::span<const Cluster> clusters();
std::span<const Pair> pairs();

// `folder`: where the files of devices are. Splits are over ranks of a host, with and without a cut between them;
// experts are shared out over numbers of ranks that divide both.
Result<SearchProblem> problem_of(const Pair& pair, const std::string& folder);
// Ranks of a host of the pair's cluster.
int64_t host_of(const Pair& pair);

}  // namespace epl::plans
