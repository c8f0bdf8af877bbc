#include "core/runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/check.h"
#include "core/base/stop_tasks.h"
#include "core/ir/host_op.h"
#include "core/program/transfer.h"
#include "core/runtime/diagnosis.h"

namespace epl {

Executor::Executor(const Host& host, Device& device, Stream& stream, const Program& program, ParameterStore& store,
                   Buffers& arenas)
    : host_(host), device_(device), program_(program), store_(store), arenas_(arenas), streams_{&stream} {}

Result<std::unique_ptr<Executor>> Executor::create(const Host& host, Device& device, Stream& stream,
                                                   const Program& program, int64_t agreement_bytes,
                                                   ParameterStore& store, Buffers& arenas, const Mesh& mesh, int rank) {
  for (const ProgramMemory& memory : program.memories) {
    const int64_t there = arenas[memory.kind] ? arenas[memory.kind]->bytes() : 0;
    EPL_CHECK(there >= memory.arena_bytes, "an arena of ", there, " for ", memory.arena_bytes);
  }
  std::unique_ptr<Executor> executor(new Executor(host, device, stream, program, store, arenas));
  executor->coordinates_ = mesh.coordinates(rank);
  executor->time_axis_ = program.mesh.find(micro_batch_axis);
  executor->context_.units = program.units();
  executor->context_.runs = program.batch.runs(program.mesh);
  executor->context_.run_stride = program.batch.run_stride(program.mesh);
  for (int64_t m = 0; m < program.micro_batches(); ++m)
    executor->first_units_.push_back(program.batch.first_unit(program.mesh, mesh.coordinates(rank, m)));
  while (static_cast<int>(executor->streams_.size()) < program.streams) {
    EPL_ASSIGN(auto made, device.create_stream(1));
    executor->streams_.push_back(made.get());
    executor->own_streams_.push_back(std::move(made));
  }
  for (int e = 0; e < program.events; ++e) executor->events_.push_back(device.create_event());
  executor->looked_at_ = device.create_event();
  EPL_ASSIGN(executor->constants_, device.allocate(program.constant_bytes));
  if (agreement_bytes > 0) {
    EPL_ASSIGN(executor->wish_, device.allocate(agreement_bytes));
  }
  EPL_ASSIGN(executor->scalars_, device.allocate(program.scalar_bytes));
  executor->numbers_.resize(static_cast<size_t>(program.scalar_bytes));
  if (program.drawn_at >= 0) {
    auto* numbers = static_cast<std::byte*>(executor->scalars_->data()) + program.drawn_at;
    executor->context_.on_device = reinterpret_cast<const StepNumbers*>(numbers);
  }
  if (device.executes()) {
    for (size_t i = 0; i < program.constants.size(); ++i) {
      stream.upload(static_cast<std::byte*>(executor->constants_->data()) + program.constant_offsets[i],
                    program.constants[i].data(), program.constants[i].bytes());
    }
  }
  const auto operands = static_cast<size_t>(std::max(program.max_operands, 2));  // a copy may be all there is
  executor->operands_.resize(operands);
  executor->results_.resize(operands);
  executor->calls_.resize(operands);
  EPL_TRY(stream.synchronize());
  return executor;
}

std::byte* Executor::at(const Location& location, int64_t micro_batch) {
  const int64_t part = location.axis < 0 ? 0 : coordinates_.at[static_cast<size_t>(location.axis)] * location.stride;
  auto base = [&](Buffer& buffer) { return static_cast<std::byte*>(buffer.data()) + location.offset + part; };
  switch (location.space) {
    case Location::Space::none:
      return nullptr;
    case Location::Space::arena:
      return static_cast<std::byte*>(arenas_[location.memory]->data()) + program_.offset_of(location, micro_batch) +
             part;
    case Location::Space::state:
      return store_.data(location.memory) + location.offset + part;
    case Location::Space::constant:
      return base(*constants_);
    case Location::Space::scalar:
      return base(*scalars_);
    case Location::Space::input: {
      const ProgramPort& port = program_.inputs[static_cast<size_t>(location.index)];
      auto* tensor = static_cast<std::byte*>(const_cast<void*>(input(port.index)));
      return location.stride == 0
                 ? tensor
                 : tensor + program_.mesh.shard(coordinates_, port.sharding.dims[0][0].axes) * location.stride;
    }
  }
  return nullptr;
}

void Executor::go_to(int64_t micro_batch) {
  if (time_axis_ >= 0) coordinates_.at[static_cast<size_t>(time_axis_)] = micro_batch;
  context_.first_unit = first_units_[static_cast<size_t>(micro_batch)];
}

Status Executor::run(const RunRequest& request, const Groups& groups) {
  EPL_CHECK(groups.of_program.size() == program_.groups.size(), "a rank without its groups");
  request_ = &request;
  committed_ = false;
  agreement_ = Agreement::none;
  verdict_ = -1;
  context_.seed = request.seed;
  context_.step = request.step;
  stop_tasks_.reset();
  diagnosis_.reset();
  for (Event* event : request.behind)
    for (Stream* stream : streams_) stream->wait(*event);
  const bool replays = ready_to_replay(groups);
  upload_numbers();
  if (replays) return replay_step(groups);
  // A stop or a deadline is looked at before each instruction and, on the host's own processor, before each shard of
  // its work.
  const auto wanted = [this] { return request_->stop.why() != Code::ok; };
  HostStream* const host_stream = stream().host();
  if (request.stop.can_stop()) stop_tasks_.emplace(host_stream ? &host_stream->threads() : nullptr, wanted);
  if (request.diagnose && !request.hashes_gradients) inspect_leaves();
  Status status = check_stop();  // also of a rank that has no instruction
  for (size_t c = 0; c < program_.calls.size() && status.ok(); ++c) {
    call_ = static_cast<int>(c);
    if (request.applies && leaves_out(program_.calls[c])) continue;
    status = run_call(program_.calls[c], groups);
    if (committed_ && request.diagnose) return end_diagnosis();
    if (status.ok() && verdict_ >= 0) return {};  // the step is not applied
  }
  if (status.ok() && program_.commits && !committed_) {  // for the ranks that change something
    status = commit(groups);
    if (status.ok() && device_decides() && !request.diagnose) status = decide_at_end(groups.world);
  }
  stop_tasks_.reset();
  if (committed_ && device_decides() && !request.diagnose) return end_decided(!groups.world, std::move(status));
  EPL_TRY(status);
  if (request.diagnose) return end_diagnosis();
  EPL_TRY(synchronize());
  gave_all_ = gave_all_ || !request.applies;
  return {};
}

// What the host sets for a step goes over at once.
void Executor::upload_numbers() {
  if (device_decides()) guard(nullptr);  // a run that was thrown out of has left its own
  if (!device_.executes() || numbers_.empty()) return;
  for (const ProgramScalar& scalar : program_.scalars) {
    std::memcpy(numbers_.data() + scalar.location.offset, &request_->scalars[static_cast<size_t>(scalar.index)],
                sizeof(uint64_t));
  }
  if (program_.drawn_at >= 0) {
    const StepNumbers drawn{.seed = request_->seed, .step = request_->step};
    std::memcpy(numbers_.data() + program_.drawn_at, &drawn, sizeof drawn);
  }
  if (device_decides()) {
    const Decision open;
    std::memcpy(numbers_.data() + program_.decided_at, &open, sizeof open);
  }
  stream().upload(scalars_->data(), numbers_.data(), std::ssize(numbers_));
  if (program_.numbers_event >= 0) stream().record(event(program_.numbers_event));
}

// Of an update alone: all of the call comes before the state changes.
bool Executor::leaves_out(const BlockCall& call) const {
  return (program_.blocks.begin() + program_.find(call.id()))->last <= program_.commit_begin;
}

Status Executor::run_call(const BlockCall& call, const Groups& groups) {
  const auto block = program_.blocks.begin() + program_.find(call.id());
  go_to(call.micro_batch);
  std::span<const CallWait> waits = program_.waits[static_cast<size_t>(call_)];
  for (; !waits.empty() && waits[0].instruction < 0; waits = waits.subspan(1)) stream().wait(event(waits[0].event));
  for (int i = block->first; i < block->last; ++i) {
    if (!committed_) EPL_TRY(check_stop());
    if (i == program_.commit_begin && recording_) {
      EPL_TRY(recorded_->begin_second());
    } else if (i == program_.commit_begin) {
      EPL_TRY(commit(groups));
      if (request_->diagnose || verdict_ >= 0) return {};
    }
    const Instruction& in = program_.instructions[static_cast<size_t>(i)];
    wait(in, call.micro_batch, waits);
    if (request_->applies && !(*applied_)[static_cast<size_t>(i)]) {
      record(in, call.micro_batch);  // others may wait for what came before it by way of it
      continue;
    }
    if (request_->hashes_gradients) EPL_TRY(hash_gradients(in, call.micro_batch));
    if (diagnosis_) EPL_TRY(diagnosis_->before(in, looked_at(in, call.micro_batch)));
    EPL_TRY(carry_out(in, call.micro_batch, groups));
    record(in, call.micro_batch);
    // Results that are not complete are read by nobody: they may be indices.
    if (stop_tasks_ && stop_tasks_->left_out()) return check_stop();
    observe(in, call.micro_batch);
    if (diagnosis_ && in.stream != 0 && !in.transfer->sends) {  // the first stream looks
      streams_[static_cast<size_t>(in.stream)]->record(*looked_at_);
      stream().wait(*looked_at_);
    }
    if (diagnosis_) EPL_TRY(diagnosis_->after(in, looked_at(in, call.micro_batch)));
#if defined(EPL_DEV)
    poison(in, call.micro_batch);
#endif
  }
  return {};
}

Status Executor::carry_out(const Instruction& in, int64_t micro_batch, const Groups& groups) {
  Stream& stream = *streams_[static_cast<size_t>(in.stream)];
  const bool agrees = in.transfer && in.transfer->decides && groups.world;
  const auto position = static_cast<int>(&in - program_.instructions.data());
  TraceEvent* const recorded = begin_event(stream, agrees ? TraceEvent::agreement : position);
  try {
    if (in.transfer && in.transfer->decides) {
      if (const Status status = decide(in, groups.world); !status.ok()) return status;
    } else if (in.transfer) {
      if (const Status status = transfer(stream, in, micro_batch, groups); !status.ok()) return status.at(in.name);
    } else {
      launch(stream, in, micro_batch);
    }
  } catch (const HostFailure& failure) {  // of an op of the host's own
    return failure.status.at(in.name);
  }
  if (recorded) stamp(stream, &recorded->end);
  return {};
}

// `of_call`: those of the call that are left; they come in the order of its instructions.
void Executor::wait(const Instruction& in, int64_t micro_batch, std::span<const CallWait>& of_call) {
  Stream& stream = *streams_[static_cast<size_t>(in.stream)];
  for (const Wait& wait : in.waits) stream.wait(event(static_cast<int>(wait.event + (wait.each ? micro_batch : 0))));
  const auto position = static_cast<int>(&in - program_.instructions.data());
  for (; !of_call.empty() && of_call[0].instruction == position; of_call = of_call.subspan(1))
    stream.wait(event(of_call[0].event));
}

void Executor::record(const Instruction& in, int64_t micro_batch) {
  if (in.records < 0) return;
  const int64_t iteration = program_.loops(static_cast<int>(&in - program_.instructions.data())) ? micro_batch : 0;
  streams_[static_cast<size_t>(in.stream)]->record(event(static_cast<int>(in.records + iteration)));
}

// Null where nothing is recorded, or no more.
TraceEvent* Executor::begin_event(Stream& stream, int instruction) {
  if (!events_of_run_ || events_of_run_->size() == events_of_run_->capacity()) return nullptr;
  TraceEvent& event =
      events_of_run_->emplace_back(TraceEvent{.step = request_->step, .call = call_, .instruction = instruction});
  stamp(stream, &event.begin);
  return &event;
}

void Executor::stamp(Stream& stream, double* seconds) {
  if (StreamClock* clock = stream.stamps()) {
    clock->stamp(seconds);
  } else {
    *seconds = host_.seconds();
  }
}

// From here on the ranks agree about what happens, and a step that has begun to commit ends.
Status Executor::commit(const Groups& groups) {
  stop_tasks_.reset();
  committed_ = true;
  if (request_->diagnose) return {};
  if (groups.world) {
    groups.world->watch(nullptr);
    groups.world->hasten([this] { return !check_stop().ok(); });
  }
  if (!device_decides()) EPL_TRY(before_commit(groups.world));
  if (verdict_ < 0 && request_->gate) request_->gate->begin();
  return {};
}

// All streams, whatever one of them says: an error that nobody takes would be that of a later call.
Status Executor::synchronize() {
  Status first;
  for (Stream* stream : streams_) {
    Status status = stream->synchronize();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// Whether to change the state is a number of the graph, which stays where the data is: a rank that is to stop writes
// its wish over it, and all ranks take the largest. What can fail has failed by then, because who has agreed must go
// on.
Status Executor::before_commit(Communicator* world) {
  static constexpr int64_t may_change = -1, stopped = INT64_MAX;
  const Status stop = check_stop();
  const ProgramPort* port = output_port(request_->verdict_output);
  const bool decided = port != nullptr;
  if (!decided && world == nullptr) {
    EPL_TRY(synchronize());
    agreement_ = stop.ok() ? Agreement::reached : Agreement::none;
    return stop;
  }
  std::byte* verdict = decided ? at(port->location, 0) : static_cast<std::byte*>(wish_->data());
  if (device_.executes() && (!stop.ok() || !decided || request_->applies))
    stream().upload(verdict, stop.ok() ? &may_change : &stopped, sizeof(int64_t));
  EPL_TRY(synchronize());
  if (world != nullptr) {
    TraceEvent* const recorded = begin_event(stream(), TraceEvent::agreement);
    EPL_TRY(world->run(stream(), {.kind = Collective::Kind::all_reduce,
                                  .dtype = DType::i64,
                                  .count = 1,
                                  .source = verdict,
                                  .target = verdict,
                                  .reduction = Reduction::max}));
    if (recorded) stamp(stream(), &recorded->end);
  }
  agreement_ = Agreement::asked;
  if (device_.executes()) stream().download(&verdict_, verdict, sizeof verdict_);
  EPL_TRY(stream().synchronize());
  agreement_ = verdict_ < 0 ? Agreement::reached : Agreement::none;
  EPL_TRY(stop);
  return verdict_ == stopped ? Status(Code::peer_failed, "another rank refused the step") : Status();
}

// Another virtual device may have it.
const ProgramPort* Executor::output_port(int index) const {
  const auto found = std::ranges::find(program_.outputs, index, &ProgramPort::index);
  return index < 0 || found == program_.outputs.end() ? nullptr : &*found;
}

void Executor::launch(Stream& stream, const Instruction& in, int64_t micro_batch) {
  for (size_t i = 0; i < in.inputs.size(); ++i) operands_[i] = at(in.inputs[i], micro_batch);
  for (size_t i = 0; i < in.outputs.size(); ++i) results_[i] = at(in.outputs[i], micro_batch);
  stream.launch(*in.row, *in.query, in.prepared.state.get(), operands_.data(), results_.data(),
                at(in.workspace, micro_batch), context_);
}

Status Executor::transfer(Stream& stream, const Instruction& in, int64_t micro_batch, const Groups& groups) {
  for (size_t i = 0; i < in.inputs.size(); ++i) operands_[i] = at(in.inputs[i], micro_batch);
  for (size_t i = 0; i < in.outputs.size(); ++i) results_[i] = at(in.outputs[i], micro_batch);
  const ProgramPort* port = in.port < 0 ? nullptr : &program_.outputs[static_cast<size_t>(in.port)];
  const bool gives = port && device_.executes() && (port->dim() >= 0 ? gives_shards_ : gives_common_);
  return in.transfer->run({.program = program_,
                           .in = in,
                           .stream = stream,
                           .context = context_,
                           .group = in.group < 0 ? nullptr : groups.of_program[static_cast<size_t>(in.group)],
                           .micro_batch = micro_batch,
                           .coordinates = coordinates_,
                           .shard = program_.mesh.shard(coordinates_, in.axes),
                           .source = in.inputs.empty() ? nullptr : static_cast<const std::byte*>(operands_[0]),
                           .target = in.outputs.empty() ? nullptr : static_cast<std::byte*>(results_[0]),
                           .sources = {operands_.data(), in.inputs.size()},
                           .targets = {results_.data(), in.outputs.size()},
                           .calls = calls_,
                           .workspace = at(in.workspace, micro_batch),
                           .output = gives ? output(port->index) : nullptr,
                           .source_memory = in.inputs.empty() ? CallerMemory() : memory_of_input(in.inputs[0]),
                           .output_memory = gives ? memory_of_output(port->index) : CallerMemory()});
}

void Executor::observe(const Instruction& in, int64_t micro_batch) {
  auto touch = [&](const Location& location, int64_t bytes) {
    if (location.space != Location::Space::arena) return;
    int64_t& high = high_water_[location.memory];
    high = std::max(high, program_.offset_of(location, micro_batch) + bytes);
  };
  for (size_t i = 0; i < in.inputs.size(); ++i) {
    if (in.query->has(static_cast<int>(i))) touch(in.inputs[i], in.query->in(static_cast<int>(i)).bytes());
  }
  for (size_t i = 0; i < in.outputs.size(); ++i) touch(in.outputs[i], in.query->out(static_cast<int>(i)).bytes());
  int64_t workspace = in.workspace_bytes;
  if (in.transfer && in.transfer->held_bytes) workspace += in.transfer->held_bytes(in, program_.micro_batches());
  touch(in.workspace, workspace);
}

void Executor::poison(const Instruction& in, int64_t micro_batch) {
  if (!device_.executes()) return;
  for (const Instruction::Release& dead : in.releases) {
    if (dead.sent || (dead.last_iteration && micro_batch + 1 != program_.micro_batches())) continue;
    // NaN, or an index far out.
    stream().fill(at(dead.at, micro_batch), dead.bytes, 0xff);
  }
}

}  // namespace epl
