// A dataset that feeds an entry of a plan.
#pragma once

#include "core/data/dataset.h"
#include "core/runtime/compiled_plan.h"

namespace epl {

// From now on the dataset gives the entry's inputs, in their order and types. A field that is not there or that cannot
// stand for its input is an error that names both.
Status bind_dataset(Dataset& dataset, const Entry& entry);

// Every sample against what the plan knows of the integers of its inputs; the error names the field and the row. Fields
// of other types are converted, and looked at, batch by batch.
Status check_dataset(const Dataset& dataset, const Entry& entry);

}  // namespace epl
