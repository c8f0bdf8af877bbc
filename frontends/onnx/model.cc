#include "frontends/onnx/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/shown.h"
#include "frontends/onnx/control_flow.h"
#include "frontends/onnx/file_check.h"
#include "frontends/onnx/importer.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

// One name for each domain.
std::string_view named_once(std::string_view domain) { return is_standard(domain) ? std::string_view() : domain; }

std::string function_key(std::string_view domain, std::string_view name, std::string_view overload) {
  return cat(named_once(domain), std::string_view("\0", 1), name, std::string_view("\0", 1), overload);
}

// Sparse initialisers become ordinary ones, in the graphs of branches too.
Status store_dense(Graph& graph, const std::shared_ptr<const ModelBytes>& bytes) {
  for (const SparseTensor& sparse : graph.sparse_initializers) {
    EPL_ASSIGN(Tensor dense, dense_tensor(sparse, bytes));
    graph.initializers.push_back(std::move(dense));
  }
  for (Node& node : graph.nodes) {
    for (Attribute& a : node.attributes) {
      if (a.g) EPL_TRY(store_dense(*a.g, bytes));
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Model>> OnnxModel::load(const ModelSource& source) {
  auto model = std::make_shared<OnnxModel>();
  EPL_ASSIGN(model->bytes_, ModelBytes::open(source));
  model->host_ops_ = source.ops;
  if (const Status status = model->check(source.stop); !status.ok()) {
    const bool of_the_model = status.code() == Code::invalid_model || status.code() == Code::unsupported;
    return of_the_model ? status.with_context(shown_path(source.file->path())) : status;
  }
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> OnnxModel::load_bytes(std::span<const std::byte> bytes,
                                                           const ModelSource& source) {
  auto model = std::make_shared<OnnxModel>();
  model->bytes_ = ModelBytes::copy(bytes, source);
  model->host_ops_ = source.ops;
  EPL_TRY(model->check(source.stop));
  return std::shared_ptr<const Model>(std::move(model));
}

Status OnnxModel::check(const Stop& stop) {
  auto refuse = [](auto&&... parts) { return Status(Code::invalid_model, cat(parts...)); };
  EPL_ASSIGN(file_, read_file(bytes_->bytes()));
  EPL_TRY(stop.check());
  if (!file_.has_graph) return refuse("no ONNX model: the file has no graph");
  if (file_.ir_version < 3 || file_.ir_version > schema::newest_ir_version) {
    return refuse("IR version ", file_.ir_version, "; 3 to ", schema::newest_ir_version, " are read");
  }
  if (file_.opsets.empty()) return refuse("the model imports no opset");
  // A function may import a domain that the model itself does not. If both import it, the standard demands that
  // operators mean the same in both.
  for (const OpsetId& id : file_.opsets) opsets_.emplace(named_once(id.domain), id.version);
  for (const Function& function : file_.functions) {
    for (const OpsetId& id : function.opsets) opsets_.emplace(named_once(id.domain), id.version);
  }
  if (auto it = opsets_.find("");
      it != opsets_.end() && (it->second < schema::oldest_opset || it->second > schema::newest_opset)) {
    return unsupported("opset ", it->second, "; ", schema::oldest_opset, " to ", schema::newest_opset,
                       " are read. Convert the model with onnx.version_converter");
  }
  EPL_TRY(store_dense(file_.graph, bytes_));
  for (const Tensor& tensor : file_.graph.initializers) {
    if (!by_name_.emplace(tensor.name, &tensor).second)
      return refuse("two initialisers are called ", shown(tensor.name, 200));
    EPL_ASSIGN(TensorType type, tensor_type(tensor));
    initializers_.push_back({std::string(tensor.name), std::move(type)});
    if (tensor.external) {
      EPL_TRY(stop.check());
      EPL_TRY(stored_tensor(tensor, bytes_).status());  // it is there and large enough
    }
  }
  EPL_TRY(fill_ports());
  for (const Function& function : file_.functions) {
    functions_.emplace(function_key(function.domain, function.name, function.overload), &function);
  }
  EPL_TRY(check_file(*this));
  EPL_TRY(stop.check());
  const ParameterRule rule(*this);
  add_weights(file_.graph, rule, "");
  quantized_ = QuantizedWeights(file_.graph, rule);
  for (const auto& [name, type] : quantized_.all()) {
    if (!by_name_.contains(name)) initializers_.push_back({std::string(name), type});
  }
  return {};
}

const TensorLook& OnnxModel::look_once(const Tensor& tensor, const std::function<TensorLook()>& look) const {
  {
    std::lock_guard lock(looks_mutex_);
    if (const auto known = looks_.find(&tensor); known != looks_.end()) return known->second;
  }
  TensorLook found = look();
  std::lock_guard lock(looks_mutex_);
  return looks_.emplace(&tensor, std::move(found)).first->second;
}

// Some exporters write every weight as a Constant, and some keep the weights of a branch or a loop inside it. A
// Constant that stands in the place of a weight is an initialiser like any other, under the name of the value.
void OnnxModel::add_weights(const Graph& graph, const ParameterRule& rule, const std::string& path) {
  for (const Node& node : graph.nodes) {
    for (const Attribute& a : node.attributes) {
      if (a.t && a.name == "value" && node.op_type == "Constant" && is_standard(node.domain) &&
          node.outputs.size() == 1) {
        add_weight(node.outputs[0], *a.t, rule, path, false);
      }
      if (!a.g || !is_control_flow(node)) continue;
      const std::string inner = cat(path, node.name.empty() ? node.op_type : node.name, "/", a.name, "/");
      for (const Tensor& tensor : a.g->initializers) add_weight(tensor.name, tensor, rule, inner, true);
      add_weights(*a.g, rule, inner);
    }
  }
}

void OnnxModel::add_weight(std::string_view name, const Tensor& tensor, const ParameterRule& rule,
                           const std::string& path, bool initializer) {
  auto type = tensor_type(tensor);
  if (!type.ok() || !is_float(type->dtype) || type->elements() <= 1) return;
  if (!rule.is_weight(name, tensor, *type) && !(initializer && rule.judge(tensor).parameter)) return;
  // The two branches of an If may use one name.
  std::string unique = by_name_.contains(name) ? cat(path, name) : std::string(name);
  if (by_name_.contains(unique)) return;
  const std::string& kept = weights_.emplace(&tensor, std::move(unique)).first->second;
  by_name_.emplace(kept, &tensor);
  initializers_.push_back({kept, std::move(*type)});
}

const std::string* OnnxModel::weight_name(const Tensor& tensor) const {
  auto it = weights_.find(&tensor);
  return it == weights_.end() ? nullptr : &it->second;
}

namespace {

// An open dimension that the file does not name is called by its position, unless the file has the name for another
// one.
void name_positions(std::vector<ModelPort>& inputs) {
  std::set<std::string> taken;
  for (const ModelPort& port : inputs) {
    for (const ModelDim& dim : port.dims) taken.insert(dim.symbol);
  }
  for (ModelPort& port : inputs) {
    for (size_t d = 0; d < port.dims.size(); ++d) {
      std::string position = dimension_position(port.name, d);
      if (port.dims[d].size < 0 && port.dims[d].symbol.empty() && !taken.contains(position))
        port.dims[d].symbol = std::move(position);
    }
  }
}

}  // namespace

Status OnnxModel::fill_ports() {
  auto port = [](const ValueInfo& info) -> Result<ModelPort> {
    if (info.elem_type == 0)
      return unsupported(shown(info.name, 200),
                         " is a sequence, a map or an optional value, and only tensors are supported; export the model "
                         "with tensors alone")
          .at(info.name);
    auto dtype = dtype_of(info.elem_type);
    if (!dtype.ok()) return dtype.status().with_context(cat(shown(info.name, 200))).at(info.name);
    ModelPort made{std::string(info.name), *dtype, {}};
    if (info.dims.size() > 16)
      return unsupported(shown(info.name, 200), " has ", info.dims.size(), " dimensions; tensors have up to 16")
          .at(info.name);
    for (const Dim& dim : info.dims) {
      if (dim.value < -1)
        return Status(Code::invalid_model, cat(shown(info.name, 200), " has a dimension of ", dim.value),
                      std::string(info.name));
      // "?" stands for a size that nobody named: two of them need not be equal.
      made.dims.push_back({dim.value, dim.symbol == "?" ? std::string() : std::string(dim.symbol)});
    }
    return made;
  };
  for (const ValueInfo& info : file_.graph.inputs) {
    if (by_name_.contains(info.name)) continue;  // an initialiser that may be overridden: its value stands
    EPL_ASSIGN(ModelPort made, port(info));
    made.ranked = info.has_shape;
    inputs_.push_back(std::move(made));
  }
  name_positions(inputs_);
  for (const ValueInfo& info : file_.graph.outputs) {
    if (info.elem_type == 0) {  // the type of an output is known from its node
      outputs_.push_back({std::string(info.name), DType::f32, {}});
      continue;
    }
    EPL_ASSIGN(ModelPort made, port(info));
    outputs_.push_back(std::move(made));
  }
  return {};
}

int64_t OnnxModel::opset(std::string_view domain) const {
  auto it = opsets_.find(named_once(domain));
  return it == opsets_.end() ? 0 : it->second;
}

const Function* OnnxModel::function(std::string_view domain, std::string_view name, std::string_view overload) const {
  if (functions_.empty()) return nullptr;
  auto it = functions_.find(function_key(domain, name, overload));
  return it == functions_.end() ? nullptr : it->second;
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

Result<epl::Graph> OnnxModel::bind(const Binding& binding) const {
  return binding.free_batch ? import_with_free_batch(*this, binding) : Importer(*this, binding).run();
}

}  // namespace epl::onnx

namespace epl {

EPL_FRONTEND(onnx) {
  return {.name = "onnx",
          .doc = "ONNX models, opset 7 to 28",
          .recognizes =
              [](const std::string& path) {
                return path.ends_with(".onnx") || path.ends_with(".pb") || path.ends_with(".onnx2");
              },
          .load = onnx::OnnxModel::load,
          .load_bytes = onnx::OnnxModel::load_bytes};
}

}  // namespace epl
