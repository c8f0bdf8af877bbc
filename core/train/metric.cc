#include "core/train/metric.h"

#include <algorithm>

#include "core/base/options.h"

namespace epl {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The text up to the first `separator` outside parentheses and brackets, removed from `text` with it.
std::string_view next_part(std::string_view& text, char separator) {
  int depth = 0;
  size_t end = 0;
  for (; end < text.size() && (depth > 0 || text[end] != separator); ++end)
    depth += (text[end] == '(') - (text[end] == ')');
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trimmed(part);
}

// "5" is an integer, "0.5" a number, "true" a truth, anything else a text.
Attribute value_of(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  const auto [whole_end, whole_failure] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (whole_failure == std::errc() && whole_end == text.data() + text.size()) return whole;
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  return std::string(text);
}

Result<MetricSpec> parse_metric(std::string_view text) {
  MetricSpec spec;
  const size_t open = text.find('(');
  EPL_ASSIGN(spec.row, find_named(metric_table(), trimmed(text.substr(0, open)), "metric"));
  spec.label = spec.row->name;
  std::vector<AttributeSpec> declared = spec.row->options;
  declared.insert(declared.end(),
                  {{"output", std::string()}, {"target", std::string()}, {"ignore_index", int64_t{-100}}});
  Attributes given;
  if (open != std::string_view::npos) {
    if (text.back() != ')') return invalid("metric ", text, ": the parenthesis is not closed");
    std::string_view inside = text.substr(open + 1, text.size() - open - 2);
    std::vector<std::string> parts;
    while (!trimmed(inside).empty()) {
      const std::string_view part = next_part(inside, ',');
      const size_t equals = part.find('=');
      if (equals == std::string_view::npos) return invalid("metric ", text, ": ", quoted(part), " is not NAME=VALUE");
      const std::string_view name = trimmed(part.substr(0, equals));
      if (given.has(name)) return invalid("metric ", text, ": ", name, " is given twice");
      given.set(name, value_of(trimmed(part.substr(equals + 1))));
      parts.push_back(cat(name, "=", trimmed(part.substr(equals + 1))));
    }
    if (!parts.empty()) spec.label += cat("(", join(parts, ","), ")");
  }
  EPL_ASSIGN(spec.options, complete_options(declared, given, cat("metric ", spec.row->name)));
  spec.output = spec.options.text("output");
  spec.target = spec.options.text("target");
  if (given.has("ignore_index")) spec.ignored = spec.options.integer("ignore_index");
  return spec;
}

}  // namespace

Result<std::vector<MetricSpec>> parse_metrics(std::string_view text) {
  std::vector<MetricSpec> specs;
  while (!trimmed(text).empty()) {
    const std::string_view part = next_part(text, ',');
    if (part.empty()) return invalid("metrics: a name is missing between two commas");
    EPL_ASSIGN(MetricSpec spec, parse_metric(part));
    const auto same = [&](const MetricSpec& other) { return other.label == spec.label; };
    if (std::ranges::any_of(specs, same)) return invalid("metric ", spec.label, " is named twice");
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace epl
