// The meaning of an op, prepared for operands of given types: its reference, its scalar expression, or its body as the
// meanings of other ops. It is slow and simple, but a run allocates nothing, so that a step may use it.
//
// Thread safety: a Meaning never changes; it may run on several threads, in a room for each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

class Meaning {
 public:
  // An absent operand is null. Fails where a body cannot be made.
  static Result<std::shared_ptr<const Meaning>> make(const OpDef& op, const Attributes& attributes,
                                                     const std::vector<const TensorType*>& inputs,
                                                     const std::vector<const TensorType*>& outputs, Units units);
  // Bytes of room that a run needs, aligned to 16.
  int64_t room_bytes() const { return room_bytes_; }
  // Whether output o is written at all: a body may omit one.
  bool writes(int output) const { return body_results_.empty() || body_results_[output]; }
  // Outputs may be null. `seed` and `elements` as in Reference.
  void run(const void* const* inputs, void* const* outputs, uint64_t seed, const LogicalElements& elements,
           void* room) const;

  Meaning(const Meaning&) = delete;
  Meaning& operator=(const Meaning&) = delete;

 private:
  Meaning(const OpDef& op, const Attributes& attributes, const std::vector<const TensorType*>& inputs,
          const std::vector<const TensorType*>& outputs, Units units);
  void prepare_elementwise();
  Status prepare_body();
  template <class T>
  void run_elementwise(Room& room, std::span<const TensorView> in, std::span<const TensorView> out) const;
  void run_body(Room& room, const void* const* inputs, void* const* outputs, uint64_t seed) const;

  const OpDef& op_;
  const Attributes attributes_;
  std::vector<TensorType> input_types_, output_types_;
  std::unique_ptr<const OpQuery> query_;
  Units units_;
  int64_t room_bytes_ = 0;

  // Of an elementwise op.
  ScalarExpr expression_;
  bool integral_ = false;       // computed in int64
  bool unsigned_ = false;       // computed in uint64
  std::vector<Shape> strides_;  // of each operand, along the output's dimensions

  // Of a body.
  struct Step {
    std::shared_ptr<const Meaning> meaning;
    std::string key;  // of its random numbers
    std::vector<Value> inputs, outputs;
  };
  Graph body_;
  std::vector<Step> steps_;
  std::vector<int> input_of_;     // of a leaf of the body: which operand, -1 for a constant
  std::vector<int64_t> offsets_;  // of a result of the body, in the room
  std::vector<Value> body_results_;
  int64_t values_bytes_ = 0;
  size_t max_operands_ = 0;
};

}  // namespace epl
