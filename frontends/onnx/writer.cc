#include "frontends/onnx/writer.h"

#include <cmath>

#include <protozero/pbf_writer.hpp>

#include "core/base/file.h"
#include "core/base/math.h"
#include "core/base/philox.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

using protozero::pbf_writer;

constexpr int64_t ir_version = 11, opset_version = 23;
constexpr int64_t largest_message = int64_t{2'000'000'000};  // protobuf readers stop at 2 GiB
constexpr int64_t page = 4096;                              // external tensors begin on pages, so that they can be mapped

void write_type(pbf_writer& port, const ModelPort& from) {
  pbf_writer type(port, schema::ValueInfoProto::type);
  pbf_writer tensor(type, schema::TypeProto::tensor_type);
  tensor.add_int32(schema::TypeProto_Tensor::elem_type, data_type_of(from.dtype));
  pbf_writer shape(tensor, schema::TypeProto_Tensor::shape);
  for (const ModelDim& from_dim : from.dims) {
    pbf_writer dim(shape, schema::TensorShapeProto::dim);
    if (from_dim.size >= 0) {
      dim.add_int64(schema::TensorShapeProto_Dimension::dim_value, from_dim.size);
    } else {
      dim.add_string(schema::TensorShapeProto_Dimension::dim_param, from_dim.symbol);
    }
  }
}

void write_port(pbf_writer& graph, uint32_t field, const ModelPort& from) {
  pbf_writer port(graph, field);
  port.add_string(schema::ValueInfoProto::name, from.name);
  write_type(port, from);
}

void write_attribute(pbf_writer& node, const Attributes::Entry& entry) {
  namespace f = schema::AttributeProto;
  pbf_writer out(node, schema::NodeProto::attribute);
  out.add_string(f::name, entry.name);
  auto integer = [&](int64_t value) {
    out.add_int64(f::i, value);
    out.add_enum(f::type, f::AttributeType_INT);
  };
  if (const auto* flag = std::get_if<bool>(&entry.value)) return integer(*flag);
  if (const auto* number = std::get_if<int64_t>(&entry.value)) return integer(*number);
  if (const auto* type = std::get_if<DType>(&entry.value)) return integer(data_type_of(*type));
  if (const auto* number = std::get_if<double>(&entry.value)) {
    out.add_float(f::f, static_cast<float>(*number));
    out.add_enum(f::type, f::AttributeType_FLOAT);
  } else if (const auto* text = std::get_if<std::string>(&entry.value)) {
    out.add_string(f::s, *text);
    out.add_enum(f::type, f::AttributeType_STRING);
  } else if (const auto* list = std::get_if<Ints>(&entry.value)) {
    for (int64_t value : *list) out.add_int64(f::ints, value);
    out.add_enum(f::type, f::AttributeType_INTS);
  } else {
    EPL_CHECK(false, "the writer knows no attributes like ", entry.name);
  }
}

// Everything of a TensorProto but its data.
std::string tensor_header(const std::string& name, const TensorType& type) {
  std::string out;
  pbf_writer tensor(out);
  if (!type.shape.empty()) tensor.add_packed_int64(schema::TensorProto::dims, type.shape.begin(), type.shape.end());
  tensor.add_int32(schema::TensorProto::data_type, data_type_of(type.dtype));
  tensor.add_string(schema::TensorProto::name, name);
  return out;
}

// A length-delimited field up to its content.
std::string field_start(uint32_t field, int64_t length) {
  std::string out;
  protozero::add_varint_to_buffer(&out, (uint64_t{field} << 3) | 2);
  protozero::add_varint_to_buffer(&out, static_cast<uint64_t>(length));
  return out;
}

uint64_t weight_key(uint64_t seed, const std::string& name) { return random_key(seed, 0, name); }

}  // namespace

// Where initialisers go: into the model's own file, or beside it.
class TensorSink {
 public:
  TensorSink(FileWriter& file, FileWriter* beside, std::string location) : file_(file), beside_(beside), location_(std::move(location)) {}
  Status text(const std::string& bytes) { return file_.write(bytes.data(), bytes.size()); }

  // The tensor's message up to its data, and how long it is with them. Called in the same order before and while writing.
  std::string header(const std::string& name, const TensorType& type) {
    std::string out = tensor_header(name, type);
    if (!beside_) return out + field_start(schema::TensorProto::raw_data, type.bytes());
    pbf_writer tensor(out);
    auto entry = [&](const char* key, const std::string& value) {
      pbf_writer external(tensor, schema::TensorProto::external_data);
      external.add_string(schema::StringStringEntryProto::key, key);
      external.add_string(schema::StringStringEntryProto::value, value);
    };
    entry("location", location_);
    entry("offset", cat(offset_));
    entry("length", cat(type.bytes()));
    tensor.add_enum(schema::TensorProto::data_location, schema::TensorProto::DataLocation_EXTERNAL);
    offset_ = (offset_ + type.bytes() + page - 1) / page * page;
    return out;
  }
  void restart() { offset_ = 0; }
  bool beside() const { return beside_ != nullptr; }

  Status data(const epl::Tensor& value) {
    FileWriter& to = beside_ ? *beside_ : file_;
    EPL_TRY(to.write(value.data(), static_cast<size_t>(value.bytes())));
    if (!beside_) return {};
    const std::string zeros(static_cast<size_t>((page - value.bytes() % page) % page), '\0');
    return to.write(zeros.data(), zeros.size());
  }

