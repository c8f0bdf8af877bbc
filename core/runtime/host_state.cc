#include "core/runtime/host_state.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/backend/job_call.h"
#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

constexpr std::string_view scale_name = "learning_rate_scale", rate_name = "learning_rate", frozen_name = "frozen";
constexpr std::string_view loss_scale_name = "loss_scale", skipped_name = "skipped_steps";
constexpr const char *loss_scale_fact = "loss_scale", *good_steps_fact = "loss_scale.good_steps",
                     *skipped_fact = "loss_scale.skipped_steps";
// As those of PyTorch's GradScaler: the steps after which the scale is doubled, and where that ends.
constexpr int64_t growth_interval = 2000;
constexpr const char* rates_fact = "rate.groups";
constexpr const char* frozen_fact = "frozen";

// "learning_rate:2" -> {"learning_rate", "2"}
std::pair<std::string_view, std::string_view> split(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return {name, {}};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

Status unknown(std::string_view name) {
  const std::vector<std::string> known = {std::string(scale_name),      std::string(rate_name),
                                          cat(rate_name, ":GROUP"),     cat(frozen_name, ":PATTERN"),
                                          std::string(loss_scale_name), std::string(skipped_name)};
  return error(Code::not_found, "a session has no number ", shown(name, 200), choices(name, known));
}

double fact_number(const Facts& facts, const char* name, double otherwise) {
  const auto found = facts.find(name);
  double value = 0;
  if (found == facts.end()) return otherwise;
  const std::string& text = found->second;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size() ? value : -1;
}

Status check_loss_scale(const Facts& facts) {
  if (const double scale = fact_number(facts, loss_scale_fact, 1); !(scale >= 1 && scale <= largest_loss_scale))
    return invalid("the loss scale is ", scale, "; it is a number from 1 to ", largest_loss_scale);
  for (const char* name : {good_steps_fact, skipped_fact}) {
    if (const double count = fact_number(facts, name, 0); !(count >= 0 && count < 0x1p53))
      return invalid(name, " is ", count, "; it is a count of steps");
  }
  return {};
}

Status check_scale(double scale) {
  if (scale >= 0 && std::isfinite(scale)) return {};
  return invalid("the scale of the learning rate is ", scale, "; it is a number from 0 on");
}

}  // namespace

HostState::HostState(std::shared_ptr<const CompiledPlan> plan, uint64_t seed)
    : plan_(std::move(plan)), seed_(seed), loss_scale_(plan_->mixed_precision().loss_scale) {}

// A number that lives between steps. Null: a checkpoint does not keep it, or all of its values can be loaded, or a step
// does not change it, or the host does not set it.
struct HostState::Row {
  void (*save)(const HostState&, Checkpoint&) = nullptr;
  Status (*check)(const Checkpoint&) = nullptr;
  void (*load)(HostState&, const Checkpoint&) = nullptr;
  void (*after)(HostState&, const StepMetrics&, StepPhase) = nullptr;
  std::string (*lines)(const HostState&) = nullptr;
};

std::span<const HostState::Row> HostState::rows() {
  static constexpr Row steps_done = {
      .save = [](const HostState& from, Checkpoint& to) { to.step = from.steps_done_; },
      .load = [](HostState& to, const Checkpoint& from) { to.set_steps_done(from.step); },
      .after = [](HostState& to, const StepMetrics& metrics, StepPhase phase) { to.count_step(metrics, phase); }};
  static constexpr Row seed = {.save = [](const HostState& from, Checkpoint& to) { to.seed = from.seed_; },
                               .load = [](HostState& to, const Checkpoint& from) { to.seed_ = from.seed; }};
  static constexpr Row rate_scale = {
      .save = [](const HostState& from, Checkpoint& to) { to.facts.merge(describe_rate(from.rate_scale_)); },
      .check = [](const Checkpoint& from) { return check_scale(parse_rate(from.facts).scale); },
      .load = [](HostState& to, const Checkpoint& from) { to.rate_scale_ = parse_rate(from.facts); },
      .lines = [](const HostState& from) { return from.scale_lines(); }};
  static constexpr Row frozen = {
      .save = [](const HostState& from, Checkpoint& to) { from.save_frozen(to.facts); },
      .load = [](HostState& to, const Checkpoint& from) { to.load_frozen(from.facts); },
      .lines = [](const HostState& from) { return from.fact_line(&HostState::save_frozen); }};
  static constexpr Row rates = {.save = [](const HostState& from, Checkpoint& to) { from.save_rates(to.facts); },
                                .load = [](HostState& to, const Checkpoint& from) { to.load_rates(from.facts); },
                                .lines = [](const HostState& from) { return from.fact_line(&HostState::save_rates); }};
  static constexpr Row last_applied = {.after = [](HostState& to, const StepMetrics& metrics, StepPhase) {
    to.last_applied_ = metrics.skipped.ok() && !metrics.counts_nothing && !metrics.overflowed;
  }};
  static constexpr Row loss_scale = {
      .save = [](const HostState& from, Checkpoint& to) { from.save_loss_scale(to.facts); },
      .check = [](const Checkpoint& from) { return check_loss_scale(from.facts); },
      .load = [](HostState& to, const Checkpoint& from) { to.load_loss_scale(from.facts); },
      .after = [](HostState& to, const StepMetrics& metrics, StepPhase phase) { to.follow_scale(metrics, phase); }};
  static constexpr Row all[] = {steps_done, seed, rate_scale, frozen, rates, last_applied, loss_scale};
  return all;
}

