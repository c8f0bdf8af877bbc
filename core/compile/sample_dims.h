// Where the inputs and outputs of an entry count samples, which is what a batch that is not full needs: its missing
// rows are made up, and what they give is cut off again.
#pragma once

#include <span>
#include <vector>

#include "core/base/tensor.h"
#include "core/strategy/plan.h"

namespace epl {

struct SampleDims {
  int64_t batch = 0;        // samples of a full batch; 0 where nothing counts them
  std::vector<int> inputs;  // the dimension of each that counts samples; -1: it is the same for all
  // The dimension of each in which the samples' shares follow one another; -1 where a sample's share does not stand
  // alone: it lies across, or rests on the other samples of the batch.
  std::vector<int> outputs;
};
SampleDims sample_dims(const Plan& plan);

// The type of a batch of `samples` instead of all.
TensorType partial_type(const TensorType& type, int dim, int64_t batch, int64_t samples);
// Fills `full`, of the full type, with `part` and, behind it, its last sample again and again.
void pad_samples(const Tensor& part, int dim, Tensor& full);
// Samples [first, first + count) of `batch`: a copy.
Tensor take_samples(const Tensor& full, int dim, int64_t batch, int64_t first, int64_t count);
// Copies samples to where they lie in a full batch, from `first` on.
void put_samples(const Tensor& part, int dim, int64_t batch, int64_t first, Tensor& full);
// The first `samples` of `batch`: a view where they lie together, else a copy.
Tensor first_samples(const Tensor& full, int dim, int64_t batch, int64_t samples);

}  // namespace epl
