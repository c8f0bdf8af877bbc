#include "core/train/train_step.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/autodiff/gradient.h"
#include "core/base/check.h"
#include "core/base/options.h"
#include "core/base/suggestion.h"
#include "core/ir/rewriter.h"
#include "core/train/kept_outputs.h"

namespace epl {
namespace {

struct Trained {
  Value parameter;
  int group = -1;  // index into TrainOptions::groups, -1 for none
};

class TrainStepBuilder {
 public:
  TrainStepBuilder(const TrainOptions& options, const std::vector<std::string>& kept)
      : options_(options), kept_(kept), builder_(step_.graph) {}

  Result<TrainStep> build(const Graph& forward) {
    EPL_ASSIGN(step_.schedule, make_schedule(options_.schedule));
    if (!(options_.clip_norm >= 0)) return invalid("clip_norm = ", options_.clip_norm, " is negative");
    EPL_ASSIGN(row_, find_optimizer(options_.optimizer));
    EPL_TRY(complete_groups());
    copy(forward);
    EPL_TRY(add_own_loss());
    EPL_TRY(choose_parameters());
    EPL_TRY(add_gradients_of_trained());
    guard();
    builder_.set_phase(Phase::update);
    add_norms();
    for (size_t i = 0; i < trained_.size(); ++i) EPL_TRY(add_update(trained_[i], gradients_[i]));
    EPL_TRY(builder_.status());
    step_.learning_rate = [rate = group_options_[trained_[0].group + 1].number("lr"),
                           schedule = step_.schedule](int64_t step) { return rate * schedule.factor(step); };
    prune();
    return std::move(step_);
  }

 private:
  // Options of group i at i + 1; those outside any group first.
  Status complete_groups() {
    const std::string what = cat("optimizer ", row_->name);
    EPL_ASSIGN(Attributes base, complete_options(row_->options, options_.optimizer_options, what));
    group_options_.push_back(base);
    for (size_t i = 0; i < options_.groups.size(); ++i) {
      Attributes merged = base;
      for (const Attributes::Entry& entry : options_.groups[i].options.entries()) merged.set(entry.name, entry.value);
      EPL_ASSIGN(merged, complete_options(row_->options, merged, cat(what, ", parameter group ", i)));
      group_options_.push_back(std::move(merged));
    }
    for (const Attributes& options : group_options_) {
      auto attributes = row_->attributes(options);
      if (!attributes.ok()) return attributes.status().with_context(what);
      if (!(options.number("lr") >= 0)) return invalid(what, ": lr = ", options.number("lr"), " is negative");
      group_attributes_.push_back(*std::move(attributes));
    }
    return {};
  }

  void copy(const Graph& forward) {
    GraphRewriter rewriter(forward, step_.graph);
    for (int n = 0; n < forward.node_count(); ++n) rewriter.copy(NodeId{n});
    rewriter.finish();
  }

  // Removes what neither the loss nor an output that is kept needs, before gradients are made.
  Status add_own_loss() {
    EPL_ASSIGN(Value loss, add_loss(step_.graph, options_.loss, &step_.loss, &step_.notes));
    std::vector<Graph::Output> outputs = std::move(step_.graph.outputs);
    std::erase_if(outputs, [&](const Graph::Output& output) {
      return output.name == "loss" || std::ranges::find(kept_, output.name) == kept_.end();
    });
    step_.graph.outputs = {{"loss", loss}};
    const Graph of_loss = without_dead_nodes(step_.graph);
    for (Value parameter : of_loss.leaves(ValueKind::parameter)) needed_.insert(of_loss.value(parameter).name);
    step_.graph.outputs.insert(step_.graph.outputs.end(), outputs.begin(), outputs.end());
    step_.graph = without_dead_nodes(step_.graph);
    loss_ = step_.graph.outputs[0].value;
    return {};
  }

  void prune() {
    const Graph full = std::move(step_.graph);
    step_.graph = without_dead_nodes(full);
    for (HostScalar& scalar : step_.scalars) scalar.value = step_.graph.find(full.value(scalar.value).name);
  }

  using Used = std::vector<std::vector<bool>>;  // by group and pattern

  Status choose_parameters() {
    Used used;
    for (const ParameterGroup& group : options_.groups) used.emplace_back(group.patterns.size(), false);
    std::vector<Value> parameters = step_.graph.leaves(ValueKind::parameter);
    std::erase_if(parameters, [&](Value v) { return !needed_.contains(step_.graph.value(v).name); });
    EPL_TRY(check_train_only(parameters));
    for (Value parameter : parameters) {
      const std::string& name = step_.graph.value(parameter).name;
      const int group = group_of(name, used);
      if (std::string why = frozen_by(options_, name); !why.empty()) {
        step_.untrained.emplace_back(name, std::move(why));
      } else {
        trained_.push_back({parameter, group});
      }
    }
    return check_patterns(used, parameters);
  }

