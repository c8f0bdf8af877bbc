// Which command comes next. One is ready when those before it in its stream are done, and those that it waits for.
#include <algorithm>
#include <utility>

#include "tests/cuda/machine/machine.h"

namespace epl::cuda_machine {

Stream& Machine::stream(void* handle) {
  Context& context = current();
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 1) return *context.own;  // 0 and CU_STREAM_LEGACY
  require(number != 2, kNotSupported, "a stream for each thread is not known to this machine");
  auto* stream = static_cast<Stream*>(handle);
  require(all_streams.count(stream) != 0, kInvalidHandle, "this is no stream, or one that was destroyed");
  require(stream->context == &context, kInvalidHandle, "the stream is of another context than the current one");
  return *stream;
}

Command& Machine::issue(Stream& stream, std::function<void(const Command&)> run) {
  Context& context = *stream.context;
  Command command;
  command.number = static_cast<uint32_t>(issued_.size());
  command.needs = std::move(stream.needs);
  stream.needs.clear();
  command.clock = stream.clock;
  join(command.clock, host_);
  // The context's own stream and the blocking ones wait for each other.
  const auto follow = [&](const Stream& other) {
    if (other.last == 0) return;
    command.needs.push_back(other.last);
    join(command.clock, other.clock);
  };
  if (&stream == context.own.get()) {
    for (const Stream* other : context.streams) {
      if (other->blocking) follow(*other);
    }
  } else if (stream.blocking) {
    follow(*context.own);
  }
  const uint32_t place = ++places_[stream.index];
  if (command.clock.size() <= stream.index) command.clock.resize(stream.index + 1);
  command.clock[stream.index] = place;
  issued_.push_back({stream.index, place});
  done_.push_back(false);
  ++counts.commands;
  stream.last = command.number;
  stream.clock = command.clock;
  stream.commands.push_back(std::move(command));
  Command& kept = stream.commands.back();
  kept.run = [this, run = std::move(run), &stream] { run(stream.commands.front()); };
  return kept;
}

Before Machine::before(const Command& command) const {
  return [this, clock = command.clock](const Mark& mark, const Who&) {
    const Issued& issued = issued_[mark.command];
    return issued.stream < clock.size() && clock[issued.stream] >= issued.place;
  };
}

bool Machine::ready(const Stream& stream) const {
  if (stream.commands.empty() || stream.busy) return false;
  const std::vector<uint32_t>& needs = stream.commands.front().needs;
  return std::all_of(needs.begin(), needs.end(), [&](uint32_t number) { return done_[number]; });
}

bool Machine::carry_out(std::unique_lock<std::mutex>& lock, Stream& stream) {
  Command& command = stream.commands.front();
  Context& context = *stream.context;
  const bool counted = settings.lost_device < 0 || settings.lost_device == context.device;
  if (counted && !std::exchange(command.begun, true) && settings.device_lost > 0 && --settings.device_lost == 0) {
    lost.insert(context.device);
    context.sticky = kUnknown;
  }
  if (context.sticky == kSuccess) {
    try {
      if (command.on_host) {
        stream.busy = true;
        lock.unlock();
        command.run();
        lock.lock();
        stream.busy = false;
      } else {
        command.run();
      }
    } catch (const NotYet&) {
      return false;
    } catch (const Fault& fault) {
      found(fault.what());
      context.sticky = fault.code;
    }
  }
  ++counts.carried_out;
  done_[stream.commands.front().number] = true;
  stream.commands.pop_front();
  return true;
}

// One command of any stream that can go on; false where none can.
bool Machine::step(std::unique_lock<std::mutex>& lock) {
  std::vector<Stream*> able;
  for (Stream* stream : queues_) {
    if (ready(*stream)) able.push_back(stream);
  }
  others_are_awaited_ = false;
  if (able.empty()) return false;
  if (able.size() > 1 && settings.slow_stream >= 0)
    std::erase_if(able, [&](const Stream* s) { return s->index == static_cast<uint32_t>(settings.slow_stream); });
  while (!able.empty()) {
    const size_t chosen = random() % able.size();
    if (carry_out(lock, *able[chosen])) return true;
    others_are_awaited_ = true;
    able.erase(able.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return false;
}

void Machine::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& until) {
  while (!until()) {
    if (step(lock)) continue;
    // A function of the host runs in another thread.
    const bool busy =
        others_are_awaited_ || std::any_of(queues_.begin(), queues_.end(), [](const Stream* s) { return s->busy; });
    require(busy, kUnknown, "the machine waits for what nobody will do: a fault of its own");
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void Machine::wait_for(std::unique_lock<std::mutex>& lock, Stream& stream) {
  const uint32_t last = stream.last;
  const Clock clock = stream.clock;
  wait(lock, [&] { return done(last); });
  know(clock);
}

void Machine::wait_for_all(std::unique_lock<std::mutex>& lock, Context& context) {
  std::vector<Stream*> streams(context.streams.begin(), context.streams.end());
  streams.push_back(context.own.get());
  for (Stream* stream : streams) wait_for(lock, *stream);
}

}  // namespace epl::cuda_machine
