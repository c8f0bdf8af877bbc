// A kernel is a row of a backend's table: which op and types it serves, what it answers about one node (`prepare`), and
// how it is launched. The rows of an op stand best first. The first that accepts is used; references come last.
//
//   EPL_KERNELS(cpu, softmax) {
//     table.add({.op = "softmax", .name = "softmax_rows", .dtypes = {DType::f32},
//                .prepare = [](const KernelQuery& q) -> Result<Prepared> {
//                  EPL_TRY(require(q.axis("axis") == q.in(0).ndim() - 1, "axis is not the last"));
//                  return Prepared{.workspace_bytes = 4 * q.in(0).elements(), .aliases = {{.input = 0, .output = 0}}};
//                },
//                .launch = softmax_rows});
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/status.h"
#include "core/base/table.h"
#include "core/base/units.h"

namespace epl {

class Device;
class Stream;
class ThreadPool;

// Which bits a kernel may give (`reproducible.level`), the strictest first: those of every kind of device; those that
// follow from a unit of the batch alone, on one kind of device with one version of its libraries; those that are equal
// from run to run.
enum class BitsLevel : uint8_t { exact, data, run };

// What a kernel is asked: one node with local shapes. An absent operand has no type. Lives as long as the program.
struct KernelQuery {
  std::string op;
  std::string node;  // for messages
  std::string key;   // of its random numbers, besides the seed and the step
  Attributes attributes;
  std::vector<TensorType> input_types, output_types;
  std::vector<bool> input_present, output_present;
  Units units;                    // sums over the batch run over these, then by the binary tree
  bool splits_keep_bits = false;  // no bit may depend on how a split has cut any dimension
  BitsLevel level = BitsLevel::exact;
  double flops = 0, bytes = 0;  // for cost models
  int threads = 1;              // the pool the kernel will run on; workspace may depend on it
  Device* device = nullptr;     // that it is prepared for; null where a table is asked without one

  bool has(int i) const { return i < static_cast<int>(input_present.size()) && input_present[i]; }
  bool has_output(int i) const { return i < static_cast<int>(output_present.size()) && output_present[i]; }
  const TensorType& in(int i) const { return input_types[i]; }
  const TensorType& out(int i) const { return output_types[i]; }
  int inputs() const { return static_cast<int>(input_types.size()); }
  int outputs() const { return static_cast<int>(output_types.size()); }
  // An `axis` attribute made non-negative for the first input.
  int axis(std::string_view name) const;
};

// What a row answers about a node that it serves; made once, with the program.
struct Prepared {
  // Output `output` may be written over input `input`: the same bytes, each read before it is written.
  struct Alias {
    int input, output;
  };
  std::shared_ptr<const void> state;  // what its launches read
  int64_t workspace_bytes = 0;
  std::vector<Alias> aliases;

  bool may_alias(int input, int output) const;
};
// Every output over every input, or over those of its type.
std::vector<Prepared::Alias> every_alias(const KernelQuery& query);
std::vector<Prepared::Alias> equal_aliases(const KernelQuery& query);
// What a row says of a node that it does not serve.
Status require(bool condition, std::string_view reason);

// What the random numbers of a step follow from, besides the node's name and the element.
struct StepNumbers {
  uint64_t seed = 0;
  int64_t step = 0;
};

// Where a step stands; shared by all launches of one block call.
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;
  // Where these two lie on the device: a launch that is recorded, and given again in a later step, reads them there.
  // Null: nowhere.
  const StepNumbers* on_device = nullptr;
  // The current share of the global batch: `runs` runs of `units` units, the first of which begins at `first_unit`,
  // and each next one `run_stride` units behind it.
  int64_t first_unit = 0, units = 1, runs = 1, run_stride = 0;
  // Of a kernel that runs on the host's own processor.
  StepNumbers numbers() const { return on_device ? *on_device : StepNumbers{seed, step}; }
};

// Calls f(first, begin, end) for each run of the elements [0, n) of a value whose dimension 0 is the batch: those from
// `begin` on are those from `first` on of the global value.
template <class F> void for_each_run(const StepContext& context, int64_t n, const F& f) {
  const int64_t elements = n / context.runs, unit = elements / (context.units > 0 ? context.units : 1);
  for (int64_t run = 0; run < context.runs; ++run) {
    const int64_t begin = run * elements;
    f((context.first_unit + run * context.run_stride) * unit, begin, run + 1 == context.runs ? n : begin + elements);
  }
}

struct KernelCall {
  const KernelQuery& query;
  const void* state;          // of Prepared, or null
  const void* const* inputs;  // null for an absent operand
  void* const* outputs;       // null for an unused output
  void* workspace;            // 64-byte aligned, of the size the row asked for
  Stream& stream;             // that it is launched on
  const StepContext& context;
  ThreadPool& threads() const;  // of a host stream
  const Attributes& attributes() const { return query.attributes; }
  template <class T> const T* in(int i) const { return static_cast<const T*>(inputs[i]); }
  template <class T> T* out(int i) const { return static_cast<T*>(outputs[i]); }
};

// What a kernel is compiled from by its device, and how it is launched there.
struct KernelText {
  std::string entry, source;
  std::string options;  // of the compiler, a line each
  int64_t threads = 0, shared_bytes = 0;
};

struct KernelRow {
  std::string op;
  std::string name;
  std::vector<DType> dtypes;  // of the first input (or output if there is none); empty: any
  // Once for every node, when a program is made. An error is why this row does not serve the node. Absent: it serves
  // what has the dtype, and needs nothing.
  std::function<Result<Prepared>(const KernelQuery&)> prepare;
  std::function<void(const KernelCall&)> launch;  // must not allocate
  // Of what was prepared for a device that need not be there. Absent: nothing is compiled.
  std::function<std::vector<KernelText>(const void* state)> texts = nullptr;
};

// What `row` answers, its dtypes included.
Result<Prepared> prepare(const KernelRow& row, const KernelQuery& query);

struct Refusal {
  std::string kernel, reason;
};

struct ChosenKernel {
  const KernelRow* row = nullptr;
  Prepared prepared;
};

class KernelTable {
 public:
  void add(KernelRow row);
  void add(const KernelTable& table);  // appends its rows
  const std::vector<KernelRow>& rows(std::string_view op) const;
  bool has(std::string_view op) const { return !rows(op).empty(); }
  // Whether some row takes `op` of a first operand of this type; it may still refuse for other reasons.
  bool takes(std::string_view op, DType dtype) const;
  // The first row that accepts, or none. The refusals before it (all refusals if none accepts) are appended to
  // `refusals`.
  ChosenKernel choose(const KernelQuery& query, std::vector<Refusal>* refusals = nullptr) const;

 private:
  std::unordered_map<std::string, std::vector<KernelRow>> rows_;
};

#define EPL_KERNELS(backend, row_name)                                    \
  EPL_ROW_AS(EPL_KERNELS, backend##_##row_name, ::epl::KernelTable, void, \
             ([[maybe_unused]] ::epl::KernelTable & table), EPL_KERNELS_make_##backend##_##row_name(table))

}  // namespace epl
