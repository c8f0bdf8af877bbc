// Collectives of one kind that need not come one by one become one node of several operands: ranks communicate once for
// all of them. On the CPU nothing moves beside computing, so one collective is best. A device that has streams for
// moving will want several collectives, by size.
#pragma once

#include "core/program/local_graph.h"

namespace epl {

// Each collective goes down to the first node of its block that needs a result of it or of one like it, and takes those
// that wait with it along. Gradients so wait for the end of the backward pass. No memory comes of it: what has been
// summed lies where the summands lay.
//
// `buckets`: into how many of about equal size sums that are scattered are put in a block; 0: one. A bucket does not
// wait longer than until it is full, so that gradients that stay in shards are not all in memory in full at one time.
void join_collectives(LocalGraph& local, int64_t buckets = 0);

}  // namespace epl
