// ONNX files built field by field, the damaged ones too, for the tests of the frontend.
#pragma once

#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx::testing {

using Message = std::string;  // the bytes of one protobuf message
using Names = std::vector<std::string>;

inline Message raw_tensor(const std::string& name, int32_t type, const Ints& dims, const std::string& raw) {
  Message out;
  protozero::pbf_writer w(out);
  for (int64_t dim : dims) w.add_int64(schema::TensorProto::dims, dim);
  w.add_int32(schema::TensorProto::data_type, type);
  w.add_string(schema::TensorProto::name, name);
  w.add_bytes(schema::TensorProto::raw_data, raw);
  return out;
}

inline Message tensor(const std::string& name, const epl::Tensor& value) {
  return raw_tensor(name, data_type_of(value.dtype()), value.shape(),
                    {static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes())});
}

// Data in a file beside the model; `more` are further pairs of a key and a value.
inline Message external_tensor(const std::string& name, int32_t type, const Ints& dims, const std::string& location,
                               const std::vector<std::pair<std::string, std::string>>& more = {}) {
  Message out;
  protozero::pbf_writer w(out);
  for (int64_t dim : dims) w.add_int64(schema::TensorProto::dims, dim);
  w.add_int32(schema::TensorProto::data_type, type);
  w.add_string(schema::TensorProto::name, name);
  std::vector<std::pair<std::string, std::string>> entries = {{"location", location}};
  entries.insert(entries.end(), more.begin(), more.end());
  for (const auto& [key, value] : entries) {
    protozero::pbf_writer entry(w, schema::TensorProto::external_data);
    entry.add_string(schema::StringStringEntryProto::key, key);
    entry.add_string(schema::StringStringEntryProto::value, value);
  }
  w.add_enum(schema::TensorProto::data_location, 1);
  return out;
}

// One whose value `put` writes.
template <class F> Message attribute_of(const std::string& name, int32_t type, const F& put) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_string(schema::AttributeProto::name, name);
  put(w);
  w.add_enum(schema::AttributeProto::type, type);
  return out;
}

inline Message attribute(const std::string& name, int64_t value) {
  return attribute_of(name, schema::AttributeProto::AttributeType_INT,
                      [&](auto& w) { w.add_int64(schema::AttributeProto::i, value); });
}

inline Message attribute(const std::string& name, float value) {
  return attribute_of(name, schema::AttributeProto::AttributeType_FLOAT,
                      [&](auto& w) { w.add_float(schema::AttributeProto::f, value); });
}

inline Message attribute(const std::string& name, const std::string& value) {
  return attribute_of(name, schema::AttributeProto::AttributeType_STRING,
                      [&](auto& w) { w.add_string(schema::AttributeProto::s, value); });
}

inline Message attribute(const std::string& name, const epl::Tensor& value) {
  return attribute_of(name, schema::AttributeProto::AttributeType_TENSOR,
                      [&](auto& w) { w.add_message(schema::AttributeProto::t, tensor("", value)); });
}

inline Message attribute(const std::string& name, const Ints& values) {
  return attribute_of(name, schema::AttributeProto::AttributeType_INTS, [&](auto& w) {
    for (int64_t value : values) w.add_int64(schema::AttributeProto::ints, value);
  });
}

inline Message attribute(const std::string& name, const std::vector<float>& values) {
  return attribute_of(name, schema::AttributeProto::AttributeType_FLOATS, [&](auto& w) {
    for (float value : values) w.add_float(schema::AttributeProto::floats, value);
  });
}

// Refers to an attribute of the function around it.
inline Message reference(const std::string& name, const std::string& of_function) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_string(schema::AttributeProto::name, name);
  w.add_string(schema::AttributeProto::ref_attr_name, of_function);
  return out;
}

inline Message subgraph(const std::string& name, const Message& graph) {
  return attribute_of(name, schema::AttributeProto::AttributeType_GRAPH,
                      [&](auto& w) { w.add_message(schema::AttributeProto::g, graph); });
}

inline Message node(const std::string& op, const Names& inputs, const Names& outputs,
                    const std::vector<Message>& attributes = {}, const std::string& domain = "") {
  Message out;
  protozero::pbf_writer w(out);
  for (const std::string& name : inputs) w.add_string(schema::NodeProto::input, name);
  for (const std::string& name : outputs) w.add_string(schema::NodeProto::output, name);
  w.add_string(schema::NodeProto::name, "node_" + (outputs.empty() ? op : outputs[0]));
  w.add_string(schema::NodeProto::op_type, op);
  for (const Message& a : attributes) w.add_message(schema::NodeProto::attribute, a);
  if (!domain.empty()) w.add_string(schema::NodeProto::domain, domain);
  return out;
}

