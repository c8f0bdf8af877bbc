// The comparison of `gradient_checkpoint.check_gradients`: the gradients of a session's first step, and those of the
// same plan with nothing computed again. Both are hashed where the verdict looks at them, reduced and complete, and
// nothing is changed. Bits are expected to be equal.
#include "core/base/hash.h"
#include "core/ir/op.h"
#include "core/runtime/diagnosis.h"
#include "core/runtime/session.h"

namespace epl {

Status Executor::hash_gradients(const Instruction& in, int64_t micro_batch) {
  const OpDef* op = op_table().find(in.query->op);
  if (op == nullptr || !op->takes_any_operands || !device_.executes()) return {};
  EPL_TRY(synchronize());  // what gives an operand may be on another stream
  gradient_hashes_.assign(in.inputs.size(), 0);
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < in.inputs.size(); ++i) {
    const std::byte* from = at(in.inputs[i], micro_batch);
    if (!in.query->has(static_cast<int>(i)) || from == nullptr) continue;
    bytes.resize(static_cast<size_t>(in.query->in(static_cast<int>(i)).bytes()));
    stream().download(bytes.data(), from, std::ssize(bytes));
    EPL_TRY(stream().synchronize());
    gradient_hashes_[i] = hash64(bytes);
  }
  return {};
}

// Operands of the verdict are the loss, and from 1 on the gradients.
Status Session::check_gradients(const Entry& entry, RunRequest request) {
  const Entry* plain = plan_->entry(EntryKind::check, entry.shape);
  const bool executes = world_->ranks().device()->executes();  // a rehearsal is of later steps
  if (plain == nullptr || !executes || same_again_.contains(&entry)) return {};
  request.diagnose = request.hashes_gradients = true;
  for (const Entry* one : {&entry, plain}) EPL_TRY(run_ranks(index_of(*one), request).status);
  const auto count = std::ssize(plan_->trained());
  int64_t first = count;
  for (const auto& rank : world_->ranks()) {
    const std::vector<uint64_t>& again = rank->executors[index_of(entry)]->gradient_hashes();
    const std::vector<uint64_t>& kept = rank->executors[index_of(*plain)]->gradient_hashes();
    EPL_CHECK(again.size() == kept.size(), "verdicts of other operands");
    for (int64_t i = 0; i < first && i + 1 < std::ssize(again); ++i) {
      if (again[static_cast<size_t>(i) + 1] != kept[static_cast<size_t>(i) + 1]) first = i;
    }
  }
  EPL_ASSIGN(const std::vector<int64_t> all, world_->tell(first, request.stop));
  first = std::ranges::min(all);
  if (first < count) {
    const std::string& name = plan_->trained()[static_cast<size_t>(first)];
    return Status(Code::internal,
                  cat("gradient_checkpoint.check_gradients: ", gradient_text(entry, name),
                      " has other bits where nothing is computed again; the step was not applied"),
                  name);
  }
  same_again_.insert(&entry);
  return {};
}

}  // namespace epl
