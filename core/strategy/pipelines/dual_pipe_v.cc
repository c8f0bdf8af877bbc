// DualPipe of "DeepSeek-V3 Technical Report" (2024), cut in half: the ranks of one direction have the stages of both.
#include <deque>

#include "core/base/text.h"
#include "core/strategy/pipeline.h"

namespace epl {
namespace {

class Table {
 public:
  Table(const PipelineShape& shape, int virtual_device)
      : stage_{virtual_device, 2 * shape.virtual_devices - 1 - virtual_device},
        ranks_(shape.virtual_devices),
        rank_(virtual_device) {}

  std::vector<BlockCall> calls(int64_t micro_batches) {
    const int after = ranks_ - 1 - rank_;
    for (int i = 0; i < 2 * after; ++i) forward(0);
    for (int i = 0; i <= rank_; ++i) forward(0), forward(1);
    for (int i = 0; i < after; ++i) backward(1, true), weight(), forward(1);
    for (int64_t i = 0; i < micro_batches - 2 * ranks_ + rank_ + 1; ++i)
      forward(0), backward(1), forward(1), backward(0);
    for (int i = 0; i < after; ++i) backward(1), forward(1), backward(0);
    // From half of these on the gradients of weights are put off.
    for (int i = 0; i <= rank_; ++i) {
      const int half = (rank_ + 1) / 2;
      backward(1, i > half || (i == half && rank_ % 2 == 1));
      backward(0, i >= half);
    }
    for (int i = 0; i < after; ++i) weight(), backward(0, true);
    while (!put_off_.empty()) weight();
    return std::move(calls_);
  }

 private:
  void forward(int chunk) { calls_.push_back({stage_[chunk], BlockKind::forward, forwards_[chunk]++}); }
  void backward(int chunk, bool puts_off = false) {
    const int64_t m = backwards_[chunk]++;
    calls_.push_back({stage_[chunk], BlockKind::backward, m});
    put_off_.push_back({stage_[chunk], BlockKind::weight, m});
    if (!puts_off) weight();
  }
  void weight() {
    calls_.push_back(put_off_.front());
    put_off_.pop_front();
  }

  const int stage_[2];
  const int ranks_, rank_;
  int64_t forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<BlockCall> put_off_;
  std::vector<BlockCall> calls_;
};

}  // namespace

EPL_PIPELINE(dual_pipe_v) {
  return {.doc = "two stages on each rank, there and back; a forward call of one beside a backward call of the other",
          .words = {"DualPipe-V"},
          .chunks = 2,
          .there_and_back = true,
          .has_weight_blocks = true,
          .refusal =
              [](const PipelineShape& shape) {
                return shape.micro_batches >= 2 * shape.virtual_devices
                           ? std::string()
                           : cat("needs ", 2 * shape.virtual_devices, " micro-batches for ", shape.virtual_devices,
                                 " ranks, not ", shape.micro_batches);
              },
          .calls = [](const PipelineShape& shape,
                      int virtual_device) { return Table(shape, virtual_device).calls(shape.micro_batches); },
          .in_flight = [](const PipelineShape& shape, int) { return 2 * int64_t{shape.virtual_devices} + 1; }};
}

}  // namespace epl
