// The text form of a local graph.
#include <cstdlib>

#include "core/program/local_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto local = epl::parse_local(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!local.ok()) return 0;
  const std::string printed = epl::print_local(*local);
  auto again = epl::parse_local(printed);
  if (!again.ok() || epl::print_local(*again) != printed) std::abort();
  return 0;
}
