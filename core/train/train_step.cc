#include "core/train/train_step.h"

#include <algorithm>
#include <map>

#include "core/autodiff/gradient.h"
#include "core/base/check.h"
#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/ir/rewriter.h"
#include "core/train/element_numbers.h"
#include "core/train/kept_outputs.h"
#include "core/train/mixed_precision.h"

namespace epl {
namespace {

struct Trained {
  Value parameter;
  int group = -1;  // index into TrainOptions::groups, -1 for none
};

class TrainStepBuilder {
 public:
  TrainStepBuilder(const TrainOptions& options, const std::vector<std::string>& kept)
      : options_(options), kept_(kept), builder_(step_.graph), numbers_(step_.graph) {}

  Result<TrainStep> build(const Graph& forward) {
    EPL_ASSIGN(step_.schedule, make_schedule(options_.schedule));
    EPL_ASSIGN(row_, find_optimizer(options_.optimizer));
    EPL_TRY(complete_groups());
    copy(forward);
    EPL_TRY(add_own_loss());
    EPL_TRY(choose_parameters());
    EPL_TRY(add_gradients_of_trained());
    guard();
    builder_.set_phase(Phase::update);
    scale_gradients();
    if (options_.keep_gradients) EPL_TRY(keep_gradients());
    add_norms();
    for (size_t i = 0; i < trained_.size(); ++i) EPL_TRY(add_update(i));
    EPL_TRY(builder_.status());
    for (const Attributes& options : group_options_) step_.rates.push_back(options.number("lr"));
    step_.first_group = trained_[0].group + 1;
    prune();
    return std::move(step_);
  }

