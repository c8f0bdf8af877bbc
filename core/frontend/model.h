// A model file, before its symbolic dimensions are bound. Frontends implement this interface; the engine sees nothing
// else of them. Thread safety: const methods may be called from several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/table.h"
#include "core/ir/graph.h"

namespace epl {

class ByteWriter;
struct ModelSource;  // core/frontend/model_source.h

// A dimension of a model's input or output: a size, or a symbol (size -1). An input's symbol without a name in the file
// is called by its position, "x[2]"; an output's name may be empty.
struct ModelDim {
  int64_t size = -1;
  std::string symbol;
};
inline std::string dimension_position(const std::string& input, size_t dim) { return cat(input, "[", dim, "]"); }
struct ModelPort {
  std::string name;
  DType dtype = DType::f32;
  std::vector<ModelDim> dims;
  bool ranked = true;  // false: the file does not say how many dimensions it has, and `dims` is empty
};
struct ModelInitializer {
  std::string name;
  TensorType type;
};

// What binding a model fixes. Symbols not named here and inputs not given are an error that names them.
struct Binding {
  std::map<std::string, int64_t> symbols;     // {"batch": 8, "sequence": 128}
  std::map<std::string, Shape> input_shapes;  // wins over symbols; binds the symbols it meets
  std::map<std::string, int> batch_dims;      // dimension that counts samples; default 0, -1 for none
  std::set<std::string> parameters;           // float initialisers that are parameters whatever they look like, by glob
  std::map<std::string, Tensor> values;       // inputs that are constants: one number for all elements, or all of them
  std::vector<std::string> inner_outputs;  // results of nodes that become outputs too; the others may then need what is
                                           // not supported, and are left out
  std::vector<std::pair<std::string, int64_t>> max_trip_counts;  // of loops, by glob of their nodes: the first counts
  bool free_batch = false;  // input_shapes may have another number of samples than the file fixes
  // `train` keeps dropout and batch statistics as the file says; `evaluate` turns dropout off and uses running
  // statistics.
  enum class Mode : uint8_t { train, evaluate } mode = Mode::train;
  // Takes what the owner of the model should know about it at these sizes; null: nobody wants it.
  std::vector<std::string>* notes = nullptr;
};

// Something about a file that its owner should know before training it.
struct ModelFinding {
  enum class Level : uint8_t { note, warning, error } level = Level::note;
  std::string where;    // node or initialiser
  std::string message;  // what is wrong and what to do
};

struct TrainableInfo {
  std::string name;
  bool trainable = false;
  std::string reason;  // why it is not, when it is not
};

// How the work of a model is spread over devices, as it is written into its file.
struct ShardedPart {
  int64_t size = 1, shards = 1;
};
struct ShardAnnotation {
  std::vector<std::vector<ShardedPart>>
      dims;                             // by dimension: what is merged in it, outermost first; none: it is not cut
  std::vector<std::vector<int>> ranks;  // by shard, in row-major order: who has it
};
struct DeviceAnnotations {
  int64_t devices = 1;
  std::map<std::string, int, std::less<>> stages;  // of the pipeline, by Node::source
  // By weight, and the stage whose nodes read it. Nodes of the file and of a graph are not the same: a weight's shards
  // are told where the file has it.
  std::map<std::string, std::map<int, ShardAnnotation>, std::less<>> weights;
  bool complete = true;  // they say all that scopes say
  std::string rest;      // what a strategy says besides, as JSON
  std::string strategy;  // all of it, for where they are not complete
};

// How a model is written back.
struct ModelSaveOptions {
  const DeviceAnnotations* annotations = nullptr;  // in place of those of the same name that the file has
  // Ready for inference: batch norm and dropout in inference mode, and what only training reads is removed. Else all
  // stays as in the file.
  bool for_inference = false;
  std::string loss_output;  // for inference: an output that only training needs, cut unless it is the only one
  FileHook hook;            // of every operation on the files; what it refuses leaves nothing behind
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<ModelPort>& inputs() const = 0;
  virtual const std::vector<ModelPort>& outputs() const = 0;
  virtual const std::vector<ModelInitializer>& initializers() const = 0;
  // Format, producer, IR version, opsets; for people.
  virtual std::string description() const = 0;
  // Operators with their counts, in order of frequency, and which are missing, all at once with their nodes.
  virtual std::vector<std::pair<std::string, int>> op_counts() const = 0;
  virtual std::vector<ModelFinding> findings() const = 0;
  // The graph with every shape known: constants folded, functions inlined, names kept; initialisers that may be trained
  // are parameters (float, more than one element, not a running statistic), running statistics are buffers, the others
  // constants. Graph outputs carry the model's output names. New running statistics are in graph.updates.
  virtual Result<Graph> bind(const Binding& binding) const = 0;
  // What behaves differently in training and in inference ("2 Dropout in training mode"); empty when the model is ready
  // for inference.
  virtual std::string training_parts() const = 0;
  // Writes the model back with the values of some initialisers replaced. Everything else is unchanged, except for what
  // `options` ask.
  virtual Status save(const std::string& path, const std::map<std::string, Tensor>& replaced,
                      const ModelSaveOptions& options) const = 0;
  Status save(const std::string& path, const std::map<std::string, Tensor>& replaced) const {
    return save(path, replaced, {});
  }
  // The same as one stream of bytes, what lies beside the original included.
  virtual Status write(ByteWriter& out, const std::map<std::string, Tensor>& replaced,
                       const ModelSaveOptions& options) const = 0;
  // Equal for the same model with other weights, another number for another model; 0 where a frontend does not tell.
  virtual uint64_t fingerprint() const { return 0; }
  // What the fingerprint leaves out and no checkpoint holds, by name: versions of operators, and constants (scales,
  // masks, tables), one number as it is and several as a hash. Which tensors are constants follows from the binding.
  virtual std::map<std::string, std::string> constants(const Binding&) const { return {}; }
  // How the file itself asks to be spread over ranks: the JSON form of a strategy; empty where it does not. A file may
  // ask for several numbers of devices; the one for most of them that divides `ranks` is given, else the first.
  virtual Result<std::string> strategy(int64_t) const { return std::string(); }
};

struct Frontend {
  std::string name;
  std::string doc;
  bool (*recognizes)(const std::string& path) = nullptr;
  Result<std::shared_ptr<const Model>> (*load)(const ModelSource& source) = nullptr;
  // A copy of these bytes, and from the source what lies beside them.
  Result<std::shared_ptr<const Model>> (*load_bytes)(std::span<const std::byte> bytes,
                                                     const ModelSource& source) = nullptr;
};
using FrontendTable = TableOf<Frontend>;
const FrontendTable& frontend_table();  // generated
// By the frontend that recognises the path.
Result<std::shared_ptr<const Model>> load_model(const std::string& path);
// By the frontend that recognises the source's name, or else by the first one.
Result<std::shared_ptr<const Model>> load_model(const ModelSource& source);

#define EPL_FRONTEND(row_name) EPL_ROW(EPL_FRONTEND, row_name, ::epl::FrontendTable, ::epl::Frontend)

}  // namespace epl
