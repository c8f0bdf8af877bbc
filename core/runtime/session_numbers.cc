// What is set between steps: rates, and what is frozen.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/runtime/session.h"

namespace epl {
namespace {

constexpr std::string_view scale_name = "learning_rate_scale", rate_name = "learning_rate", frozen_name = "frozen";

// "learning_rate:2" -> {"learning_rate", "2"}
std::pair<std::string_view, std::string_view> split(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return {name, {}};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

Status unknown(std::string_view name) {
  const std::vector<std::string> known = {std::string(scale_name), std::string(rate_name), cat(rate_name, ":GROUP"),
                                          cat(frozen_name, ":PATTERN")};
  return error(Code::not_found, "a session has no number ", shown(name, 200), choices(name, known));
}

}  // namespace

Status check_rate_scale(const RateScale& scale) {
  if (scale.scale >= 0 && std::isfinite(scale.scale)) return {};
  return invalid("the scale of the learning rate is ", scale.scale, "; it is a number from 0 on");
}

Status Session::set_rate_scale(const RateScale& scale) {
  EPL_TRY(check_rate_scale(scale));
  rate_scale_ = scale;
  common_lines_ = nullptr;
  return {};
}

Status Session::observe(double value, bool higher_is_better) {
  const Schedule& schedule = plan_->schedule();
  if (schedule.row == nullptr || !schedule.row->watches) {
    return invalid("the schedule ", schedule.row ? schedule.row->name : std::string("of this plan"),
                   " watches no number; plateau does");
  }
  rate_scale_.observe(schedule.options, value, higher_is_better);
  common_lines_ = nullptr;
  return {};
}

// In `rates`.
Result<size_t> Session::group_of(std::string_view name) const {
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

std::vector<size_t> Session::trained_matching(std::string_view pattern) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < plan_->trained().size(); ++i) {
    if (glob_match(pattern, plan_->trained()[i])) out.push_back(i);
  }
  return out;
}

Result<double> Session::number(std::string_view name) const {
  const auto [what, of] = split(name);
  if (name == scale_name) return rate_scale_.scale;
  if (what == rate_name) {
    EPL_ASSIGN(const size_t group, group_of(of));
    return rates_.empty() ? plan_->rates()[group] : rates_[group];
  }
  if (what != frozen_name || of.empty()) return unknown(name);
  const std::vector<size_t> found = trained_matching(of);
  if (found.empty())
    return error(Code::not_found, "no trained parameter is called ", shown(of, 200),
                 did_you_mean(of, plan_->trained()));
  return std::ranges::all_of(found, [&](size_t i) { return !frozen_.empty() && frozen_[i]; }) ? 1 : 0;
}

Status Session::set_number(std::string_view name, double value) {
  const auto [what, of] = split(name);
  if (name == scale_name) {
    RateScale scale = rate_scale_;
    scale.scale = value;
    return set_rate_scale(scale);
  }
  if (what == rate_name) {
    EPL_ASSIGN(const size_t group, group_of(of));
    if (!(value >= 0 && std::isfinite(value)))
      return invalid(name, " is ", value, "; a learning rate is a number from 0 on");
    if (rates_.empty()) rates_ = plan_->rates();
    rates_[group] = value;
    common_lines_ = nullptr;
    return {};
  }
  if (what != frozen_name || of.empty()) return unknown(name);
  if (value != 0 && value != 1) return invalid(name, " is ", value, "; 1 freezes, and 0 trains again");
  if (!plan_->options().train.freezable)
    return invalid("nothing can be frozen in a session of this plan; set freezable = true of its trainer");
  const std::vector<size_t> found = trained_matching(of);
  if (found.empty())
    return error(Code::not_found, "no trained parameter is called ", shown(of, 200),
                 did_you_mean(of, plan_->trained()));
  if (frozen_.empty()) frozen_.assign(plan_->trained().size(), 0);
  for (size_t i : found) frozen_[i] = value != 0;
  common_lines_ = nullptr;
  return {};
}

Facts Session::describe_numbers() const {
  Facts out;
  for (double rate : rates_) out["rate.groups"] += cat(out["rate.groups"].empty() ? "" : " ", number_text(rate));
  for (size_t i = 0; i < frozen_.size(); ++i) {
    if (frozen_[i]) out["frozen"] += cat(out["frozen"].empty() ? "" : "\n", plan_->trained()[i]);
  }
  return out;
}

void Session::restore_numbers(const Facts& facts) {
  rates_.clear();
  frozen_.clear();
  common_lines_ = nullptr;
  if (const auto rates = facts.find("rate.groups"); rates != facts.end()) {
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
  const auto names = facts.find("frozen");
  if (names == facts.end() || !plan_->options().train.freezable) return;
  frozen_.assign(plan_->trained().size(), 0);
  const std::string listed = cat("\n", names->second, "\n");
  for (size_t i = 0; i < frozen_.size(); ++i)
    frozen_[i] = listed.find(cat("\n", plan_->trained()[i], "\n")) != std::string::npos;
}

}  // namespace epl
