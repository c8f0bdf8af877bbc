// How a file itself asks to be spread. In our words: the model's metadata `epl.strategy` is a strategy's JSON, and a
// node's `epl.scope` the name of one of its scopes, or the path to an inner one ("stage0/experts"). In ONNX's (IR 11,
// onnx.proto): device configurations, each node's pipeline stage, and the shards of its tensors.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "frontends/onnx/model.h"

namespace epl::onnx {
namespace {

std::string pattern_of(const Node& node) {
  return cat("node:", !node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : node.op_type);
}

Status damaged(const Node& node, const auto&... why) {
  return Status(Code::invalid_model, cat("its annotations: ", why...), std::string(node.name));
}

Result<Json> own_strategy(std::string_view text) {
  auto parsed = parse_json(text);
  if (parsed.ok() && parsed->is_object()) return parsed;
  return Status(Code::invalid_model, cat("the model's metadata \"", strategy_key, "\" is not a strategy: ",
                                         parsed.ok() ? "it is no JSON object" : parsed.status().message()));
}

class OwnWords {
 public:
  explicit OwnWords(const File& file) : file_(file) {}

  Result<std::string> run() {
    EPL_ASSIGN(strategy_, own_strategy(file_.strategy));
    for (const Node& node : file_.graph.nodes) {
      if (!node.scope.empty()) EPL_TRY(add(node));
    }
    return print_json(strategy_);
  }

 private:
  Status add(const Node& node) {
    Json* at = &strategy_;
    for (std::string_view rest = node.scope; !rest.empty();) {
      const size_t end = rest.find('/');
      const std::string name(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      std::vector<std::string> names;
      Json* found = nullptr;
      Json none = Json::array();
      Json& scopes = at->contains("scopes") && at->find("scopes")->is_array() ? (*at)["scopes"] : none;
      for (size_t i = 0; i < scopes.size(); ++i) {
        const Json* known = scopes[i].find("name");
        if (known == nullptr || !known->is_string()) continue;
        names.push_back(known->get<std::string>());
        if (names.back() == name) found = &scopes[i];
      }
      if (found == nullptr)
        return damaged(node, "\"", scope_key, "\" is ", shown(node.scope), ", and \"", strategy_key, "\" has no scope ",
                       shown(name), choices(name, names));
      at = found;
    }
    Json& match = (*at)["match"];
    if (match.is_null()) match = Json::array();
    if (match.is_string()) match = Json::array({match});
    if (match.is_array()) match.push_back(pattern_of(node));
    return {};
  }

  const File& file_;
  Json strategy_;
};

// A pipeline's stage as its nodes' annotations tell it.
struct Stage {
  std::vector<std::string> nodes;
  std::set<int64_t> devices;
  int64_t weight_shards = 1;   // of the weight that is cut most
  Json dims = Json::object();  // the dimension in which each weight is cut
};

class StandardWords {
 public:
  StandardWords(const OnnxModel& model, const DeviceConfiguration& configuration)
      : model_(model), configuration_(configuration) {}

  Result<std::string> run() {
    for (const Node& node : model_.file().graph.nodes) {
      for (const NodeDevices& devices : node.devices) {
        if (devices.configuration == configuration_.name) EPL_TRY(add(node, devices));
      }
    }
    if (stages_.empty()) return std::string();
    EPL_ASSIGN(const bool shared, share_devices());
    Json strategy = Json::object();
    if (const std::string_view own = model_.file().strategy; !own.empty()) {
      EPL_ASSIGN(strategy, own_strategy(own));
    }
    if (shared) strategy["cluster.colocate_split_and_replicate"] = true;
    if (stages_.size() == 1) {  // of the loss as well
      strategy["default"] = kind(Json::object(), stages_.begin()->second);
      return print_json(strategy);
    }
    Json scopes = Json::array();
    for (const auto& [number, stage] : stages_)
      scopes.push_back(kind({{"name", cat("stage", number)}, {"match", stage.nodes}}, stage));
    strategy["scopes"] = scopes;
    return print_json(strategy);
  }

 private:
  Status add(const Node& node, const NodeDevices& devices) {
    Stage& stage = stages_[devices.stage.value_or(0)];
    stage.nodes.push_back(pattern_of(node));
    for (const ShardingSpec& spec : devices.specs) {
      if (std::ranges::find(node.inputs, spec.tensor) == node.inputs.end() &&
          std::ranges::find(node.outputs, spec.tensor) == node.outputs.end())
        return damaged(node, "a sharding spec is for ", shown(spec.tensor),
                       ", which is no input or output of the node");
      EPL_TRY(add_devices(node, spec, stage));
      int64_t shards = 1;
      std::set<int64_t> cut;
      for (const ShardedDim& dim : spec.dims) {
        for (const int64_t count : dim.shards) {
          if (count < 1 || __builtin_mul_overflow(shards, count, &shards) || shards > configuration_.devices)
            return damaged(node, spec.tensor, " is cut into ", count, " shards along axis ", dim.axis, ", and ",
                           configuration_text());
          if (count > 1) cut.insert(dim.axis);
        }
      }
      const bool weight = model_.initializer(spec.tensor) != nullptr || model_.quantized().contains(spec.tensor);
      if (!weight || shards == 1) continue;
      if (cut.size() > 1)
        return unsupported("node ", node.name, ": its annotations cut ", spec.tensor, " in ", cut.size(),
                           " dimensions; a weight is cut in one");
      stage.weight_shards = std::max(stage.weight_shards, shards);
      Json& dim = stage.dims[std::string(spec.tensor)];
      if (!dim.is_null() && dim.get<int64_t>() != *cut.begin())
        return unsupported("node ", node.name, ": its annotations cut ", spec.tensor, " in dimension ", *cut.begin(),
                           ", those of another node in dimension ", dim.get<int64_t>());
      dim = *cut.begin();
    }
    return {};
  }

