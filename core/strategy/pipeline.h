// Pipeline schedules: in which order ranks call the blocks of their stages. Each is a row in a file of
// core/strategy/pipelines.
//
//   EPL_PIPELINE(gpipe) {
//     return {.doc = "all forward calls, then all backward calls", .words = {"PreferForward", "GPipe"}, .calls =
//     gpipe};
//   }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/table.h"
#include "core/strategy/plan.h"

namespace epl {

struct PipelineShape {
  int virtual_devices = 1;
  int chunks = 1;  // stages that each of them has
  int64_t micro_batches = 1;
  int stages() const { return virtual_devices * chunks; }
};

struct PipelineRow {
  std::string name, doc;
  std::vector<std::string> words;  // of the key pipeline.strategy that ask for it
  int chunks = 1;                  // 0: as many as pipeline.virtual_stages says
  // Stages go through the virtual devices and back again, else through them in the same order each time.
  bool there_and_back = false;
  bool has_weight_blocks = false;  // gradients of weights have blocks of their own
  // Why there is no table of this shape; empty: there is. Null: there always is.
  std::string (*refusal)(const PipelineShape& shape) = nullptr;
  // Of each rank of a virtual device. The first stage is where the inputs are. Micro-batches ascend in the calls of
  // each block.
  std::vector<BlockCall> (*calls)(const PipelineShape& shape, int virtual_device) = nullptr;
  // Forward calls of a virtual device whose results wait at the same time, at most: for the gradients of their weights,
  // where these have blocks of their own. Without making the table, whose length grows with the micro-batches.
  int64_t (*in_flight)(const PipelineShape& shape, int virtual_device) = nullptr;

  // Which ranks have a stage.
  int virtual_device_of(const PipelineShape& shape, int stage) const;
};
using PipelineTable = TableOf<PipelineRow>;
const PipelineTable& pipeline_table();  // generated
// The row that a word of pipeline.strategy asks for; null if it is not built yet.
const PipelineRow* find_pipeline(std::string_view word);
// The row of a plan without stages: a micro-batch goes forward and backward in one call.
const PipelineRow& one_stage();

// What each rank of a virtual device does where a row has no table for so few micro-batches: all forward calls of its
// first stage, then of its next one; then all backward calls, the last stage's first.
std::vector<BlockCall> stage_after_stage(const PipelineRow& row, const PipelineShape& shape, int virtual_device);

// Which share of a step each rank waits, as the papers say: it waits for the others to fill and to drain, one call for
// each, where a stage takes as long for each micro-batch forward as for the gradients of its operands and for those of
// its weights, and where there are as many micro-batches as virtual devices.
double idle_share(const PipelineRow& row, const PipelineShape& shape);

// What a strategy asks for.
struct Pipeline {
  const PipelineRow* row = nullptr;
  PipelineShape shape;
};
Result<Pipeline> pipeline_of(const Strategy& strategy);

#define EPL_PIPELINE(row_name) EPL_ROW(EPL_PIPELINE, row_name, ::epl::PipelineTable, ::epl::PipelineRow)

}  // namespace epl
