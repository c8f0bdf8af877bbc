#include "core/strategy/sum_form.h"

#include "core/base/narrow.h"
#include "core/ir/text.h"
#include "core/strategy/plan.h"

namespace epl {

std::string sum_form_text(const SumForm& form) {
  if (!form) return "";
  return cat(" reduced narrow ", dtype_name(form.type), form.scale == 1 ? "" : cat(" times ", form.scale),
             form.of_units ? " by units" : "");
}

bool parse_sum_form(TextReader& reader, SumForm& out) {
  std::string name;
  if (!reader.take("narrow") || !reader.name(name)) return false;
  const std::optional<DType> type = parse_dtype(name);
  if (!type) return false;
  out = {.kind = SumForm::Kind::narrow, .type = *type};
  if (reader.take("times") && !reader.integer(out.scale)) return false;
  out.of_units = reader.take("by units");
  return has_16_bits(out.type) && out.scale >= 1;
}

Status verify_sum_forms(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (plan.sum_forms.empty()) return {};
  if (plan.sum_forms.size() != graph.value_count()) return error(Code::internal, "a table by value has the wrong size");
  for (const Value v : graph.value_ids()) {
    const SumForm& form = plan.sum_forms[v];
    if (!form) continue;
    const ValueInfo& info = graph.value(v);
    const bool wide = is_float(info.type.dtype) && !has_16_bits(info.type.dtype);
    if (!info.producer || !wide || !has_16_bits(form.type) || form.scale < 1)
      return error(Code::internal, info.name, " is", sum_form_text(form));
  }
  return {};
}

}  // namespace epl
