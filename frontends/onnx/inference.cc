#include "frontends/onnx/inference.h"

#include <algorithm>

#include "core/base/shown.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

using Names = std::unordered_set<std::string_view>;

constexpr int64_t says_its_mode =
    14;  // from this opset on BatchNormalization has training_mode; before, five outputs say it

int64_t opset_of(const std::vector<OpsetId>& opsets) {
  for (const OpsetId& id : opsets) {
    if (is_standard(id.domain)) return id.version;
  }
  return 0;
}

const Attribute* find(const Node& node, std::string_view name) {
  auto it = std::ranges::find(node.attributes, name, &Attribute::name);
  return it == node.attributes.end() ? nullptr : &*it;
}

size_t outputs_used(const Node& node) {
  size_t count = node.outputs.size();
  while (count > 0 && node.outputs[count - 1].empty()) --count;
  return count;
}

// What is known of the values that a node sees: those of its own graph, and of the graphs around it.
class Scope {
 public:
  Scope(const std::vector<Node>& nodes, const std::vector<Tensor>* initializers, const std::vector<ValueInfo>* fed,
        const Scope* outer)
      : nodes(nodes), outer_(outer) {
    if (fed != nullptr) {
      for (const ValueInfo& input : *fed) fed_.insert(input.name);
    }
    if (initializers != nullptr) {
      for (const Tensor& tensor : *initializers) constants_.emplace(tensor.name, &tensor);
    }
    for (const Node& node : nodes) {
      const Attribute* value = node.op_type == "Constant" ? find(node, "value") : nullptr;
      for (std::string_view output : node.outputs)
        constants_.emplace(output, value != nullptr ? value->t.get() : nullptr);
    }
  }

  const std::vector<Node>& nodes;

  enum class Truth : uint8_t { no, yes, caller };
  // Whether a value is true. A value that a node computes counts as true, because it may say that the node drops.
  Truth truth_of(std::string_view name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer_) {
      if (auto it = s->constants_.find(name); it != s->constants_.end())
        return it->second != nullptr ? truth(*it->second) : Truth::yes;
      if (s->fed_.contains(name)) return Truth::caller;
    }
    return Truth::yes;
  }

 private:
  static Truth truth(const Tensor& tensor) {
    auto type = tensor_type(tensor);
    if (tensor.external || !type.ok() || type->elements() != 1) return Truth::yes;
    auto value = tensor_value(tensor, nullptr);  // so small that it is in memory
    return !value.ok() || value->elements() != 1 || value->get(0) != 0 ? Truth::yes : Truth::no;
  }

  std::unordered_map<std::string_view, const Tensor*> constants_;  // null: computed
  Names fed_;                                                      // by the caller of the model
  const Scope* outer_ = nullptr;
};

bool trains_batch_norm(const Node& node, int64_t opset) {
  if (node.op_type != "BatchNormalization" || !is_standard(node.domain)) return false;
  if (opset < says_its_mode) return outputs_used(node) > 1;
  const Attribute* said = find(node, training_mode);
  return said != nullptr && (said->i != 0 || !said->ref.empty());
}

// A node whose mode is an input of the model stays as it is.
bool trains_dropout(const Node& node, const Scope& scope) {
  if (node.op_type != "Dropout" || !is_standard(node.domain) || node.inputs.size() < 3 || node.inputs[2].empty())
    return false;
  return scope.truth_of(node.inputs[2]) == Scope::Truth::yes;
}

// Calls f(node, scope, opset) for every node of the file, graphs within attributes included.
template <class F> void visit(const Scope& scope, int64_t opset, F& f) {
  for (const Node& node : scope.nodes) {
    f(node, scope, opset);
    for (const Attribute& a : node.attributes) {
      if (a.g) visit(Scope(a.g->nodes, &a.g->initializers, nullptr, &scope), opset, f);
    }
  }
}
template <class F> void visit(const File& file, F&& f) {
  const int64_t opset = opset_of(file.opsets);
  visit(Scope(file.graph.nodes, &file.graph.initializers, &file.graph.inputs, nullptr), opset, f);
  for (const Function& function : file.functions) {
    const int64_t own = opset_of(function.opsets);
    visit(Scope(function.nodes, nullptr, nullptr, nullptr), own > 0 ? own : opset, f);
  }
}

