// What a run is, as keys and values: written into its checkpoints, and compared when a run goes on from one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace epl {

class CompiledPlan;
class Dataset;
struct RateScale;

// "optimizer" -> "adamw", "optimizer.lr" -> "0.001", "data.fields" -> "x f32[8,4]; target i64[8]", ...
using Facts = std::map<std::string, std::string>;

// Of the model and of how it is trained. The model counts without its weights: its operators, their attributes, how
// they are connected, and the constants that no checkpoint holds, each by its name.
Facts describe_run(const CompiledPlan& plan);
// Of what it learns from: fields, batch, order and seed, and a hash over samples spread over the data.
Facts describe_data(const Dataset& dataset);

// Shards the dataset's files as the run that these facts are of sharded them, so that its positions mean the same
// samples whatever the layout is now.
Status keep_slices(Dataset& dataset, const Facts& facts);

// What a session's learning rate is multiplied with; nothing where it stands as it began.
Facts describe_rate(const RateScale& scale);
RateScale parse_rate(const Facts& facts);

struct FactDifference {
  std::string key;
  std::string topic;  // "model", "data", "batch", "order", "loss", "optimizer", "options": what a person names to go on
                      // all the same
  std::string saved, now;  // empty: not there
  bool breaks = false;     // going on is not a continuation of that run; otherwise a choice that may change on the way,
                           // like the rate
};
// Keys that one side does not have are not compared: older checkpoints know less.
std::vector<FactDifference> compare_facts(const Facts& saved, const Facts& now);

}  // namespace epl
