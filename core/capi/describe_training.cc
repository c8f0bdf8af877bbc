// What of a model can be trained, as `epl inspect` shows it: told from the graph that the file gives when its open
// dimensions are bound to some size.
#include <algorithm>
#include <map>

#include "core/autodiff/gradient.h"
#include "core/base/json.h"
#include "core/capi/describe.h"
#include "core/frontend/model.h"

namespace epl::capi {
namespace {

// Sizes to try for open dimensions: of the first of an input, which is the batch as a rule, and of the others.
struct Guess {
  int64_t first, others;
  size_t rank = 2;  // of inputs that have no rank in the file
};

// Every open dimension bound; a symbol has one size wherever it stands.
Binding guessed_binding(const Model& model, Guess guess) {
  Binding binding;
  for (const ModelPort& port : model.inputs()) {
    Shape shape;
    for (size_t d = 0; d < guess.rank && !port.ranked; ++d) {
      const bool colours = d == 1 && guess.rank == 4;  // of an image
      shape.push_back(d == 0 ? guess.first : colours ? 3 : guess.others);
    }
    for (size_t d = 0; d < port.dims.size(); ++d) {
      const ModelDim& dim = port.dims[d];
      int64_t size = dim.size >= 0 ? dim.size : d == 0 ? guess.first : guess.others;
      if (dim.size < 0 && !dim.symbol.empty()) size = binding.symbols.emplace(dim.symbol, size).first->second;
      shape.push_back(size);
    }
    binding.input_shapes[port.name] = shape;
  }
  return binding;
}

bool has_open_dimension(const Model& model) {
  return std::ranges::any_of(model.inputs(), [](const ModelPort& port) {
    return !port.ranked || std::ranges::any_of(port.dims, [](const ModelDim& dim) { return dim.size < 0; });
  });
}

std::string constant_reason(const ModelInitializer& one) {
  if (!is_float(one.type.dtype)) return "not floating-point";
  if (one.type.elements() <= 1) return "a single number, which is trained only if a parameter group has its name";
  return "a constant of the model, by its name, its values or where it is used; it is trained only if a parameter "
         "group has its name";
}

Json initializers_json(const Model& model, const Graph& graph, const std::vector<Value>& parameters,
                       const std::vector<std::string>& reasons) {
  std::map<std::string, std::string> why;  // of parameters
  for (size_t i = 0; i < parameters.size(); ++i) why[graph.value(parameters[i]).name] = reasons[i];
  Json out = Json::array();
  for (const ModelInitializer& one : model.initializers()) {
    const auto parameter = why.find(one.name);
    const Value leaf = graph.find(one.name);
    std::string reason = parameter != why.end()                                ? parameter->second
                         : leaf && graph.value(leaf).kind == ValueKind::buffer ? "a running statistic"
                                                                               : constant_reason(one);
    Json entry = {{"name", one.name}, {"type", one.type.text()}, {"trainable", reason.empty()}};
    if (!reason.empty()) entry["reason"] = reason;
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

Json describe_training(const Model& model) {
  Json out;
  Status refused;
  // Windows and patches want more than a few positions; tables of positions allow no more than they have.
  for (const Guess guess : {Guess{8, 8},
                            {64, 64},
                            {224, 224},
                            {1, 1},
                            {1, 64},
                            {2, 224},
                            {1, 512},
                            {2, 16},
                            {8, 8, 1},
                            {8, 8, 3},
                            {8, 8, 4},
                            {2, 64, 4}}) {
    if (guess.rank != 2 && std::ranges::all_of(model.inputs(), &ModelPort::ranked)) break;
    auto graph = model.bind(guessed_binding(model, guess));
    if (!graph.ok()) {
      if (refused.ok()) refused = graph.status();
      if (!has_open_dimension(model)) break;
      continue;
    }
    const std::vector<Value> parameters = graph->leaves(ValueKind::parameter);
    const Differentiability found = differentiability(*graph, parameters);
    if (has_open_dimension(model)) out["open_dimensions_as"] = guess.others;
    out["initializers"] = initializers_json(model, *graph, parameters, found.reasons);
    Json obstacles = Json::array();
    for (const GradientObstacle& one : found.obstacles)
      obstacles.push_back({{"node", one.node}, {"op", one.op}, {"reason", one.reason}, {"blocks", one.blocks}});
    out["obstacles"] = obstacles;
    return out;
  }
  // What is wrong at a guessed size need not be wrong at the right one.
  out["refused"] = has_open_dimension(model) && refused.code() != Code::unsupported
                       ? cat("sizes of its open dimensions were guessed, from 1 to 512, and it fits none of them; a "
                             "plan at the right sizes (epl plan MODEL --shape INPUT=SIZE,...) tells more. At 8: ",
                             refused.to_string())
                       : refused.to_string();
  return out;
}

}  // namespace epl::capi
