// Pipeline schedules: in which order the ranks of a stage call its blocks. Each is a row in a file of
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
  int stages = 1;
  int64_t micro_batches = 1;
};

struct PipelineCall {
  BlockKind kind = BlockKind::main;  // main, or forward and backward
  int64_t micro_batch = 0;
  friend bool operator==(const PipelineCall&, const PipelineCall&) = default;
};

struct PipelineRow {
  std::string name, doc;
  std::vector<std::string> words;  // of the key pipeline.strategy that ask for it
  // Of one stage, counted from 0 where the inputs are. Micro-batches ascend in the calls of each kind.
  std::vector<PipelineCall> (*calls)(const PipelineShape& shape, int stage) = nullptr;
};
using PipelineTable = TableOf<PipelineRow>;
const PipelineTable& pipeline_table();  // generated
// The row that a word of pipeline.strategy asks for; null if it is not built yet.
const PipelineRow* find_pipeline(std::string_view word);
// The row of a plan without stages: a micro-batch goes forward and backward in one call.
const PipelineRow& one_stage();

#define EPL_PIPELINE(row_name) EPL_ROW(EPL_PIPELINE, row_name, ::epl::PipelineTable, ::epl::PipelineRow)

}  // namespace epl
