// Ops that the host process brings, for operators of its own in a model's file. Each becomes an ordinary record, and
// one more for its gradient, so that planning, memory, cutting and execution know nothing of hosts. An engine has its
// own table of them; graphs point into it, so it outlives all that was made from the engine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// An operand in the host's memory; of an absent one both are null.
struct HostTensor {
  const TensorType* type = nullptr;
  void* data = nullptr;
  int64_t bytes() const { return type->bytes(); }
};

// What the host says of an op, and its functions. They may be called by several threads at once.
// `attributes` is a JSON object.
struct HostOp {
  std::string domain, type;  // as in a model's file
  int outputs = 1;
  std::string sharding;  // short form of core/ir/sharding_rule.h; empty: nothing may be cut
  // Types of the outputs, of full tensors and of shards of them.
  std::function<Result<OutputTypes>(const std::string& attributes, std::span<const TensorType* const> inputs)> infer;
  std::function<Status(const std::string& attributes, std::span<const HostTensor> inputs,
                       std::span<const HostTensor> outputs)>
      run;
  // Of the inputs that want one: `upstream` is absent where nothing flows back, `gradients` where none is wanted.
  // Absent: the op has no gradient.
  std::function<Status(const std::string& attributes, std::span<const HostTensor> inputs,
                       std::span<const HostTensor> outputs, std::span<const HostTensor> upstream,
                       std::span<const HostTensor> gradients)>
      gradient;
};

// A function of the host has failed while a graph runs: the executor ends the step with this status.
struct HostFailure {
  Status status;
};

// Whether a record is that of such an op or of its gradient.
bool is_host_op(const OpDef& op);
// A node of such an op, as Builder::emit_all writes nodes; `source` is Node::source.
std::vector<Var> emit_host_op(Builder& b, const OpDef& op, const std::vector<Var>& inputs, Attributes attributes,
                              std::string source = {});

struct HostRecords;

// Thread safety: any threads at once. What was added stays.
class HostOps {
 public:
  Status add(HostOp op);
  // Null where there is none.
  const OpDef* find(std::string_view domain, std::string_view type) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const HostRecords>> ops_;
};

}  // namespace epl
