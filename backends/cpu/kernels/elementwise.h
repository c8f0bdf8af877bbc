// The elementwise engine: a scalar expression over broadcast tensors, evaluated tile by tile.
//
// `prepare` turns the expression into steps over values: each step is one loop (tile_loops.h) over a tile of a few
// hundred elements, whose intermediate results stay in the first-level cache. Operands of the output's shape are read
// where they are, results are written where they belong; broadcast operands are gathered, and what is one element for
// all of the tensor is computed once per launch. Element types: all but u64. Reals are computed in float64 if any value
// of the region is float64, else in float32; f16 and bf16 are loaded as float32 and rounded when they are stored.
// Integers are computed in int64. Thread safety: a PreparedElementwise never changes after `make`; launches may run
// together, each with its own workspace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/kernels/tile_loops.h"
#include "core/backend/kernel.h"
#include "core/ir/scalar.h"

namespace epl::cpu {

class PreparedElementwise {
 public:
  static constexpr size_t max_results = 64;
  // What tiles begin with: rows of broadcast operands, or multiples of a power of two from where a range begins.
  enum class Tiles : uint8_t { of_rows, of_powers };

  // Null, with the reason, where the expression or a type is not served.
  static std::unique_ptr<const PreparedElementwise> make(const ScalarExpr& expression,
                                                         const std::vector<TensorType>& inputs,
                                                         const std::vector<TensorType>& outputs, std::string* reason,
                                                         Tiles tiles = Tiles::of_rows);
  int64_t workspace_bytes(int threads) const;
  void launch(const KernelCall& call) const;
  class Run;  // elementwise_run.h: one thread's work, for rows that use results as they are made
  // Whether some output is an input as it is: then another output may not be written over that input.
  bool passes_inputs_through() const;

  // How an input's elements lie along the output's row-major order: dimensions merged, outermost first.
  struct Layout {
    bool full = false;                    // element e of the output reads element e
    std::vector<int64_t> sizes, strides;  // the innermost stride is 0 or 1
  };

 private:
  friend class PlanBuilder;
  enum class Kind : uint8_t { real, integer, pair, convert, load };
  struct Step {
    Kind kind;
    int row;                          // of the table of loops
    int arguments[3] = {-1, -1, -1};  // values; for a load, the input
    int result;
  };
  struct Value {
    ElementClass type = ElementClass::real32;
    bool truth = false;    // a real that is 0 or 1
    bool uniform = false;  // one element for all of the tensor
    bool constant = false;
    double number = 0;                // of a constant
    int slot = -1;                    // of the thread's scratch; none for uniform values
    int defined = -1, last_use = -1;  // steps
    int output = -1;                  // the output this value may be computed into
  };
  struct Input {
    Layout layout;
    int bytes = 0;          // of an element
    bool in_place = false;  // memory holds what the loops read
    int last_use = -1;      // step that last reads it
  };
  struct Output {
    int value;
    int bytes;
    int row;               // of the loop that stores it
    bool streams = false;  // it is large, and memory holds what loops write
  };
  int64_t thread_bytes() const;  // of the workspace

  std::vector<Value> values_;
  std::vector<Step> uniform_steps_, steps_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  int64_t elements_ = 0;
  int64_t tile_ = 512;
  int slots_ = 0;
  int element_bytes_ = 4;  // of a scratch element
};

}  // namespace epl::cpu
