#include "core/backend/kernel.h"

#include <algorithm>

namespace epl {

int KernelQuery::axis(std::string_view name) const {
  int64_t axis = attributes.integer(name);
  return static_cast<int>(axis < 0 ? axis + in(0).ndim() : axis);
}

bool KernelQuery::require(bool condition, std::string_view reason) const {
  if (!condition) refusal = reason;
  return condition;
}

void KernelTable::add(KernelRow row) { rows_[row.op].push_back(std::move(row)); }

const std::vector<KernelRow>& KernelTable::rows(std::string_view op) const {
  static const std::vector<KernelRow> none;
  auto it = rows_.find(std::string(op));
  if (it == rows_.end()) it = rows_.find("*");
  return it == rows_.end() ? none : it->second;
}

const KernelRow* KernelTable::choose(const KernelQuery& query, std::vector<Refusal>* refusals) const {
  for (const KernelRow& row : rows(query.op)) {
    query.refusal.clear();
    bool fits = true;
    if (!row.dtypes.empty()) {
      DType dtype = query.inputs() > 0 && query.has(0) ? query.in(0).dtype : query.out(0).dtype;
      fits = query.require(std::ranges::find(row.dtypes, dtype) != row.dtypes.end(),
                           cat("element type ", dtype_name(dtype)));
    }
    if (fits && row.accepts) fits = row.accepts(query);
    if (fits) return &row;
    if (refusals) refusals->push_back({row.name, query.refusal.empty() ? "refused" : query.refusal});
  }
  return nullptr;
}

}  // namespace epl
