#include "tools/reference.h"

#include <algorithm>
#include <cmath>

#include "tools/job.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

// Keys that a misspelt one may stand for. Others, such as notes on how a case was made, are nobody's business.
constexpr const char* known_keys[] = {
    "optimizer",   "loss",       "losses",           "losses_f32",        "losses_untrained",      "trainable",
    "frozen",      "tied",       "step0_grad_norms", "final_param_norms", "final_param_norms_f32", "final_buffer_norms",
    "insensitive", "batch_dims", "missing_params",   "ignore_index"};

}  // namespace

void Reference::reject(const std::string& why) const { throw UsageError(path_ + ": " + why); }

Reference::Reference(const std::string& folder, bool float64) : path_(folder + "/reference.json"), float64_(float64) {
  json_ = parse_json(read_file(path_), path_);
  if (!json_.is_object()) reject("it is not a JSON object");
  check_spelling();
  for (const char* key : {"loss", "optimizer"}) {
    if (!need(key).is_string()) reject("\"" + std::string(key) + "\" is not text");
  }
  loss = json_["loss"];
  optimizer = json_["optimizer"];
  if (has("lr") && !json_["lr"].is_number()) reject("\"lr\" is not a number");
  if (has("lr")) lr = json_["lr"];
  losses = numbers("losses");
  losses_f32_ = has("losses_f32") ? numbers("losses_f32") : losses;
  trainable = names("trainable");
  if (losses.empty()) reject("\"losses\" is empty");
  if (trainable.empty()) reject("\"trainable\" is empty");
  if (has("tied")) {
    for (const Json& group : json_["tied"]) {
      if (!group.is_array()) reject("\"tied\" is not a list of lists of names");
      tied.push_back(group.get<std::vector<std::string>>());
    }
  }
  gradients = norms(need("step0_grad_norms"), "step0_grad_norms");
  parameters = norms(need("final_param_norms"), "final_param_norms");
  if (has("final_buffer_norms")) buffers = norms(json_["final_buffer_norms"], "final_buffer_norms");
  if (has("final_param_norms_f32")) {
    if (!json_["final_param_norms_f32"].is_array()) reject("\"final_param_norms_f32\" is not a list of tables");
    for (const Json& table : json_["final_param_norms_f32"])
      parameters_f32_.push_back(norms(table, "final_param_norms_f32"));
  }
  for (const auto& [key, to] : {std::pair{"insensitive", &insensitive}, std::pair{"missing_params", &missing}}) {
    if (!has(key)) continue;
    const auto listed = names(key);
    to->insert(listed.begin(), listed.end());
  }
  if (has("batch_dims")) {
    if (!json_["batch_dims"].is_object()) reject("\"batch_dims\" is not a table of inputs");
    for (const auto& [name, dim] : json_["batch_dims"].items()) {
      if (!dim.is_number_integer()) reject("\"batch_dims\": " + name + " has no integer");
      batch_dims[name] = dim;
    }
  }
  check_names();
}

const Json& Reference::need(const char* key) const {
  if (!has(key)) reject("it lacks \"" + std::string(key) + "\"");
  return json_[key];
}

std::vector<double> Reference::numbers(const char* key) const {
  std::vector<double> out;
  if (!need(key).is_array()) reject("\"" + std::string(key) + "\" is not a list of numbers");
  for (const Json& value : json_[key]) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      reject("\"" + std::string(key) + "\" holds something that is not a finite number");
    out.push_back(value);
  }
  return out;
}

std::vector<std::string> Reference::names(const char* key) const {
  std::vector<std::string> out;
  if (!need(key).is_array()) reject("\"" + std::string(key) + "\" is not a list of names");
  for (const Json& value : json_[key]) {
    if (!value.is_string()) reject("\"" + std::string(key) + "\" holds something that is not a name");
    out.push_back(value);
  }
  return out;
}

Norms Reference::norms(const Json& table, const std::string& what) const {
  Norms out;
  if (!table.is_object()) reject("\"" + what + "\" is not a table of norms");
  for (const auto& [name, norm] : table.items()) {
    if (norm.is_null()) continue;  // PyTorch's gradient of it is None
    if (!norm.is_number() || !std::isfinite(norm.get<double>()) || norm.get<double>() < 0)
      reject("\"" + what + "\": the norm of " + name + " is none");
    out[name] = norm;
  }
  return out;
}

void Reference::check_spelling() const {
  std::set<std::string> known(std::begin(known_keys), std::end(known_keys));
  for (const Json& row : library().at("optimizers")) {
    for (const auto& [option, unused] : row.at("options").items()) known.insert(option);
  }
  for (const auto& [key, unused] : json_.items()) {
    if (known.contains(key)) continue;
    for (const std::string& one : known) {
      const std::string meant = did_you_mean(key, {one});
      if (!json_.contains(one) && !meant.empty() && one.size() > 4) reject("it has no key \"" + key + "\"" + meant);
    }
  }
}

// Every trained parameter has its norms, but for gradients that are None, and PyTorch's two precisions tell of one run.
void Reference::check_names() {
  const auto known = [&](const Norms& table, const std::string& name) {
    if (table.contains(name)) return true;
    for (const auto& group : tied) {
      if (std::find(group.begin(), group.end(), name) == group.end()) continue;
      if (std::any_of(group.begin(), group.end(), [&](const std::string& other) { return table.contains(other); }))
        return true;
    }
    return false;
  };
  for (const std::string& name : trainable) {
    if (!known(gradients, name)) without_gradient.insert(name);
    if (!known(parameters, name)) reject("\"final_param_norms\" lacks " + name + ", which is trained");
  }
  for (const std::string& name : insensitive) {
    if (!parameters.contains(name) && !buffers.contains(name)) {
      reject("\"insensitive\" names " + name + ", which neither \"final_param_norms\" nor \"final_buffer_norms\" has");
    }
  }
  for (const Norms& table : parameters_f32_) {
    for (const auto& [name, unused] : parameters) {
      if (!table.contains(name)) reject("a table of \"final_param_norms_f32\" lacks " + name);
    }
  }
  if (losses_f32_.size() != losses.size()) reject("\"losses_f32\" has another length than \"losses\"");
  for (size_t i = 0; i < losses.size(); ++i) {
    const double apart = std::fabs(losses_f32_[i] - losses[i]) / std::max(std::fabs(losses[i]), 1e-12);
    if (apart > widest_loss_tolerance) {
      reject("it contradicts itself: step " + std::to_string(i) + " has a loss of " + std::to_string(losses[i]) +
             " in float64 and of " + std::to_string(losses_f32_[i]) + " in float32");
    }
  }
}

double Reference::loss_tolerance_at(size_t step) const {
  if (float64_) return float64_tolerance;
  const double own = 10 * std::fabs(losses_f32_[step] - losses[step]) / std::max(std::fabs(losses[step]), 1e-12);
  return std::max(loss_tolerance, std::min(own, widest_loss_tolerance));
}

double Reference::tolerance_of(const std::string& parameter) const {
  if (float64_) return float64_tolerance;
  auto norm = parameters.find(parameter);
  if (norm == parameters.end() || parameters_f32_.empty()) return norm_tolerance;
  double least = norm->second, most = norm->second;
  for (const Norms& table : parameters_f32_) {
    least = std::min(least, table.at(parameter));
    most = std::max(most, table.at(parameter));
  }
  const double spread = (most - least) / std::max(norm->second, 1e-12);
  return std::max(norm_tolerance, std::min(3 * spread, widest_norm_tolerance));
}

}  // namespace epl::tools
