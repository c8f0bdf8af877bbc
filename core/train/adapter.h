// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021): beside a product or a
// convolution by a weight W stands a product of two small matrices, y = W x + (alpha / rank) B A x. Only A and B are
// trained; merged, the weight is W + (alpha / rank) B A.
#pragma once

#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace epl {

struct AdapterSpec {
  // A glob over names of modules ("encoder.layer.0.attention.query") and of weights. Without wildcards it also means
  // modules whose name ends in it ("query"), as target_modules of Hugging Face PEFT do.
  std::string pattern;
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;  // of x, in training
};

// That rank, alpha and dropout are possible; whether anything matches is known with a graph.
Status check_adapter(const AdapterSpec& spec);

struct AdapterOptions {
  std::vector<AdapterSpec> specs;  // the first that matches a module has it
  uint64_t seed = 0;               // of the initial A; B starts as zeros, so that nothing changes at first
};

// One adapter of a graph. A is [rank, in] and B [out, rank], as PyTorch's Linear has them; of a convolution A is [rank,
// in, kernel...] and B [out, rank, 1...].
struct Adapter {
  std::string
      module;  // PyTorch's name of the layer: from the weight's name, or the node's if the weight has lost its name
  std::string weight;       // the parameter that it adapts
  std::string a, b;         // parameters, by PEFT's names: base_model.model.<module>.lora_A.weight
  bool transposed = false;  // the weight is [in, out]
  bool convolution = false;
  AdapterSpec spec;
  double scale() const { return spec.alpha / static_cast<double>(spec.rank); }
};

struct Adapted {
  Graph graph;
  std::vector<Adapter> adapters;   // in the order of the graph
  std::vector<std::string> notes;  // layers that match a pattern but have no adapter, and ranks that save nothing
};

// Puts adapters beside matmul, linear and conv. One weight that several nodes use has one adapter. A pattern that
// adapts nothing is an error that says why not. `training` turns dropout on.
Result<Adapted> insert_adapters(const Graph& graph, const AdapterOptions& options, bool training);

// The weight with its adapter in it, made chunk by chunk as it is read: `weight` must live as long. Sums run in float64
// in a fixed order and are rounded once.
Tensor merge_adapter(const Adapter& adapter, const Tensor& weight, const Tensor& a, const Tensor& b);

// Parameters and running statistics that change beside adapters, as PEFT keeps them: complete modules, in its
// modules_to_save.
struct TrainedModules {
  std::vector<std::string> modules;  // "classifier"
  // Those that PEFT cannot hold: without a module's name, of a module with an adapter, or of one whose weight has lost
  // its name.
  std::vector<std::string> left_out;
};
// `all`: the names of the model's parameters and running statistics.
TrainedModules trained_modules(const std::vector<Adapter>& adapters, const std::vector<std::string>& changed,
                               const std::vector<std::string>& all);

// adapter_config.json as PEFT reads it, for adapters and modules that lie beside it in adapter_model.safetensors.
std::string adapter_config(const std::vector<Adapter>& adapters, const std::vector<std::string>& modules_to_save);

}  // namespace epl
