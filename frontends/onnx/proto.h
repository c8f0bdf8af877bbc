// The messages of an ONNX file: views into its bytes, nothing copied. Field numbers come from the official schema
// (schema.h); the wire format is read by protozero.
//
// Everything here may be hostile. Reading checks lengths, nesting and counts; an error names the byte offset at which
// the damaged message begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace epl::onnx {

struct Graph;
class ModelBytes;

struct Tensor {
  std::string_view name;
  int32_t data_type = 0;  // schema::TensorProto::DataType
  std::vector<int64_t> dims;
  std::string_view raw;  // raw_data
  bool has_raw = false;
  std::vector<std::string_view> packed;  // the packed typed data fields, in file order
  uint32_t packed_field = 0;             // which field they came from
  std::vector<double> reals;             // typed data that was not packed: of float_data and double_data
  std::vector<int64_t> integers;         // and of the other fields
  bool external = false;
  std::string_view location;
  int64_t offset = 0, length = -1;
  std::shared_ptr<const epl::Tensor> dense;  // all numbers of one that the file stores sparse
  size_t at = 0;                             // byte offset in the file
};

// The numbers that are not zero, and where they stand: in the flat tensor, or an index for each dimension.
struct SparseTensor {
  Tensor values, indices;
  std::vector<int64_t> dims;
};

struct Attribute {
  std::string_view name, ref;  // ref: the attribute of the enclosing function that is meant
  int32_t type = 0;
  uint32_t fields = 0;  // the fields that are there: bit n for field number n
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::shared_ptr<Tensor> t;
  std::shared_ptr<Graph> g;
};

// IR 11: how a node is spread over the devices of one of the model's configurations.
struct ShardedDim {
  int64_t axis = 0;
  std::vector<int64_t> shards;  // of each part of the dimension, if several dimensions are merged in it
};
struct ShardingSpec {
  std::string_view tensor;
  std::vector<int64_t> devices;  // a number in `groups` means all of that group
  std::vector<std::pair<int64_t, std::vector<int64_t>>> groups;
  std::vector<ShardedDim> dims;
};
struct NodeDevices {
  std::string_view configuration;
  std::optional<int64_t> stage;
  std::vector<ShardingSpec> specs;
};
struct DeviceConfiguration {
  std::string_view name;
  int64_t devices = 0;
};

// Whether a domain is that of ONNX's own operators, which has two names.
inline bool is_standard(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

struct Node {
  std::string_view name, op_type, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<Attribute> attributes;
  std::string_view scope;  // metadata "epl.scope"
  std::vector<NodeDevices> devices;
  size_t at = 0;
};

struct Dim {
  int64_t value = -1;  // -1: symbolic
  std::string_view symbol;
};
struct ValueInfo {
  std::string_view name;
  int32_t elem_type = 0;  // 0: not a tensor
  bool has_shape = false;
  std::vector<Dim> dims;
};

struct Graph {
  std::string_view name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<SparseTensor> sparse_initializers;
  // Metadata of PyTorch's exporter: what the module's parameters and buffers are, and for constants that were computed
  // from others the names of those, as texts of Python.
  std::string_view signature;
  std::vector<std::pair<std::string_view, std::string_view>> folded_from;
};

struct OpsetId {
  std::string_view domain;
  int64_t version = 0;
};

struct Function {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<Attribute> attribute_defaults;
  std::vector<Node> nodes;
  std::vector<OpsetId> opsets;
};

struct File {
  int64_t ir_version = 0;
  std::string_view producer_name, producer_version;
  std::vector<OpsetId> opsets;
  Graph graph;
  bool has_graph = false;
  std::vector<Function> functions;
  std::string_view strategy;  // metadata "epl.strategy"
  std::vector<DeviceConfiguration> configurations;
};

// Keys of our own metadata, of the model and of a node.
inline constexpr std::string_view strategy_key = "epl.strategy", scope_key = "epl.scope";
// Of PyTorch's exporter: of the graph, and of a value.
inline constexpr std::string_view signature_key = "pkg.torch.export.ExportedProgram.graph_signature",
                                  folded_key = "pkg.onnxscript.optimizer.folded_from";

// `bytes` must outlive the result.
Result<File> read_file(std::span<const std::byte> bytes);
Result<Tensor> read_tensor(std::span<const std::byte> bytes);

// What is wrong with a file, in words of its user, by what the reader of the wire format has thrown.
std::string_view damage_text(const std::exception& e);

// The element type of an ONNX data type code; `unsupported` for strings, complex, 4-bit and 8-bit floats.
Result<DType> dtype_of(int32_t data_type);
std::string data_type_name(int32_t data_type);
int32_t data_type_of(DType dtype);

// The tensor's elements, left where they are if that is the model's file or one beside it.
Result<epl::Tensor> stored_tensor(const Tensor& tensor, const std::shared_ptr<const ModelBytes>& model);
// The same in memory: borrowed from the model's bytes where they are there, raw and aligned.
Result<epl::Tensor> tensor_value(const Tensor& tensor, const std::shared_ptr<const ModelBytes>& model);
Result<TensorType> tensor_type(const Tensor& tensor);
// A tensor that the file stores sparse, with all its numbers. The error names it.
Result<Tensor> dense_tensor(const SparseTensor& sparse, const std::shared_ptr<const ModelBytes>& model);

}  // namespace epl::onnx
