// The JSON form of a strategy: what parses prints as something that parses to the same.
#include <cstdlib>

#include "core/strategy/strategy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto strategy = epl::parse_strategy(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!strategy.ok()) return 0;
  const std::string printed = epl::print_strategy(*strategy);
  auto again = epl::parse_strategy(printed);
  if (!again.ok() || epl::print_strategy(*again) != printed) std::abort();
  return 0;
}
