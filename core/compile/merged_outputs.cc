#include "core/compile/merged_outputs.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/base/text.h"
#include "core/compile/sample_dims.h"

namespace epl {
namespace {

// By Merging.
constexpr std::string_view merging_keys[] = {"outputs.global_concat", "outputs.global_mean", "outputs.global_sum",
                                             "outputs.local_concat",  "outputs.local_mean",  "outputs.local_sum"};

std::string_view key_of(Merging how) { return merging_keys[static_cast<size_t>(how)]; }

// "logits, h.*"
std::vector<std::string> patterns_of(const Strategy& strategy, Merging how) {
  return comma_separated(strategy.text(key_of(how)));
}

bool names_it(const Strategy& strategy, Merging how, const std::string& output) {
  const std::vector<std::string> patterns = patterns_of(strategy, how);
  return std::ranges::find(patterns, output) != patterns.end();
}

constexpr bool is_concat(Merging how) { return how == Merging::global_concat || how == Merging::local_concat; }
constexpr bool is_mean(Merging how) { return how == Merging::global_mean || how == Merging::local_mean; }

// Why an output cannot be merged so; empty: it can be.
std::string refusal(const OutputMerge& merge, const TensorType& type, const Sharding& sharding, const Plan& plan) {
  if (merge.dim < 0)
    return merge.is_local() ? "is a value of the full batch, of which no process has a part of its own" : "";
  if (merge.is_local() && plan.shares_micro_batches())
    return cat("has samples of all processes in each micro-batch, ",
               plan.independent_micro_batches ? "where micro-batches are independent"
                                              : "which come first (batch.order, zero.level)");
  if (sharding.outer(batch_axis) != 1) return "has its samples across, not one after another";
  if (is_concat(merge.how)) return "";
  if (type.dtype == DType::boolean) return "holds truth values, which do not add up";
  if (is_mean(merge.how) && is_integer(type.dtype)) return "holds integers, whose mean is none";
  return "";
}

}  // namespace

std::vector<Merging> mergings_of(const Strategy& strategy, std::string_view output) {
  std::vector<Merging> out;
  for (size_t i = 0; i < std::size(merging_keys); ++i) {
    const auto how = static_cast<Merging>(i);
    const std::vector<std::string> patterns = patterns_of(strategy, how);
    if (std::ranges::any_of(patterns, [&](const std::string& pattern) { return glob_match(pattern, output); }))
      out.push_back(how);
  }
  return out;
}

Result<std::vector<std::optional<OutputMerge>>> output_merges(const Plan& plan) {
  std::vector<std::optional<OutputMerge>> out;
  const Graph& graph = *plan.graph;
  for (const Graph::Output& output : graph.outputs) {
    std::optional<OutputMerge>& merge = out.emplace_back();
    const std::vector<Merging> found = mergings_of(plan.strategy, output.name);
    if (found.empty()) continue;
    if (found.size() > 1)
      return invalid("output ", output.name, " is in ", key_of(found[0]), " and in ", key_of(found[1]));
    const Sharding& sharding = plan.shardings[output.value];
    merge = OutputMerge{found.front(), plan.batch > 0 ? sharding.cut_dim(batch_axis) : -1};
    const std::string why = refusal(*merge, graph.type(output.value), sharding, plan);
    if (why.empty()) continue;
    if (names_it(plan.strategy, merge->how, output.name))
      return invalid(key_of(merge->how), ": output ", output.name, " ", graph.type(output.value).text(), " ", why)
          .at(output.name);
    merge.reset();  // a pattern takes what it can
  }
  return out;
}

Status check_merge_patterns(const Strategy& strategy, const std::vector<std::string>& outputs) {
  for (size_t i = 0; i < std::size(merging_keys); ++i) {
    const auto how = static_cast<Merging>(i);
    for (const std::string& pattern : patterns_of(strategy, how)) {
      if (std::ranges::none_of(outputs, [&](const std::string& name) { return glob_match(pattern, name); }))
        return invalid(key_of(how), ": no output is called ", shown(pattern, 200), choices(pattern, outputs));
    }
  }
  return {};
}

TensorType merged_type(const TensorType& full, const OutputMerge& merge, int64_t batch, int64_t count) {
  if (merge.dim < 0) return full;
  TensorType type = partial_type(full, merge.dim, batch, count);
  if (!is_concat(merge.how)) type.shape.erase(type.shape.begin() + merge.dim);
  return type;
}

Tensor merge_samples(const Tensor& full, const OutputMerge& merge, int64_t batch, int64_t first, int64_t count) {
  if (merge.dim < 0) return full;
  const auto dim = static_cast<size_t>(merge.dim);
  const Tensor part = take_samples(full, merge.dim, batch, first, count);
  if (is_concat(merge.how)) return part;
  const TensorType& type = part.type();
  const int64_t rows = type.shape[dim];
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    if (d != dim) (d < dim ? outer : inner) *= type.shape[d];
  }
  Tensor out(merged_type(full.type(), merge, batch, count));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t at = o * rows * inner + i;
      if (is_integer(type.dtype)) {
        uint64_t sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += static_cast<uint64_t>(part.get_int(at + r * inner));
        out.set_int(o * inner + i, static_cast<int64_t>(sum));
        continue;
      }
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += part.get(at + r * inner);
      out.set(o * inner + i, is_mean(merge.how) ? sum / static_cast<double>(rows) : sum);
    }
  }
  return out;
}

}  // namespace epl
