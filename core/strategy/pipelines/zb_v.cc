// The schedule ZB-V of "Pipeline Parallelism with Controllable Memory" (Qi et al., 2024): stages go through the ranks
// and back. The table is what ranks do that take the first of their calls that can run, all calls being equally long.
#include <algorithm>
#include <map>

#include "core/strategy/pipeline.h"

namespace epl {
namespace {

using Table = std::vector<std::vector<BlockCall>>;  // by virtual device

class Greedy {
 public:
  // `spare`: how much room a rank keeps when it begins with another micro-batch.
  Greedy(const PipelineShape& shape, int spare) : shape_(shape), spare_(spare) {
    table_.resize(static_cast<size_t>(shape.virtual_devices));
    in_flight_.assign(static_cast<size_t>(shape.virtual_devices), 0);
  }

  Table run() {
    const int64_t all = 3 * shape_.stages() * shape_.micro_batches;
    for (int64_t made = 0; made < all; ++steps_) {
      std::vector<BlockCall> now;
      for (int c = 0; c < shape_.virtual_devices; ++c) choose(c, now);
      for (const BlockCall& call : now) done_[call.id()] = call.micro_batch + 1;
      made += std::ssize(now);
    }
    return std::move(table_);
  }
  int64_t steps() const { return steps_; }

 private:
  // Backward before forward, the later stage first; gradients of weights where there is nothing else.
  void choose(int virtual_device, std::vector<BlockCall>& now) {
    const int first = virtual_device, second = 2 * shape_.virtual_devices - 1 - virtual_device;
    int& live = in_flight_[virtual_device];
    const int room = 2 * shape_.virtual_devices - live;
    for (const BlockId& block : {BlockId{second, BlockKind::backward}, BlockId{first, BlockKind::backward},
                                 BlockId{second, BlockKind::forward}, BlockId{first, BlockKind::forward},
                                 BlockId{second, BlockKind::weight}, BlockId{first, BlockKind::weight}}) {
      const bool forward = block.kind == BlockKind::forward;
      if (!ready(block) || (forward && room <= (block.stage == first ? spare_ : 0))) continue;
      now.push_back({block.stage, block.kind, done_[block]});
      table_[virtual_device].push_back(now.back());
      live += forward ? 1 : block.kind == BlockKind::weight ? -1 : 0;
      return;
    }
  }

  bool ready(const BlockId& block) {
    const int64_t next = done_[block];
    const auto after = [&](int stage, BlockKind kind) { return done_[{stage, kind}] > next; };
    if (next == shape_.micro_batches) return false;
    if (block.kind == BlockKind::forward) return block.stage == 0 || after(block.stage - 1, BlockKind::forward);
    if (block.kind == BlockKind::weight) return after(block.stage, BlockKind::backward);
    const bool last = block.stage == shape_.stages() - 1;
    return after(block.stage, BlockKind::forward) && (last || after(block.stage + 1, BlockKind::backward));
  }

  const PipelineShape shape_;
  const int spare_;
  Table table_;
  std::vector<int> in_flight_;       // by virtual device
  std::map<BlockId, int64_t> done_;  // calls, before the current step
  int64_t steps_ = 0;
};

std::vector<BlockCall> calls(const PipelineShape& shape, int virtual_device) {
  Greedy eager(shape, 0), careful(shape, 1);
  const Table one = eager.run(), other = careful.run();
  return (eager.steps() <= careful.steps() ? one : other)[virtual_device];
}

}  // namespace

EPL_PIPELINE(zb_v) {
  return {
      .doc =
          "two stages on each rank, there and back; gradients of weights fill what would be idle, with the memory of "
          "1F1B on every rank",
      .words = {"ZB-V"},
      .chunks = 2,
      .there_and_back = true,
      .has_weight_blocks = true,
      .calls = calls,
      .in_flight = [](const PipelineShape& shape, int) {
        return 2 * std::min<int64_t>(shape.micro_batches, shape.virtual_devices);
      }};
}

}  // namespace epl