// Names that a node reads, those that the graphs among its attributes take from outside included.
void add_reads(const Node& node, size_t inputs, Names& out) {
  for (size_t i = 0; i < std::min(inputs, node.inputs.size()); ++i) {
    if (!node.inputs[i].empty()) out.insert(node.inputs[i]);
  }
  for (const Attribute& a : node.attributes) {
    if (!a.g) continue;
    for (const Node& inner : a.g->nodes) add_reads(inner, SIZE_MAX, out);
    for (const ValueInfo& output : a.g->outputs) out.insert(output.name);
  }
}

}  // namespace

std::string TrainingParts::text() const {
  if (batch_norms + dropouts == 0) return "";
  std::string out;
  if (batch_norms > 0) out = cat(batch_norms, " BatchNormalization");
  if (dropouts > 0) out += cat(out.empty() ? "" : " and ", dropouts, " Dropout");
  return out + " in training mode";
}

TrainingParts training_parts(const File& file) {
  TrainingParts out;
  visit(file, [&](const Node& node, const Scope& scope, int64_t opset) {
    out.batch_norms += trains_batch_norm(node, opset);
    out.dropouts += trains_dropout(node, scope);
  });
  return out;
}

// Finds the edits; save.cc applies them.
class EditFinder {
 public:
  EditFinder(const File& file, std::string_view loss, InferenceEdits& edits)
      : file_(file), loss_(loss), edits_(edits) {}

  Status find() {
    visit(file_, [&](const Node& node, const Scope& scope, int64_t opset) { edit_mode(node, scope, opset); });
    EPL_TRY(cut_graph());
    for (const Function& function : file_.functions) {
      Names read(function.outputs.begin(), function.outputs.end());
      EPL_TRY(give_statistics(function.nodes, std::move(read)));
    }
    mark_inside(file_.graph.nodes);
    for (const Function& function : file_.functions) mark_inside(function.nodes);
    return {};
  }

 private:
  using Edit = NodeEdit;

  void edit_mode(const Node& node, const Scope& scope, int64_t opset) {
    if (trains_batch_norm(node, opset)) {
      Edit& edit = edits_.edits_[node.at];
      edit.inference_mode = opset >= says_its_mode;
      edit.outputs = 1;
    } else if (trains_dropout(node, scope)) {
      edits_.edits_[node.at].inputs = 2;
    }
  }

  const Edit* edit_of(const Node& node) const {
    auto it = edits_.edits_.find(node.at);
    return it == edits_.edits_.end() ? nullptr : &it->second;
  }
  size_t inputs_left(const Node& node) const {
    const Edit* edit = edit_of(node);
    return edit == nullptr ? SIZE_MAX : edit->inputs;
  }

  // Values that only training makes: the statistics that a BatchNormalization gives, and what is computed from them
  // alone.
  Names training_values() const {
    Names made, fixed;
    for (const Tensor& tensor : file_.graph.initializers) fixed.insert(tensor.name);
    for (const Node& node : file_.graph.nodes) {
      const Edit* edit = edit_of(node);
      if (edit != nullptr && edit->outputs == 1) {
        for (size_t i = 1; i < node.outputs.size(); ++i) made.insert(node.outputs[i]);
        continue;
      }
      Names reads;
      add_reads(node, SIZE_MAX, reads);
      size_t of_training = 0, others = 0;
      for (std::string_view name : reads) (made.contains(name) ? of_training : others) += !fixed.contains(name);
      if (others > 0) continue;
      for (std::string_view output : node.outputs) (of_training > 0 ? made : fixed).insert(output);
    }
    made.erase("");
    return made;
  }

