#include "core/train/metric.h"

#include <algorithm>

#include "core/base/options.h"

namespace epl {
namespace {

Result<MetricSpec> make_spec(const RowText& text) {
  MetricSpec spec;
  EPL_ASSIGN(spec.row, find_named(metric_table(), text.name, "metric"));
  spec.label = spec.row->name;
  std::vector<Option> declared = spec.row->options;
  declared.insert(declared.end(),
                  {{.name = "output", .value = "", .doc = "an output of the model, instead of the loss's"},
                   {.name = "target", .value = "", .doc = "an input of the plan, instead of the loss's"},
                   {.name = "ignore_index", .value = int64_t{-100}, .doc = "a class index that does not count"}});
  const std::string what = cat("metric ", spec.row->name);
  EPL_ASSIGN(const Attributes given, parse_options(text.options, declared, what));
  std::vector<std::string> parts;
  for (const auto& [name, value] : text.options) parts.push_back(cat(name, "=", value));
  if (!parts.empty()) spec.label += cat("(", join(parts, ","), ")");
  EPL_ASSIGN(spec.options, complete_options(declared, given, what));
  spec.output = spec.options.text("output");
  spec.target = spec.options.text("target");
  if (given.has("ignore_index")) spec.ignored = spec.options.integer("ignore_index");
  return spec;
}

}  // namespace

Result<std::vector<MetricSpec>> parse_metrics(std::string_view text) {
  std::vector<MetricSpec> specs;
  EPL_ASSIGN(const std::vector<RowText> rows, parse_rows(text, ',', "metric"));
  for (const RowText& row : rows) {
    EPL_ASSIGN(MetricSpec spec, make_spec(row));
    const auto same = [&](const MetricSpec& other) { return other.label == spec.label; };
    if (std::ranges::any_of(specs, same)) return invalid("metric ", spec.label, " is named twice");
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace epl
