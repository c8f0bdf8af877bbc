// The text form of a plan, over the graph of step.graph: what parses passes verify_plan or says why not, and prints as
// something that parses to the same.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/strategy/pass.h"
#include "core/strategy/plan.h"

namespace {

std::shared_ptr<const epl::Graph> graph_of_file() {
  std::ifstream in(EPL_SOURCE_DIR "/tests/fuzz/step.graph");
  std::stringstream text;
  text << in.rdbuf();
  auto graph = epl::parse_graph(text.str());
  if (!graph.ok()) std::abort();
  return std::make_shared<const epl::Graph>(*std::move(graph));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const epl::Graph> graph = graph_of_file();
  auto plan = epl::parse_plan(std::string_view(reinterpret_cast<const char*>(data), size), graph);
  if (!plan.ok()) return 0;
  (void)epl::verify_plan(*plan);
  const std::string printed = epl::print_plan(*plan);
  auto again = epl::parse_plan(printed, graph);
  if (!again.ok() || epl::print_plan(*again) != printed) std::abort();
  return 0;
}