void HostState::save(Checkpoint& checkpoint) const {
  for (const Row& row : rows()) {
    if (row.save) row.save(*this, checkpoint);
  }
}

Status HostState::check(const Checkpoint& checkpoint) {
  for (const Row& row : rows()) {
    if (row.check) EPL_TRY(row.check(checkpoint));
  }
  return {};
}

void HostState::load(const Checkpoint& checkpoint) {
  for (const Row& row : rows()) {
    if (row.load) row.load(*this, checkpoint);
  }
  ++version_;
}

void HostState::after(const StepMetrics& metrics, StepPhase phase) {
  for (const Row& row : rows()) {
    if (row.after) row.after(*this, metrics, phase);
  }
}

std::string HostState::lines() const {
  std::string out;
  for (const Row& row : rows()) {
    if (row.lines) out += row.lines(*this);
  }
  return out;
}

StepFacts HostState::facts(StepPhase phase) const {
  return {.step = steps_done_,
          .seed = seed_,
          .rate_scale = rate_scale_.scale,
          .loss_scale = loss_scale_,
          .rates = rates_,
          .frozen = frozen_,
          .updates = phase != StepPhase::gradients,
          .gradients_given = phase == StepPhase::update,
          .last_applied = last_applied_};
}

void HostState::set_steps_done(int64_t steps) {
  steps_done_ = steps;
  progress_.write({.steps = steps});
}

// A step that was skipped is none, and neither is its first half.
void HostState::count_step(const StepMetrics& metrics, StepPhase phase) {
  if (!metrics.skipped.ok() || metrics.overflowed || phase == StepPhase::gradients) return;
  ++steps_done_;
  progress_.write({steps_done_, metrics.loss, metrics.gradient_norm, metrics.learning_rate, metrics.seconds});
}

// Steps tell the same on all ranks, so the scale is the same there.
void HostState::follow_scale(const StepMetrics& metrics, StepPhase phase) {
  if (!plan_->mixed_precision().dynamic) return;
  if (metrics.overflowed) {
    loss_scale_ = std::max(loss_scale_ / 2, 1.0);
    good_steps_ = 0;
    ++skipped_steps_;
    return;
  }
  if (!metrics.skipped.ok() || metrics.counts_nothing || phase == StepPhase::gradients) return;
  if (++good_steps_ < growth_interval) return;
  good_steps_ = 0;
  loss_scale_ = std::min(loss_scale_ * 2, largest_loss_scale);
}

// Nothing where all is as it began.
void HostState::save_loss_scale(Facts& facts) const {
  const MixedPrecision& mixed = plan_->mixed_precision();
  if (!mixed.dynamic || (loss_scale_ == mixed.loss_scale && good_steps_ == 0 && skipped_steps_ == 0)) return;
  facts[loss_scale_fact] = number_text(loss_scale_);
  facts[good_steps_fact] = cat(good_steps_);
  facts[skipped_fact] = cat(skipped_steps_);
}

// A plan that does not follow the scale keeps its own.
void HostState::load_loss_scale(const Facts& facts) {
  const MixedPrecision& mixed = plan_->mixed_precision();
  const Facts none;
  const Facts& from = mixed.dynamic ? facts : none;
  loss_scale_ = fact_number(from, loss_scale_fact, mixed.loss_scale);
  good_steps_ = static_cast<int64_t>(fact_number(from, good_steps_fact, 0));
  skipped_steps_ = static_cast<int64_t>(fact_number(from, skipped_fact, 0));
}

Status HostState::set_scale(double scale) {
  EPL_TRY(check_scale(scale));
  rate_scale_.scale = scale;
  ++version_;
  return {};
}

Status HostState::observe(double value, bool higher_is_better) {
  const Schedule& schedule = plan_->schedule();
  if (schedule.row == nullptr || !schedule.row->watches) {
    return invalid("the schedule ", schedule.row ? schedule.row->name : std::string("of this plan"),
                   " watches no number; plateau does");
  }
  rate_scale_.observe(schedule.options, value, higher_is_better);
  ++version_;
  return {};
}