 private:
  FileWriter& file_;
  FileWriter* beside_;
  std::string location_;
  int64_t offset_ = 0;
};

std::string ModelWriter::input(ModelPort port) {
  inputs_.push_back(std::move(port));
  return inputs_.back().name;
}

void ModelWriter::output(ModelPort port) { outputs_.push_back(std::move(port)); }

std::string ModelWriter::initializer(std::string name, TensorType type, std::function<epl::Tensor()> make) {
  initializers_.push_back({std::move(name), std::move(type), std::move(make)});
  return initializers_.back().name;
}

std::string ModelWriter::constant(std::string name, epl::Tensor value) {
  TensorType type = value.type();
  return initializer(std::move(name), std::move(type), [value] { return value; });
}

std::string ModelWriter::node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs, Attributes attributes) {
  nodes_.push_back({std::move(op), std::move(inputs), std::move(outputs), std::move(attributes)});
  return nodes_.back().outputs[0];
}

std::string ModelWriter::frame() const {
  std::string out;
  pbf_writer graph(out);
  for (const Node& from : nodes_) {
    pbf_writer node(graph, schema::GraphProto::node);
    for (const std::string& name : from.inputs) node.add_string(schema::NodeProto::input, name);
    for (const std::string& name : from.outputs) node.add_string(schema::NodeProto::output, name);
    node.add_string(schema::NodeProto::name, from.outputs[0]);
    node.add_string(schema::NodeProto::op_type, from.op);
    for (const Attributes::Entry& entry : from.attributes.entries()) write_attribute(node, entry);
  }
  graph.add_string(schema::GraphProto::name, name_);
  for (const ModelPort& port : inputs_) write_port(graph, schema::GraphProto::input, port);
  for (const ModelPort& port : outputs_) write_port(graph, schema::GraphProto::output, port);
  return out;
}

Status ModelWriter::write(TensorSink& sink) const {
  std::string start;
  {
    pbf_writer model(start);
    model.add_int64(schema::ModelProto::ir_version, ir_version);
    model.add_string(schema::ModelProto::producer_name, "epl");
    pbf_writer opset(model, schema::ModelProto::opset_import);
    opset.add_string(schema::OperatorSetIdProto::domain, "");
    opset.add_int64(schema::OperatorSetIdProto::version, opset_version);
  }
  const std::string frame = this->frame();
  int64_t length = static_cast<int64_t>(frame.size());
  std::vector<std::string> headers;
  for (const Initializer& i : initializers_) {
    std::string header = sink.header(i.name, i.type);
    const int64_t message = static_cast<int64_t>(header.size()) + (sink.beside() ? 0 : i.type.bytes());
    headers.push_back(field_start(schema::GraphProto::initializer, message) + header);
    length += static_cast<int64_t>(headers.back().size()) + (sink.beside() ? 0 : i.type.bytes());
  }
  EPL_TRY(sink.text(start + field_start(schema::ModelProto::graph, length) + frame));
  for (size_t k = 0; k < initializers_.size(); ++k) {
    const epl::Tensor value = initializers_[k].make();
    EPL_CHECK(value.type() == initializers_[k].type, initializers_[k].name, " was made as ", value.type().text());
    EPL_TRY(sink.text(headers[k]));
    EPL_TRY(sink.data(value));
  }
  return {};
}

Status ModelWriter::save(const std::string& path) const {
  int64_t bytes = 0;
  for (const Initializer& i : initializers_) bytes += i.type.bytes();
  auto write_model = [&](FileWriter* beside, const std::string& location) {
    return write_file_atomically(path, [&](FileWriter& file) {
      TensorSink sink(file, beside, location);
      return write(sink);
    });
  };
  if (bytes < largest_message) return write_model(nullptr, "");
  const size_t slash = path.rfind('/');
  const std::string location = (slash == std::string::npos ? path : path.substr(slash + 1)) + ".data";
  return write_file_atomically(cat(path, ".data"), [&](FileWriter& beside) { return write_model(&beside, location); });
}

// Box and Muller's transform of two uniform draws into two normal ones.
epl::Tensor normal_weight(const Shape& shape, double deviation, uint64_t seed, const std::string& name) {
  epl::Tensor out({DType::f32, shape});
  const uint64_t key = weight_key(seed, name);
  auto values = out.as<float>();
  for (size_t i = 0; i < values.size(); i += 2) {
    const double radius = std::sqrt(-2 * math::log(1.0 - philox_uniform(key, i)));
    const double angle = 2 * math::pi * philox_uniform(key, i + 1);
    values[i] = static_cast<float>(deviation * (radius * math::cos(angle)));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(deviation * (radius * math::cos(angle - math::pi / 2)));
  }
  return out;
}

epl::Tensor uniform_weight(const Shape& shape, double bound, uint64_t seed, const std::string& name) {
  epl::Tensor out({DType::f32, shape});
  const uint64_t key = weight_key(seed, name);
  auto values = out.as<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((2.0 * philox_uniform(key, i) - 1.0) * bound);
  return out;
}

epl::Tensor filled_weight(const Shape& shape, float value) {
  epl::Tensor out({DType::f32, shape});
  for (float& element : out.as<float>()) element = value;
  return out;
}

}  // namespace epl::onnx
