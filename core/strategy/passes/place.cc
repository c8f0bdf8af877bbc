// place: nodes into TaskGraphs, TaskGraphs onto the mesh. What is built so far is one TaskGraph, replicated over every
// rank; check_built has refused the rest by name.
#include "core/strategy/pass.h"

namespace epl {

EPL_PASS(place) {
  return {.doc = "puts every node into a TaskGraph and gives each TaskGraph its ranks",
          .run = [](PassContext& c) -> Status {
            Plan& plan = c.plan;
            TaskGraph all{.scope = "default", .device = {0, plan.mesh.ranks()}, .nodes = plan.graph->node_count()};
            plan.task_graphs = {all};
            plan.node_task_graph.assign(plan.graph->node_count(), 0);
            return {};
          }};
}

}  // namespace epl
