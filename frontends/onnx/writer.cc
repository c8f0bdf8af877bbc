#include "frontends/onnx/writer.h"

#include <protozero/pbf_writer.hpp>
#include <set>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "frontends/onnx/fields.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

constexpr int64_t written_opset = 20, written_ir = 10;
constexpr int64_t page = 4096;  // external data starts on pages, so that a reader can map each tensor

template <class Shape> void write_type(protozero::pbf_writer& value_info, DType dtype, const Shape& dims) {
  protozero::pbf_writer type(value_info, schema::ValueInfoProto::type);
  protozero::pbf_writer tensor(type, schema::TypeProto::tensor_type);
  tensor.add_int32(schema::TypeProto_Tensor::elem_type, data_type_of(dtype));
  protozero::pbf_writer shape(tensor, schema::TypeProto_Tensor::shape);
  for (const WriterDim& dim : dims) {
    protozero::pbf_writer out(shape, schema::TensorShapeProto::dim);
    if (dim.symbol.empty()) {
      out.add_int64(schema::TensorShapeProto_Dimension::dim_value, dim.size);
    } else {
      out.add_string(schema::TensorShapeProto_Dimension::dim_param, dim.symbol);
    }
  }
}

void write_attribute(protozero::pbf_writer& node, const Attributes::Entry& entry) {
  namespace f = schema::AttributeProto;
  protozero::pbf_writer out(node, schema::NodeProto::attribute);
  out.add_string(f::name, entry.name);
  if (const auto* i = std::get_if<int64_t>(&entry.value)) {
    out.add_enum(f::type, f::AttributeType_INT);
    out.add_int64(f::i, *i);
  } else if (const auto* number = std::get_if<double>(&entry.value)) {
    out.add_enum(f::type, f::AttributeType_FLOAT);
    out.add_float(f::f, static_cast<float>(*number));
  } else if (const auto* text = std::get_if<std::string>(&entry.value)) {
    out.add_enum(f::type, f::AttributeType_STRING);
    out.add_bytes(f::s, *text);
  } else if (const auto* ints = std::get_if<Ints>(&entry.value)) {
    out.add_enum(f::type, f::AttributeType_INTS);
    for (int64_t i : *ints) out.add_int64(f::ints, i);
  } else if (const auto* dtype = std::get_if<DType>(&entry.value)) {
    out.add_enum(f::type, f::AttributeType_INT);
    out.add_int64(f::i, data_type_of(*dtype));
  } else {
    EPL_CHECK(false, "attribute ", entry.name, " has a type that is not written");
  }
}

void write_entry(protozero::pbf_writer& parent, uint32_t field, const std::string& key, const std::string& value) {
  protozero::pbf_writer out(parent, field);
  out.add_string(schema::StringStringEntryProto::key, key);
  out.add_string(schema::StringStringEntryProto::value, value);
}

}  // namespace

// One writing of a model.
class ModelSerializer {
 public:
  ModelSerializer(const ModelWriter& model, const std::string& path, const FileHook& hook)
      : model_(model), path_(path), hook_(hook) {
    int64_t bytes = 0;
    for (const auto& each : model.initializers_) bytes += each.type.bytes();
    external_ = bytes >= max_message - (int64_t{64} << 20);  // the graph itself is small
    text_.reserve(static_cast<size_t>(external_ ? 0 : bytes) + 65536);
  }

  Status write() {
    if (!external_) {
      EPL_TRY(serialize());
    } else {
      const std::string data = path_ + ".data", part = data + ".part";
      EPL_ASSIGN(data_, FileWriter::create(part, hook_));
      Status status = serialize();
      if (status.ok()) status = data_->finish();
      if (status.ok()) status = rename_durably(part, data, hook_);
      if (!status.ok()) {
        (void)remove_file(part);
        return status;
      }
    }
    // Once the data has its name, the file that says where in it tensors are follows.
    return write_file_atomically(
        path_, [&](FileWriter& file) { return file.write(text_.data(), text_.size()); }, external_ ? nullptr : hook_);
  }

 private:
  Status serialize() {
    namespace f = schema::ModelProto;
    protozero::pbf_writer out(text_);
    out.add_int64(f::ir_version, written_ir);
    out.add_string(f::producer_name, "epl");
    {
      protozero::pbf_writer graph(out, f::graph);
      EPL_TRY(write_graph(graph));
    }
    {
      protozero::pbf_writer opset_id(out, f::opset_import);
      opset_id.add_string(schema::OperatorSetIdProto::domain, "");
      opset_id.add_int64(schema::OperatorSetIdProto::version, written_opset);
    }
    for (const auto& [key, value] : model_.metadata_) write_entry(out, f::metadata_props, key, value);
    return {};
  }

