#include "core/strategy/pipeline.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

const PipelineRow* find_pipeline(std::string_view word) {
  const auto& rows = pipeline_table().rows;
  const auto row = std::ranges::find_if(
      rows, [&](const PipelineRow& r) { return std::ranges::find(r.words, word) != r.words.end(); });
  return row == rows.end() ? nullptr : &*row;
}

const PipelineRow& one_stage() {
  const PipelineRow* row = pipeline_table().find("gradient_accumulation");
  EPL_CHECK(row != nullptr, "no row for one stage");
  return *row;
}

}  // namespace epl
