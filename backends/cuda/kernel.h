// What a kernel of this pack is: data. A row makes, for one node, texts of CUDA C++ with how each is launched, and
// calls of libraries. The pack compiles the texts (compiler.h), keeps them by their text, prepares the calls
// (library_call.h), and issues all of them in their order on one stream. Nothing here needs a GPU.
//
// A text is compiled with --fmad=false, as C++20, all of it for the device, and without headers. Each of its functions
// that are launched is `extern "C" __global__`, with one parameter of eight bytes for each argument: pointers and
// `long long`.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/base/tensor_type.h"
#include "core/base/units.h"

namespace epl::cuda {

// An operand: dense, row-major, local. An absent one has no type.
struct Operand {
  bool present = false;
  TensorType type{};
  const Shape& dims() const { return type.shape; }
  int64_t dim(int i) const { return type.dim(i); }
  int ndim() const { return type.ndim(); }
  int64_t elements() const { return type.elements(); }
};

struct Attribute {
  enum class Kind : uint8_t { flag, integer, number, text, dtype, integers, numbers, tensor };
  std::string name;
  Kind kind = Kind::flag;
  std::vector<int64_t> integers{};  // of flag, integer, integers; the DType of dtype
  std::vector<double> numbers{};    // of number, numbers; the elements of a tensor of floats
  std::string text{};
  TensorType type{};  // of a tensor; its elements are in `numbers`, or in `integers` where it has no floats
};

// One operation of an elementwise body; core/ir/scalar_ops.inc says what each means. "input": a is the operand's
// number. "constant": value. "cast": of a to `type`. All others take earlier operations a, b, c.
struct Scalar {
  std::string op;
  int a = -1, b = -1, c = -1;
  double value = 0;
  DType type = DType::f32;
};

// The attribute "expression" of a node, taken apart.
struct Body {
  std::vector<Scalar> code;
  std::vector<int> outputs;  // operations
};
Result<Body> parse_body(std::string_view expression);

// Which bits a kernel may give: the CPU's; those that follow from a unit of the batch alone, on one kind of GPU with
// one version of its libraries; those that are equal from run to run.
enum class Bits : uint8_t { exact, data, run };

// What a row is asked: one node with local shapes.
struct Query {
  std::string op, node, key;  // the node's name, and what its random numbers follow from
  std::vector<Operand> inputs, outputs;
  std::vector<Attribute> attributes;
  Units units{};                  // sums over the batch run over these, then by the binary tree
  bool splits_keep_bits = false;  // no bit may depend on how a split has cut any dimension
  Bits bits = Bits::exact;
  int capability = 0;  // of the GPU: 90 is 9.0
  int processors = 1;  // its multiprocessors

  bool has(int i) const { return i < static_cast<int>(inputs.size()) && inputs[static_cast<size_t>(i)].present; }
  bool has_output(int i) const {
    return i < static_cast<int>(outputs.size()) && outputs[static_cast<size_t>(i)].present;
  }
  const TensorType& in(int i) const { return inputs[static_cast<size_t>(i)].type; }
  const TensorType& out(int i) const { return outputs[static_cast<size_t>(i)].type; }

