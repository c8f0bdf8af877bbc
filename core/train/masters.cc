#include "core/train/masters.h"

#include <algorithm>

#include "core/base/converted.h"
#include "core/ir/rewriter.h"

namespace epl {
namespace {

bool has_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace

bool is_frozen(const std::string& parameter, const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    if (std::ranges::any_of(group.patterns, [&](const std::string& pattern) { return glob_match(pattern, parameter); })) return group.frozen;
  }
  return false;
}

Graph with_masters(const Graph& graph, const std::vector<ParameterGroup>& groups) {
  std::vector<Value> wanted;
  for (Value v : graph.leaves(ValueKind::parameter)) {
    if (has_16_bits(graph.type(v).dtype) && !is_frozen(graph.value(v).name, groups)) wanted.push_back(v);
  }
  if (wanted.empty()) return graph;
  Graph out;
  GraphRewriter now(graph, out);
  Builder builder(out);
  for (Value v : wanted) {
    ValueInfo& master = out.value(now[v]);
    const DType dtype = master.type.dtype;
    master.type.dtype = DType::f32;
    master.data = converted(master.data, DType::f32);
    builder.set_scope(cat(master.name, ".", dtype_name(dtype)));
    now.set(v, builder.cast(builder.var(now[v]), dtype).value());
  }
  for (int n = 0; n < graph.node_count(); ++n) now.copy(NodeId{n});
  now.finish();
  return out;
}

}  // namespace epl