std::string HostState::scale_lines() const {
  std::string out = told_line(scale_name, number_text(rate_scale_.scale));
  for (const auto& [key, value] : describe_rate(rate_scale_)) out += told_line(key, value);
  return out;
}

// In `rates`.
Result<size_t> HostState::group_of(std::string_view name) const {
  const auto& rates = plan_->rates();
  if (rates.empty()) return invalid("the plan was made without a trainer and has no learning rate");
  if (name.empty()) return 0;
  size_t group = 0;
  const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), group);
  if (failed != std::errc() || end != name.data() + name.size() || group + 1 >= rates.size()) {
    return error(Code::not_found, "there is no parameter group ", shown(name, 200), "; there are ", rates.size() - 1);
  }
  return group + 1;
}

Result<std::vector<size_t>> HostState::trained_matching(std::string_view pattern) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < plan_->trained().size(); ++i) {
    if (glob_match(pattern, plan_->trained()[i])) out.push_back(i);
  }
  if (!out.empty()) return out;
  return error(Code::not_found, "no trained parameter is called ", shown(pattern, 200),
               did_you_mean(pattern, plan_->trained()));
}

Result<double> HostState::number(std::string_view name) const {
  const auto [what, of] = split(name);
  if (name == scale_name) return rate_scale_.scale;
  if (name == loss_scale_name) return loss_scale_;
  if (name == skipped_name) return static_cast<double>(skipped_steps_);
  if (what == rate_name) {
    EPL_ASSIGN(const size_t group, group_of(of));
    return rates_.empty() ? plan_->rates()[group] : rates_[group];
  }
  if (what != frozen_name || of.empty()) return unknown(name);
  EPL_ASSIGN(const std::vector<size_t> found, trained_matching(of));
  return std::ranges::all_of(found, [&](size_t i) { return !frozen_.empty() && frozen_[i]; }) ? 1 : 0;
}

Status HostState::set_number(std::string_view name, double value) {
  const auto [what, of] = split(name);
  if (name == scale_name) return set_scale(value);
  if (name == loss_scale_name || name == skipped_name) return invalid(name, " follows from the steps and is not set");
  if (what == rate_name) {
    EPL_ASSIGN(const size_t group, group_of(of));
    if (!(value >= 0 && std::isfinite(value)))
      return invalid(name, " is ", value, "; a learning rate is a number from 0 on");
    if (rates_.empty()) rates_ = plan_->rates();
    rates_[group] = value;
    ++version_;
    return {};
  }
  if (what != frozen_name || of.empty()) return unknown(name);
  if (value != 0 && value != 1) return invalid(name, " is ", value, "; 1 freezes, and 0 trains again");
  if (!plan_->options().train.freezable)
    return invalid("nothing can be frozen in a session of this plan; set freezable = true of its trainer");
  EPL_ASSIGN(const std::vector<size_t> found, trained_matching(of));
  if (frozen_.empty()) frozen_.assign(plan_->trained().size(), 0);
  for (size_t i : found) frozen_[i] = value != 0;
  ++version_;
  return {};
}

std::string HostState::fact_line(void (HostState::*save)(Facts&) const) const {
  Facts facts;
  (this->*save)(facts);
  std::string out;
  for (const auto& [key, value] : facts) out += told_line(key, quoted(value));
  return out;
}

void HostState::save_rates(Facts& facts) const {
  if (rates_.empty()) return;
  std::string& text = facts[rates_fact];
  for (double rate : rates_) text += cat(text.empty() ? "" : " ", number_text(rate));
}

void HostState::load_rates(const Facts& facts) {
  rates_.clear();
  const auto rates = facts.find(rates_fact);
  if (rates == facts.end()) return;
  const char* at = rates->second.data();
  const char* const end = at + rates->second.size();
  std::vector<double> read;
  for (double rate = 0; at < end; read.push_back(rate)) {
    const auto [next, failed] = std::from_chars(at, end, rate);
    if (failed != std::errc() || !(rate >= 0)) break;
    at = next == end ? end : next + 1;
  }
  if (read.size() == plan_->rates().size()) rates_ = std::move(read);
}

void HostState::save_frozen(Facts& facts) const {
  for (size_t i = 0; i < frozen_.size(); ++i) {
    if (!frozen_[i]) continue;
    std::string& text = facts[frozen_fact];
    text += cat(text.empty() ? "" : "\n", plan_->trained()[i]);
  }
}

void HostState::load_frozen(const Facts& facts) {
  frozen_.clear();
  const auto names = facts.find(frozen_fact);
  if (names == facts.end() || !plan_->options().train.freezable) return;
  frozen_.assign(plan_->trained().size(), 0);
  const std::string listed = cat("\n", names->second, "\n");
  for (size_t i = 0; i < frozen_.size(); ++i)
    frozen_[i] = listed.find(cat("\n", plan_->trained()[i], "\n")) != std::string::npos;
}

}  // namespace epl