  Status add_devices(const Node& node, const ShardingSpec& spec, Stage& stage) {
    for (const int64_t device : spec.devices) {
      const auto group = std::ranges::find(spec.groups, device, &std::pair<int64_t, std::vector<int64_t>>::first);
      const std::vector<int64_t> one = {device};
      for (const int64_t member : group == spec.groups.end() ? one : group->second) {
        if (member < 0 || member >= configuration_.devices)
          return damaged(node, spec.tensor, " is on device ", member, ", and ", configuration_text());
        stage.devices.insert(member);
      }
    }
    return {};
  }

  // Stages that name no device take equal shares. True: all stages are on the same devices.
  Result<bool> share_devices() {
    const auto count = static_cast<int64_t>(stages_.size());
    std::set<int64_t> named;
    int64_t sum = 0;
    for (const auto& [number, stage] : stages_) {
      named.insert(stage.devices.begin(), stage.devices.end());
      sum += static_cast<int64_t>(stage.devices.size());
    }
    const auto same = [&](const auto& one) { return one.second.devices == named; };
    if (named.empty()) {
      if (configuration_.devices % count != 0)
        return Status(Code::invalid_model,
                      cat("its annotations: ", configuration_text(), ", for ", count, " stages that name none"));
      int64_t next = 0;
      for (auto& [number, stage] : stages_) {
        for (int64_t i = 0; i < configuration_.devices / count; ++i) stage.devices.insert(next++);
      }
      return false;
    }
    if (count > 1 && std::ranges::all_of(stages_, same)) return true;
    if (sum != static_cast<int64_t>(named.size()) ||
        std::ranges::any_of(stages_, [](const auto& one) { return one.second.devices.empty(); })) {
      return unsupported(
          "its annotations put stages on devices that they share in part; each stage may have devices of its own, or "
          "all have the same");
    }
    return false;
  }

  // A copy of the stage takes all its devices; weights in shards are split among them.
  static Json kind(Json out, const Stage& stage) {
    const auto devices = static_cast<int64_t>(stage.devices.size());
    if (!stage.dims.empty()) out["dims"] = stage.dims;
    if (stage.weight_shards == devices && devices > 1) {
      out["split"] = devices;
      return out;
    }
    out["replicate"] = devices;
    if (stage.weight_shards > 1)
      out["scopes"] = Json::array({Json({{"name", "shards"}, {"match", "*"}, {"split", stage.weight_shards}})});
    return out;
  }

  std::string configuration_text() const {
    return cat("configuration ", shown(configuration_.name), " has ", configuration_.devices, " devices");
  }

  const OnnxModel& model_;
  const DeviceConfiguration& configuration_;
  std::map<int64_t, Stage> stages_;
};

// Whether a strategy says itself who computes what.
bool places_nodes(const Json& strategy) {
  const Json* stages = strategy.find("pipeline.num_stages");
  return strategy.contains("scopes") || strategy.contains("default") || (stages != nullptr && *stages != Json(1));
}

}  // namespace

// Beside ONNX's words, `epl.strategy` may say what they cannot. If it places nodes, it says all.
Result<std::string> OnnxModel::strategy(int64_t ranks) const {
  bool scoped = std::ranges::any_of(file_.graph.nodes, [](const Node& node) { return !node.scope.empty(); });
  if (!file_.strategy.empty() && !scoped) {
    EPL_ASSIGN(const Json own, own_strategy(file_.strategy));
    scoped = file_.configurations.empty() || places_nodes(own);
  }
  if (scoped) return OwnWords(file_).run();
  const DeviceConfiguration* chosen = nullptr;
  for (const DeviceConfiguration& one : file_.configurations) {
    const bool fits = one.devices > 0 && ranks % one.devices == 0;
    const bool chosen_fits = chosen != nullptr && chosen->devices > 0 && ranks % chosen->devices == 0;
    if (chosen == nullptr || (fits && (!chosen_fits || one.devices > chosen->devices))) chosen = &one;
  }
  return chosen == nullptr ? Result<std::string>(std::string()) : StandardWords(*this, *chosen).run();
}

}  // namespace epl::onnx
