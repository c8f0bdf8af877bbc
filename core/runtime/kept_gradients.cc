#include "core/runtime/kept_gradients.h"

#include <algorithm>

namespace epl {

KeptGradients::KeptGradients(const CompiledPlan& plan) : plan_(plan) {
  if (plan.options().train.keep_gradients) there_.assign(plan.trained().size(), 0);
  taken("none were computed yet");
}

void KeptGradients::computed(bool counts_nothing) {
  std::ranges::fill(there_, uint8_t{1});
  count_nothing_ = counts_nothing;
}

void KeptGradients::taken(std::string_view why_not) {
  why_not_ = why_not;
  count_nothing_ = false;
  std::ranges::fill(there_, uint8_t{0});
}

// Gradients are of the weights and buffers that there were.
void KeptGradients::note_set(const StateSlot& slot) {
  if (there_.empty()) return;
  if (slot.kind == ValueKind::parameter || slot.kind == ValueKind::buffer)
    return taken("those that there were are of other weights, which were set or loaded since");
  const std::string_view of = gradient_of(plan_, slot.name);
  const auto trained = std::ranges::find(plan_.trained(), of);
  if (trained == plan_.trained().end()) return;
  there_[static_cast<size_t>(trained - plan_.trained().begin())] = 1;
  count_nothing_ = false;
}

Status KeptGradients::check() const {
  const auto missing = std::ranges::find(there_, 0);
  if (missing == there_.end()) return {};
  const bool none = std::ranges::find(there_, 1) == there_.end();
  const std::string& name = plan_.trained()[static_cast<size_t>(missing - there_.begin())];
  return Status(
      Code::misuse,
      cat("there ", none ? cat("are no gradients to apply: ") : cat("is no gradient of ", name, " to apply: "),
          why_not_, "; compute the gradients of a batch, or set ", none ? "them" : cat(name, gradient_suffix)),
      none ? std::string() : name);
}

}  // namespace epl
