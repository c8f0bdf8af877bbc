// See parameter_rule.h.
#include "frontends/onnx/parameter_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/parameter_uses.h"
#include "frontends/onnx/weight_findings.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_elements_read = int64_t{1} << 22;

// Removes the digits at the end; false when there is none.
bool cut_number(std::string_view& name) {
  const size_t length = name.size(), last = name.find_last_not_of("0123456789");
  name = name.substr(0, last == std::string_view::npos ? 0 : last + 1);
  return name.size() < length;
}

// Constants that PyTorch's newer exporter computes have the name of the operation: "softmax", "expand_1", "mul_12".
bool named_as_operation(std::string_view name) {
  static constexpr std::string_view operations =
      " abs acos add addmm alias amax amin arange asin atan atan2 baddbmm bitwise_and bitwise_not bitwise_or "
      "bmm cat chunk clamp clamp_max clamp_min clone conv1d conv2d convert_element_type copy cos "
      "cosine_similarity cumprod cumsum detach diff div dot dropout einsum embedding eq erf exp expand "
      "flatten floor floor_divide full full_like gather ge gelu getitem gt index item layer_norm le "
      "lift_fresh_copy linear linspace log log_softmax logical_and logical_not logical_or logsumexp lt "
      "masked_fill matmul max maximum mean min minimum mm mul ne neg new_full new_ones new_zeros norm "
      "one_hot ones ones_like outer pad permute pow rand randn reciprocal relu remainder repeat reshape "
      "rms_norm roll round rsqrt rsub scalar_tensor scatter select sigmoid sign silu sin slice softmax "
      "softplus sort split sqrt squeeze stack std sub sum t tanh to transpose tril triu true_divide trunc "
      "type_as unbind unfold unsafe_view unsqueeze var view where zeros zeros_like ";
  if (cut_number(name) && name.ends_with('_')) name.remove_suffix(1);
  return name.find(' ') == std::string_view::npos && operations.find(cat(" ", name, " ")) != std::string_view::npos;
}

// "val_7", "onnx::MatMul_12", "_to_copy_3", "12", "/layer/Reshape_output_0", "x.Constant_1_output_0".
bool named_by_exporter(std::string_view name) {
  if (name.starts_with("onnx::") || name.starts_with("_to_copy") || name.starts_with("/")) return true;
  if (!cut_number(name)) return false;
  if (name.empty() || name == "val_" || name == "_val_") return true;
  if (!name.ends_with("_output_")) return false;
  name.remove_suffix(std::string_view("_output_").size());
  return cut_number(name) && name.ends_with("Constant_");
}

bool dotted(std::string_view name) { return name.find('.') != std::string_view::npos; }
// Of an attribute in its module, and the module.
std::string_view own_name(std::string_view name) { return name.substr(name.rfind('.') + 1); }
std::string_view module_of(std::string_view name) { return name.substr(0, dotted(name) ? name.rfind('.') : 0); }

// Names that modules give to what they do not train.
bool known_buffer(std::string_view name) {
  static constexpr std::array names = {"pos_weight",   "inv_freq",    "original_inv_freq",
                                       "running_mean", "running_var", "position_ids",
                                       "masked_bias",  "attn_mask",   "attention_mask",
                                       "causal_mask",  "mask",        "anchors",
                                       "anchor_grid",  "cos",         "sin",
                                       "cos_cached",   "sin_cached",  "freqs_cis",
                                       "freqs_cos",    "freqs_sin",   "embed_scale",
                                       "eps",          "epsilon",     "zero_point",
                                       "min_val",      "max_val",     "pixel_mean",
                                       "pixel_std",    "image_mean",  "image_std",
                                       "mel_basis",    "dct_mat",     "relative_coords_table"};
  return std::ranges::find(names, own_name(name)) != names.end() || own_name(name).ends_with("_mask");
}

// Of the colours of an image. Its model takes them from what it gets.
bool statistics_of_images(std::string_view name, const TensorType& type) {
  const std::string_view own = own_name(name);
  return (own == "mean" || own == "std") && type.elements() <= 4;
}

// PyTorch's names, and PaddlePaddle's.
bool named_as_weight(std::string_view name) {
  return name.ends_with(".bias") || name.ends_with(".weight") || name.ends_with(".w_0") || name.ends_with(".b_0");
}

