// The text form of a graph: what parses must verify or say why not, and print as something that parses to the same.
#include <cstdlib>

#include "core/ir/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto graph = epl::parse_graph(text);
  if (!graph.ok()) return 0;
  const std::string printed = epl::print_graph(*graph);
  auto again = epl::parse_graph(printed);
  if (!again.ok() || epl::print_graph(*again) != printed) std::abort();
  return 0;
}
