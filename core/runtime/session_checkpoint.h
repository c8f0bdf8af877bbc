// How what a session keeps, its state and its numbers, is saved and loaded. Other file formats are in
// core/runtime/export.h. Over processes, each process calls these at the same time. Each writes its shard file, all
// read, and what fails for one fails for all.
#pragma once

#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/session.h"

namespace epl {

// The data that a session trains on, if a checkpoint is to know it: its position is saved and restored.
struct TrainingData {
  Dataset* dataset = nullptr;
  Facts facts;  // describe_data of it
};

// A state that is not of one step, or that holds a NaN, is not saved.
Status save_session(Session& session, const std::string& folder, const TrainingData& data = {});
// The same as a stream (write_checkpoint), which it finishes, and which the process of rank 0 writes: the others give
// no writer. Values that lie in shards are put together one at a time. An error of the writer is passed on as it is.
Status write_session(Session& session, ByteWriter* out, const TrainingData& data = {});
// Of a session that has lost a process: State::keeper saves, and no other process takes part.
Status save_alone(Session& session, const std::string& folder, const TrainingData& data = {});
// What the process that writes a stream says where it was given no writer.
Status no_writer();
// Nothing is changed before everything fits. What makes the run another one is said in the host's log.
Status load_session(Session& session, const std::string& folder, const TrainingData& data = {});
Status load_session(Session& session, const Result<CheckpointFiles>& files, const TrainingData& data = {});
// How the run that a checkpoint is of differs from this one.
Result<std::vector<FactDifference>> compare_session(const Session& session, const std::string& folder,
                                                    const TrainingData& data = {});

}  // namespace epl
