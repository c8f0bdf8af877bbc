#include "frontends/onnx/proto.h"

#include <protozero/pbf_reader.hpp>

#include "core/base/shown.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

constexpr int max_nesting = 32;  // of graphs in attributes of nodes

std::string_view view(const protozero::data_view& data) { return {data.data(), data.size()}; }

class Reading {
 public:
  explicit Reading(std::span<const std::byte> bytes)
      : base_(reinterpret_cast<const char*>(bytes.data())), bytes_(bytes) {}

  Result<File> file() {
    File file;
    Status status = guard([&] { read(pbf_reader(base_, bytes_.size()), file); });
    if (!status.ok()) return status;
    return file;
  }

  Result<Tensor> one_tensor() {
    Tensor tensor;
    Status status = guard([&] { read(protozero::data_view(base_, bytes_.size()), tensor); });
    if (!status.ok()) return status;
    return tensor;
  }

 private:
  struct Refused {
    std::string why;
  };

  template <class F> Status guard(F&& f) {
    try {
      f();
    } catch (const protozero::exception& e) {
      return Status(Code::invalid_model,
                    cat("damaged or truncated ONNX file: ", damage_text(e), " in the message at byte ", at_),
                    cat("byte ", at_));
    } catch (const Refused& refused) {
      return Status(Code::invalid_model, cat(refused.why, " in the message at byte ", at_), cat("byte ", at_));
    }
    return {};
  }

  size_t begin(const protozero::data_view& data) {
    at_ = static_cast<size_t>(data.data() - base_);
    return at_;
  }

  // Fields of a type that the schema does not give are an error, so that a hostile file cannot confuse kinds.
  static void want(const pbf_reader& m, pbf_wire_type type) {
    if (m.wire_type() != type) throw Refused{cat("field ", m.tag(), " has the wrong wire type")};
  }
  static std::string_view text(pbf_reader& m) {
    want(m, pbf_wire_type::length_delimited);
    return view(m.get_view());
  }
  static protozero::data_view message(pbf_reader& m) {
    want(m, pbf_wire_type::length_delimited);
    return m.get_view();
  }
  static int64_t number(pbf_reader& m) {
    want(m, pbf_wire_type::varint);
    return m.get_int64();
  }
  static void numbers(pbf_reader& m, std::vector<int64_t>& out) {
    if (m.wire_type() == pbf_wire_type::varint) {
      out.push_back(m.get_int64());
      return;
    }
    want(m, pbf_wire_type::length_delimited);
    auto range = m.get_packed_int64();
    out.insert(out.end(), range.begin(), range.end());
  }

  void read(pbf_reader m, File& file) {
    namespace f = schema::ModelProto;
    while (m.next()) {
      switch (m.tag()) {
        case f::ir_version:
          file.ir_version = number(m);
          break;
        case f::producer_name:
          file.producer_name = text(m);
          break;
        case f::producer_version:
          file.producer_version = text(m);
          break;
        case f::opset_import:
          file.opsets.push_back(opset(message(m)));
          break;
        case f::graph:
          read(message(m), file.graph, 0);
          file.has_graph = true;
          break;
        case f::functions:
          read(message(m), file.functions.emplace_back());
          break;
        case f::metadata_props:
          metadata(message(m), strategy_key, file.strategy);
          break;
        case f::configuration:
          read(message(m), file.configurations.emplace_back());
          break;
        default:
          m.skip();
      }
    }
  }

  // Takes the value of one key.
  void metadata(protozero::data_view data, std::string_view wanted, std::string_view& out) {
    const auto [key, value] = entry(data);
    if (key == wanted) out = value;
  }