  // Each pattern must match: a misspelt one would otherwise train what should be frozen.
  Status check_patterns(const Used& used, const std::vector<Value>& parameters) const {
    std::vector<std::string> names;
    for (Value parameter : parameters) names.push_back(step_.graph.value(parameter).name);
    for (size_t i = 0; i < used.size(); ++i) {
      for (size_t p = 0; p < used[i].size(); ++p) {
        if (used[i][p]) continue;
        const std::string& pattern = options_.groups[i].patterns[p];
        return invalid(
            "parameter group ", i, ": ", quoted(pattern), " matches no parameter", did_you_mean(pattern, names),
            pattern.find('[') == std::string::npos ? "" : "; patterns know * and ? alone, [ stands for itself");
      }
    }
    return {};
  }

  // Every pattern must match something.
  Status check_train_only(const std::vector<Value>& parameters) const {
    std::vector<std::string> names;
    for (Value parameter : parameters) names.push_back(step_.graph.value(parameter).name);
    for (const std::string& pattern : options_.train_only) {
      if (std::ranges::any_of(names, [&](const std::string& name) { return glob_match(pattern, name); })) continue;
      return invalid(quoted(pattern), " is to be trained, but matches no parameter", did_you_mean(pattern, names));
    }
    return {};
  }

  // The first group that matches has the parameter; `used` notes every pattern that matches some parameter.
  int group_of(const std::string& name, Used& used) const {
    int found = -1;
    for (size_t i = 0; i < options_.groups.size(); ++i) {
      const std::vector<std::string>& patterns = options_.groups[i].patterns;
      for (size_t p = 0; p < patterns.size(); ++p) {
        if (!glob_match(patterns[p], name)) continue;
        used[i][p] = true;
        if (found < 0) found = static_cast<int>(i);
      }
    }
    return found;
  }

  Status add_gradients_of_trained() {
    std::vector<Value> wanted;
    for (const Trained& one : trained_) wanted.push_back(one.parameter);
    EPL_ASSIGN(Gradients gradients, add_gradients(step_.graph, loss_, wanted));
    std::vector<Trained> trained;
    for (size_t i = 0; i < trained_.size(); ++i) {
      const std::string& name = step_.graph.value(trained_[i].parameter).name;
      if (!gradients.values[i]) {
        step_.untrained.emplace_back(name, gradients.reasons[i]);
        continue;
      }
      trained.push_back(trained_[i]);
      gradients_.push_back(gradients.values[i]);
      step_.trained.push_back(name);
    }
    trained_ = std::move(trained);
    if (trained_.empty()) return invalid("no parameter can be trained", why_none());
    return {};
  }

  std::string why_none() const {
    if (step_.untrained.empty())
      return ": the model stores no weights of floating point, and what its nodes compute from constants is not "
             "trained";
    return cat("; the first, ", step_.untrained[0].first, ": ", step_.untrained[0].second);
  }

  // Checks the loss and all gradients before the update: a step with a finite loss may have gradients that are not
  // finite.
  void guard() {
    builder_.set_phase(Phase::backward);
    builder_.set_scope(std::string(verdict_output));
    std::vector<Var> all = {builder_.var(loss_)};
    for (Value gradient : gradients_) all.push_back(builder_.var(gradient));
    step_.graph.outputs.push_back({std::string(verdict_output), builder_.first_not_finite(all).value()});
  }

  Var square_sum(Value gradient) {
    Var g = builder_.var(gradient);
    Ints axes;
    for (int i = 0; i < g.ndim(); ++i) axes.push_back(i);
    return builder_.sum(g * g, std::move(axes), false);
  }

  // Norms of the gradients before clipping, then the factor that clips them (torch.nn.utils.clip_grad_norm_).
  void add_norms() {
    const bool clip = options_.clip_norm > 0;
    if (!clip && !options_.report_gradient_norms) return;
    Var total;
    for (size_t i = 0; i < trained_.size(); ++i) {
      const std::string& name = step_.trained[i];
      builder_.set_scope(cat(name, ".gradient_norm"));
      Var squares = square_sum(gradients_[i]);
      if (options_.report_gradient_norms) {
        step_.graph.outputs.push_back({cat("gradient_norm:", name), builder_.sqrt(squares).value()});
      }
      squares = builder_.cast(squares, builder_.var(loss_).dtype());
      total = total ? total + squares : squares;
    }
    if (!clip) return;
    builder_.set_scope("gradient_norm");
    Var norm = builder_.sqrt(total);
    step_.graph.outputs.push_back({"gradient_norm", norm.value()});
    builder_.set_scope("gradient_scale");
    clip_ = builder_.minimum(options_.clip_norm / (norm + 1e-6), builder_.like(norm, 1));
  }

