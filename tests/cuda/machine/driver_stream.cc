// The driver's functions: streams and events.
#include "tests/cuda/machine/driver.h"
#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {

void submit(std::unique_lock<std::mutex>& lock, Stream& stream, std::function<void(const Command&)> run,
            const Function* function) {
  Machine& machine = Machine::get();
  if (recorded(machine, stream, run, false, function)) return;
  const uint32_t number = machine.issue(stream, std::move(run)).number;
  if (machine.settings.eager) machine.wait(lock, [&] { return machine.done(number); });
}

void check(const Context& context) {
  require(context.sticky == kSuccess, context.sticky, "a command of this context failed");
}

namespace {

Event& event_of(Machine& machine, void* handle) {
  auto* event = static_cast<Event*>(handle);
  require(machine.all_events.count(event) != 0, kInvalidHandle, "this is no event, or one that was destroyed");
  return *event;
}

// By an event of a recording the stream takes part in that.
bool wait_in_recording(Stream& stream, const Event& event) {
  if (!event.capture) {
    if (stream.capture && event.command != 0)
      refuse(*stream.capture, kCaptureIsolation, "a stream that is recorded waits for what is not");
    return stream.capture != nullptr;
  }
  Capture& capture = *event.capture;
  require(!capture.ended, kCapturedEvent, "the event is of a recording that has ended");
  if (&stream == stream.context->own.get())
    refuse(capture, kCaptureImplicit, "the context's own stream waits for one that is recorded");
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->spoiled = true;
    refuse(capture, kCaptureMerge, "a stream that is recorded waits for another recording");
  }
  require(!capture.spoiled, kCaptureInvalidated, "the recording has failed before");
  capture.streams.insert(&stream);
  stream.capture = event.capture;
  stream.tails.insert(stream.tails.end(), event.tails.begin(), event.tails.end());
  return true;
}

void check_not_captured(const Event& event) {
  if (event.capture) refuse(*event.capture, kCapturedEvent, "the event was recorded in a stream that is recorded");
}

int create_stream(void** handle, unsigned flags, int priority) {
  return call([&](Machine& machine, auto&) {
    require(handle != nullptr && flags <= 1, kInvalidValue, "flags of a stream");
    Stream& stream = machine.make_stream(machine.current());
    stream.blocking = flags == 0;
    stream.priority = priority;
    *handle = &stream;
  });
}

// Commands of a stream that is destroyed are still carried out.
struct Rest {
  static void leave(Machine& machine, std::unique_lock<std::mutex>& lock, Stream& stream) {
    machine.wait(lock, [&] { return stream.commands.empty() && !stream.busy; });
    machine.drop(stream);
    delete &stream;
  }
};

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER cuStreamCreate(void** stream, unsigned flags) { return create_stream(stream, flags, 0); }
EPL_DRIVER cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}

EPL_DRIVER cuStreamDestroy_v2(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    auto* stream = static_cast<Stream*>(handle);
    require(machine.all_streams.count(stream) != 0, kInvalidHandle, "this is no stream, or one that was destroyed");
    check_not_recorded(*stream, "the end");
    Rest::leave(machine, lock, *stream);
  });
}

EPL_DRIVER cuStreamSynchronize(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(handle);
    check_not_recorded(stream, "waiting for the end");
    machine.wait_for(lock, stream);
    check(*stream.context);
  });
}

EPL_DRIVER cuStreamQuery(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(handle);
    check_not_recorded(stream, "a question after the end");
    machine.step(lock);  // who asks again and again sees it go on
    check(*stream.context);
    require(machine.done(stream.last), kNotReady, "the stream is not done");
    machine.know(stream.clock);
  });
}

EPL_DRIVER cuStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  return call([&](Machine& machine, auto&) {
    require(flags == 0, kInvalidValue, "flags of a wait");
    Stream& stream = machine.stream(handle);
    const Event& event = event_of(machine, event_handle);
    if (wait_in_recording(stream, event)) return;
    if (event.command == 0) return;  // never recorded: nothing to wait for
    // The wait is a command of its own, so that what was issued before does not wait.
    stream.needs.push_back(event.command);
    join(stream.clock, event.clock);
    machine.issue(stream, [](const Command&) {});
  });
}

EPL_DRIVER cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  return call([&](Machine& machine, auto&) {
    Stream& stream = machine.stream(handle);
    std::function<void(const Command&)> run = [function, argument](const Command&) { function(argument); };
    if (!recorded(machine, stream, run, true)) machine.issue(stream, std::move(run)).on_host = true;
  });
}

EPL_DRIVER cuEventCreate(void** handle, unsigned flags) {
  return call([&](Machine& machine, auto&) {
    require(handle != nullptr && flags <= 7, kInvalidValue, "flags of an event");
    Context& context = machine.current();
    auto* event = new Event;
    event->context = &context;
    event->timed = (flags & 2) == 0;
    context.events.insert(event);
    machine.all_events.insert(event);
    *handle = event;
  });
}

EPL_DRIVER cuEventDestroy_v2(void* handle) {
  return call([&](Machine& machine, auto&) {
    Event& event = event_of(machine, handle);
    event.context->events.erase(&event);
    machine.all_events.erase(&event);
    delete &event;
  });
}

EPL_DRIVER cuEventRecord(void* handle, void* stream_handle) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(stream_handle);
    Event& event = event_of(machine, handle);
    require(event.context == stream.context, kInvalidHandle, "the event is of another context than the stream");
    event.capture = stream.capture;
    event.tails = stream.tails;
    if (event.capture) {
      require(!event.capture->spoiled, kCaptureInvalidated, "the recording has failed before");
      return;
    }
    submit(lock, stream, [&machine, handle](const Command& now) {
      auto* recorded = static_cast<Event*>(handle);
      if (machine.all_events.count(recorded) != 0 && recorded->command == now.number)
        recorded->time = machine.counts.steps + machine.counts.carried_out;
    });
    event.command = stream.last;
    event.clock = stream.clock;
  });
}

EPL_DRIVER cuEventQuery(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    const Event& event = event_of(machine, handle);
    check_not_captured(event);
    machine.step(lock);
    check(*event.context);
    require(machine.done(event.command), kNotReady, "the event is not reached");
    machine.know(event.clock);
  });
}

EPL_DRIVER cuEventSynchronize(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    const Event& event = event_of(machine, handle);
    check_not_captured(event);
    const uint32_t command = event.command;
    const Clock clock = event.clock;
    const Context& context = *event.context;
    machine.wait(lock, [&] { return machine.done(command); });
    machine.know(clock);
    check(context);
  });
}

// The machine's time is the instructions that it carried out.
EPL_DRIVER cuEventElapsedTime_v2(float* milliseconds, void* begin, void* end) {
  return call([&](Machine& machine, auto&) {
    const Event &first = event_of(machine, begin), &second = event_of(machine, end);
    require(!first.capture && !second.capture, kCapturedEvent, "the event was recorded in a stream that is recorded");
    require(first.command != 0 && second.command != 0 && first.timed && second.timed, kInvalidHandle,
            "an event without a time");
    require(machine.done(first.command) && machine.done(second.command), kNotReady, "an event is not reached");
    *milliseconds = static_cast<float>(second.time - first.time) * 1e-3f;
  });
}

EPL_DRIVER cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return cuEventElapsedTime_v2(milliseconds, begin, end);
}