// What layers of PyTorch call their parameters, and no buffer.
bool named_by_layer(std::string_view own) {
  static constexpr std::array names = {"weight",   "bias",   "in_proj_weight", "in_proj_bias", "weight_g",
                                       "weight_v", "bias_k", "bias_v",         "weight_orig",  "bias_orig"};
  return std::ranges::find(names, own) != names.end() || own.starts_with("weight_ih_") ||
         own.starts_with("weight_hh_") || own.starts_with("bias_ih_") || own.starts_with("bias_hh_");
}

// What people call what they register as buffers: kernels that blur, banks of filters, codebooks, slopes.
bool named_as_fixed(std::string_view own) {
  static constexpr std::array exact = {"embed", "embedding", "embeddings", "fb", "basis", "mel", "slopes", "window"};
  static constexpr std::array part = {"kernel", "blur",  "filt", "fbank",  "filter_bank", "mel_", "_mel",    "codebook",
                                      "alibi",  "slope", "freq", "window", "anchor",      "ema_", "cluster", "buffer"};
  return std::ranges::find(exact, own) != exact.end() ||
         std::ranges::any_of(part, [&](const char* one) { return own.find(one) != std::string_view::npos; });
}

// As people name things in a program: single numbers of other names are what tools make.
bool named_by_people(std::string_view name) {
  return !name.empty() && !named_by_exporter(name) && !named_as_operation(name) &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") ==
             std::string_view::npos &&
         name.find("__") == std::string_view::npos;
}

// A mask holds numbers that weights do not have.
bool looks_like_mask(const epl::Tensor& value) {
  int64_t sample = std::min<int64_t>(value.elements(), 1 << 16);
  for (int64_t i = 0; i < sample; ++i) {
    if (!(std::fabs(value.get(i)) < 1e9)) return true;
  }
  return false;
}

// What an exporter writes in the place of a scale or a shift that the layer does not have.
bool stands_for_nothing(const epl::Tensor& value) {
  if (value.type().ndim() != 1) return false;
  const double first = value.get(0);
  if (first != 0 && first != 1) return false;
  for (int64_t i = 1; i < value.elements(); ++i) {
    if (value.get(i) != first) return false;
  }
  return true;
}

// Operands with which nothing is computed that a gradient could come through.
bool only_sets(std::string_view op, size_t operand) {
  static constexpr std::array comparisons = {"Equal", "Greater", "GreaterOrEqual",    "Less",   "LessOrEqual", "Shape",
                                             "Size",  "Range",   "NonMaxSuppression", "OneHot", "CastLike"};
  if (std::ranges::find(comparisons, op) != comparisons.end()) return true;
  return operand > 0 && (op == "Clip" || op == "Pow" || op == "Dropout" || op == "Pad" || op == "Resize");
}

// Which operands of a node are running statistics; a function's are those that its nodes take as such.
class Statistics {
 public:
  explicit Statistics(const OnnxModel& model) : model_(model) {}

  std::vector<std::string_view> of(const Node& node) {
    std::vector<std::string_view> out;
    auto add = [&](size_t i) {
      if (i < node.inputs.size() && !node.inputs[i].empty()) out.push_back(node.inputs[i]);
    };
    if (const Function* function = model_.function(node.domain, node.op_type, node.overload)) {
      for (size_t i : of(*function)) add(i);
    } else if (const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model_.opset(node.domain))) {
      for (int i : row->statistics) add(static_cast<size_t>(i));
    }
    return out;
  }

 private:
  const std::vector<size_t>& of(const Function& function) {
    auto [it, inserted] = known_.try_emplace(&function);
    if (!inserted) return it->second;  // a function that calls itself has none so far; it is refused elsewhere
    std::vector<size_t> found;
    for (const Node& node : function.nodes) {
      for (std::string_view name : of(node)) {
        auto input = std::ranges::find(function.inputs, name);
        if (input != function.inputs.end()) found.push_back(static_cast<size_t>(input - function.inputs.begin()));
      }
    }
    return known_[&function] = std::move(found);
  }

  const OnnxModel& model_;
  std::map<const Function*, std::vector<size_t>> known_;
};

}  // namespace

