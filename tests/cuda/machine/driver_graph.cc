// The driver's functions: recordings of streams, and graphs.
#include <algorithm>

#include "tests/cuda/machine/driver.h"
#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {

void refuse(Capture& capture, Result code, const std::string& why) {
  capture.spoiled = true;
  throw Fault(code, why);
}

bool recorded(Machine& machine, Stream& stream, std::function<void(const Command&)>& run, bool on_host,
              const Function* function) {
  Context& context = *stream.context;
  if (&stream == context.own.get()) {
    for (const Stream* other : context.streams)
      if (other->capture && other->blocking)
        refuse(*other->capture, kCaptureImplicit, "the context's own stream would wait for one that is recorded");
  }
  if (!stream.capture) return false;
  Capture& capture = *stream.capture;
  require(!capture.spoiled, kCaptureInvalidated, "the recording has failed before");
  capture.graph.nodes.push_back({stream.tails, &context, std::move(run), on_host, function});
  stream.tails = {capture.graph.nodes.size() - 1};
  ++machine.counts.recorded;
  return true;
}

void check_not_recorded(const Stream& stream, const char* what) {
  if (stream.capture) refuse(*stream.capture, kCaptureUnsupported, std::string(what) + " of a stream that is recorded");
}

void check_not_recorded(Machine& machine, const Context& context, const char* what) {
  for (const std::shared_ptr<Capture>& capture : machine.captures)
    for (const Stream* stream : capture->streams)
      if (stream->context == &context)
        refuse(*capture, kCaptureUnsupported, std::string(what) + " of which a stream is recorded");
}

void check_no_recording(Machine& machine, const char* what) {
  for (const std::shared_ptr<Capture>& capture : machine.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == kGlobal || (capture->mode == kOfThread && own))
      refuse(*capture, kCaptureUnsupported, std::string(what) + " while a stream is recorded");
  }
}

namespace {

// Whether the nodes are among those that come before `ends`, or are of them.
bool joined(const Graph& graph, const std::vector<size_t>& ends, const std::vector<size_t>& nodes) {
  std::vector<bool> before(graph.nodes.size());
  for (const size_t end : ends) before[end] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;)
    if (before[i])
      for (const size_t first : graph.nodes[i].behind) before[first] = true;
  return std::ranges::all_of(nodes, [&](size_t node) { return before[node]; });
}

// Takes the streams out of the recording.
std::shared_ptr<Capture> leave(Machine& machine, std::shared_ptr<Capture> capture) {
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->tails.clear();
  }
  capture->ended = true;
  std::erase(machine.captures, capture);
  return capture;
}

void end_recording(Machine& machine, Stream& stream, void** made) {
  *made = nullptr;
  require(stream.capture != nullptr, kIllegalState, "the stream is not recorded");
  if (stream.capture->origin != &stream)
    refuse(*stream.capture, kCaptureUnmatched, "the recording has begun on another stream");
  if (stream.capture->mode != kRelaxed && stream.capture->thread != std::this_thread::get_id())
    refuse(*stream.capture, kCaptureWrongThread, "the recording was begun by another thread");
  const std::vector<size_t> ends = stream.tails;
  const bool all_joined = std::ranges::all_of(
      stream.capture->streams, [&](const Stream* other) { return joined(stream.capture->graph, ends, other->tails); });
  const std::shared_ptr<Capture> capture = leave(machine, stream.capture);
  require(!capture->spoiled, kCaptureInvalidated, "something was recorded that may not be");
  require(all_joined, kCaptureUnjoined, "a stream that takes part is not waited for by the one that began");
  auto graph = std::make_unique<Graph>(std::move(capture->graph));
  *made = graph.get();
  machine.graphs.emplace(graph.get(), std::move(graph));
}

template <class T> T& known(const std::map<void*, std::unique_ptr<T>>& all, void* handle, const char* what) {
  const auto found = all.find(handle);
  require(found != all.end(), kInvalidValue, std::string("this is no ") + what + ", or one that was destroyed");
  return *found->second;
}

// A node goes on in the chain of one that it follows, where nothing else has.
std::unique_ptr<Executable> executable_of(Machine& machine, const Graph& graph) {
  auto made = std::make_unique<Executable>();
  made->graph = graph;
  std::vector<size_t> ends;  // by chain
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto chain = std::ranges::find_if(ends, [&](size_t end) {
      return graph.nodes[end].context == node.context && std::ranges::count(node.behind, end) > 0;
    });
    made->chain_of.push_back(static_cast<size_t>(chain - ends.begin()));
    if (chain != ends.end()) {
      *chain = i;
      continue;
    }
    ends.push_back(i);
    made->chains.push_back(&machine.make_stream(*node.context));
    made->chains.back()->blocking = false;
  }
  return made;
}

