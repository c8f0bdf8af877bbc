// What a session holds for each of its ranks; for its own sources alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/session.h"

namespace epl {

struct Session::Rank {
  int rank_class = 0;
  std::unique_ptr<Stream> stream;
  ParameterStore store;
  std::unique_ptr<Buffer> arena;
  std::vector<std::unique_ptr<Executor>> executors;             // by entry
  std::unique_ptr<Communicator> world;                          // none where there is one rank
  std::map<std::string, std::unique_ptr<Communicator>> groups;  // by name
  std::vector<Groups> groups_of_entry;
  Status status;
  bool bug = false;                // a check of our own failed in the call at hand
  std::vector<TraceEvent> events;  // of the steps that are recorded
  size_t events_before = 0;        // the call at hand
};

// Who has what of one name of the state.
struct Session::Held {
  const StateSlot* slot = nullptr;
  const Mesh* mesh = nullptr;
  std::vector<std::vector<int>> holders;  // the ranks with each piece, ascending
  bool everywhere = false;                // each process has all pieces
};

}  // namespace epl
