// Which samples of the global batch belong to some of the ranks: those of a process, mostly.
#pragma once

#include "core/base/sample_range.h"
#include "core/compile/compiled_plan.h"

namespace epl {

// Those of an input that any of the ranks [first_rank, first_rank + ranks) reads, and what is between them. Of an input
// that counts no samples, or where they lie across: the full batch. None where no rank of these reads the input.
SampleRange samples_read(const CompiledPlan& plan, const Entry& entry, size_t input, int first_rank, int ranks);
// Those that these ranks work on, whichever of the inputs and outputs they see.
SampleRange samples_of_ranks(const CompiledPlan& plan, const Entry& entry, int first_rank, int ranks);
// The type of an input, of these samples alone.
TensorType slice_type(const Entry& entry, size_t input, SampleRange samples);

}  // namespace epl
