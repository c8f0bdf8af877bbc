#include <algorithm>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "frontends/onnx/annotations.h"
#include "frontends/onnx/fields.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

constexpr std::string_view configuration_name = "epl";
constexpr int64_t first_version = 11;  // of the IR, which has device configurations

std::string_view text_in(std::string_view message, uint32_t tag) {
  for (FieldCopier fields(message); fields.next();) {
    if (fields.tag() == tag && fields.reader().wire_type() == protozero::pbf_wire_type::length_delimited)
      return fields.message();
    fields.reader().skip();
  }
  return {};
}

int64_t ir_version(std::string_view model) {
  int64_t version = 0;
  for (protozero::pbf_reader m(model.data(), model.size()); m.next();) {
    if (m.tag() == schema::ModelProto::ir_version) {
      version = m.get_int64();
    } else {
      m.skip();
    }
  }
  return version;
}

// Ranks that hold the same shard are a group, whose numbers follow those of the devices.
void write_shards(protozero::pbf_writer& out, std::string_view tensor, const ShardAnnotation& shards) {
  namespace f = schema::ShardingSpecProto;
  out.add_string(f::tensor_name, tensor.data(), tensor.size());
  std::vector<int64_t> devices;
  int64_t next_group = -1;
  for (const std::vector<int>& ranks : shards.ranks) {
    if (ranks.size() == 1) {
      devices.push_back(ranks[0]);
      continue;
    }
    protozero::pbf_writer group(out, f::index_to_device_group_map);
    group.add_int64(schema::IntIntListEntryProto::key, next_group);
    for (const int rank : ranks) group.add_int64(schema::IntIntListEntryProto::value, rank);
    devices.push_back(next_group--);
  }
  for (const int64_t device : devices) out.add_int64(f::device, device);
  for (size_t d = 0; d < shards.dims.size(); ++d) {
    if (shards.dims[d].empty()) continue;
    protozero::pbf_writer dim(out, f::sharded_dim);
    dim.add_int64(schema::ShardedDimProto::axis, static_cast<int64_t>(d));
    for (const ShardedPart& part : shards.dims[d]) {
      protozero::pbf_writer simple(dim, schema::ShardedDimProto::simple_sharding);
      simple.add_int64(schema::SimpleShardedDimProto::dim_value, part.size);
      simple.add_int64(schema::SimpleShardedDimProto::num_shards, part.shards);
    }
  }
}

}  // namespace

std::string model_annotations(const DeviceAnnotations& annotations, bool says_all, std::string_view model) {
  namespace f = schema::ModelProto;
  std::string text;
  protozero::pbf_writer out(text);
  out.add_int64(f::ir_version, std::max(ir_version(model), first_version));
  {
    protozero::pbf_writer entry(out, f::metadata_props);
    entry.add_string(schema::StringStringEntryProto::key, strategy_key.data(), strategy_key.size());
    entry.add_string(schema::StringStringEntryProto::value, says_all ? annotations.rest : annotations.strategy);
  }
  {
    protozero::pbf_writer configuration(out, f::configuration);
    configuration.add_string(schema::DeviceConfigurationProto::name, configuration_name.data(),
                             configuration_name.size());
    configuration.add_int32(schema::DeviceConfigurationProto::num_devices, static_cast<int32_t>(annotations.devices));
  }
  return text;
}

std::string node_annotation(const DeviceAnnotations& annotations, std::string_view source,
                            const std::vector<std::string_view>& tensors, std::set<std::string_view>& said) {
  namespace f = schema::NodeDeviceConfigurationProto;
  std::map<std::string_view, const std::map<int, ShardAnnotation>*> weights;
  for (const std::string_view tensor : tensors) {
    if (const auto found = annotations.weights.find(tensor); found != annotations.weights.end())
      weights.emplace(found->first, &found->second);
  }
  const auto known = annotations.stages.find(source);
  if (known == annotations.stages.end() && weights.empty()) return {};
  // What is merged with another node, or makes a constant of a weight, is in the stage that reads the weight.
  const int stage = known != annotations.stages.end() ? known->second : weights.begin()->second->begin()->first;
  std::string text;
  protozero::pbf_writer node(text);
  protozero::pbf_writer out(node, schema::NodeProto::device_configurations);
  out.add_string(f::configuration_id, configuration_name.data(), configuration_name.size());
  for (const auto& [tensor, by_stage] : weights) {
    const auto here = by_stage->find(stage);
    protozero::pbf_writer spec(out, f::sharding_spec);
    write_shards(spec, tensor, (here != by_stage->end() ? here : by_stage->begin())->second);
    said.insert(tensor);
  }
  out.add_int32(f::pipeline_stage, stage);
  out.commit();
  return text;
}

bool is_replaced_annotation(uint32_t model_tag, std::string_view field) {
  if (model_tag == schema::ModelProto::configuration)
    return text_in(field, schema::DeviceConfigurationProto::name) == configuration_name;
  return model_tag == schema::ModelProto::metadata_props &&
         text_in(field, schema::StringStringEntryProto::key) == strategy_key;
}

bool is_own_devices(uint32_t node_tag, std::string_view field) {
  if (node_tag == schema::NodeProto::metadata_props)
    return text_in(field, schema::StringStringEntryProto::key) == scope_key;
  return node_tag == schema::NodeProto::device_configurations &&
         text_in(field, schema::NodeDeviceConfigurationProto::configuration_id) == configuration_name;
}

}  // namespace epl::onnx
