// What a graph takes and gives: the inputs that a caller binds, with another batch than the file's if need be, and the
// outputs, those inside the graph that somebody asks for included.
#include <algorithm>
#include <cmath>

#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "frontends/onnx/importer.h"

namespace epl::onnx {
namespace {

// What a caller has bound to an input: one number for all its elements, or all of them.
Result<epl::Tensor> input_constant(const TensorType& type, const epl::Tensor& value, const std::string& name) {
  const auto refuse = [&](const auto&... why) {
    return Status(Code::invalid_argument,
                  cat("the value bound to input ", name, " (", type.text(), ") is ", value.type().text(), why...),
                  name);
  };
  if (Status status = check_size(type); !status.ok()) return status.at(name);
  if (type.elements() > max_folded_elements) return refuse("; an input of so many numbers is given with each step");
  if (value.elements() != 1 && value.elements() != type.elements())
    return refuse("; one number, or as many as the input has, are expected");
  epl::Tensor out(type);
  for (int64_t i = 0; i < type.elements(); ++i) {
    const int64_t from = value.elements() == 1 ? 0 : i;
    if (is_float(type.dtype)) {
      out.set(i, value.get(from));
      continue;
    }
    if (value.get(from) != std::floor(value.get(from))) return refuse(" and ", value.get(from), " is not an integer");
    out.set_int(i, value.get_int(from));
  }
  return out;
}

// The dimension of an input that counts samples, -1 for none.
int batch_dim_of(const ModelPort& port, const Binding& binding) {
  const auto named = binding.batch_dims.find(port.name);
  return named != binding.batch_dims.end() ? named->second : port.ranked && port.dims.empty() ? -1 : 0;
}

}  // namespace

Result<epl::Graph> import_with_free_batch(const OnnxModel& model, const Binding& binding) {
  Binding at_file = binding;
  FreedBatch batch;
  for (const ModelPort& port : model.inputs()) {
    const int dim = batch_dim_of(port, binding);
    auto given = at_file.input_shapes.find(port.name);
    if (given == at_file.input_shapes.end() || dim < 0 ||
        dim >= static_cast<int>(std::min(port.dims.size(), given->second.size())))
      continue;
    const int64_t size = port.dims[static_cast<size_t>(dim)].size;
    int64_t& wanted = given->second[static_cast<size_t>(dim)];
    if (size <= 0 || size == wanted) continue;
    if (batch.to > 0 && (size != batch.from || wanted != batch.to)) {
      return invalid("input ", port.name, " has a batch of ", size, " in the file where another has ", batch.from,
                     "; name the dimension that counts samples for each input, or -1 for none");
    }
    batch = {size, wanted};
    wanted = size;
  }
  if (batch.to == 0) return Importer(model, binding).run();
  ShapesInFile shapes;
  Importer first(model, at_file);
  first.note_shapes(shapes);
  EPL_TRY(first.run().status());
  Importer second(model, binding);
  second.free_batch(shapes, batch);
  return second.run();
}

// Of an input of which the file says nothing but its type: the shape that is bound, or that of its constant.
Result<Shape> Importer::shape_without_rank(const ModelPort& port, const epl::Tensor* value) const {
  const auto given = binding_.input_shapes.find(port.name);
  if (given != binding_.input_shapes.end()) return given->second;
  if (value != nullptr) return value->shape();
  return invalid("input ", shown(port.name, 200),
                 " has no shape in the file, not even the number of its dimensions; bind its shape (on the command "
                 "line: --shape ",
                 shown_plain(port.name, 200), "=SIZE,...)")
      .at(port.name);
}

Status Importer::bind_inputs() {
  std::map<std::string, int64_t> symbols = binding_.symbols;
  std::vector<std::string> open;
  for (const ModelPort& port : model_.inputs()) {
    auto given = binding_.input_shapes.find(port.name);
    if (given == binding_.input_shapes.end() || !port.ranked) continue;
    if (given->second.size() != port.dims.size()) {
      return invalid("input ", port.name, " has ", port.dims.size(), " dimensions, the shape given for it is ",
                     given->second);
    }
    for (size_t i = 0; i < port.dims.size(); ++i) {
      if (port.dims[i].size >= 0 && port.dims[i].size != given->second[i] &&
          !(batch_.to > 0 && static_cast<int>(i) == batch_dim_of(port, binding_))) {
        return invalid("dimension ", i, " of input ", port.name, " is fixed at ", port.dims[i].size,
                       " in the file, the shape given for it is ", given->second, "; give it ", port.dims[i].size,
                       ", or export the model with a symbolic dimension");
      }
      if (port.dims[i].symbol.empty()) continue;
      auto [it, inserted] = symbols.emplace(port.dims[i].symbol, given->second[i]);
      if (!inserted && it->second != given->second[i]) {
        return invalid("dimension ", shown(port.dims[i].symbol, 200), " is ", it->second, ", but ", given->second[i],
                       " in input ", port.name);
      }
    }
  }
  for (const ModelPort& port : model_.inputs()) {
    auto given = binding_.input_shapes.find(port.name);
    TensorType type{port.dtype, {}};
    for (size_t i = 0; i < port.dims.size(); ++i) {
      int64_t size = port.dims[i].size;
      if ((size < 0 || batch_.to > 0) && given != binding_.input_shapes.end()) size = given->second[i];
      auto symbol = symbols.find(port.dims[i].symbol);
      if (size < 0 && symbol != symbols.end()) size = symbol->second;
      if (size < 0) {
        const std::string position = dimension_position(port.name, i);
        const std::string& symbol = port.dims[i].symbol;
        open.push_back(symbol.empty() || symbol == position ? position : cat(position, " (", shown(symbol, 200), ")"));
      }
      type.shape.push_back(size);
    }
    if (!open.empty()) continue;
    const auto value = binding_.values.find(port.name);
    if (!port.ranked) {
      EPL_ASSIGN(type.shape, shape_without_rank(port, value == binding_.values.end() ? nullptr : &value->second));
    }
    if (value != binding_.values.end()) {
      EPL_ASSIGN(epl::Tensor constant, input_constant(type, value->second, port.name));
      top_.values[port.name] = {{}, constant, type, {}};
      continue;
    }
    int batch_dim = batch_dim_of(port, binding_);
    if (!port.ranked && type.ndim() == 0 && !binding_.batch_dims.contains(port.name)) batch_dim = -1;
    if (batch_dim >= type.ndim())
      return invalid("input ", port.name, " (", type.text(), ") has no dimension ", batch_dim);
    if (Status status = check_size(type); !status.ok()) return status.at(port.name);
    Value v = graph_.add_input(port.name, type, batch_dim);
    Slot slot{.var = builder_.var(v), .type = type};
    if (batch_.to > 0 && batch_dim >= 0 && port.ranked && port.dims[static_cast<size_t>(batch_dim)].size >= 0) {
      slot.in_file = type.shape;
      (*slot.in_file)[static_cast<size_t>(batch_dim)] = port.dims[static_cast<size_t>(batch_dim)].size;
    }
    top_.values[port.name] = std::move(slot);
  }
  if (!open.empty())
    return invalid("symbolic dimensions without a size: ", join(open, ", "),
                   "; bind each by its name, or the shape of its input (on the command line: --shape INPUT=SIZE,...)");
  return {};
}

Status Importer::finish_outputs() {
  for (const ModelPort& port : model_.outputs()) {
    Slot* slot = find(port.name, top_);
    if (!slot) return Status(Code::invalid_model, cat("no node computes output ", shown(port.name, 200)), port.name);
    if (left_out_.contains(port.name)) continue;
    if (slot->not_computed) {
      return unsupported("output ", shown(port.name, 200),
                         slot->why ? cat(": ", *slot->why) : " is not computed in this mode")
          .at(port.name);
    }
    if (slot->sequence) return unsupported("output ", shown(port.name, 200), " is a sequence of tensors").at(port.name);
    builder_.set_scope(port.name);
    Var v = materialize(*slot);
    graph_.outputs.push_back({port.name, v.value()});
  }
  for (const std::string& name : binding_.inner_outputs) EPL_TRY(add_inner_output(name));
  return builder_.status();
}

// A tensor inside the graph that somebody asks for by its name in the file.
Status Importer::add_inner_output(const std::string& name) {
  if (auto it = left_out_.find(name); it != left_out_.end()) return it->second;
  if (std::ranges::find(graph_.outputs, name, &epl::Graph::Output::name) != graph_.outputs.end())
    return {};  // one of the model's
  auto found = top_.values.find(name);
  if (found != top_.values.end() && !found->second.sequence) {
    builder_.set_scope(name);
    graph_.outputs.push_back({name, materialize(found->second).value()});
    return {};
  }
  std::vector<std::string> known;
  for (const Node& node : model_.file().graph.nodes) {
    for (std::string_view output : node.outputs) known.emplace_back(output);
  }
  std::vector<std::string> outputs;
  for (const ModelPort& port : model_.outputs()) outputs.push_back(port.name);
  return error(Code::not_found, "the model has no output ", shown_plain(name, 200), ", nor does a node of its graph",
               did_you_mean(name, known), "; its outputs are ", short_list(outputs));
}

}  // namespace epl::onnx
