#include "frontends/onnx/model.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/base/file.h"
#include "frontends/onnx/importer.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

constexpr int64_t most_dimensions = 64;   // of a tensor: far more than any operator's meaning needs

std::string_view standard(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

}  // namespace

Result<std::shared_ptr<const Model>> OnnxModel::load(const std::string& path) {
  EPL_ASSIGN(auto file, MappedFile::open(path));
  auto model = std::make_shared<OnnxModel>();
  model->bytes_ = file->bytes();
  model->owner_ = file;
  model->path_ = path;
  size_t slash = path.rfind('/');
  model->directory_ = slash == std::string::npos ? "." : path.substr(0, slash);
  if (Status status = model->check(); !status.ok()) return status.with_context(path);
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> OnnxModel::load_bytes(std::span<const std::byte> bytes) {
  auto model = std::make_shared<OnnxModel>();
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  model->bytes_ = *copy;
  model->owner_ = copy;
  model->directory_ = ".";
  EPL_TRY(model->check());
  return std::shared_ptr<const Model>(std::move(model));
}

namespace {

std::string name_of(const Node& node) {
  return std::string(!node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : node.op_type);
}

constexpr int64_t most_unfolded = 1'000'000;   // nodes, with those of functions once a call

// How many nodes the calls of functions unfold into, told before any of them is unfolded: forty functions that each call
// the next one twice are a short file.
class Unfolding {
 public:
  explicit Unfolding(const OnnxModel& model) : model_(model) {}

  // The error names the node of `nodes` whose calls have no end.
  Status check(const std::vector<Node>& nodes) {
    int64_t total = 0;
    for (const Node& node : nodes) {
      auto more = size(node);
      if (!more.ok()) return more.status().at(name_of(node));
      total += *more;
      if (total > most_unfolded) return too_many().at(name_of(node));
    }
    return {};
  }

 private:
  static Status too_many() { return Status(Code::invalid_model, cat("its functions unfold into more than ", most_unfolded, " nodes")); }

  Result<int64_t> size(const std::vector<Node>& nodes) {
    int64_t total = 0;
    for (const Node& node : nodes) {
      EPL_ASSIGN(int64_t more, size(node));
      total += more;
      if (total > most_unfolded) return too_many();
    }
    return total;
  }

  Result<int64_t> size(const Node& node) {
    int64_t total = 1;
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      EPL_ASSIGN(int64_t inside, size(a.g->nodes));
      total += inside;
    }
    const Function* function = model_.function(node.domain, node.op_type, node.overload);
    if (!function) return total;
    auto [known, first] = sizes_.emplace(function, -1);
    if (!first && known->second < 0) {
      return Status(Code::invalid_model, cat("function ", function->name, " calls itself"));
    }
    if (first) {
      EPL_ASSIGN(int64_t inside, size(function->nodes));
      sizes_[function] = inside;
    }
    return total + sizes_[function];
  }

  const OnnxModel& model_;
  std::unordered_map<const Function*, int64_t> sizes_;   // -1 while it is counted
};

// Dimensions named by attributes, so that no operator counts up to a number that a file made up.
Status check_axes(const Node& node, const std::string& place) {
  if (!standard(node.domain).empty()) return {};
  for (const Attribute& a : node.attributes) {
    if (a.name != "axis" && a.name != "axes" && a.name != "perm" && a.name != "batch_axis" && a.name != "time_axis") continue;
    auto far = [](int64_t axis) { return axis < -most_dimensions || axis > most_dimensions; };
    auto bad = std::ranges::find_if(a.ints, far);
    if (!far(a.i) && bad == a.ints.end()) continue;
    return Status(Code::invalid_model, cat("node ", place, " (", node.op_type, "): ", a.name, " of ", far(a.i) ? a.i : *bad, "; tensors have up to ", most_dimensions, " dimensions"), place);
  }
  return {};
}

}  // namespace

Status OnnxModel::check() {
  auto refuse = [](auto&&... parts) { return Status(Code::invalid_model, cat(parts...)); };
  EPL_ASSIGN(file_, read_file(bytes_));
  if (!file_.has_graph) return refuse("no ONNX model: the file has no graph");
  if (file_.ir_version < 3 || file_.ir_version > schema::newest_ir_version) {
    return refuse("IR version ", file_.ir_version, "; 3 to ", schema::newest_ir_version, " are read");
  }
  if (file_.opsets.empty()) return refuse("the model imports no opset");
  for (const OpsetId& id : file_.opsets) {
    if (!standard(id.domain).empty()) continue;
    if (id.version < schema::oldest_opset || id.version > schema::newest_opset) {
      return unsupported("opset ", id.version, "; ", schema::oldest_opset, " to ", schema::newest_opset, " are read. Convert the model with onnx.version_converter");
    }
  }
  if (file_.graph.sparse_initializers) return unsupported("sparse initialisers");
  for (const Tensor& tensor : file_.graph.initializers) {
    if (!by_name_.emplace(tensor.name, &tensor).second) return refuse("two initialisers are called \"", tensor.name, "\"");
    EPL_ASSIGN(TensorType type, tensor_type(tensor));
    initializers_.push_back({std::string(tensor.name), std::move(type)});
  }
  EPL_TRY(fill_ports());
  std::vector<std::string_view> known;
  for (const ValueInfo& info : file_.graph.inputs) known.push_back(info.name);
  for (const Tensor& tensor : file_.graph.initializers) known.push_back(tensor.name);
  EPL_TRY(check_nodes(file_.graph.nodes, std::move(known)));
  for (const Function& function : file_.functions) {
    if (Status status = check_nodes(function.nodes, function.inputs); !status.ok()) {
      return status.with_context(cat("function ", function.domain, ".", function.name));
    }
  }
  EPL_TRY(Unfolding(*this).check(file_.graph.nodes));
  return {};
}

