#include "core/train/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/converted.h"
#include "core/base/json.h"
#include "core/base/philox.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/base/text.h"
#include "core/ir/builder.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl {
namespace {

constexpr int64_t largest_rank = 1 << 20;

// A weight as a layer's node reads it.
struct Use {
  Value weight;             // the parameter
  bool transposed = false;  // as a matrix it is [in, out]
  std::string refusal;      // why it can have no adapter
};

bool has_adapters(const Node& node) { return node.op->weight_product != WeightProduct::none; }

// The parameter behind casts, reshapes and transposes; each transpose flips `transposed`.
Value source_of(const Graph& graph, Value value, bool& transposed) {
  while (value && graph.value(value).producer) {
    const Node& node = graph.node(graph.value(value).producer);
    const bool transpose = node.attributes.has("perm") && node.attributes.ints("perm") == Ints{1, 0};
    const bool same = node.op->moves == Moves::all && node.op->view && graph.type(value) == graph.type(node.inputs[0]);
    if (!transpose && !same && node.op->moves != Moves::converted) break;
    transposed = transposed != transpose;
    value = node.inputs[0];
  }
  return value;
}

Use use_of(const Graph& graph, const Node& node) {
  Use use;
  const Value operand = node.inputs[1];
  bool transposed = false;
  use.weight = source_of(graph, operand, transposed);
  if (graph.value(use.weight).kind != ValueKind::parameter) return {};
  const TensorType& type = graph.type(use.weight);
  if (node.op->weight_product == WeightProduct::convolution) {
    if (transposed || type.ndim() < 3) return {};
    if (node.attributes.integer("groups") != 1) use.refusal = "it is a convolution in groups";
    return use;
  }
  if (type.ndim() != 2) return {};
  const bool flag = node.attributes.flag(node.op->transposes_weight);
  use.transposed = flag == transposed;  // neither: the operand is [in, out] already; both: it is again
  return use;
}

// Exporters that lose a weight's name give it one of these.
bool anonymous(std::string_view name) {
  return name.starts_with("onnx::") || name.starts_with("/") || name.starts_with("val_") ||
         name.find('.') == std::string_view::npos;
}

// `name` without `tail`, where it has it.
std::string without(const std::string& name, std::string_view tail) {
  return name.ends_with(tail) ? name.substr(0, name.size() - tail.size()) : name;
}

// "encoder.query.weight" is of the module encoder.query. A weight that has lost its name is of the module whose bias
// stands beside it, or else of the one whose path its node has: "/encoder/query/MatMul".
std::string module_of(const Graph& graph, const std::string& weight, const Node& node) {
  if (!anonymous(weight)) return without(weight, ".weight");
  if (node.inputs.size() > 2 && node.inputs[2]) {
    const std::string& bias = graph.value(node.inputs[2]).name;
    if (!anonymous(bias) && bias.ends_with(".bias")) return without(bias, ".bias");
  }
  const size_t last = node.name.rfind('/');
  if (!node.name.starts_with("/") || last == 0) return without(weight, ".weight");
  std::string path = node.name.substr(1, last - 1);
  std::ranges::replace(path, '/', '.');
  return path;
}

bool matches(const std::string& pattern, const std::string& module, const std::string& weight) {
  if (glob_match(pattern, module) || glob_match(pattern, weight)) return true;
  return pattern.find_first_of("*?") == std::string::npos && module.ends_with("." + pattern);
}

class Inserting {
 public:
  Inserting(const Graph& source, const AdapterOptions& options, bool training)
      : source_(source), options_(options), training_(training), now_(source, out_.graph), builder_(out_.graph) {}

  Result<Adapted> run() {
    out_.graph.name = source_.name;
    for (const AdapterSpec& spec : options_.specs) EPL_TRY(check_adapter(spec));
    find_uses();
    EPL_TRY(choose());
    for (int n = 0; n < source_.node_count(); ++n) {
      now_.copy(NodeId{n});
      const Node& node = source_.node(NodeId{n});
      auto chosen = has_adapters(node) ? chosen_.find(use_of(source_, node).weight) : chosen_.end();
      if (chosen != chosen_.end()) add_beside(node, out_.adapters[chosen->second]);
      EPL_TRY(builder_.status());
    }
    now_.finish();
    return std::move(out_);
  }

