#include "frontends/onnx/proto.h"

#include "frontends/onnx/proto_tensor.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

constexpr int max_nesting = 32;  // of graphs in attributes of nodes

class Reading final : TensorReading {
 public:
  explicit Reading(std::span<const std::byte> bytes) : TensorReading(bytes) {}

  Result<File> file() {
    File file;
    Status status = guard([&] { read(pbf_reader(all()), file); });
    if (!status.ok()) return status;
    return file;
  }

 private:
  using TensorReading::read;

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
};

}  // namespace

Result<File> read_file(std::span<const std::byte> bytes) { return Reading(bytes).file(); }

}  // namespace epl::onnx