ParameterRule::ParameterRule(const OnnxModel& model) : model_(model) {
  const File& file = model.file();
  read_signature(file.graph.signature);
  pytorch_ = file.producer_name == "pytorch" || !said_.empty();
  for (const Tensor& tensor : file.graph.initializers) {
    auto dtype = dtype_of(tensor.data_type);
    if (!dtype.ok() || !is_float(*dtype) || tensor.dims.empty()) continue;
    dotted_ = dotted_ || dotted(tensor.name);
  }
  // The newer exporter names its nodes so.
  operations_ =
      std::ranges::any_of(file.graph.nodes, [](const Node& node) { return node.name.starts_with("node_"); }) ||
      (!pytorch_ && dotted_);
  look_at_uses();
  by_feature_ = scales_of_features(model);
  waves_ = random_features(model);
  of_terms_ = weights_of_terms(model);
  of_data_ = statistics_of_data(model);
  if (pytorch_ && said_.empty()) look_at_order();
}

void ParameterRule::look_at_uses() {
  const std::vector<Node>& nodes = model_.file().graph.nodes;
  Statistics statistics(model_);
  std::unordered_set<std::string_view> products;  // results of products and convolutions
  std::unordered_set<std::string_view> roots;     // what a root, a logarithm or a quotient is taken of
  std::unordered_map<std::string_view, std::string_view> before_reshape;
  auto note_roots = [&](const Node& node, auto& self) -> void {
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) self(inner, self);
    }
    const std::string_view op = node.op_type;
    const bool root = op == "Sqrt" || op == "Log" || op == "Reciprocal" || op == "Pow";
    if (root && !node.inputs.empty()) roots.insert(node.inputs[0]);
    if (op == "Div" && node.inputs.size() == 2) roots.insert(node.inputs[1]);
  };
  for (const Node& node : nodes) note_roots(node, note_roots);
  auto note = [&](const Node& node, auto& self) -> void {
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) self(inner, self);
      if (node.op_type != "Loop" && node.op_type != "Scan") continue;
      // What a loop is given takes the places that its graph's inputs take.
      const size_t before = node.op_type == "Scan" && model_.opset("") < 9 ? 1 : 0;
      for (size_t k = 0; k < a.g->inputs.size() && k + before < node.inputs.size(); ++k) {
        for (auto* places : {&statistics_, &structural_, &weights_, &shifts_}) {
          if (places->contains(a.g->inputs[k].name)) places->insert(node.inputs[k + before]);
        }
      }
    }
    for (std::string_view name : statistics.of(node)) statistics_.insert(name);
    if (const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model_.opset(node.domain))) {
      const auto insert = [&](const std::vector<int>& operands, auto& names) {
        for (int i : operands) {
          if (i < static_cast<int>(node.inputs.size())) names.insert(node.inputs[i]);
        }
      };
      insert(row->structural, structural_);
      insert(row->weights, weights_);
      if (row->product && !node.outputs.empty()) products.insert(node.outputs[0]);
    }
    const std::string_view op = node.op_type;
    // What keeps a root or a quotient away from zero.
    const bool guards = (op == "Add" || op == "Max") && !node.outputs.empty() && roots.contains(node.outputs[0]);
    for (size_t i = 0; i < node.inputs.size() && !guards; ++i) {
      if (!only_sets(op, i)) computed_with_.insert(node.inputs[i]);
    }
    if (op == "Reshape" && node.inputs.size() == 2 && !node.outputs.empty())
      before_reshape.emplace(node.outputs[0], node.inputs[0]);
    if (op == "Add" && node.inputs.size() == 2) {
      for (size_t i : {0, 1}) {
        auto reshaped = before_reshape.find(node.inputs[1 - i]);
        if (products.contains(node.inputs[i]))
          shifts_.insert(reshaped == before_reshape.end() ? node.inputs[1 - i] : reshaped->second);
      }
    }
  };
  for (const Node& node : nodes) note(node, note);
}