  std::pair<std::string_view, std::string_view> entry(protozero::data_view data) {
    namespace f = schema::StringStringEntryProto;
    std::pair<std::string_view, std::string_view> out;
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::key:
          out.first = text(m);
          break;
        case f::value:
          out.second = text(m);
          break;
        default:
          m.skip();
      }
    }
    return out;
  }

  void read(protozero::data_view data, DeviceConfiguration& out) {
    namespace f = schema::DeviceConfigurationProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::name:
          out.name = text(m);
          break;
        case f::num_devices:
          out.devices = number(m);
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, NodeDevices& out) {
    namespace f = schema::NodeDeviceConfigurationProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::configuration_id:
          out.configuration = text(m);
          break;
        case f::sharding_spec:
          read(message(m), out.specs.emplace_back());
          break;
        case f::pipeline_stage:
          out.stage = number(m);
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, ShardingSpec& out) {
    namespace f = schema::ShardingSpecProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::tensor_name:
          out.tensor = text(m);
          break;
        case f::device:
          numbers(m, out.devices);
          break;
        case f::index_to_device_group_map:
          out.groups.emplace_back();
          for (pbf_reader g(message(m)); g.next();) {
            if (g.tag() == schema::IntIntListEntryProto::key) {
              out.groups.back().first = number(g);
            } else if (g.tag() == schema::IntIntListEntryProto::value) {
              numbers(g, out.groups.back().second);
            } else {
              g.skip();
            }
          }
          break;
        case f::sharded_dim:
          read(message(m), out.dims.emplace_back());
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, ShardedDim& out) {
    namespace f = schema::ShardedDimProto;
    for (pbf_reader m(data); m.next();) {
      if (m.tag() == f::axis) {
        out.axis = number(m);
      } else if (m.tag() == f::simple_sharding) {
        out.shards.push_back(1);
        for (pbf_reader part(message(m)); part.next();) {
          if (part.tag() == schema::SimpleShardedDimProto::num_shards) {
            out.shards.back() = number(part);
          } else {
            part.skip();
          }
        }
      } else {
        m.skip();
      }
    }
  }

  OpsetId opset(protozero::data_view data) {
    namespace f = schema::OperatorSetIdProto;
    begin(data);
    OpsetId id;
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::domain:
          id.domain = text(m);
          break;
        case f::version:
          id.version = number(m);
          break;
        default:
          m.skip();
      }
    }
    return id;
  }

  void read(protozero::data_view data, Graph& graph, int depth) {
    namespace f = schema::GraphProto;
    begin(data);
    if (depth > max_nesting) throw Refused{cat("graphs nested more than ", max_nesting, " deep")};
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::name:
          graph.name = text(m);
          break;
        case f::node:
          read(message(m), graph.nodes.emplace_back(), depth);
          break;
        case f::initializer:
          read(message(m), graph.initializers.emplace_back());
          break;
        case f::sparse_initializer:
          read(message(m), graph.sparse_initializers.emplace_back());
          break;
        case f::input:
          read(message(m), graph.inputs.emplace_back());
          break;
        case f::output:
          read(message(m), graph.outputs.emplace_back());
          break;
        case f::value_info:
          read_folding(message(m), graph);
          break;
        case f::metadata_props:
          metadata(message(m), signature_key, graph.signature);
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, SparseTensor& sparse) {
    namespace f = schema::SparseTensorProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      if (m.tag() == f::values || m.tag() == f::indices) {
        Tensor& part = m.tag() == f::values ? sparse.values : sparse.indices;
        read(message(m), part);
      } else if (m.tag() == f::dims) {
        numbers(m, sparse.dims);
      } else {
        m.skip();
      }
    }
  }

  // What the description of a value says of how it was computed.
  void read_folding(protozero::data_view data, Graph& graph) {
    namespace f = schema::ValueInfoProto;
    begin(data);
    std::pair<std::string_view, std::string_view> found;
    for (pbf_reader m(data); m.next();) {
      if (m.tag() == f::name) {
        found.first = text(m);
      } else if (m.tag() == f::metadata_props) {
        metadata(message(m), folded_key, found.second);
      } else {
        m.skip();
      }
    }
    if (!found.second.empty()) graph.folded_from.push_back(found);
  }

  void read(protozero::data_view data, Function& function) {
    namespace f = schema::FunctionProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::name:
          function.name = text(m);
          break;
        case f::domain:
          function.domain = text(m);
          break;
        case f::overload:
          function.overload = text(m);
          break;
        case f::input:
          function.inputs.push_back(text(m));
          break;
        case f::output:
          function.outputs.push_back(text(m));
          break;
        case f::attribute:
          function.attributes.push_back(text(m));
          break;
        case f::attribute_proto:
          read(message(m), function.attribute_defaults.emplace_back(), 0);
          break;
        case f::node:
          read(message(m), function.nodes.emplace_back(), 0);
          break;
        case f::opset_import:
          function.opsets.push_back(opset(message(m)));
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, Node& node, int depth) {
    namespace f = schema::NodeProto;
    node.at = begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::name:
          node.name = text(m);
          break;
        case f::op_type:
          node.op_type = text(m);
          break;
        case f::domain:
          node.domain = text(m);
          break;
        case f::overload:
          node.overload = text(m);
          break;
        case f::input:
          node.inputs.push_back(text(m));
          break;
        case f::output:
          node.outputs.push_back(text(m));
          break;
        case f::attribute:
          read(message(m), node.attributes.emplace_back(), depth);
          break;
        case f::metadata_props:
          metadata(message(m), scope_key, node.scope);
          break;
        case f::device_configurations:
          read(message(m), node.devices.emplace_back());
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, Attribute& a, int depth) {
    namespace f = schema::AttributeProto;
    begin(data);
    for (pbf_reader m(data); m.next();) {
      if (m.tag() < 32) a.fields |= uint32_t{1} << m.tag();
      switch (m.tag()) {
        case f::name:
          a.name = text(m);
          break;
        case f::ref_attr_name:
          a.ref = text(m);
          break;
        case f::type:
          a.type = static_cast<int32_t>(number(m));
          break;
        case f::f:
          want(m, pbf_wire_type::fixed32);
          a.f = m.get_float();
          break;
        case f::i:
          a.i = number(m);
          break;
        case f::s:
          a.s = text(m);
          break;
        case f::t:
          a.t = std::make_shared<Tensor>();
          read(message(m), *a.t);
          break;
        case f::g:
          a.g = std::make_shared<Graph>();
          read(message(m), *a.g, depth + 1);
          break;
        case f::ints:
          numbers(m, a.ints);
          break;
        case f::strings:
          a.strings.push_back(text(m));
          break;
        case f::floats:
          if (m.wire_type() == pbf_wire_type::fixed32) {
            a.floats.push_back(m.get_float());
          } else {
            want(m, pbf_wire_type::length_delimited);
            auto range = m.get_packed_float();
            a.floats.insert(a.floats.end(), range.begin(), range.end());
          }
          break;
        default:
          m.skip();
      }
    }
  }

  void read(protozero::data_view data, Tensor& tensor) {
    namespace f = schema::TensorProto;
    tensor.at = begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::dims:
          numbers(m, tensor.dims);
          break;
        case f::data_type:
          tensor.data_type = static_cast<int32_t>(number(m));
          break;
        case f::name:
          tensor.name = text(m);
          break;
        case f::raw_data:
          tensor.raw = text(m);
          tensor.has_raw = true;
          break;
        case f::data_location:
          tensor.external = number(m) == 1;
          break;
        case f::external_data:
          external(message(m), tensor);
          break;
        case f::float_data:
        case f::int32_data:
        case f::int64_data:
        case f::double_data:
        case f::uint64_data:
          if (tensor.packed_field != 0 && tensor.packed_field != m.tag())
            throw Refused{"a tensor has data in two fields"};
          tensor.packed_field = m.tag();
          if (m.wire_type() == pbf_wire_type::length_delimited) {
            tensor.packed.push_back(view(m.get_view()));
          } else {
            single(m, tensor);
          }
          // Kept apart, their order would be lost; no writer mixes them.
          if (!tensor.packed.empty() && !(tensor.reals.empty() && tensor.integers.empty())) {
            throw Refused{"a tensor has numbers both packed and not"};
          }
          break;
        default:
          m.skip();
      }
    }
  }

  // A number of a typed field that is not packed.
  static void single(pbf_reader& m, Tensor& tensor) {
    namespace f = schema::TensorProto;
    if (m.tag() == f::float_data) {
      want(m, pbf_wire_type::fixed32);
      tensor.reals.push_back(m.get_float());
    } else if (m.tag() == f::double_data) {
      want(m, pbf_wire_type::fixed64);
      tensor.reals.push_back(m.get_double());
    } else {
      tensor.integers.push_back(number(m));
    }
  }

  void external(protozero::data_view data, Tensor& tensor) {
    const auto [key, read] = entry(data);
    const std::string_view value = read;
    auto read_size = [&](int64_t& out) {
      auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), out);
      if (failure != std::errc{} || end != value.data() + value.size() || out < 0) {
        throw Refused{cat("external ", key, " ", shown(value, 200), " is not a size")};
      }
    };
    if (key == "location") tensor.location = value;
    if (key == "offset") read_size(tensor.offset);
    if (key == "length") read_size(tensor.length);
  }

  void read(protozero::data_view data, ValueInfo& info) {
    begin(data);
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case schema::ValueInfoProto::name:
          info.name = text(m);
          break;
        case schema::ValueInfoProto::type:
          for (pbf_reader type(message(m)); type.next();) {
            if (type.tag() == schema::TypeProto::tensor_type) {
              tensor_type(message(type), info);
            } else {
              type.skip();
            }
          }
          break;
        default:
          m.skip();
      }
    }
  }

  void tensor_type(protozero::data_view data, ValueInfo& info) {
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case schema::TypeProto_Tensor::elem_type:
          info.elem_type = static_cast<int32_t>(number(m));
          break;
        case schema::TypeProto_Tensor::shape:
          info.has_shape = true;
          for (pbf_reader shape(message(m)); shape.next();) {
            if (shape.tag() == schema::TensorShapeProto::dim) {
              info.dims.push_back(dim(message(shape)));
            } else {
              shape.skip();
            }
          }
          break;
        default:
          m.skip();
      }
    }
  }

  static Dim dim(protozero::data_view data) {
    Dim dim;
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case schema::TensorShapeProto_Dimension::dim_value:
          dim.value = number(m);
          break;
        case schema::TensorShapeProto_Dimension::dim_param:
          dim.symbol = text(m);
          break;
        default:
          m.skip();
      }
    }
    return dim;
  }

  const char* base_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace

Result<File> read_file(std::span<const std::byte> bytes) { return Reading(bytes).file(); }
Result<Tensor> read_tensor(std::span<const std::byte> bytes) { return Reading(bytes).one_tensor(); }

}  // namespace epl::onnx
