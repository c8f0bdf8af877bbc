// A dataset that feeds an entry of a plan.
#pragma once

#include "core/compile/compiled_plan.h"
#include "core/data/dataset.h"

namespace epl {

// From now on the dataset gives the entry's inputs, in their order and types. A field that is not there or that cannot
// stand for its input is an error that names both.
Status bind_dataset(Dataset& dataset, const Entry& entry);
// The same, with of each batch the samples alone that these ranks read, and nothing of inputs that none of them reads.
Status bind_slice(Dataset& dataset, const CompiledPlan& plan, const Entry& entry, int first_rank, int ranks);

// Shards the files of a dataset over the replicas of a train entry, as the strategy's `io` keys say. What it returns is
// for the job's owner: why files that do not come out even are not sharded, where no key says what to do with them.
// Each replica then takes its part of batches of all files.
Result<std::string> shard_files(Dataset& dataset, const Entry& entry);

// Every sample against what the plan knows of the integers of its inputs, whatever type the file has for them: the
// error names the field, the row and the value. Of a dataset that gives slices, its share of the samples.
Status check_dataset(const Dataset& dataset, const Entry& entry, const Stop& stop = {});

}  // namespace epl
