// Where the integers come from by which an op gathers or scatters: an input, as it is or with arithmetic on each of its
// elements, as in `table[ids - 1]` or `where(ids < 0, ids + rows, ids)`.
#pragma once

#include <vector>

#include "core/ir/graph.h"

namespace epl {

// What a model computes of each element of one input, by itself. Empty: the element as it is.
class ElementArithmetic {
 public:
  bool empty() const { return steps_.empty(); }
  // For elements of the input in their order: a batch, a slice of one, a sample. Empty where that cannot be told of so
  // many.
  Tensor of(const Tensor& elements) const;
  // It keeps the order of numbers or turns it round, so that what holds for the least and the largest holds for all.
  bool monotone() const;

 private:
  friend class IndexSources;
  struct Operand {
    int step = -1;    // -1: the input
    Tensor constant;  // of one element, or those of a sample, over and over
    bool is_constant() const { return !constant.empty(); }
  };
  struct Step {
    const OpDef* op = nullptr;
    Attributes attributes;
    std::vector<Operand> operands;
    bool monotone = false;  // in its only operand that is no constant
  };
  std::vector<Step> steps_;
};

struct IndexSource {
  int input = -1;             // in the order of the graph's inputs; -1: not one input's elements
  bool largest_only = false;  // the value holds the largest of some elements, so that a lower bound says nothing
  ElementArithmetic arithmetic;
};

class IndexSources {
 public:
  explicit IndexSources(const Graph& graph);
  IndexSource of(Value v) const;

 private:
  struct Found {
    int input = -1;
    int step = -1;           // of steps_; -1: the elements of the input
    std::vector<int> needs;  // steps, in their order
    bool in_order = true;    // all elements of the input stand where they stood
    bool largest_only = false;
    bool truth = false;
  };
  using Step = ElementArithmetic::Step;
  static constexpr size_t most_steps = 32;

  Found& found(Value v) { return found_[static_cast<size_t>(v.index)]; }
  const Found& found(Value v) const { return found_[static_cast<size_t>(v.index)]; }
  Found compute(const Node& node);
  Found arithmetic(const Node& node);
  Found move(const Node& node) const;
  bool add_operand(const Node& node, Value v, const TensorType& result, Step& step, Found& out) const;
  Tensor repeated(Value constant, const TensorType& result, int input) const;

  const Graph& graph_;
  std::vector<Value> inputs_;
  std::vector<Found> found_;  // by value
  std::vector<Step> steps_;
};

}  // namespace epl