  // Which nodes the graph's outputs need, by their index.
  std::vector<bool> needed(const Names& without, bool edited) const {
    Names wanted;
    for (const ValueInfo& output : file_.graph.outputs) {
      if (!without.contains(output.name)) wanted.insert(output.name);
    }
    std::vector<bool> out(file_.graph.nodes.size(), false);
    for (size_t n = out.size(); n-- > 0;) {  // producers come first in a file
      const Node& node = file_.graph.nodes[n];
      out[n] = std::ranges::any_of(node.outputs,
                                   [&](std::string_view name) { return !name.empty() && wanted.contains(name); });
      if (out[n]) add_reads(node, edited ? inputs_left(node) : SIZE_MAX, wanted);
    }
    return out;
  }

  Names reads_of_graph(bool before) const {
    Names out;
    for (const Node& node : file_.graph.nodes) {
      const Edit* edit = edit_of(node);
      if (before || edit == nullptr || !edit->goes) add_reads(node, before ? SIZE_MAX : inputs_left(node), out);
    }
    for (const ValueInfo& output : file_.graph.outputs) {
      if (before || !edits_.outputs_.contains(output.name)) out.insert(output.name);
    }
    return out;
  }

  // Removes outputs that only training needs, then nodes that only they (or a mode) needed, then leaves that only those
  // read.
  Status cut_graph() {
    const std::vector<bool> was = needed({}, false);
    Names cut;
    const Names training = training_values();
    for (const ValueInfo& output : file_.graph.outputs) {
      if (training.contains(output.name) || (!loss_.empty() && output.name == loss_)) cut.insert(output.name);
    }
    if (cut.size() < file_.graph.outputs.size()) edits_.outputs_ = cut;
    const std::vector<bool> is = needed(edits_.outputs_, true);
    const Names read_before = reads_of_graph(true);
    for (size_t n = 0; n < was.size(); ++n) {
      const Node& node = file_.graph.nodes[n];
      if (!was[n] || is[n]) continue;
      edits_.edits_[node.at].goes = true;
      edits_.values_.insert(node.outputs.begin(), node.outputs.end());
    }
    const Names read = reads_of_graph(false);
    for (std::string_view name : read_before) {
      if (!read.contains(name)) edits_.unread_.insert(name);
    }
    return give_statistics(file_.graph.nodes, read);
  }

  // A running statistic that is still read is the operand of the node: inference does not change it.
  Status give_statistics(const std::vector<Node>& nodes, Names read) {
    for (const Node& node : nodes) {
      if (edit_of(node) == nullptr || !edit_of(node)->goes) add_reads(node, inputs_left(node), read);
    }
    for (const Node& node : nodes) {
      for (const Attribute& a : node.attributes) {
        if (!a.g) continue;
        Names inner;
        for (const ValueInfo& output : a.g->outputs) inner.insert(output.name);
        EPL_TRY(give_statistics(a.g->nodes, std::move(inner)));
      }
      auto it = edits_.edits_.find(node.at);
      if (it == edits_.edits_.end() || it->second.goes || it->second.outputs != 1) continue;
      for (size_t i = 1; i < node.outputs.size(); ++i) {
        if (node.outputs[i].empty()) continue;
        if (!read.contains(node.outputs[i])) {
          edits_.values_.insert(node.outputs[i]);
        } else if (i <= 2 && node.inputs.size() == 5) {
          it->second.copies.emplace_back(node.inputs[i + 2], node.outputs[i]);
        } else {
          return unsupported(shown(node.outputs[i], 200),
                             ", a statistic of the batch, is read, and a file for inference has none; export for "
                             "training instead")
              .at(std::string(node.name));
        }
      }
    }
    return {};
  }

  // Nodes around edited ones must be written anew, too.
  bool mark_inside(const std::vector<Node>& nodes) {
    bool any = false;
    for (const Node& node : nodes) {
      bool inside = false;
      for (const Attribute& a : node.attributes) inside = (a.g && mark_inside(a.g->nodes)) || inside;
      if (inside) edits_.edits_[node.at].inside = true;
      any = any || edits_.edits_.contains(node.at);
    }
    return any;
  }

  const File& file_;
  std::string_view loss_;
  InferenceEdits& edits_;
};

Result<InferenceEdits> InferenceEdits::of(const File& file, std::string_view loss) {
  InferenceEdits edits;
  EPL_TRY(EditFinder(file, loss, edits).find());
  return edits;
}

}  // namespace epl::onnx