 private:
  // Every reader of a parameter, also through casts, reshapes and transposes. Merging changes the parameter for all of
  // them.
  void find_uses() {
    std::vector<Value> shown(source_.value_count());  // value -> the parameter that it shows
    for (Value p : source_.leaves(ValueKind::parameter)) shown[p.index] = p;
    for (int n = 0; n < source_.node_count(); ++n) {
      const Node& node = source_.node(NodeId{n});
      const Use use = has_adapters(node) ? use_of(source_, node) : Use{};
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value parameter = node.inputs[i] ? shown[node.inputs[i].index] : Value{};
        if (!parameter) continue;
        bool transposed = false;
        const Value through = source_of(source_, node.outputs[0], transposed);
        if (through == parameter) {
          shown[node.outputs[0].index] = parameter;
        } else if (i == 1 && use.weight == parameter) {
          add_use(use, node);
        } else {
          refused_.try_emplace(parameter, cat("node ", node.name, " (", node.op->name, ") uses it, too"));
        }
      }
    }
    for (const Graph::Output& output : source_.outputs) {
      if (Value parameter = shown[output.value.index])
        refused_.try_emplace(parameter, cat("it is the output ", output.name));
    }
  }

  void add_use(const Use& use, const Node& node) {
    auto [it, first] = uses_.try_emplace(use.weight, use);
    if (first) {
      order_.push_back(use.weight);
      modules_[use.weight] = module_of(source_, source_.value(use.weight).name, node);
    }
    if (!use.refusal.empty()) refused_.try_emplace(use.weight, use.refusal);
    if (it->second.transposed != use.transposed)
      refused_.try_emplace(use.weight, cat("node ", node.name, " uses it the other way round"));
  }

  Status choose() {
    std::vector<std::vector<std::string>> taken(options_.specs.size()), left(options_.specs.size());
    std::set<std::string> names;
    for (Value weight : order_) {
      const std::string& name = source_.value(weight).name;
      const std::string& module = modules_[weight];
      int found = -1;
      for (size_t s = 0; s < options_.specs.size(); ++s) {
        if (!matches(options_.specs[s].pattern, module, name)) continue;
        if (auto refusal = refused_.find(weight); refusal != refused_.end()) {
          left[s].push_back(cat(name, ": ", refusal->second));
          continue;
        }
        taken[s].push_back(name);
        if (found < 0) found = static_cast<int>(s);
      }
      if (found < 0) continue;
      EPL_TRY(
          add_adapter(weight, options_.specs[static_cast<size_t>(found)], names.insert(module).second ? module : name));
    }
    for (size_t s = 0; s < options_.specs.size(); ++s) {
      if (taken[s].empty()) return nothing_matches(options_.specs[s], left[s]);
      if (!left[s].empty())
        out_.notes.push_back(
            cat("the adapters ", shown(options_.specs[s].pattern, 200), " leave out ", first_of(left[s])));
    }
    if (!too_high_.empty())
      out_.notes.push_back(cat("an adapter with more numbers than its weight saves nothing: ", first_of(too_high_)));
    return {};
  }

  static std::string first_of(const std::vector<std::string>& all) {
    return cat(all[0], all.size() > 1 ? cat("; and ", all.size() - 1, " more") : "");
  }

  Status nothing_matches(const AdapterSpec& spec, const std::vector<std::string>& left) const {
    if (!left.empty())
      return invalid("the adapters ", shown(spec.pattern, 200),
                     " have no weight that can be adapted: ", first_of(left));
    for (const auto& [parameter, unused] : refused_) {
      const std::string& name = source_.value(parameter).name;
      if (matches(spec.pattern, without(name, ".weight"), name))
        return invalid("the adapters ", shown(spec.pattern, 200), " match no layer: ", name,
                       " is not the second operand of a MatMul, Gemm or Conv");
    }
    std::vector<std::string> known, ends;  // "encoder.query", "query"
    for (const auto& [weight, module] : modules_) {
      known.push_back(module);
      ends.push_back(module.substr(module.rfind('.') + 1));
    }
    std::string hint = did_you_mean(spec.pattern, ends);
    if (hint.empty()) hint = did_you_mean(spec.pattern, known);
    const std::string deeper = "*." + spec.pattern;
    if (std::ranges::any_of(known, [&](const std::string& module) { return glob_match(deeper, module); }))
      hint = cat("; ", deeper, " would.");
    return invalid(
        "the adapters ", shown(spec.pattern, 200), " match no layer", hint,
        hint.empty() ? "; there are " : " There are ", known.size(), " with a matrix or a convolution",
        known.empty() ? "" : cat(", such as ", short_list(std::span(known).first(std::min<size_t>(known.size(), 3)))));
  }