  Status add_update(const Trained& plan, Value gradient) {
    const TensorType type = step_.graph.type(plan.parameter);
    const std::string name = step_.graph.value(plan.parameter).name;
    Var g = builder_.var(gradient);
    if (clip_) {
      builder_.set_scope(cat(name, ".clipped"));
      g = g * builder_.cast(clip_, type.dtype);
    }
    std::vector<Var> operands = {builder_.var(plan.parameter), g};
    std::vector<Value> old = {plan.parameter};
    for (const std::string& state : row_->states) {
      const std::string state_name = cat(name, ".", state);
      if (Value taken = step_.graph.find(state_name)) {
        if (step_.graph.value(taken).kind != ValueKind::result) {
          return invalid("the model has a tensor ", state_name, "; the optimizer needs this name for its state");
        }
        step_.graph.rename(taken, step_.graph.unique_name(state_name));
      }
      old.push_back(step_.graph.add_leaf(ValueKind::state, state_name, type));
      operands.push_back(builder_.var(old.back()));
    }
    for (const OptimizerScalar& scalar : row_->scalars) {
      operands.push_back(builder_.var(host_scalar(scalar, plan.group, type.dtype)));
    }
    builder_.set_scope(cat(name, ".", row_->name));
    std::vector<Var> next = builder_.emit_all(row_->op, operands, group_attributes_[plan.group + 1]);
    EPL_TRY(builder_.status());
    for (size_t i = 0; i < old.size(); ++i) step_.graph.updates.push_back({old[i], next[i].value()});
    return {};
  }

  // One leaf for all parameters that need the same number: groups with equal options share it.
  Value host_scalar(const OptimizerScalar& scalar, int group, DType dtype) {
    const Attributes& options = group_options_[group + 1];
    std::string key = cat(scalar.name, " ", dtype_name(dtype));
    for (const Attributes::Entry& entry : options.entries()) key += cat(" ", attribute_text(entry.value));
    auto [it, inserted] = scalars_.try_emplace(std::move(key));
    if (!inserted) return it->second;
    it->second = step_.graph.add_leaf(ValueKind::scalar, scalar.name, {dtype, {}});
    step_.scalars.push_back({it->second, [at = scalar.at, options, schedule = step_.schedule](const StepFacts& facts) {
                               return at(options, options.number("lr") * schedule.factor(facts.step) * facts.rate_scale,
                                         facts.step);
                             }});
    return it->second;
  }

  const TrainOptions& options_;
  const std::vector<std::string>& kept_;
  std::set<std::string> needed_;  // parameters, by the loss
  const OptimizerRow* row_ = nullptr;
  std::vector<Attributes> group_options_, group_attributes_;  // [0] outside any group, [i + 1] of group i
  TrainStep step_;
  Builder builder_;
  Value loss_;
  std::vector<Trained> trained_;
  std::vector<Value> gradients_;  // of trained_
  Var clip_;
  std::map<std::string, Value> scalars_;
};

}  // namespace

std::string frozen_by(const TrainOptions& options, const std::string& parameter) {
  const auto matches = [&](const std::string& pattern) { return glob_match(pattern, parameter); };
  if (std::ranges::find(options.adapters, parameter) != options.adapters.end()) return {};
  if (!(options.train_only.empty() && options.adapters.empty()) && std::ranges::none_of(options.train_only, matches)) {
    return options.train_only.empty() ? "only adapters are trained" : "no pattern of those to train matches it";
  }
  for (size_t i = 0; i < options.groups.size(); ++i) {
    if (std::ranges::any_of(options.groups[i].patterns, matches))
      return options.groups[i].frozen ? cat("frozen by parameter group ", i) : "";
  }
  return {};
}

Result<TrainStep> build_train_step(const Graph& forward, const TrainOptions& options) {
  return build_train_step(forward, options, {});
}

Result<TrainStep> build_train_step(const Graph& forward, const TrainOptions& options,
                                   const std::vector<std::string>& kept) {
  return TrainStepBuilder(options, kept).build(forward);
}

}  // namespace epl
