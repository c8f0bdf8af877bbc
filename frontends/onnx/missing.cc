#include "frontends/onnx/missing.h"

#include <algorithm>
#include <map>
#include <set>

#include "frontends/onnx/control_flow.h"
#include "frontends/onnx/host_ops.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/uses.h"

namespace epl::onnx {
namespace {

// Why a family of operators is not imported, and will not be. A name that ends in * stands for all that begin so.
struct Family {
  std::string_view why;
  std::vector<std::string_view> operators;
};
const std::vector<Family>& families() {
  static const std::vector<Family> known = {
      {"arithmetic on the integers of a quantised model, which no gradient comes through; train the model from before "
       "it was quantised",
       {"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinear*", "com.microsoft.DynamicQuantize*",
        "com.microsoft.MatMulInteger*", "com.microsoft.QLinear*", "com.microsoft.QAttention", "com.microsoft.QGemm",
        "com.microsoft.QEmbed*", "com.microsoft.MatMulNBits"}},
      {"trees and support vectors have no gradient", {"ai.onnx.ml.TreeEnsemble*", "ai.onnx.ml.SVM*"}},
      {"it keeps its weights in attributes; export the linear model as MatMul and Add",
       {"ai.onnx.ml.LinearClassifier", "ai.onnx.ml.LinearRegressor"}},
      {"the size of its result depends on data, and sizes must be known when the model is bound",
       {"NonMaxSuppression", "Unique"}},
      {"an operator that a runtime makes when it optimises a file; train the file from before that",
       {"com.microsoft.*", "com.microsoft.nchwc.*"}},
      {"it works on texts or tables of labels; train the model without it",
       {"String*", "RegexFullMatch", "TfIdfVectorizer", "ai.onnx.ml.ZipMap", "ai.onnx.ml.LabelEncoder",
        "ai.onnx.ml.CategoryMapper", "ai.onnx.ml.DictVectorizer", "ai.onnx.ml.CastMap"}}};
  return known;
}

std::string_view why(std::string_view name) {
  for (const Family& family : families()) {
    for (std::string_view one : family.operators) {
      if (one.ends_with('*') ? name.starts_with(one.substr(0, one.size() - 1)) : name == one) return family.why;
    }
  }
  return "";
}

using Missing = std::map<std::string, std::vector<std::string>>;  // operators with the names of their nodes

class Search {
 public:
  explicit Search(const OnnxModel& model) : model_(model) {}

  void look(const Node& node) {
    if (const Function* function = model_.function(node.domain, node.op_type, node.overload)) {
      if (!seen_.insert(function).second) return;
      for (const Node& inner : function->nodes) look(inner);
      return;
    }
    if (host_op(model_, node) != nullptr) return;
    if (is_control_flow(node)) {
      if (node.op_type == "If") return;  // nobody knows yet which branch is needed
      for (const Attribute& a : node.attributes) {
        if (!a.g) continue;
        for (const Node& inner : a.g->nodes) look(inner);
      }
      return;
    }
    if (onnx_op_table().find(node.domain, node.op_type, std::max<int64_t>(model_.opset(node.domain), 1))) return;
    const std::string_view name = !node.name.empty()      ? node.name
                                  : !node.outputs.empty() ? node.outputs[0]
                                                          : node.op_type;
    found[cat(node.domain, node.domain.empty() ? "" : ".", node.op_type)].emplace_back(name);
  }

  Missing found;

 private:
  const OnnxModel& model_;
  std::set<const Function*> seen_;
};

}  // namespace

Status check_operators(const OnnxModel& model, const std::vector<std::string>& wanted) {
  Search search(model);
  const std::vector<Node>& nodes = model.file().graph.nodes;
  if (wanted.empty()) {
    for (const Node& node : nodes) search.look(node);
  } else {
    const Uses uses(nodes, {wanted.begin(), wanted.end()});
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (uses.needs(n)) search.look(nodes[n]);
    }
  }
  if (search.found.empty()) return {};
  std::map<std::string_view, std::vector<std::string>> by_reason;
  for (const auto& [op, of] : search.found) {
    std::vector<std::string> names(of.begin(), of.begin() + std::min<ptrdiff_t>(std::ssize(of), 3));
    if (of.size() > names.size()) names.push_back("...");
    by_reason[why(op)].push_back(
        cat(op, of.size() == 1 ? " (node " : cat(" (", of.size(), " nodes: "), join(names, ", "), ")"));
  }
  std::vector<std::string> texts;
  for (const auto& [reason, ops] : by_reason) texts.push_back(cat(join(ops, ", "), reason.empty() ? "" : ": ", reason));
  return unsupported("operators that are not supported at opset ", std::max<int64_t>(model.opset(""), 1), ": ",
                     join(texts, "; "),
                     wanted.empty() ? ". A loss on a tensor before them (loss.output) trains what comes before" : "");
}

}  // namespace epl::onnx
