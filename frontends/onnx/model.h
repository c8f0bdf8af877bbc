// An ONNX file as a Model of the engine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/frontend/model.h"
#include "frontends/onnx/inference.h"
#include "frontends/onnx/model_bytes.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/quantized.h"

namespace epl::onnx {

class ParameterRule;

// What the numbers of a tensor look like.
struct TensorLook {
  bool any = false;                    // it has numbers that can be read
  bool nothing = false, mask = false;  // those of a weight that a layer does not have; those of a mask
  std::string table;                   // table_kind
};

class OnnxModel : public Model, public std::enable_shared_from_this<OnnxModel> {
 public:
  static Result<std::shared_ptr<const Model>> load(const ModelSource& source);
  static Result<std::shared_ptr<const Model>> load_bytes(std::span<const std::byte> bytes,
                                                         const ModelSource& source = {});

  const std::vector<ModelPort>& inputs() const override { return inputs_; }
  const std::vector<ModelPort>& outputs() const override { return outputs_; }
  const std::vector<ModelInitializer>& initializers() const override { return initializers_; }
  std::string description() const override;
  std::vector<std::pair<std::string, int>> op_counts() const override;
  std::vector<ModelFinding> findings() const override;
  Result<epl::Graph> bind(const Binding& binding) const override;
  std::string training_parts() const override { return onnx::training_parts(file_).text(); }
  using Model::save;
  Status save(const std::string& path, const std::map<std::string, epl::Tensor>& replaced,
              const ModelSaveOptions& options) const override;
  Status write(ByteWriter& out, const std::map<std::string, epl::Tensor>& replaced,
               const ModelSaveOptions& options) const override;
  uint64_t fingerprint() const override;
  std::map<std::string, std::string> constants(const Binding& binding) const override;
  Result<std::string> strategy(int64_t ranks) const override;

  const File& file() const { return file_; }
  const std::shared_ptr<const ModelBytes>& stored() const { return bytes_; }
  int64_t opset(std::string_view domain) const;  // 0 when nothing imports the domain
  const Function* function(std::string_view domain, std::string_view name, std::string_view overload) const;
  const Tensor* initializer(std::string_view name) const;
  // The name under which a tensor that a node or a branch holds counts as an initialiser; null for one that does not.
  // No Constant of a node and no initialiser of a branch or a loop counts as a weight.
  bool stores_no_weight_in_nodes() const { return weights_.empty(); }
  const std::string* weight_name(const Tensor& tensor) const;
  const HostOps* host_ops() const { return host_ops_.get(); }  // null: there are none
  // Weights that are stored as integers; they count as initialisers too.
  const QuantizedWeights& quantized() const { return quantized_; }
  // What `look` finds, the first time that it is asked of a tensor: whoever makes a plan binds a model many times.
  const TensorLook& look_once(const Tensor& tensor, const std::function<TensorLook()>& look) const;

 private:
  struct Rewrite;
  Result<Rewrite> rewrite(const std::map<std::string, epl::Tensor>& replaced, const ModelSaveOptions& options) const;
  Status check(const Stop& stop);
  Status fill_ports();
  void add_weights(const Graph& graph, const ParameterRule& rule, const std::string& path);
  void add_weight(std::string_view name, const Tensor& tensor, const ParameterRule& rule, const std::string& path,
                  bool initializer);

  std::shared_ptr<const ModelBytes> bytes_;
  std::shared_ptr<const HostOps> host_ops_;
  File file_;
  std::vector<ModelPort> inputs_, outputs_;
  std::vector<ModelInitializer> initializers_;
  std::unordered_map<std::string_view, const Tensor*> by_name_;
  std::unordered_map<const Tensor*, std::string> weights_;  // tensors of nodes and branches that count as initialisers
  QuantizedWeights quantized_;
  mutable std::mutex looks_mutex_;
  mutable std::map<const Tensor*, TensorLook> looks_;
  std::unordered_map<std::string_view, int64_t> opsets_;        // by domain
  std::unordered_map<std::string, const Function*> functions_;  // by domain, name and overload
};

}  // namespace epl::onnx
