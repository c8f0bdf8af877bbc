#include "core/strategy/pipeline.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/shown.h"

namespace epl {
namespace {

constexpr int64_t max_stages = 4096;

}  // namespace

int PipelineRow::virtual_device_of(const PipelineShape& shape, int stage) const {
  const int chunk = stage / shape.virtual_devices, within = stage % shape.virtual_devices;
  return there_and_back && chunk % 2 == 1 ? shape.virtual_devices - 1 - within : within;
}

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

std::vector<BlockCall> stage_after_stage(const PipelineRow& row, const PipelineShape& shape, int virtual_device) {
  std::vector<BlockCall> calls, back;
  for (int stage = 0; stage < shape.stages(); ++stage) {
    if (row.virtual_device_of(shape, stage) != virtual_device) continue;
    std::vector<BlockCall> of_stage;
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      calls.push_back({stage, BlockKind::forward, m});
      of_stage.push_back({stage, BlockKind::backward, m});
      if (row.has_weight_blocks) of_stage.push_back({stage, BlockKind::weight, m});
    }
    back.insert(back.begin(), of_stage.begin(), of_stage.end());
  }
  calls.insert(calls.end(), back.begin(), back.end());
  return calls;
}

double idle_share(const PipelineRow& row, const PipelineShape& shape) {
  const double waits = shape.virtual_devices - 1;
  const auto works = static_cast<double>(shape.micro_batches * shape.chunks * (row.has_weight_blocks ? 3 : 1));
  return waits / (works + waits);
}

Result<Pipeline> pipeline_of(const Strategy& strategy) {
  const auto scopes = std::ssize(strategy.scopes);
  const int64_t wanted = strategy.integer("pipeline.num_stages"),
                virtual_stages = strategy.integer("pipeline.virtual_stages");
  Pipeline found{.row = &one_stage(), .shape = {.micro_batches = strategy.integer("pipeline.num_micro_batch")}};
  if (found.shape.micro_batches < 1) return invalid("pipeline.num_micro_batch is ", found.shape.micro_batches);
  if (wanted < 1 || wanted > max_stages) return invalid("pipeline.num_stages is ", wanted);
  if (virtual_stages < 1 || virtual_stages > max_stages) return invalid("pipeline.virtual_stages is ", virtual_stages);
  const bool colocated = strategy.flag("cluster.colocate_split_and_replicate");
  if (wanted == 1 && (scopes < 2 || colocated)) return found;
  const std::string& word = strategy.text("pipeline.strategy");
  found.row = find_pipeline(word);
  if (!found.row) return unsupported("this version has no pipeline schedule ", shown(word));
  const bool open = found.row->chunks == 0;
  if (open ? virtual_stages < 2 : virtual_stages != 1) {
    return invalid("pipeline.virtual_stages is ", virtual_stages, "; the schedule ", word,
                   open ? " wants 2 or more" : " does not have it");
  }
  found.shape.chunks = static_cast<int>(open ? virtual_stages : found.row->chunks);
  if (wanted == 1 && scopes % found.shape.chunks != 0) {
    return invalid("the schedule ", word, " has ", found.shape.chunks, " stages on each rank, and ", scopes,
                   " scopes do not divide by that");
  }
  found.shape.virtual_devices = static_cast<int>(wanted > 1 ? wanted : scopes / found.shape.chunks);
  const std::string why = found.row->refusal ? found.row->refusal(found.shape) : std::string();
  if (!why.empty()) return invalid("the schedule ", word, " ", why);
  return found;
}

int64_t independent_micro_batches(const Strategy& strategy) {
  return strategy.text("batch.semantics") == "per_micro_batch" ? strategy.integer("pipeline.num_micro_batch") : 1;
}

}  // namespace epl