// ONNX lists nodes in an order in which they can run, and gives every value one definition.
Status OnnxModel::check_nodes(const std::vector<Node>& nodes, std::vector<std::string_view> names) const {
  std::unordered_set<std::string_view> known(names.begin(), names.end());
  known.insert("");
  for (const Node& node : nodes) {
    std::string place = node.name.empty() ? cat("byte ", node.at) : std::string(node.name);
    EPL_TRY(check_axes(node, place));
    for (std::string_view input : node.inputs) {
      if (!known.contains(input)) {
        return Status(Code::invalid_model, cat("node ", place, " (", node.op_type, ") uses \"", input, "\", which nothing before it defines (a cycle, or a missing input)"), place);
      }
    }
    for (std::string_view output : node.outputs) {
      if (!output.empty() && !known.insert(output).second) {
        return Status(Code::invalid_model, cat("node ", place, " (", node.op_type, ") defines \"", output, "\" a second time"), place);
      }
    }
  }
  return {};
}

Status OnnxModel::fill_ports() {
  auto port = [](const ValueInfo& info) -> Result<ModelPort> {
    if (info.elem_type == 0) return unsupported("\"", info.name, "\" is no tensor").at(info.name);
    auto dtype = dtype_of(info.elem_type);
    if (!dtype.ok()) return dtype.status().with_context(cat("\"", info.name, "\"")).at(info.name);
    ModelPort made{std::string(info.name), *dtype, {}};
    for (const Dim& dim : info.dims) {
      if (dim.value < -1) return Status(Code::invalid_model, cat("\"", info.name, "\" has a dimension of ", dim.value), std::string(info.name));
      made.dims.push_back({dim.value, std::string(dim.symbol)});
    }
    return made;
  };
  for (const ValueInfo& info : file_.graph.inputs) {
    if (by_name_.contains(info.name)) continue;   // an initialiser that may be overridden: its value stands
    EPL_ASSIGN(ModelPort made, port(info));
    if (!info.has_shape) return unsupported("input \"", info.name, "\" has no shape").at(info.name);
    inputs_.push_back(std::move(made));
  }
  for (const ValueInfo& info : file_.graph.outputs) {
    if (info.elem_type == 0) {   // the type of an output is known from its node
      outputs_.push_back({std::string(info.name), DType::f32, {}});
      continue;
    }
    EPL_ASSIGN(ModelPort made, port(info));
    outputs_.push_back(std::move(made));
  }
  return {};
}

int64_t OnnxModel::opset(std::string_view domain) const {
  for (const OpsetId& id : file_.opsets) {
    if (standard(id.domain) == standard(domain)) return id.version;
  }
  return 0;
}

const Function* OnnxModel::function(std::string_view domain, std::string_view name, std::string_view overload) const {
  for (const Function& function : file_.functions) {
    if (standard(function.domain) == standard(domain) && function.name == name && function.overload == overload) return &function;
  }
  return nullptr;
}

const Tensor* OnnxModel::initializer(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::string OnnxModel::description() const {
  std::string out = cat("ONNX, IR ", file_.ir_version);
  for (const OpsetId& id : file_.opsets) out += cat(", ", id.domain.empty() ? "opset" : id.domain, " ", id.version);
  if (!file_.producer_name.empty()) out += cat(", from ", file_.producer_name, " ", file_.producer_version);
  return out;
}

std::vector<std::pair<std::string, int>> OnnxModel::op_counts() const {
  std::map<std::string, int> counts;
  for (const Node& node : file_.graph.nodes) {
    ++counts[node.domain.empty() ? std::string(node.op_type) : cat(node.domain, ".", node.op_type)];
  }
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

Result<epl::Graph> OnnxModel::bind(const Binding& binding) const { return Importer(*this, binding).run(); }

}  // namespace epl::onnx

namespace epl {

EPL_FRONTEND(onnx) {
  return {.name = "onnx",
          .doc = "ONNX models, opset 7 to 28",
          .recognizes = [](const std::string& path) { return path.ends_with(".onnx") || path.ends_with(".pb") || path.ends_with(".onnx2"); },
          .load = onnx::OnnxModel::load,
          .load_bytes = onnx::OnnxModel::load_bytes};
}

}  // namespace epl
