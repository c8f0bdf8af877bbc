#include "core/runtime/executor.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "core/base/stop_tasks.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

Code stop_reason(const Host& host, const RunRequest& request) {
  if (request.stop && request.stop->cancelled()) return Code::cancelled;
  return request.deadline_seconds > 0 && host.seconds() > request.deadline_seconds ? Code::deadline_exceeded : Code::ok;
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const Host& host, Device& device, Stream& stream,
                                                   const Program& program, ParameterStore& store, Buffer& arena,
                                                   int64_t rank) {
  EPL_CHECK(arena.bytes() >= program.arena_bytes, "an arena of ", arena.bytes(), " for ", program.arena_bytes);
  std::unique_ptr<Executor> executor(new Executor(host, device, stream, program, store, arena, rank));
  EPL_ASSIGN(executor->constants_, device.allocate(std::max<int64_t>(program.constant_bytes, 1)));
  if (program.ranks > 1) {
    EPL_ASSIGN(executor->wish_, device.allocate(sizeof(int64_t)));
  }
  EPL_ASSIGN(executor->scalars_, device.allocate(std::max<int64_t>(program.scalar_bytes, 1)));
  if (device.executes()) {
    for (size_t i = 0; i < program.constants.size(); ++i) {
      stream.upload(static_cast<std::byte*>(executor->constants_->data()) + program.constant_offsets[i],
                    program.constants[i].data(), program.constants[i].bytes());
    }
  }
  executor->operands_.resize(program.max_operands);
  executor->results_.resize(program.max_operands);
  EPL_TRY(stream.synchronize());
  return executor;
}

std::byte* Executor::at(const Location& location, int64_t micro_batch) {
  auto base = [&](Buffer& buffer) { return static_cast<std::byte*>(buffer.data()) + location.offset; };
  switch (location.space) {
    case Location::Space::none:
      return nullptr;
    case Location::Space::arena:
      return base(arena_);
    case Location::Space::state:
      return store_.data() + location.offset;
    case Location::Space::constant:
      return base(*constants_);
    case Location::Space::scalar:
      return base(*scalars_);
    case Location::Space::input: {
      auto* tensor = static_cast<std::byte*>(const_cast<void*>(request_->inputs[location.index]));
      return tensor + piece(micro_batch) * location.stride;
    }
  }
  return nullptr;
}

Status Executor::run(const RunRequest& request, const Groups& groups) {
  EPL_CHECK(request.inputs.size() == program_.inputs.size() && request.outputs.size() == program_.outputs.size() &&
                request.scalars.size() == program_.scalars.size(),
            "a run of ", program_.name, " with the wrong number of tensors");
  EPL_CHECK((program_.ranks == 1 || groups.world) && groups.of_program.size() == program_.groups.size(),
            "a rank without its groups");
  request_ = &request;
  torn_ = false;
  verdict_ = -1;
  context_ = {.seed = request.seed, .step = request.step, .units = program_.units};
  if (device_.executes()) {
    for (size_t i = 0; i < program_.scalars.size(); ++i) {
      stream_.upload(at(program_.scalars[i].second, 0), &request.scalars[i], sizeof(uint64_t));
    }
  }
  bool committed = false;
  // A stop or a deadline is looked at before each instruction and, on the host's own processor, before each piece of
  // its work.
  const auto wanted = [this] { return stop_reason(host_, *request_) != Code::ok; };
  std::optional<StopTasks> stop_tasks;
  if (request.stop != nullptr || request.deadline_seconds > 0) stop_tasks.emplace(stream_.threads(), wanted);
  if (request.diagnose) inspect_leaves();
  for (const Action& action : program_.schedule) {
    auto block = std::ranges::find(program_.blocks, action.block, &Block::kind);
    context_.first_unit = piece(action.micro_batch) * program_.units;
    for (int i = block->first; i < block->last; ++i) {
      if (!committed) EPL_TRY(check_stop());
      if (i == program_.commit_begin && request.diagnose) return stream_.synchronize();
      if (i == program_.commit_begin) {
        stop_tasks
            .reset();  // from here on the ranks agree about what happens, and a step that has begun to commit ends
        if (groups.world) groups.world->watch(nullptr);
        EPL_TRY(before_commit(groups.world));
        if (verdict_ >= 0) return {};
        committed = torn_ = true;
      }
      const Instruction& in = program_.instructions[i];
      if (!in.transfer) {
        launch(in, action.micro_batch);
      } else if (Status status = transfer(in, action.micro_batch, groups); !status.ok()) {
        return status.at(in.name);
      }
      // Results that are not whole are read by nobody: they may be indices. The reason may be gone, where a token was
      // cleared.
      if (stop_tasks && stop_tasks->left_out()) {
        EPL_TRY(check_stop());
        return Status(Code::cancelled, "the call was cancelled");
      }
      observe(in);
      if (request.diagnose) inspect(in, action.micro_batch);
#if defined(EPL_DEV)
      poison(in, action.micro_batch);
#endif
    }
  }
  EPL_TRY(stream_.synchronize());
  torn_ = false;
  return {};
}

