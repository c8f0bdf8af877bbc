#include "core/compile/amp.h"

#include <charconv>
#include <cmath>

#include "core/base/shown.h"

namespace epl {
namespace {

// That of PyTorch's GradScaler, which halves and doubles it as well.
constexpr double first_scale = 65536;

Result<double> parse_scale(const std::string& text) {
  double scale = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), scale);
  const bool read = failed == std::errc() && end == text.data() + text.size();
  if (read && scale >= 1 && scale <= largest_loss_scale) return scale;
  return invalid("amp.loss_scale is ", shown(text, 200), R"(; it is "dynamic" or a number from 1 to )",
                 static_cast<int64_t>(largest_loss_scale));
}

}  // namespace

Result<MixedPrecision> read_mixed_precision(const PlanOptions& options) {
  const Strategy& strategy = options.strategy;
  MixedPrecision out;
  const std::string& scale = strategy.text("amp.loss_scale");
  const bool dynamic = scale == "dynamic";
  if (!dynamic) {
    EPL_ASSIGN(out.loss_scale, parse_scale(scale));
  }
  out.debug_log = strategy.flag("amp.debug_log");
  if (strategy.text("amp.level").empty()) return MixedPrecision();
  if (options.training && options.train.precision == DType::f64)
    return invalid("amp.level computes products in 16 bits, and the trainer's precision is f64; use one of them");
  out.type = strategy.text("amp.type") == "f16" ? DType::f16 : DType::bf16;
  if (out.type == DType::bf16) {  // which has the range of float32
    out.loss_scale = 1;
  } else if (dynamic) {
    out.dynamic = true;
    out.loss_scale = first_scale;
  }
  return out;
}

}  // namespace epl