  // Null where there is none. The others are for what must be there, as the op's record says: a mistake is a bug of
  // ours.
  const Attribute* find(std::string_view name) const;
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  // An `axis` attribute made non-negative for the first input.
  int axis(std::string_view name) const;
};

// Where a step stands, as kernels read it: argument `step` points to one of these in device memory.
//   const long long* step: step[0] seed, [1] step, [2] first_unit, [3] units, [4] runs, [5] run_stride
struct StepBlock {
  uint64_t seed = 0;
  int64_t step = 0, first_unit = 0, units = 1, runs = 1, run_stride = 0;
  friend bool operator==(const StepBlock&, const StepBlock&) = default;
};

struct Argument {
  enum class Kind : uint8_t { input, output, workspace, step, number, null };
  Kind kind = Kind::null;
  int64_t value = 0;  // which operand; an offset into the workspace, of which 0 is aligned to 64 bytes; the number
};
// An absent operand becomes a null pointer.
constexpr Argument input(int64_t i) { return {Argument::Kind::input, i}; }
constexpr Argument output(int64_t i) { return {Argument::Kind::output, i}; }
constexpr Argument workspace(int64_t offset) { return {Argument::Kind::workspace, offset}; }
constexpr Argument step_block() { return {Argument::Kind::step, 0}; }
constexpr Argument number(int64_t value) { return {Argument::Kind::number, value}; }

inline constexpr size_t max_arguments = 480;  // of a launch

// A product by cuBLASLt, or a batch of them: D = op(A) op(B), and a bias for each row of D. Matrices are column-major;
// what is row-major here is transposed there. D and the bias are float32, in which everything is summed. Arguments: A,
// B, D, bias (or null).
struct BlasCall {
  struct Matrix {
    int64_t rows = 0, columns = 0, leading = 0;  // as they lie in memory
    int64_t stride = 0;                          // from one product of the batch to the next
    int64_t first = 0;                           // elements in front of it
  };
  Matrix a, b, d;
  DType type = DType::f32;  // of A and B: float32, f16 or bf16
  bool transpose_a = false, transpose_b = false, has_bias = false;
  int64_t batch = 1;
  // The algorithm is that for a D of these sizes in so many products, so that it does not follow from what one call has
  // of the batch. 0: for those of the call.
  int64_t typical_rows = 0, typical_columns = 0, typical_batch = 0;
  bool splits_sums = false;          // parts of one sum may be computed apart and then added
  int64_t most_workspace_bytes = 0;  // that are kept free for it, whatever the algorithm needs
};
// A convolution by cuDNN, or one of its gradients. Tensors are dense and row-major: [batch, channels, sizes...], and
// the weights [channels, channels of a group, taps...]. The result is float32, in which everything is summed.
// Arguments: x, w, y, of which one is the result.
struct DnnCall {
  enum class What : uint8_t { forward, grad_input, grad_weight };
  What what = What::forward;
  DType type = DType::f32;  // of the operands: float32, f16 or bf16
  Shape x, w, y;
  std::vector<int64_t> strides, dilations, pads_before, pads_behind;  // of each size
  int64_t most_workspace_bytes = 0;
};
// A call of a library that stands among launches: whoever prepares the kernel asks the library what it needs, which is
// then part of the workspace. Calls of other libraries become kinds of their own here.
using LibraryCall = std::variant<std::monostate, BlasCall, DnnCall>;

struct Launch {
  std::string source;                                     // of equal texts one is compiled
  std::string entry;                                      // its `extern "C" __global__` function
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};  // a launch with a 0 in `grid` is left out
  unsigned shared_bytes = 0;                              // of `extern __shared__`
  std::vector<Argument> arguments;
  LibraryCall call{};  // instead of a text
};

struct Kernel {
  // Output `output` may be written over input `input`: the same bytes, each read before it is written.
  struct Alias {
    int input, output;
  };
  std::vector<Launch> launches;  // one after another
  int64_t workspace_bytes = 0;
  std::vector<Alias> aliases;
};
// Every output over every input of its type.
std::vector<Kernel::Alias> equal_aliases(const Query& query);

// Why a row does not serve a node.
inline Status require(bool condition, std::string_view reason) { return condition ? Status() : unsupported(reason); }

// A row. Those of an op stand best first; `dtypes` are of the first operand (of the first result where there is none),
// empty: any.
struct Row {
  const char* op;
  const char* name;
  std::span<const DType> dtypes;
  Result<Kernel> (*make)(const Query& query);
};

// The rows of a family: each file in backends/cuda/kernels defines one such function, which rows.cc lists.
using Rows = std::vector<Row>;

}  // namespace epl::cuda