// "p_fc_weight: PARAMETER target='fc.weight'", a line each; older versions print the same as one list,
// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=..., target='fc.weight', persistent=None), ...".
void ParameterRule::read_signature(std::string_view text) {
  constexpr std::string_view begins = "target='";
  const auto in_word = [](char c) { return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  for (const auto& [word, kind] : {std::pair<std::string_view, Kind>{"PARAMETER", Kind::parameter},
                                   {"BUFFER", Kind::buffer},
                                   {"CONSTANT_TENSOR", Kind::buffer}}) {
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) {
      const size_t end = at + word.size();
      if ((at > 0 && in_word(text[at - 1])) || (end < text.size() && in_word(text[end]))) continue;
      const size_t line = std::min(text.find('\n', end), text.size()), target = text.find(begins, end);
      if (target == std::string_view::npos || target > line) continue;
      const size_t name = target + begins.size(), close = std::min(text.find('\'', name), text.size());
      const std::string_view found = text.substr(name, close - name);
      if (said_.emplace(found, kind).second && kind == Kind::parameter) said_parameters_.push_back(found);
    }
  }
}

// A module lists its parameters and then its buffers, and the older exporter keeps that order: what stands before a
// weight is a parameter, and what stands behind a buffer is a buffer. Only names are certain: a product may be with a
// buffer, and a parameter may have the name of a buffer.
void ParameterRule::look_at_order() {
  enum class Sign : uint8_t { none, parameter, buffer, called_buffer };
  std::map<std::string_view, std::vector<std::pair<std::string_view, Sign>>> modules;
  for (const Tensor& tensor : model_.file().graph.initializers) {
    const std::string_view name = tensor.name;
    if (made_by_exporter(name)) continue;
    auto dtype = dtype_of(tensor.data_type);
    const bool real = dtype.ok() && is_float(*dtype);
    const bool mask = own_name(name) == "bias" && tensor.dims.size() > 2;  // perhaps: so GPT-2's is called
    const Sign sign = !real || statistics_.contains(name)       ? Sign::buffer
                      : known_buffer(name)                      ? Sign::called_buffer
                      : !mask && named_by_layer(own_name(name)) ? Sign::parameter
                                                                : Sign::none;
    modules[module_of(name)].emplace_back(name, sign);
  }
  for (const auto& [module, members] : modules) {
    size_t last_parameter = 0;  // one behind it
    for (size_t k = 0; k < members.size(); ++k) {
      if (members[k].second == Sign::parameter) last_parameter = k + 1;
    }
    size_t first_buffer = 0;
    while (first_buffer < members.size() && members[first_buffer].second != Sign::buffer &&
           (first_buffer < last_parameter || members[first_buffer].second != Sign::called_buffer))
      ++first_buffer;
    if (last_parameter > first_buffer) continue;  // another tool has changed the order
    for (size_t k = 0; k < last_parameter; ++k) ordered_[members[k].first] = Kind::parameter;
    for (size_t k = first_buffer; k < members.size(); ++k) ordered_[members[k].first] = Kind::buffer;
  }
}

bool ParameterRule::is_weight(std::string_view name, const TensorType& type) const {
  if (weights_.contains(name) || statistics_.contains(name)) return true;
  const bool vector = type.elements() == *std::ranges::max_element(type.shape);  // but for dimensions of one
  return vector && (shifts_.contains(name) || named_as_weight(name));
}

bool ParameterRule::is_weight(std::string_view name, const Tensor& tensor, const TensorType& type) const {
  if (!is_weight(name, type)) return false;
  if (!pytorch_ || !named_by_exporter(name)) return true;
  auto value = tensor_value(tensor, model_.stored());
  return !value.ok() || !stands_for_nothing(*value);
}

ParameterRule::Kind ParameterRule::said(std::string_view name) const {
  auto found = said_.find(name);
  return found == said_.end() ? Kind::unknown : found->second;
}

bool ParameterRule::made_by_exporter(std::string_view name) const {
  return said(name) == Kind::unknown &&
         (named_by_exporter(name) || (operations_ && named_as_operation(name)) || (!said_.empty() && !dotted(name)));
}

bool ParameterRule::may_be_buffer(std::string_view name) const {
  return pytorch_ && said_.empty() && by_order(name) == Kind::unknown && !made_by_exporter(name) &&
         !named_as_weight(name) && named_as_fixed(own_name(name));
}

