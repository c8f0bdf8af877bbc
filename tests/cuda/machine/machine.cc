#include "tests/cuda/machine/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {

Machine::Machine() = default;
Machine::~Machine() = default;

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t k = 0; k < other.size(); ++k) clock[k] = std::max(clock[k], other[k]);
}

// Never destroyed: a host's threads may call until the very end.
Machine& Machine::get() {
  static Machine* const machine = [] {
    auto* made = new Machine;
    // A process that cannot call epl_test_machine_set, the tool, is told by this.
    const char* words = std::getenv("EPL_TEST_MACHINE");
    try {
      if (words != nullptr) made->set(words);
    } catch (const std::exception& wrong) {
      std::fprintf(stderr, "EPL_TEST_MACHINE='%s': %s\n", words, wrong.what());
      std::abort();
    }
    return made;
  }();
  return *machine;
}

void Machine::found(const std::string& what) {
  findings_.push_back(what);
  if (settings.findings_file.empty()) {
    std::fprintf(stderr, "test machine: %s\n", what.c_str());
  } else if (std::FILE* file = std::fopen(settings.findings_file.c_str(), "a"); file != nullptr) {
    std::fprintf(file, "%s\n", what.c_str());
    std::fclose(file);
  }
}

std::vector<Context*>& Machine::stack() {
  static thread_local std::vector<Context*> contexts;
  return contexts;
}

std::map<int, std::unique_ptr<Context>>::const_iterator Machine::find_context(Context* context) const {
  return std::find_if(primary_.begin(), primary_.end(), [&](const auto& one) { return one.second.get() == context; });
}

// The current one, if it has not failed.
Context& Machine::current() {
  std::vector<Context*>& contexts = stack();
  require(!contexts.empty() && contexts.back() != nullptr, kInvalidContext, "no context is current in this thread");
  Context* context = contexts.back();
  require(alive(context), kContextIsDestroyed, "the current context is destroyed");
  require(context->sticky == kSuccess, context->sticky, "a command of this context failed before");
  return *context;
}

const DeviceRow& Machine::row(int device) const {
  require(device >= 0 && device < devices(), kInvalidDevice, "there is no device " + std::to_string(device));
  return device_row(settings.devices[static_cast<size_t>(device)]);
}

int64_t Machine::memory_of(int device) const { return settings.memory > 0 ? settings.memory : row(device).memory; }

Context& Machine::primary(int device) {
  row(device);
  std::unique_ptr<Context>& context = primary_[device];
  if (!context) {
    context = std::make_unique<Context>();
    context->device = device;
    context->own.reset(new Stream);
    context->own->context = context.get();
    context->own->index = static_cast<uint32_t>(places_.size());
    places_.push_back(0);
    queues_.push_back(context->own.get());
  }
  return *context;
}

Stream& Machine::make_stream(Context& context) {
  auto* stream = new Stream;
  stream->context = &context;
  stream->index = static_cast<uint32_t>(places_.size());
  places_.push_back(0);
  queues_.push_back(stream);
  context.streams.insert(stream);
  all_streams.insert(stream);
  return *stream;
}

void Machine::drop(Stream& stream) {
  for (const Command& command : stream.commands) done_[command.number] = true;
  std::erase(queues_, &stream);
  stream.context->streams.erase(&stream);
  all_streams.erase(&stream);
}

void Machine::destroy(Context& context) {
  const auto of_context = [&](const Stream* stream) { return stream->context == &context; };
  std::erase_if(executables, [&](const auto& one) { return std::ranges::any_of(one.second->chains, of_context); });
  std::erase_if(captures, [&](const auto& one) { return std::ranges::any_of(one->streams, of_context); });
  while (!context.streams.empty()) {
    Stream* stream = *context.streams.begin();
    drop(*stream);
    delete stream;
  }
  drop(*context.own);
  for (Event* event : context.events) {
    all_events.erase(event);
    delete event;
  }
  for (Loaded* loaded : context.modules) {
    for (const auto& [name, function] : loaded->functions) all_functions.erase(function.get());
    all_modules.erase(loaded);
    delete loaded;
  }
  memory.free_all(context.device);
  primary_.erase(context.device);
}

Allocation& Machine::at(uint64_t address, int64_t bytes, int device, const char* what) {
  Allocation* found = memory.find(address);
  require(
      found != nullptr && !found->freed &&
          found->holds(address + static_cast<uint64_t>(std::max<int64_t>(bytes, 1)) - 1),
      kInvalidValue,
      std::string(what) + " of " + std::to_string(bytes) + " bytes: its address is " +
          (memory.of_device(address)
               ? memory.about(found != nullptr && !found->freed ? address + static_cast<uint64_t>(bytes) - 1 : address)
               : "not of a device"));
  require(found->device == device, kInvalidValue,
          std::string(what) + ": its address is of device " + std::to_string(found->device) + ", not " +
              std::to_string(device));
  return *found;
}

bool Machine::pinned(const void* address, int64_t bytes) const {
  const auto begin = reinterpret_cast<uint64_t>(address);
  auto range = host.upper_bound(begin);
  if (range == host.begin()) return false;
  --range;
  return begin + static_cast<uint64_t>(bytes) <= range->first + range->second.bytes;
}

// Memory that was reserved stays so: an address that somebody kept is told from a new one.
void Machine::reset() {
  captures.clear();
  graphs.clear();
  while (!primary_.empty()) destroy(*primary_.begin()->second);
  settings = {};
  random.seed(settings.seed);
  counts = {};
  findings_.clear();
  last_error.clear();
  lost.clear();
  begun = false;
}

void Machine::set(const std::string& words) {
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    if (word == "reset") {
      reset();
      continue;
    }
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "devices") {
      settings.devices.clear();
      std::istringstream names(value);
      for (std::string name; std::getline(names, name, ',');) {
        device_row(name);
        settings.devices.push_back(name);
      }
      continue;
    }
    if (key == "findings") {
      settings.findings_file = value;
      continue;
    }
    const int64_t number = std::stoll(value);
    if (key == "seed") {
      settings.seed = static_cast<uint64_t>(number);
      random.seed(settings.seed);
    } else if (key == "memory") {
      settings.memory = number;
    } else if (key == "driver") {
      settings.driver_version = static_cast<int>(number);
    } else if (key == "races") {
      settings.races = number != 0;
    } else if (key == "uninitialised") {
      settings.uninitialised = number != 0;
    } else if (key == "eager") {
      settings.eager = number != 0;
    } else if (key == "orders") {
      settings.orders = number != 0;
    } else if (key == "limit") {
      settings.limit = static_cast<uint64_t>(number);
    } else if (key == "slow_stream") {
      settings.slow_stream = static_cast<int>(number);
    } else if (key == "allocation_fails") {
      settings.allocation_fails = number;
    } else if (key == "launch_fails") {
      settings.launch_fails = number;
    } else if (key == "copy_fails") {
      settings.copy_fails = number;
    } else if (key == "collective_fails") {
      settings.collective_fails = number;
    } else if (key == "device_lost") {
      settings.device_lost = number;
    } else if (key == "lost_device") {
      settings.lost_device = static_cast<int>(number);
    } else if (key == "peers") {
      settings.peers = number != 0;
    } else {
      throw Fault(kInvalidValue, "setting '" + key + "' of the test machine");
    }
  }
}

}  // namespace epl::cuda_machine
