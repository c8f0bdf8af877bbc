#include "core/train/masters.h"

#include "core/base/converted.h"
#include "core/base/narrow.h"
#include "core/ir/rewriter.h"

namespace epl {

Graph with_masters(const Graph& graph, const TrainOptions& options) {
  std::vector<Value> wanted;
  for (Value v : graph.leaves(ValueKind::parameter)) {
    if (has_16_bits(graph.type(v).dtype) && frozen_by(options, graph.value(v).name).empty()) wanted.push_back(v);
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
