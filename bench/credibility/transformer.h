// Transformers of publications in closed form: products, bytes and sums of a layer, from the sizes alone. They become a
// SearchProblem over a machine, as a graph does in core/compile/search_model.h.
//
// Tensor parallelism is Megatron's (Shoeybi and others, 2019): a layer sums twice forward and twice backward. Between
// stages each rank sends its part (Narayanan and others, 2021). What a layer keeps follows Korthikanti and others,
// 2022.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/strategy/search_problem.h"

namespace epl::credibility {

struct Transformer {
  int64_t hidden = 0, layers = 0, heads = 0, sequence = 0, vocabulary = 0;
  int64_t shared_heads = 0;  // that keys and values have; 0: as many as heads
  int64_t inner = 0;         // of the feed-forward network; 0: four times hidden
  bool gated = false;        // that network multiplies two of its products, as LLaMA's does
  bool tied = true;          // the embedding is also the last product's weight
  double parameters() const;
};

// How a layer is written, in numbers that depend on no model: kernels, and how often memory is passed through.
struct Software {
  std::string name;
  double forward_kernels = 22, backward_kernels = 44;
  double passes = 0;     // elements read and written by a forward pass beside products, for each of a layer's input
  double scores = 0;     // the same, for each of attention's scores; 0: they are never in memory
  double logits = 0;     // the same, forward and backward, for each logit
  double attention = 1;  // seconds of attention's products for each second of others that are as large
};

// How it is trained.
struct Training {
  DType dtype = DType::f16;  // of products
  double rate = 1;           // products of another type that machines do not name: so many times as fast
  double again = 0;          // the share of the forward pass that is computed again
  // Bytes of a parameter: itself, its gradient, the optimizer's states with its copy in float32.
  double weight = 2, gradient = 2, states = 12;
  double buckets = 1;  // of gradients; 1: they are summed behind the last call
  double element = 2;  // bytes of what layers pass on
};

// Of so many samples for each call; each number of `tensor_ranks` is a form. Layers: embedding, the model's, head.
SearchProblem problem_of(const Transformer& model, const Software& software, const Training& training,
                         const Machine& machine, double samples, std::span<const int64_t> tensor_ranks);

}  // namespace epl::credibility
