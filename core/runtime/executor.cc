#include "core/runtime/executor.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/program/memory.h"

namespace epl {

Result<std::unique_ptr<Executor>> Executor::create(const Host& host, Device& device, Stream& stream, const Program& program,
                                                   ParameterStore& store, Buffer& arena, int64_t rank) {
  EPL_CHECK(arena.bytes() >= program.arena_bytes, "an arena of ", arena.bytes(), " for ", program.arena_bytes);
  std::unique_ptr<Executor> executor(new Executor(host, device, stream, program, store, arena, rank));
  EPL_ASSIGN(executor->constants_, device.allocate(std::max<int64_t>(program.constant_bytes, 1)));
  EPL_ASSIGN(executor->scalars_, device.allocate(std::max<int64_t>(program.scalar_bytes, 1)));
  if (device.executes()) {
    for (size_t i = 0; i < program.constants.size(); ++i) {
      stream.upload(static_cast<std::byte*>(executor->constants_->data()) + program.constant_offsets[i],
                    program.constants[i].data(), program.constants[i].bytes());
    }
  }
  executor->operands_.resize(program.most_operands);
  executor->results_.resize(program.most_operands);
  EPL_TRY(stream.synchronize());
  return executor;
}

std::byte* Executor::at(const Location& location, int64_t micro_batch) {
  auto base = [&](Buffer& buffer) { return static_cast<std::byte*>(buffer.data()) + location.offset; };
  switch (location.space) {
    case Location::Space::none: return nullptr;
    case Location::Space::arena: return base(arena_);
    case Location::Space::state: return store_.data() + location.offset;
    case Location::Space::constant: return base(*constants_);
    case Location::Space::scalar: return base(*scalars_);
    case Location::Space::input: {
      auto* tensor = static_cast<std::byte*>(const_cast<void*>(request_->inputs[location.index]));
      return tensor + (rank_ * program_.micro_batches + micro_batch) * location.stride;
    }
  }
  return nullptr;
}

Status Executor::run(const RunRequest& request, Communicator* communicator) {
  EPL_CHECK(request.inputs.size() == program_.inputs.size() && request.outputs.size() == program_.outputs.size() &&
                request.scalars.size() == program_.scalars.size(),
            "a run of ", program_.name, " with the wrong number of tensors");
  EPL_CHECK(program_.ranks == 1 || communicator != nullptr, "several ranks need a communicator");
  request_ = &request;
  torn_ = false;
  context_ = {.seed = request.seed, .step = request.step, .units = program_.units};
  if (device_.executes()) {
    for (size_t i = 0; i < program_.scalars.size(); ++i) {
      stream_.upload(at(program_.scalars[i].second, 0), &request.scalars[i], sizeof(float));
    }
  }
  bool committed = false;
  if (request.diagnose) inspect_leaves();
  for (const Action& action : program_.schedule) {
    auto block = std::ranges::find(program_.blocks, action.block, &Block::kind);
    context_.first_unit = (rank_ * program_.micro_batches + action.micro_batch) * program_.units;
    for (int i = block->first; i < block->last; ++i) {
      if (!committed) EPL_TRY(check_stop());
      if (i == program_.commit_begin && request.diagnose) return stream_.synchronize();
      if (i == program_.commit_begin) {
        EPL_TRY(before_commit(communicator));
        committed = torn_ = true;
      }
      const Instruction& in = program_.instructions[i];
      if (Status status = execute(in, action.micro_batch, communicator); !status.ok()) return status.at(in.name);
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
  if (request_->stop && request_->stop->cancelled()) return Status(Code::cancelled, "the call was cancelled");
  if (request_->deadline_seconds > 0 && host_.seconds() > request_->deadline_seconds) {
    return Status(Code::deadline_exceeded, "the deadline of the call has passed");
  }
  return {};
}

// Whether to change the state is agreed by all ranks: the loss is the same on each, a stop may not be.
Status Executor::before_commit(Communicator* communicator) {
  EPL_TRY(stream_.synchronize());
  Status status = check_stop();
  if (status.ok() && device_.executes()) status = check_finite();
  if (program_.ranks == 1) return status;
  float failed = status.ok() ? 0.0f : 1.0f;
  EPL_TRY(communicator->all_reduce(stream_, &failed, &failed, 1, DType::f32, Reduction::max));
  EPL_TRY(stream_.synchronize());
  if (status.ok() && failed != 0) return Status(Code::peer_failed, "another rank refused the step");
  return status;
}

Status Executor::check_finite() {
  alignas(8) std::byte element[8];
  if (request_->finite_output >= 0) {
    const ProgramPort& port = program_.outputs[request_->finite_output];
    stream_.download(element, at(port.location, 0), static_cast<int64_t>(dtype_bytes(port.local_type.dtype)));
    EPL_TRY(stream_.synchronize());
    const double value = load_double(port.local_type.dtype, element, 0);
    if (!std::isfinite(value)) return Status(Code::not_finite, cat(port.name, " is ", number_text(value), "; the step was not applied"), port.name);
  }
  if (request_->gradient_output >= 0) {
    const ProgramPort& port = program_.outputs[request_->gradient_output];
    stream_.download(element, at(port.location, 0), sizeof(int64_t));
    EPL_TRY(stream_.synchronize());
    const int64_t first = load_int(DType::i64, element, 0);
    if (first >= 0) {
      const std::string& name = request_->trained[static_cast<size_t>(first)];
      return Status(Code::not_finite, cat("the gradient of ", name, " is not finite, though the loss is; the step was not applied"), name);
    }
  }
  return {};
}

Status Executor::execute(const Instruction& in, int64_t micro_batch, Communicator* communicator) {
  switch (in.kind) {
    case Instruction::Kind::launch:
      launch(in, micro_batch);
      return {};
    case Instruction::Kind::accumulate:
      accumulate(in, micro_batch);
      return {};
    case Instruction::Kind::slice: {
      int64_t piece = rank_ * program_.micro_batches + micro_batch;
      const std::byte* source = at(in.inputs[0], 0) + piece * in.slice.run_bytes;
      std::byte* target = at(in.outputs[0], 0);
      for (int64_t i = 0; i < in.slice.outer; ++i) {
        stream_.copy(target + i * in.slice.run_bytes, source + i * in.slice.global_bytes, in.slice.run_bytes);
      }
      return {};
    }
    case Instruction::Kind::all_reduce: {
      const TensorType& type = in.query->in(0);
      return communicator->all_reduce(stream_, at(in.inputs[0], micro_batch), at(in.outputs[0], micro_batch), type.elements(),
                                      type.dtype, Reduction::sum);
    }
    case Instruction::Kind::copy:
      stream_.copy(at(in.outputs[0], micro_batch), at(in.inputs[0], micro_batch), in.bytes);
      return {};
    case Instruction::Kind::emit:
      emit(in, micro_batch);
      return {};
  }
  return {};
}

void Executor::launch(const Instruction& in, int64_t micro_batch) {
  for (size_t i = 0; i < in.inputs.size(); ++i) operands_[i] = at(in.inputs[i], micro_batch);
  for (size_t i = 0; i < in.outputs.size(); ++i) results_[i] = at(in.outputs[i], micro_batch);
  stream_.launch(*in.row, *in.query, in.prepared.get(), operands_.data(), results_.data(), at(in.workspace, micro_batch), context_);
}

// The binary tree over micro-batches as a binary counter: level b waits for its right half while bit b is clear.
void Executor::accumulate(const Instruction& in, int64_t micro_batch) {
  int64_t level_bytes = (in.bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
  std::byte* levels = at(in.workspace, 0) + in.workspace_bytes;
  const std::byte* carry = at(in.inputs[0], micro_batch);
  int level = 0;
  for (; (micro_batch >> level) & 1; ++level) {
    std::byte* left = levels + level * level_bytes;
    operands_[0] = left;
    operands_[1] = carry;
    results_[0] = left;
    stream_.launch(*in.row, *in.query, in.prepared.get(), operands_.data(), results_.data(), at(in.workspace, 0), context_);
    carry = left;
  }
  bool last = micro_batch + 1 == program_.micro_batches;
  stream_.copy(last ? at(in.outputs[0], 0) : levels + level * level_bytes, carry, in.bytes);
}

void Executor::emit(const Instruction& in, int64_t micro_batch) {
  void* target = request_->outputs[in.port];
  const ProgramPort& port = program_.outputs[in.port];
  if (!target || !device_.executes() || (port.dim < 0 && rank_ != 0)) return;
  const std::byte* source = at(in.inputs[0], micro_batch);
  if (port.dim < 0) {
    stream_.download(target, source, in.bytes);
    return;
  }
  int64_t run = static_cast<int64_t>(dtype_bytes(port.local_type.dtype)), outer = 1;
  for (int d = port.dim; d < port.local_type.ndim(); ++d) run *= port.local_type.shape[d];
  for (int d = 0; d < port.dim; ++d) outer *= port.local_type.shape[d];
  run /= port.outer;
  outer *= port.outer;
  int64_t pieces = program_.ranks * program_.micro_batches, piece = rank_ * program_.micro_batches + micro_batch;
  for (int64_t i = 0; i < outer; ++i) {
    stream_.download(static_cast<std::byte*>(target) + (i * pieces + piece) * run, source + i * run, run);
  }
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
  if (in.kind == Instruction::Kind::accumulate) {
    int levels = 0;
    while ((int64_t{1} << levels) < program_.micro_batches) ++levels;
    workspace += levels * ((in.bytes + memory_alignment - 1) / memory_alignment * memory_alignment);
  }
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
