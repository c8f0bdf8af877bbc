// Which process of a job of several this one is, and where it finds the others, as launchers say it in the environment.
// docs/processes.md describes each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/api.h"
#include "tools/json.h"
#include "tools/rendezvous_folder.h"
#include "tools/secret.h"

namespace epl::tools {

using Store = Handle<epl_store, epl_store_destroy>;

// What the processes of a job compare, and how: the fields of epl_session_options of these names.
struct Agreement {
  bool take_weights = false;
  int64_t compare_every = 100;  // 0: with checkpoints alone
  std::string integrity = "none";
};

struct Processes {
  std::string launcher;         // whose variables said so; empty: this process is alone
  int64_t rank = 0, count = 1;  // of processes
  int64_t local_count = 1;      // of those on this host
  std::string rendezvous;       // as epl_session_options takes it
  bool serves = false;          // process 0 serves the store that it names
  SecretText secret;
  std::string address;        // of this host; empty: found out
  std::string transport;      // as epl_session_options takes it; empty: the library's own choice
  std::string folder;         // of a RendezvousFolder, which `enter` makes; empty: they need none
  bool draws_secret = false;  // that process 0 leaves in it
  std::shared_ptr<const RendezvousFolder> rendezvous_folder;
  // To wait for all processes to come, and within a call for one that says nothing; 0: as the library has it.
  double join_seconds = 0, silence_seconds = 0;
  Agreement agreement;
  bool several() const { return count > 1; }
  bool leads() const { return rank == 0; }
};

// What there is around a process; a test makes its own.
struct Surroundings {
  std::function<const char*(const char* variable)> environment;
  std::string host_name;
  std::string temporary;  // a folder of this host
  int64_t user = 0, parent = 0;
  std::function<std::string(const std::string& path)> read_file;  // throws
  std::function<std::string(int descriptor)> read_descriptor;     // throws
};
Surroundings surroundings();

// Throws where variables contradict each other or something is missing.
Processes find_processes(const Surroundings& around);
// The secret that EPL_SECRET_FD, EPL_SECRET_FILE or EPL_SECRET hands over; empty for none.
SecretText find_secret(const Surroundings& around);
// A sentence where others than this user may read the file; empty where they may not.
std::string readable_by_others(const std::string& path);
// Before the first session: the folder in which they meet or find their secret, where they need one. It goes with the
// last of the processes.
void enter(const Surroundings& around, Processes& processes);

// Threads of a process that shares this host with others; 0: as many as there are processors.
int threads_beside(int64_t local_count);
// For a session whose process has `ranks` ranks; `store` is what process 0 serves and outlives the session. `slices`:
// of several processes each gives its own samples of a batch (bind_data), and else the full batch.
Session make_session(const Engine& engine, const Plan& plan, const Processes& processes, int64_t ranks, Store& store,
                     const epl_call_options* call = nullptr, bool slices = true);
// What a file holds, as a text to compare: its size, and of one that is read quickly a hash of it. Empty where it is no
// file.
std::string content_of(const std::string& path);
// That all processes have the same of `facts` and of the data, where there is any; an error says what differs.
void agree(const Session& session, const Json& facts, const Dataset* data = nullptr);
// From now on the data gives what such a session takes: the inputs of an entry, or this process's samples of them.
void bind_data(const Dataset& data, const Plan& plan, int32_t entry, const Processes& processes, int64_t ranks);
}  // namespace epl::tools
