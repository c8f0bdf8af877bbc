#include "core/frontend/binding.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

Status unknown_name(std::string_view what, const std::string& name, const std::vector<std::string>& known,
                    std::string_view kind) {
  return error(Code::not_found, what, " ", shown(name), ", but the model has no such ", kind, choices(name, known));
}

// A size is bound to the position of a dimension that has another name, or a size of its own.
Status not_a_symbol(const std::string& name, const Model& model, const std::vector<std::string>& symbols) {
  for (const ModelPort& port : model.inputs()) {
    for (size_t d = 0; d < port.dims.size(); ++d) {
      if (name != dimension_position(port.name, d)) continue;
      const ModelDim& dim = port.dims[d];
      if (dim.size >= 0)
        return invalid("a size is bound to the dimension ", shown_plain(name, 200), ", which is fixed at ", dim.size);
      return invalid("a size is bound to the dimension ", shown_plain(name, 200), ", which is called ",
                     shown(dim.symbol, 200), "; bind it by this name");
    }
  }
  return unknown_name("a size is bound to the dimension", name, symbols, "symbolic dimension");
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Status check_binding(const Binding& binding, const std::map<std::string, DType>& types, const Model& model,
                     const std::vector<std::string>& also) {
  std::vector<std::string> inputs, symbols;
  for (const ModelPort& port : model.inputs()) {
    inputs.push_back(port.name);
    for (const ModelDim& dim : port.dims) {
      if (!dim.symbol.empty() && !has(symbols, dim.symbol)) symbols.push_back(dim.symbol);
    }
    auto type = types.find(port.name);
    if (type == types.end() || type->second == port.dtype) continue;
    return invalid("input ", port.name, " is ", dtype_name(port.dtype), " in the model and bound as ",
                   dtype_name(type->second))
        .at(port.name);
  }
  for (const auto& [name, size] : binding.symbols) {
    if (!has(symbols, name)) return not_a_symbol(name, model, symbols);
  }
  for (const auto& [name, value] : binding.values) {
    if (!has(inputs, name)) return unknown_name("a value is bound to", name, inputs, "input");
  }
  inputs.insert(inputs.end(), also.begin(), also.end());
  for (const auto& [name, shape] : binding.input_shapes) {
    if (!has(inputs, name)) return unknown_name("a shape is bound to", name, inputs, "input");
  }
  for (const auto& [name, dim] : binding.batch_dims) {
    if (!has(inputs, name)) return unknown_name("a batch dimension is bound to", name, inputs, "input");
  }
  return {};
}

}  // namespace epl