// A dimension is a number, or a symbol.
inline Message port(const std::string& name, const std::vector<std::string>& dims,
                    int32_t type = schema::TensorProto::DataType_FLOAT) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_string(schema::ValueInfoProto::name, name);
  protozero::pbf_writer kind(w, schema::ValueInfoProto::type);
  protozero::pbf_writer of_tensor(kind, schema::TypeProto::tensor_type);
  of_tensor.add_int32(schema::TypeProto_Tensor::elem_type, type);
  protozero::pbf_writer shape(of_tensor, schema::TypeProto_Tensor::shape);
  for (const std::string& dim : dims) {
    protozero::pbf_writer d(shape, schema::TensorShapeProto::dim);
    const bool number = dim.find_first_not_of("-0123456789") == std::string::npos && !dim.empty();
    if (number) {
      d.add_int64(schema::TensorShapeProto_Dimension::dim_value, std::stoll(dim));
    } else {
      d.add_string(schema::TensorShapeProto_Dimension::dim_param, dim);
    }
  }
  return out;
}

struct Parts {
  std::vector<Message> nodes, initializers, inputs, outputs;
  std::string signature;  // what PyTorch's newer exporter says of the initialisers; empty: nothing
};

inline Message graph(const Parts& parts) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_string(schema::GraphProto::name, "g");
  for (const Message& m : parts.nodes) w.add_message(schema::GraphProto::node, m);
  for (const Message& m : parts.initializers) w.add_message(schema::GraphProto::initializer, m);
  for (const Message& m : parts.inputs) w.add_message(schema::GraphProto::input, m);
  for (const Message& m : parts.outputs) w.add_message(schema::GraphProto::output, m);
  if (!parts.signature.empty()) {
    protozero::pbf_writer entry(w, schema::GraphProto::metadata_props);
    entry.add_string(schema::StringStringEntryProto::key, std::string(signature_key));
    entry.add_string(schema::StringStringEntryProto::value, parts.signature);
  }
  return out;
}

inline Message function(const std::string& name, const Names& inputs, const Names& outputs,
                        const std::vector<Message>& nodes, const Names& attributes = {},
                        const std::vector<Message>& defaults = {}) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_string(schema::FunctionProto::name, name);
  w.add_string(schema::FunctionProto::domain, "own");
  for (const std::string& n : inputs) w.add_string(schema::FunctionProto::input, n);
  for (const std::string& n : outputs) w.add_string(schema::FunctionProto::output, n);
  for (const std::string& n : attributes) w.add_string(schema::FunctionProto::attribute, n);
  for (const Message& m : defaults) w.add_message(schema::FunctionProto::attribute_proto, m);
  for (const Message& m : nodes) w.add_message(schema::FunctionProto::node, m);
  return out;
}

struct Header {
  int64_t opset = 20, ir = 10;
  bool own_domain = false;  // also imports version 1 of "own", the domain of `function`
  std::string producer = "";
};

// The graph comes last, so that every truncation inside it leaves a damaged graph.
inline Message model(const Parts& parts, const std::vector<Message>& functions = {}, Header header = {}) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_int64(schema::ModelProto::ir_version, header.ir);
  if (!header.producer.empty()) w.add_string(schema::ModelProto::producer_name, header.producer);
  auto opset = [&](const std::string& domain, int64_t version) {
    protozero::pbf_writer id(w, schema::ModelProto::opset_import);
    id.add_string(schema::OperatorSetIdProto::domain, domain);
    id.add_int64(schema::OperatorSetIdProto::version, version);
  };
  if (header.opset >= 0) opset("", header.opset);
  if (!functions.empty() || header.own_domain) opset("own", 1);
  for (const Message& m : functions) w.add_message(schema::ModelProto::functions, m);
  w.add_message(schema::ModelProto::graph, graph(parts));
  return out;
}

inline Result<std::shared_ptr<const Model>> load(const Message& bytes) {
  return OnnxModel::load_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// Loads, and binds every symbol at 2; the status of whichever fails first.
inline Result<epl::Graph> import(const Message& bytes, Binding binding = {.symbols = {{"n", 2}}}) {
  EPL_ASSIGN(auto model, load(bytes));
  return model->bind(binding);
}

}  // namespace epl::onnx::testing