 private:
  // Options of group i at i + 1; those outside any group first.
  Status complete_groups() {
    const std::string what = cat("optimizer ", row_->name);
    EPL_TRY(check_state_type(*row_, options_.optimizer_options.has("state_type")));
    EPL_ASSIGN(Attributes base, complete_options(row_->options, options_.optimizer_options, what));
    group_options_.push_back(base);
    for (size_t i = 0; i < options_.groups.size(); ++i) {
      EPL_TRY(check_state_type(*row_, options_.groups[i].options.has("state_type")));
      Attributes merged = base;
      for (const Attributes::Entry& entry : options_.groups[i].options.entries()) merged.set(entry.name, entry.value);
      EPL_ASSIGN(merged, complete_options(row_->options, merged, cat(what, ", parameter group ", i)));
      group_options_.push_back(std::move(merged));
    }
    for (const Attributes& options : group_options_) {
      auto attributes = row_->attributes(options);
      if (!attributes.ok()) return attributes.status().with_context(what);
      if (options_.keep_gradients || options_.freezable) attributes->set("holds", true);
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
    step_.graph.outputs.insert(step_.graph.outputs.end(), outputs.begin(), outputs.end());
    step_.graph = without_dead_nodes(step_.graph);
    loss_ = step_.graph.outputs[0].value;
    return {};
  }

  void prune() {
    const Graph full = std::move(step_.graph);
    step_.graph = with_casts_on_use(without_dead_nodes(full));
    for (HostScalar& scalar : step_.scalars) scalar.value = step_.graph.find(full.value(scalar.value).name);
  }

  using Used = std::vector<std::vector<bool>>;  // by group and pattern

  Status choose_parameters() {
    Used used;
    for (const ParameterGroup& group : options_.groups) used.emplace_back(group.patterns.size(), false);
    const std::vector<Value> parameters = step_.graph.leaves(ValueKind::parameter);
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
            "parameter group ", i, ": ", shown(pattern, 200), " matches no parameter", did_you_mean(pattern, names),
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
      return invalid(shown(pattern, 200), " is to be trained, but matches no parameter", did_you_mean(pattern, names));
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
    const Value scale = options_.scales_loss
                            ? number("epl.loss_scale", [](const StepFacts& facts) { return facts.loss_scale; })
                            : Value{};
    EPL_ASSIGN(Gradients gradients, add_gradients(step_.graph, loss_, wanted, scale));
    std::vector<Trained> trained;
    std::map<std::string, std::vector<std::string>> unreached;  // by reason
    for (size_t i = 0; i < trained_.size(); ++i) {
      const std::string& name = step_.graph.value(trained_[i].parameter).name;
      if (!gradients.values[i]) {
        step_.untrained.emplace_back(name, gradients.reasons[i]);
        unreached[gradients.reasons[i]].push_back(name);
        continue;
      }
      trained.push_back(trained_[i]);
      gradients_.push_back(gradients.values[i]);
      step_.trained.push_back(name);
    }
    trained_ = std::move(trained);
    if (trained_.empty()) return invalid("no parameter can be trained", why_none());
    for (const auto& [reason, names] : unreached) note_unreached(names, reason);
    return {};
  }

  // The others train without them, as in PyTorch, where their gradient is None.
  void note_unreached(const std::vector<std::string>& names, const std::string& reason) {
    const bool one = names.size() == 1;
    step_.notes.push_back(cat("no gradient comes to ",
                              names.size() <= 4
                                  ? join(names, ", ")
                                  : cat(names.size(), " parameters, from ", names.front(), " to ", names.back()),
                              one ? ", so it stays as it is: " : ", so they stay as they are: ", reason));
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
    Var counted;
    std::vector<Var> all = {checked_loss(counted)};
    for (Value gradient : gradients_) all.push_back(builder_.var(gradient));
    Attributes attributes;
    if (counted) {
      all.push_back(counted);
      attributes.set("counted", true);
    }
    const Var verdict = builder_.first_not_finite(all, std::move(attributes));
    step_.graph.outputs.push_back({std::string(verdict_output), verdict.value()});
  }

  // The loss, or 0 where it is NaN because some of the means that it is made of are over nothing: their gradients are
  // zero, and the others train. Of several independent runs some may be over nothing: the loss is 0 in
  // each of those, and `counted`, whose mean is taken where they are all done, is 0 if no run counts anything.
  Var checked_loss(Var& counted) {
    const LossCounts found = loss_counts(step_.graph, loss_);
    const Var loss = builder_.var(loss_), zero = builder_.like(loss, 0);
    Var total, least;
    for (Value value : found.counts) {
      const Var count = builder_.cast(builder_.var(value), loss.dtype());
      total = total ? total + count : count;
      least = least ? builder_.minimum(least, count) : count;
    }
    if (found.all) step_.graph.outputs.push_back({std::string(counted_output), total.value()});
    if (!total || (found.all && found.counts.size() == 1 && !options_.independent_micro_batches)) return loss;
    const Var excused = builder_.select(builder_.equal(least, zero), zero, loss);
    if (options_.independent_micro_batches) {
      if (found.all) counted = total;
      return excused;
    }
    return found.all ? builder_.select(builder_.equal(total, zero), loss, excused) : excused;
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
      if (options_.freezable) {
        const Var frozen = builder_.var(flag(cat(name, ".frozen"), [i](const StepFacts& facts) {
          return !facts.frozen.empty() && facts.frozen[i] != 0;
        }));
        squares = builder_.select(frozen, builder_.like(squares, 0), squares);
      }
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

  // What the host sets before each step.
  Value number(const std::string& name, std::function<double(const StepFacts&)> at, DType dtype = DType::f32) {
    const Value value = step_.graph.add_leaf(ValueKind::scalar, name, {dtype, {}});
    step_.scalars.push_back({value, std::move(at)});
    return value;
  }
  // A number that is 0 or 1.
  Value flag(const std::string& name, std::function<double(const StepFacts&)> at) {
    return number(name, std::move(at), DType::boolean);
  }

  // Gradients are checked as they come, since dividing them could hide that they were too large.
  void scale_gradients() {
    const double times = options_.gradient_factor;
    if (!options_.scales_loss && times == 1) return;
    const Var inverse = options_.scales_loss
                            ? builder_.var(number("epl.loss_scale_inverse",
                                                  [times](const StepFacts& facts) { return times / facts.loss_scale; }))
                            : Var();
    for (size_t i = 0; i < trained_.size(); ++i) {
      builder_.set_scope(cat(step_.trained[i], ".scaled"));
      const Var gradient = builder_.var(gradients_[i]);
      gradients_[i] = (inverse ? gradient * builder_.cast(inverse, gradient.dtype()) : gradient * times).value();
    }
  }

  Result<Value> add_state(const std::string& name, const TensorType& type) {
    if (Value taken = step_.graph.find(name)) {
      if (step_.graph.value(taken).kind != ValueKind::result)
        return invalid("the model has a tensor ", name,
                       "; the training needs this name for its state; rename it in the model");
      step_.graph.rename(taken, step_.graph.unique_name(name));
    }
    return step_.graph.add_leaf(ValueKind::state, name, type);
  }

  // Gradients become state, and the update takes those that the state then has: the new ones, or those given to it.
  Status keep_gradients() {
    const Var given = builder_.var(
        flag(std::string(gradients_given_scalar), [](const StepFacts& facts) { return facts.gradients_given; }));
    for (size_t i = 0; i < trained_.size(); ++i) {
      EPL_ASSIGN(const Value state,
                 add_state(cat(step_.trained[i], gradient_suffix), step_.graph.type(trained_[i].parameter)));
      builder_.set_scope(cat(step_.trained[i], ".kept_gradient"));
      gradients_[i] = builder_.select(given, builder_.var(state), builder_.var(gradients_[i])).value();
      step_.graph.updates.push_back({state, gradients_[i]});
    }
    return builder_.status();
  }

  Status add_update(size_t index) {
    const Trained& plan = trained_[index];
    const Value gradient = gradients_[index];
    const TensorType type = step_.graph.type(plan.parameter);
    const std::string name = step_.graph.value(plan.parameter).name;
    Var g = builder_.var(gradient);
    if (clip_) {
      builder_.set_scope(cat(name, ".clipped"));
      g = g * builder_.cast(clip_, type.dtype);
    }
    std::vector<Var> operands = {builder_.var(plan.parameter), g};
    std::vector<Value> old = {plan.parameter};
    const bool narrow = stores_in_bf16(plan.group);
    for (const std::string& state : row_->states) {
      EPL_ASSIGN(const Value added,
                 add_state(cat(name, ".", state), narrow ? TensorType{DType::bf16, type.shape} : type));
      old.push_back(added);
      operands.push_back(builder_.var(old.back()));
    }
    for (const OptimizerScalar& scalar : row_->scalars) {
      operands.push_back(builder_.var(host_scalar(scalar, index, type.dtype)));
    }
    if (narrow) add_rounding(type.shape, operands);
    builder_.set_scope(cat(name, ".", row_->name));
    std::vector<Var> next =
        builder_.emit_all(narrow ? cat(row_->op, "_bf16") : row_->op, operands, group_attributes_[plan.group + 1]);
    EPL_TRY(builder_.status());
    for (size_t i = 0; i < old.size(); ++i) step_.graph.updates.push_back({old[i], next[i].value()});
    return {};
  }

  bool stores_in_bf16(int group) const {
    return !row_->states.empty() && group_options_[static_cast<size_t>(group + 1)].text("state_type") == "bf16";
  }

  // What the rounding of states takes besides.
  void add_rounding(const Shape& shape, std::vector<Var>& operands) {
    const ElementNumbers::Operands numbers = numbers_.of(shape);
    if (!rounding_key_) {
      rounding_key_ = step_.graph.add_leaf(ValueKind::scalar, std::string(rounding_key_scalar), {DType::i64, {}});
      step_.scalars.push_back(
          {rounding_key_, [](const StepFacts& facts) { return rounding_key(facts.seed, facts.step); }});
    }
    for (const Value value : {numbers.rows, numbers.columns, rounding_key_}) operands.push_back(builder_.var(value));
  }

  // One leaf for all parameters of a group, but for the rate of those that may be frozen. A rate is the first scalar of
  // its row, and negative where nothing is to change.
  Value host_scalar(const OptimizerScalar& scalar, size_t index, DType dtype) {
    const auto group = static_cast<size_t>(trained_[index].group + 1);
    const bool is_rate = &scalar == &row_->scalars.front();
    const bool own = is_rate && options_.freezable;
    auto [it, inserted] =
        scalars_.try_emplace(cat(scalar.name, " ", dtype_name(dtype), " ", group, own ? cat(" ", index) : ""));
    if (!inserted) return it->second;
    it->second = step_.graph.add_leaf(ValueKind::scalar, scalar.name, {dtype, {}});
    step_.scalars.push_back({it->second, [at = scalar.at, options = group_options_[group], schedule = step_.schedule,
                                          group, is_rate, own, index](const StepFacts& facts) {
                               if (is_rate && !facts.updates) return -1.0;
                               if (own && !facts.frozen.empty() && facts.frozen[index]) return -1.0;
                               const double rate = facts.rates.empty() ? options.number("lr") : facts.rates[group];
                               return at(options, rate * schedule.factor(facts.step) * facts.rate_scale, facts.step);
                             }});
    return it->second;
  }

  const TrainOptions& options_;
  const std::vector<std::string>& kept_;
  const OptimizerRow* row_ = nullptr;
  std::vector<Attributes> group_options_, group_attributes_;  // [0] outside any group, [i + 1] of group i
  TrainStep step_;
  Builder builder_;
  ElementNumbers numbers_;
  Value rounding_key_;
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