  Status add_adapter(Value weight, const AdapterSpec& spec, const std::string& module) {
    const ValueInfo& info = source_.value(weight);
    Adapter adapter;
    adapter.module = module;
    adapter.weight = info.name;
    adapter.a = cat("base_model.model.", module, ".lora_A.weight");
    adapter.b = cat("base_model.model.", module, ".lora_B.weight");
    adapter.transposed = uses_[weight].transposed;
    adapter.convolution = info.type.ndim() > 2;
    adapter.spec = spec;
    const DType dtype = dtype_bytes(info.type.dtype) < 4
                            ? DType::f32
                            : info.type.dtype;  // an update is smaller than a rounding of 16 bits
    Shape a = info.type.shape, b(a.size(), 1);
    if (adapter.transposed) std::swap(a[0], a[1]);
    b[0] = a[0];
    a[0] = b[1] = spec.rank;
    for (const std::string& name : {adapter.a, adapter.b}) {
      if (out_.graph.find(name))
        return invalid("the model has a tensor ", name, "; the adapter of ", info.name, " needs this name");
    }
    // Initial values as in PEFT: A uniform in +-1/sqrt(inputs of a unit), as PyTorch does for Linear and Conv; B zero.
    Tensor start(TensorType{dtype, a});
    const double bound = 1 / std::sqrt(static_cast<double>(start.elements() / std::max<int64_t>(spec.rank, 1)));
    const int64_t numbers = start.elements() + element_count(b);
    if (numbers > info.type.elements())
      too_high_.push_back(
          cat(info.name, " ", info.type.text(), " has ", info.type.elements(), ", rank ", spec.rank, " ", numbers));
    const uint64_t key = random_key(options_.seed, 0, adapter.a);
    for (int64_t i = 0; i < start.elements(); ++i)
      start.set(i, (2.0 * philox_uniform(key, static_cast<uint64_t>(i)) - 1.0) * bound);
    out_.graph.add_leaf(ValueKind::parameter, adapter.a, start.type(), start);
    out_.graph.add_leaf(ValueKind::parameter, adapter.b, {dtype, b});
    chosen_[weight] = out_.adapters.size();
    out_.adapters.push_back(std::move(adapter));
    return {};
  }

  void add_beside(const Node& node, const Adapter& adapter) {
    const std::string layer = cat("base_model.model.", adapter.module);
    Var x = builder_.var(now_[node.inputs[0]]);
    const auto small = [&](const std::string& name) {
      return builder_.cast(builder_.var(out_.graph.find(name)), x.dtype());
    };
    if (training_ && adapter.spec.dropout > 0) {
      builder_.set_scope(layer + ".lora_dropout");
      x = builder_.dropout(x, adapter.spec.dropout);
    }
    builder_.set_scope(layer + ".lora_A");
    Var low;
    if (adapter.convolution) {
      low = builder_.emit(node.op->name, {x, small(adapter.a)}, node.attributes);
    } else {
      const bool transposed = node.attributes.has("transpose_a") && node.attributes.flag("transpose_a");
      low = builder_.matmul(x, small(adapter.a), transposed, true);
    }
    builder_.set_scope(layer + ".lora_B");
    Var up;
    if (adapter.convolution) {
      const auto spatial = static_cast<size_t>(x.ndim() - 2);
      up = builder_.emit(node.op->name, {low, small(adapter.b)},
                         {{"strides", Ints(spatial, 1)},
                          {"pads", Ints(2 * spatial, 0)},
                          {"dilations", Ints(spatial, 1)},
                          {"groups", int64_t{1}}});
    } else {
      up = builder_.matmul(low, small(adapter.b), false, true);
    }
    builder_.set_scope(layer + ".lora");
    const Var sum = builder_.var(now_[node.outputs[0]]) + up * adapter.scale();
    if (builder_.status().ok()) now_.set(node.outputs[0], sum.value());
  }

  const Graph& source_;
  const AdapterOptions& options_;
  const bool training_;
  Adapted out_;
  GraphRewriter now_;
  Builder builder_;
  std::map<Value, Use> uses_;
  std::map<Value, std::string> modules_, refused_;
  std::map<Value, size_t> chosen_;  // into out_.adapters
  std::vector<Value> order_;
  std::vector<std::string> too_high_;
};

}  // namespace

