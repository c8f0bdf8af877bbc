// The driver's functions: streams and events.
#include "tests/cuda/machine/driver.h"

namespace epl::cuda_machine {

Command& submit(std::unique_lock<std::mutex>& lock, Stream& stream, std::function<void(const Command&)> run) {
  Machine& machine = Machine::get();
  Command& command = machine.issue(stream, std::move(run));
  if (machine.settings.eager) {
    const uint32_t number = command.number;
    machine.wait(lock, [&] { return machine.done(number); });
  }
  return command;
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
    Rest::leave(machine, lock, *stream);
  });
}

EPL_DRIVER cuStreamSynchronize(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(handle);
    machine.wait_for(lock, stream);
    check(*stream.context);
  });
}

EPL_DRIVER cuStreamQuery(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(handle);
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
    machine.issue(stream, [function, argument](const Command&) { function(argument); }).on_host = true;
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
    const Command& command = submit(lock, stream, [&machine, handle](const Command& now) {
      auto* recorded = static_cast<Event*>(handle);
      if (machine.all_events.count(recorded) != 0 && recorded->command == now.number)
        recorded->time = machine.counts.steps + machine.counts.carried_out;
    });
    event.command = stream.last;
    event.clock = stream.clock;
    (void)command;
  });
}

EPL_DRIVER cuEventQuery(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    const Event& event = event_of(machine, handle);
    machine.step(lock);
    check(*event.context);
    require(machine.done(event.command), kNotReady, "the event is not reached");
    machine.know(event.clock);
  });
}

EPL_DRIVER cuEventSynchronize(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    const Event& event = event_of(machine, handle);
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
    require(first.command != 0 && second.command != 0 && first.timed && second.timed, kInvalidHandle,
            "an event without a time");
    require(machine.done(first.command) && machine.done(second.command), kNotReady, "an event is not reached");
    *milliseconds = static_cast<float>(second.time - first.time) * 1e-3f;
  });
}

EPL_DRIVER cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return cuEventElapsedTime_v2(milliseconds, begin, end);
}
