// Nodes that hold graphs: If, Loop, Scan and SequenceMap. They exist at import alone. A loop is unrolled: each
// iteration is the nodes of its body once more, over the same weights. An If is the branch that it takes.
//
// Where only data knows whether a branch is taken, or whether a loop goes on, the nodes are computed in any case, and
// their results selected. What such nodes take from outside goes through a selection too. So a gradient that is not
// finite where the nodes do not count stays among them: it is selected away and never multiplied by zero.
#pragma once

#include "frontends/onnx/importer.h"

namespace epl::onnx {

inline constexpr int64_t usual_max_trip_count = 1024;  // of a loop, where Binding::max_trip_counts says nothing

bool is_control_flow(const Node& node);

// The number that a slot holds, where it is known now.
inline std::optional<int64_t> known_number(const Slot& slot) {
  if (slot.constant.empty() || slot.constant.elements() != 1) return std::nullopt;
  return slot.constant.get_int(0);
}

class ControlFlow {
 public:
  using Scope = Importer::Scope;
  ControlFlow(Importer& importer, const Node& node, Scope& scope)
      : importer_(importer), node_(node), scope_(scope), name_(importer.node_name(node, scope)) {}
  Status run();

  // A value as it enters nodes that count only where `taken` holds.
  static Slot guarded(Builder& b, const Slot& slot, const Var& taken);

 private:
  using Slots = std::vector<Slot>;
  using Updates = std::vector<epl::Graph::Update>;
  // How long a loop runs.
  struct Trips {
    std::optional<int64_t> count;  // where it is known
    Var data;                      // else, where data says it
    int64_t bound = usual_max_trip_count;
    bool bound_given = false;
  };
  struct State {
    Var active;  // whether data lets the loop go on; empty where it does in any case
    Slots carried;
    std::vector<Slots> rows;  // of each scan output
  };

  Status run_if();
  Status run_loop();
  Status run_scan();
  Status run_batched_scan();  // of opset 8
  Status map_sequence();

  Result<Slots> both_branches(const Slot& condition);
  Status go_on(const epl::onnx::Graph& body, const Trips& trips, State& state);
  Result<bool> ends(const Trips& trips, int64_t i, State& state);
  Status take_over(Slots results, State& state);
  Result<Trips> trips_of(const Slot* count);
  // The states and scan outputs of a scan over these.
  struct Scanned {
    Slots states, rows;
  };
  Result<Scanned> scan(const epl::onnx::Graph& body, Slots states, const Slots& inputs, const Ints& input_axes,
                       const Ints& input_directions, const Ints& output_axes, const Ints& output_directions,
                       int64_t length, const std::string& prefix);

  const epl::onnx::Graph* graph(std::string_view name) const;
  Ints ints(std::string_view name, size_t count) const;
  // Input k: null where it is left out.
  Result<Slot*> operand(size_t k);
  Result<Slots> operands(size_t from, size_t to);
  Result<Slots> run_body(const epl::onnx::Graph& body, const Slots& inputs, const std::string& prefix,
                         const Var& taken);
  void set(size_t k, Slot slot);

  Result<Slot> emitted(int first_node, Slot slot);
  Result<Slot> part(const Slot& slot, int64_t axis, int64_t index);
  Result<Slot> stack(const Slots& rows, int64_t axis, std::string_view output);
  Result<Slot> empty_stack(const epl::onnx::Graph& body, size_t output);
  Result<Slot> selected(const Var& condition, const Slot& yes, const Slot& no, const std::string& what);
  Updates selected(const Var& condition, const Updates& yes, const Updates& no);
  Var scalar(const Slot& slot);
  std::string depends_on(const Var& v) const;
  Status unsupported_here(const std::string& what) const;

  Importer& importer_;
  const Node& node_;
  Scope& scope_;
  std::string name_;
};

}  // namespace epl::onnx