Status check_adapter(const AdapterSpec& spec) {
  if (spec.rank < 1)
    return invalid("an adapter of rank ", spec.rank, " (", shown_plain(spec.pattern, 200),
                   "); 1 and more are possible");
  if (spec.rank > largest_rank)
    return invalid("an adapter of rank ", spec.rank, " (", shown_plain(spec.pattern, 200), "); up to ", largest_rank,
                   " are possible, and more than a weight's own rank gains nothing");
  if (!(spec.alpha > 0 && std::isfinite(spec.alpha)))
    return invalid("alpha of the adapters ", shown_plain(spec.pattern, 200), " is ", number_text(spec.alpha),
                   "; it is a number above 0");
  if (!(spec.dropout >= 0 && spec.dropout < 1))
    return invalid("dropout of the adapters ", shown_plain(spec.pattern, 200), " is ", number_text(spec.dropout),
                   ", which is outside [0, 1)");
  return {};
}

Result<Adapted> insert_adapters(const Graph& graph, const AdapterOptions& options, bool training) {
  return Inserting(graph, options, training).run();
}

Tensor merge_adapter(const Adapter& adapter, const Tensor& weight, const Tensor& a, const Tensor& b) {
  const int64_t rank = adapter.spec.rank, out = b.shape()[0], in = a.elements() / rank;
  const auto numbers = [](const Tensor& t) {
    std::vector<double> values(static_cast<size_t>(t.elements()));
    for (int64_t i = 0; i < t.elements(); ++i) values[static_cast<size_t>(i)] = t.get(i);
    return values;
  };
  return mapped(weight, [=, scale = adapter.scale(), transposed = adapter.transposed, down = numbers(a),
                         up = numbers(b)](int64_t at, double value) {
    const int64_t o = transposed ? at % out : at / in, i = transposed ? at / out : at % in;
    double sum = 0;
    for (int64_t r = 0; r < rank; ++r)
      sum += up[static_cast<size_t>(o * rank + r)] * down[static_cast<size_t>(r * in + i)];
    return value + scale * sum;
  });
}

TrainedModules trained_modules(const std::vector<Adapter>& adapters, const std::vector<std::string>& changed,
                               const std::vector<std::string>& all) {
  TrainedModules out;
  std::set<std::string> taken;
  for (const std::string& name : changed) {
    if (std::ranges::any_of(adapters, [&](const Adapter& one) { return one.a == name || one.b == name; })) continue;
    const size_t dot = name.rfind('.');
    const std::string module = anonymous(name) ? "" : name.substr(0, dot);
    const auto has = [&](const char* part) { return std::ranges::find(all, module + part) != all.end(); };
    const bool torn = has(".bias") && !has(".weight");
    if (module.empty() || torn || std::ranges::find(adapters, module, &Adapter::module) != adapters.end()) {
      out.left_out.push_back(name);
    } else if (taken.insert(module).second) {
      out.modules.push_back(module);
    }
  }
  return out;
}

std::string adapter_config(const std::vector<Adapter>& adapters, const std::vector<std::string>& modules_to_save) {
  const AdapterSpec first = adapters.empty() ? AdapterSpec{} : adapters[0].spec;
  Json targets = Json::array(), ranks = Json::object(), alphas = Json::object();
  bool transposed = !adapters.empty();
  for (const Adapter& one : adapters) {
    targets.push_back(one.module);
    transposed = transposed && one.transposed && !one.convolution;
    if (one.spec.rank != first.rank) ranks[one.module] = one.spec.rank;
    if (one.spec.alpha != first.alpha) alphas[one.module] = one.spec.alpha;
  }
  // A weight that is [in, out] under a name of its own is that of a Conv1D of transformers.
  const bool named = std::ranges::none_of(adapters, [](const Adapter& one) { return anonymous(one.weight); });
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", Json()},
                       {"base_model_name_or_path", ""},
                       {"r", first.rank},
                       {"lora_alpha", first.alpha},
                       {"lora_dropout", first.dropout},
                       {"target_modules", targets},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       {"bias", "none"},
                       {"fan_in_fan_out", transposed && named},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"modules_to_save", modules_to_save.empty() ? Json() : Json(modules_to_save)},
                       {"use_rslora", false}};
  return print_json(config, 2) + "\n";
}

}  // namespace epl
