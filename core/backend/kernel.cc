#include "core/backend/kernel.h"

#include <algorithm>

#include "core/backend/device.h"
#include "core/base/check.h"

namespace epl {

int KernelQuery::axis(std::string_view name) const {
  int64_t axis = attributes.integer(name);
  return static_cast<int>(axis < 0 ? axis + in(0).ndim() : axis);
}

bool Prepared::may_alias(int input, int output) const {
  return std::ranges::any_of(aliases, [&](const Alias& a) { return a.input == input && a.output == output; });
}

std::vector<Prepared::Alias> every_alias(const KernelQuery& query) {
  std::vector<Prepared::Alias> all;
  for (int i = 0; i < query.inputs(); ++i) {
    for (int o = 0; o < query.outputs(); ++o) all.push_back({i, o});
  }
  return all;
}

std::vector<Prepared::Alias> equal_aliases(const KernelQuery& query) {
  std::vector<Prepared::Alias> equal = every_alias(query);
  std::erase_if(equal, [&](const Prepared::Alias& a) { return query.in(a.input) != query.out(a.output); });
  return equal;
}

Status require(bool condition, std::string_view reason) { return condition ? Status() : unsupported(reason); }

ThreadPool& KernelCall::threads() const {
  HostStream* host = stream.host();
  EPL_CHECK(host != nullptr, "node ", query.node, ": a kernel for the host on a stream that has no threads");
  return host->threads();
}

Result<Prepared> prepare(const KernelRow& row, const KernelQuery& query) {
  if (!row.dtypes.empty()) {
    const DType dtype = query.inputs() > 0 && query.has(0) ? query.in(0).dtype : query.out(0).dtype;
    EPL_TRY(require(std::ranges::find(row.dtypes, dtype) != row.dtypes.end(), cat("element type ", dtype_name(dtype))));
  }
  return row.prepare ? row.prepare(query) : Prepared();
}

void KernelTable::add(KernelRow row) { rows_[row.op].push_back(std::move(row)); }

void KernelTable::add(const KernelTable& table) {
  for (const auto& [op, rows] : table.rows_) rows_[op].insert(rows_[op].end(), rows.begin(), rows.end());
}

const std::vector<KernelRow>& KernelTable::rows(std::string_view op) const {
  static const std::vector<KernelRow> none;
  const auto it = rows_.find(std::string(op));
  return it == rows_.end() ? none : it->second;
}

bool KernelTable::takes(std::string_view op, DType dtype) const {
  return std::ranges::any_of(rows(op), [&](const KernelRow& row) {
    return row.dtypes.empty() || std::ranges::find(row.dtypes, dtype) != row.dtypes.end();
  });
}

ChosenKernel KernelTable::choose(const KernelQuery& query, std::vector<Refusal>* refusals) const {
  for (const KernelRow& row : rows(query.op)) {
    auto prepared = prepare(row, query);
    if (prepared.ok()) return {&row, *std::move(prepared)};
    if (refusals) refusals->push_back({row.name, prepared.status().message()});
  }
  return {};
}

}  // namespace epl