Status Executor::check_stop() const {
  switch (stop_reason(host_, *request_)) {
    case Code::cancelled:
      return Status(Code::cancelled, "the call was cancelled");
    case Code::deadline_exceeded:
      return Status(Code::deadline_exceeded, "the deadline of the call has passed");
    default:
      return {};
  }
}

// Whether to change the state is a number of the graph, which stays where the data is: a rank that is to stop writes
// its wish over it, and all ranks take the largest.
Status Executor::before_commit(Communicator* world) {
  static constexpr int64_t may_change = -1, stopped = INT64_MAX;
  const Status stop = check_stop();
  const bool decided = request_->verdict_output >= 0;
  if (!decided && world == nullptr) return stop;
  std::byte* verdict = decided ? at(program_.outputs[static_cast<size_t>(request_->verdict_output)].location, 0)
                               : static_cast<std::byte*>(wish_->data());
  if (device_.executes() && (!stop.ok() || !decided))
    stream_.upload(verdict, stop.ok() ? &may_change : &stopped, sizeof(int64_t));
  if (world != nullptr) {
    EPL_TRY(world->run(stream_, {.kind = Collective::Kind::all_reduce,
                                 .dtype = DType::i64,
                                 .count = 1,
                                 .source = verdict,
                                 .target = verdict,
                                 .reduction = Reduction::max}));
  }
  if (device_.executes()) stream_.download(&verdict_, verdict, sizeof verdict_);
  EPL_TRY(stream_.synchronize());
  EPL_TRY(stop);
  return verdict_ == stopped ? Status(Code::peer_failed, "another rank refused the step") : Status();
}

void Executor::launch(const Instruction& in, int64_t micro_batch) {
  for (size_t i = 0; i < in.inputs.size(); ++i) operands_[i] = at(in.inputs[i], micro_batch);
  for (size_t i = 0; i < in.outputs.size(); ++i) results_[i] = at(in.outputs[i], micro_batch);
  stream_.launch(*in.row, *in.query, in.prepared.state.get(), operands_.data(), results_.data(),
                 at(in.workspace, micro_batch), context_);
}

Status Executor::transfer(const Instruction& in, int64_t micro_batch, const Groups& groups) {
  const bool emits = in.port >= 0;
  // A port that is not cut is the same on every rank: the first of a process gives it.
  const bool gives =
      emits && device_.executes() && (program_.outputs[static_cast<size_t>(in.port)].dim >= 0 || gives_common_);
  return in.transfer->run({.program = program_,
                           .in = in,
                           .stream = stream_,
                           .context = context_,
                           .group = in.group < 0 ? nullptr : groups.of_program[static_cast<size_t>(in.group)],
                           .micro_batch = micro_batch,
                           .piece = piece(micro_batch),
                           .source = at(in.inputs[0], in.transfer->whole_source ? 0 : micro_batch),
                           .target = in.outputs.empty() ? nullptr : at(in.outputs[0], micro_batch),
                           .workspace = at(in.workspace, 0),
                           .output = gives ? request_->outputs[static_cast<size_t>(in.port)] : nullptr});
}

void Executor::observe(const Instruction& in) {
  auto touch = [&](const Location& location, int64_t bytes) {
    if (location.space == Location::Space::arena) high_water_ = std::max(high_water_, location.offset + bytes);
  };
  for (size_t i = 0; i < in.inputs.size(); ++i) {
    if (in.query->has(static_cast<int>(i))) touch(in.inputs[i], in.query->in(static_cast<int>(i)).bytes());
  }
  for (size_t i = 0; i < in.outputs.size(); ++i) touch(in.outputs[i], in.query->out(static_cast<int>(i)).bytes());
  int64_t workspace = in.workspace_bytes;
  if (in.transfer && in.transfer->held_bytes) workspace += in.transfer->held_bytes(in, program_.micro_batches);
  touch(in.workspace, workspace);
}

void Executor::poison(const Instruction& in, int64_t micro_batch) {
  if (!device_.executes()) return;
  for (const Instruction::Release& dead : in.releases) {
    if (dead.last_turn && micro_batch + 1 != program_.micro_batches) continue;
    stream_.fill(static_cast<std::byte*>(arena_.data()) + dead.offset, dead.bytes, 0xff);  // NaN, or an index far out
  }
}

}  // namespace epl