  Status write_graph(protozero::pbf_writer& graph) {
    namespace f = schema::GraphProto;
    for (const auto& node : model_.nodes_) {
      protozero::pbf_writer out(graph, f::node);
      for (const std::string& input : node.inputs) out.add_string(schema::NodeProto::input, input);
      for (const std::string& output : node.outputs) out.add_string(schema::NodeProto::output, output);
      out.add_string(schema::NodeProto::name, node.name);
      out.add_string(schema::NodeProto::op_type, node.op);
      for (const auto& entry : node.attributes.entries()) write_attribute(out, entry);
    }
    graph.add_string(f::name, model_.graph_name_);
    for (const auto& each : model_.initializers_) EPL_TRY(write_initializer(graph, each));
    write_ports(graph, f::input, model_.inputs_);
    write_ports(graph, f::output, model_.outputs_);
    return {};
  }

  static void write_ports(protozero::pbf_writer& graph, uint32_t field, const std::vector<ModelWriter::Port>& ports) {
    for (const auto& port : ports) {
      protozero::pbf_writer out(graph, field);
      out.add_string(schema::ValueInfoProto::name, port.name);
      write_type(out, port.dtype, port.dims);
    }
  }

  Status write_initializer(protozero::pbf_writer& graph, const ModelWriter::Initializer& each) {
    namespace f = schema::TensorProto;
    if (hook_) EPL_TRY(hook_("write", path_));
    epl::Tensor value(each.type);
    each.fill(value);
    protozero::pbf_writer out(graph, schema::GraphProto::initializer);
    for (int64_t dim : each.type.shape) out.add_int64(f::dims, dim);
    out.add_int32(f::data_type, data_type_of(each.type.dtype));
    out.add_string(f::name, each.name);
    const auto bytes = static_cast<size_t>(value.bytes());
    if (!external_) {
      out.add_bytes(f::raw_data, static_cast<const char*>(value.data()), bytes);
      return {};
    }
    const std::vector<char> padding(static_cast<size_t>((page - offset_ % page) % page), 0);
    EPL_TRY(data_->write(padding.data(), padding.size()));
    offset_ += static_cast<int64_t>(padding.size());
    write_entry(out, f::external_data, "location", path_.substr(path_.rfind('/') + 1) + ".data");  // npos + 1 is 0
    write_entry(out, f::external_data, "offset", cat(offset_));
    write_entry(out, f::external_data, "length", cat(bytes));
    out.add_enum(f::data_location, 1);
    EPL_TRY(data_->write(value.data(), bytes));
    offset_ += static_cast<int64_t>(bytes);
    return {};
  }

  const ModelWriter& model_;
  const std::string& path_;
  const FileHook& hook_;
  bool external_ = false;
  std::string text_;
  std::unique_ptr<FileWriter> data_;
  int64_t offset_ = 0;
};

std::string ModelWriter::input(const std::string& name, DType dtype, std::vector<WriterDim> dims) {
  inputs_.push_back({name, dtype, std::move(dims)});
  return name;
}

void ModelWriter::output(const std::string& value, DType dtype, std::vector<WriterDim> dims) {
  outputs_.push_back({value, dtype, std::move(dims)});
}

std::string ModelWriter::initializer(const std::string& name, TensorType type, Fill fill) {
  initializers_.push_back({name, std::move(type), std::move(fill)});
  return name;
}

std::string ModelWriter::ints(const Ints& values) {
  auto [at, made] = constants_.try_emplace(cat(values), cat("ints_", constants_.size()));
  if (made) {
    initializer(at->second, {DType::i64, {static_cast<int64_t>(values.size())}}, [values](epl::Tensor& out) {
      for (size_t i = 0; i < values.size(); ++i) out.set_int(static_cast<int64_t>(i), values[i]);
    });
  }
  return at->second;
}

std::string ModelWriter::number(double value) {
  // Names as exporters give them to constants: no number of these is taken for something that might be trained.
  auto [at, made] = constants_.try_emplace(cat(value), cat("val_", constants_.size()));
  if (made) initializer(at->second, {DType::f32, {}}, [value](epl::Tensor& out) { out.set(0, value); });
  return at->second;
}

std::vector<std::string> ModelWriter::node(const std::string& name, const std::string& op,
                                           std::vector<std::string> inputs, Attributes attributes, int outputs) {
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) names.push_back(outputs == 1 ? name : cat(name, ".", i));
  nodes_.push_back({name, op, std::move(inputs), names, std::move(attributes)});
  return names;
}

Status ModelWriter::check() const {
  std::set<std::string> known;
  std::string twice;
  auto define = [&](const std::string& name) {
    if (!known.insert(name).second) twice = name;
  };
  for (const Port& each : inputs_) define(each.name);
  for (const Initializer& each : initializers_) define(each.name);
  for (const Node& node : nodes_) {
    for (const std::string& input : node.inputs) {
      if (!input.empty() && !known.contains(input))
        return invalid("node ", node.name, " reads ", input, ", which no earlier node makes");
    }
    for (const std::string& output : node.outputs) define(output);
  }
  for (const Port& each : outputs_) {
    if (!known.contains(each.name)) return invalid("the output ", each.name, " is made by no node");
  }
  if (!twice.empty()) return invalid("two values are called ", shown_plain(twice, 200));
  return {};
}

Status ModelWriter::write(const std::string& path, const FileHook& hook) const {
  EPL_TRY(check());
  return ModelSerializer(*this, path, hook).write();
}

}  // namespace epl::onnx