void follow(Stream& stream, uint32_t command, const Clock& clock) {
  stream.needs.push_back(command);
  join(stream.clock, clock);
}

// The launch stands in its stream between two commands. One graph is carried out once at a time.
void launch(Machine& machine, Executable& graph, Stream& stream) {
  for (const Node& node : graph.graph.nodes)
    require(node.function == nullptr || machine.all_functions.count(const_cast<Function*>(node.function)) != 0,
            kInvalidHandle, "a graph has a kernel of a module that was unloaded");
  if (graph.last != 0) follow(stream, graph.last, graph.clock);
  machine.issue(stream, [](const Command&) {});
  const uint32_t begin = stream.last;
  const Clock begun = stream.clock;
  std::vector<std::pair<uint32_t, Clock>> done;
  for (size_t i = 0; i < graph.graph.nodes.size(); ++i) {
    const Node& node = graph.graph.nodes[i];
    Stream& chain = *graph.chains[graph.chain_of[i]];
    follow(chain, begin, begun);
    for (const size_t first : node.behind) follow(chain, done[first].first, done[first].second);
    machine.issue(chain, node.run).on_host = node.on_host;
    done.emplace_back(chain.last, chain.clock);
  }
  for (const auto& [command, clock] : done) follow(stream, command, clock);
  machine.issue(stream, [](const Command&) {});
  graph.last = stream.last;
  graph.clock = stream.clock;
  ++machine.counts.graphs;
}

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER cuStreamBeginCapture_v2(void* handle, int mode) {
  return call([&](Machine& machine, auto&) {
    Stream& stream = machine.stream(handle);
    require(mode >= kGlobal && mode <= kRelaxed, kInvalidValue, "a mode of recording");
    require(&stream != stream.context->own.get(), kCaptureUnsupported, "the context's own stream cannot be recorded");
    require(stream.capture == nullptr, kIllegalState, "the stream is recorded already");
    auto capture = std::make_shared<Capture>();
    capture->origin = &stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.insert(&stream);
    stream.capture = capture;
    machine.captures.push_back(std::move(capture));
  });
}

EPL_DRIVER cuStreamEndCapture(void* handle, void** graph) {
  return call([&](Machine& machine, auto&) {
    require(graph != nullptr, kInvalidValue, "no place for the graph");
    end_recording(machine, machine.stream(handle), graph);
  });
}

EPL_DRIVER cuStreamIsCapturing(void* handle, int* status) {
  return call([&](Machine& machine, auto&) {
    const Stream& stream = machine.stream(handle);
    *status = !stream.capture ? 0 : stream.capture->spoiled ? 2 : 1;
  });
}

EPL_DRIVER cuGraphGetNodes(void* handle, void** nodes, size_t* count) {
  return call([&](Machine& machine, auto&) {
    require(nodes == nullptr && count != nullptr, kNotSupported, "nodes have no handles on this machine");
    *count = known(machine.graphs, handle, "graph").nodes.size();
  });
}

EPL_DRIVER cuGraphInstantiateWithFlags(void** made, void* handle, unsigned long long flags) {
  return call([&](Machine& machine, auto&) {
    require(made != nullptr && flags == 0, kInvalidValue, "flags of a graph");
    auto executable = executable_of(machine, known(machine.graphs, handle, "graph"));
    *made = executable.get();
    machine.executables.emplace(executable.get(), std::move(executable));
  });
}

EPL_DRIVER cuGraphLaunch(void* handle, void* stream_handle) {
  return call([&](Machine& machine, auto&) {
    Stream& stream = machine.stream(stream_handle);
    require(stream.capture == nullptr, kNotSupported, "a graph within a graph is not known to this machine");
    launch(machine, known(machine.executables, handle, "graph that can be launched"), stream);
    check(*stream.context);
  });
}

EPL_DRIVER cuGraphDestroy(void* handle) {
  return call([&](Machine& machine, auto&) {
    known(machine.graphs, handle, "graph");
    machine.graphs.erase(handle);
  });
}

// What it was launched for is still carried out.
EPL_DRIVER cuGraphExecDestroy(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Executable& executable = known(machine.executables, handle, "graph that can be launched");
    machine.wait(lock, [&] { return machine.done(executable.last); });
    for (Stream* stream : executable.chains) {
      machine.drop(*stream);
      delete stream;
    }
    machine.executables.erase(handle);
  });
}
