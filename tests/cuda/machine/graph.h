// Recordings: what streams are given while one goes on becomes nodes of a graph, which is carried out when it is
// launched, and again. The rules are the driver's: what may not be recorded is an error, and ends the recording.
#pragma once

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda/machine/machine.h"

namespace epl::cuda_machine {

struct Node {
  std::vector<size_t> behind;  // nodes that come first
  Context* context = nullptr;
  std::function<void(const Command&)> run;
  bool on_host = false;
  const Function* function = nullptr;  // of a kernel
};

struct Graph {
  std::vector<Node> nodes;
};

enum CaptureMode : int { kGlobal = 0, kOfThread = 1, kRelaxed = 2 };

struct Capture {
  Graph graph;
  Stream* origin = nullptr;
  int mode = kGlobal;
  std::thread::id thread;
  std::set<Stream*> streams;  // that take part
  bool spoiled = false;
  bool ended = false;
};

// A graph that can be launched. Nodes that may come in any order are on streams of their own.
struct Executable {
  Graph graph;
  std::vector<size_t> chain_of;  // by node
  std::vector<Stream*> chains;
  uint32_t last = 0;  // the end of the launch before
  Clock clock;
};

// Writes the command down where the stream is recorded.
bool recorded(Machine& machine, Stream& stream, std::function<void(const Command&)>& run, bool on_host = false,
              const Function* function = nullptr);
// The recording is of no use any more.
[[noreturn]] void refuse(Capture& capture, Result code, const std::string& why);
// Of what would wait for a stream, or for all of a context.
void check_not_recorded(const Stream& stream, const char* what);
void check_not_recorded(Machine& machine, const Context& context, const char* what);
// Of what may wait within the driver. A recording forbids it to all threads, or to its own.
void check_no_recording(Machine& machine, const char* what);

}  // namespace epl::cuda_machine
