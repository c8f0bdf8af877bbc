// The expression of a fused region, as it stands in an attribute.
#include <cstdlib>

#include "core/ir/scalar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto expression = epl::ScalarExpr::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!expression.ok()) return 0;
  const std::string printed = expression->text();
  auto again = epl::ScalarExpr::parse(printed);
  if (!again.ok() || again->text() != printed) std::abort();
  return 0;
}
