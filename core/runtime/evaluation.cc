#include "core/runtime/evaluation.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

std::vector<std::string> names_of(const std::vector<Port>& ports, size_t first) {
  std::vector<std::string> names;
  for (size_t i = first; i < ports.size(); ++i) names.push_back(ports[i].name);
  return names;
}

Result<size_t> find_port(const std::vector<Port>& ports, size_t first, std::string_view name, std::string_view what) {
  for (size_t i = first; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
  }
  const std::vector<std::string> names = names_of(ports, first);
  return invalid("there is no ", what, " ", shown(name, 200), choices(name, names));
}

// The dimension of scores that a target of class indices lacks, the last that fits; -1 for none.
int missing_axis(const Shape& scores, const Shape& target) {
  for (int axis = static_cast<int>(scores.size()) - 1; axis >= 0; --axis) {
    Shape without = scores;
    without.erase(without.begin() + axis);
    if (without == target) return axis;
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<Evaluation>> Evaluation::create(std::shared_ptr<const CompiledPlan> plan,
                                                       std::string_view metrics) {
  const Entry* entry = plan->entry(EntryKind::evaluate);
  if (entry == nullptr)
    return invalid("the plan has no evaluate entry; metrics need a plan that was made with a trainer");
  std::unique_ptr<Evaluation> made(new Evaluation(plan, *entry));
  for (int shape = 0; shape < plan->shapes(); ++shape)
    made->rooms_.push_back(MeanLoss::room(*plan->entry(EntryKind::evaluate, shape)));
  made->partial_ = entry->loss_terms >= 0;
  const std::string_view wanted = metrics.empty() ? std::string_view(plan->loss().metrics) : metrics;
  if (wanted == "none") return made;
  EPL_ASSIGN(std::vector<MetricSpec> specs, parse_metrics(wanted));
  for (MetricSpec& spec : specs) {
    const std::string label = spec.label;
    auto one = made->prepare(std::move(spec));
    if (!one.ok()) return one.status().with_context(label);
    made->metrics_.push_back(std::move(*one));
  }
  const std::vector<Tensor>& room = made->rooms_.front();
  for (size_t i = 0; i < room.size(); ++i) {
    if (!room[i].empty() && static_cast<int>(i) != entry->loss_output && entry->samples.outputs[i] < 0)
      made->partial_ = false;
  }
  return made;
}

Result<Evaluation::One> Evaluation::prepare(MetricSpec spec) {
  const LossFacts& loss = plan_->loss();
  const auto& outputs = entry_.outputs;
  const bool own = entry_.loss_scores < 0;
  if (own && (spec.output.empty() || spec.target.empty())) {
    return invalid("the model computes its own loss, so say what to compare: ", spec.row->name,
                   "(output=NAME,target=NAME); outputs are ",
                   join(names_of(outputs, static_cast<size_t>(entry_.first_output)), ", "), ", inputs ",
                   join(names_of(entry_.inputs, 0), ", "));
  }
  One one;
  one.output = static_cast<size_t>(entry_.loss_scores);
  if (!spec.output.empty()) {
    EPL_ASSIGN(one.output, find_port(outputs, static_cast<size_t>(entry_.first_output), spec.output, "output"));
  }
  EPL_ASSIGN(one.target,
             find_port(entry_.inputs, 0, spec.target.empty() ? plan_->options().train.loss.target_input : spec.target,
                       "input"));
  EPL_ASSIGN(one.subject, subject_of(spec, one.output, one.target));
  auto made = spec.row->make(spec.options, one.subject);
  // Floating-point targets that the host named are numbers or probabilities, as the metric takes them.
  if (!made.ok() && one.subject.task == Task::numbers && !spec.output.empty()) {
    MetricSubject other = one.subject;
    other.task = Task::probabilities;
    auto again = spec.row->make(spec.options, other);
    if (again.ok()) {
      one.subject = other;
      made = std::move(again);
    }
  }
  if (!made.ok()) return made.status();
  one.metric = std::move(*made);
  one.log_loss = spec.output.empty() && spec.target.empty() && !spec.ignored && loss.log_loss && entry_.loss_terms >= 0;
  one.spec = std::move(spec);
  for (int shape = 0; shape < plan_->shapes(); ++shape) {
    Tensor& room = rooms_[static_cast<size_t>(shape)][one.output];
    if (room.empty()) room = Tensor(plan_->entry(EntryKind::evaluate, shape)->outputs[one.output].global_type);
  }
  return one;
}

Result<MetricSubject> Evaluation::subject_of(const MetricSpec& spec, size_t output, size_t target) const {
  const LossFacts& loss = plan_->loss();
  const TensorType& scores = entry_.outputs[output].global_type;
  const TensorType& right = entry_.inputs[target].global_type;
  MetricSubject subject;
  subject.output = scores;
  subject.sample_dim = std::max(entry_.samples.outputs[output], 0);
  subject.ignored = spec.ignored ? spec.ignored : spec.target.empty() ? loss.ignored : std::optional<int64_t>(-100);
  if (spec.output.empty() && spec.target.empty()) {
    subject.task = loss.task;
    subject.class_axis = loss.class_axis;
    return subject;
  }
  if (is_integer(right.dtype) && scores.shape != right.shape) {
    subject.task = Task::classes;
    subject.class_axis = missing_axis(scores.shape, right.shape);
  }
  if (subject.task == Task::classes ? subject.class_axis < 0 : scores.shape != right.shape) {
    return invalid("target ", right.text(), " is neither like output ", scores.text(), " nor class indices for it");
  }
  return subject;
}

Status Evaluation::add(Session& session, std::span<const Tensor> inputs, const CallOptions& options) {
  if (&session.plan() != plan_.get()) return invalid("this evaluation was made from another plan than the session");
  const auto fitting = session.fit(EntryKind::evaluate, inputs, options);
  EPL_TRY(session.world().give_up(fitting.status()));
  const Entry& entry = *fitting->entry;
  const int64_t samples = fitting->samples, batch = entry.samples.batch;
  if (samples != batch && !partial_) {
    return unsupported("the model computes its loss, or a compared output, of a full batch of ", batch,
                       " samples together; got ", samples);
  }
  EPL_TRY(usable());
  std::vector<Tensor>& room = rooms_[static_cast<size_t>(entry.shape)];
  EPL_TRY(session.run(EntryKind::evaluate, inputs, room, options));
  std::vector<Tensor> targets(entry.inputs.size());  // by input, those that are compared
  for (const One& one : metrics_) {
    Tensor& target = targets[one.target];
    if (!target.empty()) continue;
    EPL_ASSIGN(target, session.full_input(entry, one.target, inputs[one.target]));
    const int dim = entry.samples.inputs[one.target];
    if (session.world().options().slices && dim >= 0) target = first_samples(target, dim, batch, samples);
  }
  torn_ = true;
  const auto part = [&](size_t port) {
    return samples == batch ? room[port] : first_samples(room[port], entry.samples.outputs[port], batch, samples);
  };
  loss_.add(entry, room, samples);
  for (One& one : metrics_) {
    Scored scored{part(one.output), targets[one.target], {}};
    if (one.log_loss) scored.log_loss = part(static_cast<size_t>(entry.loss_terms));
    one.metric->add(scored);
  }
  samples_ += samples;
  torn_ = false;
  return {};
}

Status Evaluation::add(Session& session, Dataset& dataset, int64_t batches, const CallOptions& options) {
  if (batches < 0) return invalid("batches is ", batches);
  if (options.samples != 0) return invalid("samples is ", options.samples, "; of a dataset it is known");
  const bool all = batches == 0;
  if (all && dataset.endless())
    return invalid("nobody knows how many batches this dataset has; say how many are to be added");
  // What befalls one process alone the others must not wait for.
  const auto told = [&](const Status& status) { return status.ok() ? status : session.world().give_up(status); };
  if (all) EPL_TRY(told(dataset.seek(0)));
  const int64_t count = all ? dataset.batches() : batches;
  CallOptions own = options;
  own.position = [&dataset](size_t input, int64_t row) { return dataset.position_given(input, row); };
  for (int64_t i = 0; i < count; ++i) {
    const auto batch = dataset.next(options.stop);
    EPL_TRY(told(batch.status()));
    own.samples = session.world().options().slices && dataset.options().batch > 0 ? dataset.samples_given() : 0;
    EPL_TRY(add(session, *batch, own));
  }
  return all ? dataset.seek(0) : Status();
}

Status Evaluation::usable() const {
  if (!torn_) return {};
  return error(Code::misuse,
               "this evaluation ran out of memory while it counted a batch, so its numbers mean nothing; reset it, or "
               "make a new one");
}

Status Evaluation::merge(const Evaluation& other) {
  EPL_TRY(usable());
  EPL_TRY(other.usable());
  if (metrics_.size() != other.metrics_.size())
    return invalid("an evaluation of ", metrics_.size(), " metrics cannot take one of ", other.metrics_.size());
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const One &own = metrics_[i], &from = other.metrics_[i];
    const bool alike = own.spec.label == from.spec.label && own.subject.task == from.subject.task &&
                       own.subject.class_axis == from.subject.class_axis &&
                       own.subject.output.shape.size() == from.subject.output.shape.size() &&
                       own.subject.classes() == from.subject.classes() &&
                       (from.subject.output.ndim() == 0 || own.subject.output.dim(-1) == from.subject.output.dim(-1));
    if (!alike)
      return invalid("metric ", own.spec.label, " cannot take what ", from.spec.label,
                     " has counted; both must compare the same");
  }
  torn_ = true;
  for (size_t i = 0; i < metrics_.size(); ++i) metrics_[i].metric->merge(*other.metrics_[i].metric);
  loss_.merge(other.loss_);
  samples_ += other.samples_;
  torn_ = false;
  return {};
}

void Evaluation::reset() {
  torn_ = true;
  loss_ = {};
  samples_ = 0;
  for (One& one : metrics_) {
    auto made = one.spec.row->make(one.spec.options, one.subject);  // as it was made once
    if (made.ok()) one.metric = std::move(*made);
  }
  torn_ = false;
}

std::vector<Evaluation::Number> Evaluation::results() const {
  std::vector<Number> numbers = {{"loss", loss_.value(), false}};
  for (const One& one : metrics_)
    numbers.push_back({one.spec.label, one.metric->value(), one.spec.row->higher_is_better});
  return numbers;
}

Result<Evaluation::Number> Evaluation::result(std::string_view name) const {
  EPL_TRY(usable());
  const Number* found = nullptr;
  std::vector<std::string> names;
  const std::vector<Number> all = results();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return all[i];
    if (i > 0 && metrics_[i - 1].spec.row->name == name) found = found ? nullptr : &all[i];
    names.push_back(all[i].name);
  }
  if (found) return *found;
  return error(Code::not_found, "this evaluation has no ", shown(name, 200), choices(name, names));
}

}  // namespace epl