ParameterRule::Kind ParameterRule::by_order(std::string_view name) const {
  auto found = ordered_.find(name);
  return found == ordered_.end() ? Kind::unknown : found->second;
}

// A vector of one element may be the bias of a layer with one output. Of other single numbers PyTorch's files say by
// their names that they are attributes of a module, and those are rarely constants.
ParameterVerdict ParameterRule::judge_single(std::string_view name, const TensorType& type, bool placed) const {
  if ((placed && !type.shape.empty()) || (named_as_weight(name) && (pytorch_ || !type.shape.empty())))
    return {true, ""};
  const bool of_module = pytorch_ && !made_by_exporter(name);
  if (of_module) return {true, ""};
  return {false, "it has one element", named_by_people(name) && is_learnable_position(name)};
}

ParameterVerdict ParameterRule::judge(std::string_view name, const Tensor& tensor, bool placed) const {
  auto type = tensor_type(tensor);
  if (!type.ok()) return {false, type.status().message()};
  if (!is_float(type->dtype)) return {false, cat("its type is ", type->text())};
  if (model_.quantized().only_serves(name)) return {false, "it belongs to weights that are stored as integers"};
  if (statistics_.contains(name)) return {false, "it is a running statistic"};
  if (structural_.contains(name)) return {false, "it is a setting of a node"};
  if (said(name) == Kind::parameter) return {true, ""};
  if (of_terms_.contains(name)) return {false, "the model's own loss weighs its terms with it", true};
  if (said(name) == Kind::buffer) return {false, "the exporter says that it is a buffer"};
  if (by_order(name) == Kind::parameter) return {true, ""};
  if (of_data_.contains(name))
    return {false, "by its name and its position it is the mean or the spread of data, which the model standardises",
            true};
  if (known_buffer(name) || statistics_of_images(name, *type)) {
    // Some layers of graphs learn their epsilon.
    const bool learnable = type->elements() <= 1 && own_name(name).starts_with("eps") && is_learnable_position(name);
    return {false, "its name is that of a buffer", learnable};
  }
  if (by_order(name) == Kind::buffer) return {false, "it stands among the buffers of its module", placed};
  const bool made = made_by_exporter(name);
  // The older exporter writes single numbers into nodes: one of its initialisers was computed from others.
  if (made && !placed)
    return {false, "it is a constant that the exporter made", type->elements() > 1 || name.starts_with("onnx::")};
  if (type->elements() <= 1 && !(made && pytorch_)) return judge_single(name, *type, placed);
  if (waves_.contains(name) && !named_as_weight(name))
    return {false, "only sines and cosines are taken of what is computed with it, as of random features", true};
  if (type->elements() > max_elements_read && dotted(name) && !made) return {true, ""};
  return judge_numbers(name, tensor, *type, placed, made);
}

namespace {

TensorLook look_at(const Tensor& tensor, const std::shared_ptr<const ModelBytes>& stored) {
  const auto value = tensor_value(tensor, stored);
  if (!value.ok() || value->elements() == 0) return {};
  return {true, stands_for_nothing(*value), looks_like_mask(*value), table_kind(*value)};
}

}  // namespace

// By what is in it, where nothing else tells.
ParameterVerdict ParameterRule::judge_numbers(std::string_view name, const Tensor& tensor, const TensorType& type,
                                              bool placed, bool made) const {
  const TensorLook& look = model_.look_once(tensor, [&] { return look_at(tensor, model_.stored()); });
  if (!look.any) return {true, ""};
  if (made && pytorch_ && look.nothing) return {false, "it stands for a weight that the layer does not have"};
  if (type.elements() <= 1) return judge_single(name, type, placed);
  if ((made || !dotted(name)) && look.mask) {
    return {false, "it holds the numbers of a mask", false, placed};
  }
  const std::string& table = look.table;
  // A bias of many dimensions may hold a mask: so do GPT-2's.
  if (table.empty() || (named_as_weight(name) && !(table == triangular_mask && type.ndim() > 2))) return {true, ""};
  if (table == even_numbers && scales_features(name)) return {true, ""};
  return {false, cat("it looks like ", table), false, false, table};
}

}  // namespace epl::onnx
