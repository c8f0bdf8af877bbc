// How a step ends on a device that decides by itself whether the step is applied: the host gives all commands and waits
// once, and then it asks what the device has decided.
#include "core/program/transfer.h"
#include "core/runtime/executor.h"

namespace epl {

// An address of the device.
Decision* Executor::decision_on_device() {
  return reinterpret_cast<Decision*>(static_cast<std::byte*>(scalars_->data()) + program_.decided_at);
}

void Executor::guard(const int64_t* verdict) {
  for (Stream* stream : streams_) stream->guard(verdict);
}

// A rank that is to stop says so in place of its verdict. Ranks with peers give all of their commands nevertheless: the
// peers wait for them.
Status Executor::decide(const Instruction& in, Communicator* world) {
  stop_wish_ = check_stop();
  if (!stop_wish_.ok() && world == nullptr) return stop_wish_;
  Decision* const there = decision_on_device();
  const ProgramPort* port = request_->applies ? nullptr : output_port(request_->verdict_output);
  const bool looks = port != nullptr && stop_wish_.ok();
  if (!stop_wish_.ok()) stream().upload(&there->wish, &Decision::stopped, sizeof(int64_t));
  EPL_TRY(in.transfer->run({.program = program_,
                            .in = in,
                            .stream = stream(),
                            .context = context_,
                            .group = world,
                            .micro_batch = 0,
                            .coordinates = coordinates_,
                            .shard = 0,
                            .source = looks ? at(port->location, 0) : reinterpret_cast<const std::byte*>(&there->wish),
                            .target = reinterpret_cast<std::byte*>(&there->verdict),
                            .sources = {},
                            .targets = {},
                            .calls = calls_,
                            .workspace = nullptr,
                            .output = nullptr}));
  agreement_ = Agreement::reached;  // until somebody knows better
  guard(&there->verdict);
  return {};
}

// Of a rank that changes nothing.
Status Executor::decide_at_end(Communicator* world) {
  EPL_TRY(synchronize());
  Instruction last;
  last.transfer = &transfer_named("decide");
  return decide(last, world);
}

// By the stream that decides, alone: others may wait for peers, who wait to be told that this rank has failed.
Status Executor::read_decision() {
  decided_ = device_.executes() ? Decision::undecided : Decision::applied;
  stream().download(&decided_, &decision_on_device()->verdict, sizeof decided_);
  return stream().synchronize();
}

// `issued`: how giving the commands went.
Status Executor::end_decided(bool alone, Status issued) {
  guard(nullptr);
  // Commands that could not be given say nothing about the decision: a peer may have left before it or behind it.
  Status status = read_decision();
  // The number is there although something has failed, before it or behind it.
  if (!status.ok() && !read_decision().ok()) return issued.ok() ? status : issued;
  if (!issued.ok()) status = std::move(issued);
  if (status.ok()) status = synchronize();
  agreement_ = decided_ < 0 ? Agreement::reached : Agreement::none;
  if (!status.ok()) {
    if (decided_ == Decision::undecided && !alone) agreement_ = Agreement::asked;
    return status;
  }
  verdict_ = decided_;
  EPL_TRY(stop_wish_);
  return verdict_ == Decision::stopped ? Status(Code::peer_failed, "another rank refused the step") : Status();
}

}  // namespace epl
