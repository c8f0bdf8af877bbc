// Scopes by calls, and from the model's own annotations: ours, and those of ONNX IR 11.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <sstream>

#include "core/base/json.h"
#include "core/base/text.h"
#include "frontends/onnx/fields.h"
#include "frontends/onnx/schema.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace epl::capi::scopes_test {
namespace {

namespace schema = onnx::schema;

std::string message_of(epl_error* error) {
  std::string message = error != nullptr ? epl_error_message(error, nullptr) : "";
  epl_error_destroy(error);
  return message;
}

std::string text_and_end(epl_text* text) {
  std::string out = epl_text_data(text, nullptr);
  epl_text_destroy(text);
  return out;
}

std::string json_of(const epl_strategy* strategy) {
  epl_text* json = nullptr;
  must(epl_strategy_describe(strategy, &json));
  return text_and_end(json);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// Adds fields to the model's message and to those of its nodes, by name.
std::string annotate(const std::string& model, const std::string& of_model,
                     const std::map<std::string, std::string>& of_nodes) {
  std::string out;
  for (onnx::FieldCopier fields(model); fields.next();) {
    if (fields.tag() != schema::ModelProto::graph) {
      fields.reader().skip();
      out += fields.raw();
      continue;
    }
    std::string graph;
    for (onnx::FieldCopier inner(fields.message()); inner.next();) {
      if (inner.tag() != schema::GraphProto::node) {
        inner.reader().skip();
        graph += inner.raw();
        continue;
      }
      std::string node(inner.message()), name;
      (void)inner.raw();
      for (onnx::FieldCopier parts(node); parts.next();)
        parts.tag() == schema::NodeProto::name ? void(name = parts.message()) : parts.reader().skip();
      if (const auto more = of_nodes.find(name); more != of_nodes.end()) node += more->second;
      onnx::append_message(graph, schema::GraphProto::node, node);
    }
    (void)fields.raw();
    onnx::append_message(out, schema::ModelProto::graph, graph);
  }
  return out + of_model;
}

std::string metadata(uint32_t tag, const std::string& key, const std::string& value) {
  std::string entry, out;
  protozero::pbf_writer writer(entry);
  writer.add_string(schema::StringStringEntryProto::key, key);
  writer.add_string(schema::StringStringEntryProto::value, value);
  onnx::append_message(out, tag, entry);
  return out;
}

std::string scope(const std::string& name) { return metadata(schema::NodeProto::metadata_props, "epl.scope", name); }

// A device configuration of four devices and, of a node, its stage with the shards of one tensor over devices.
std::string configuration(int devices) {
  std::string message, out;
  protozero::pbf_writer writer(message);
  writer.add_string(schema::DeviceConfigurationProto::name, "four");
  writer.add_int32(schema::DeviceConfigurationProto::num_devices, devices);
  onnx::append_message(out, schema::ModelProto::configuration, message);
  return out;
}
std::string devices_of(int stage, const std::string& tensor, const std::vector<int64_t>& devices, int64_t axis) {
  std::string message, out;
  {
    protozero::pbf_writer writer(message);
    writer.add_string(schema::NodeDeviceConfigurationProto::configuration_id, "four");
    protozero::pbf_writer spec(writer, schema::NodeDeviceConfigurationProto::sharding_spec);
    spec.add_string(schema::ShardingSpecProto::tensor_name, tensor);
    for (const int64_t device : devices) spec.add_int64(schema::ShardingSpecProto::device, device);
    protozero::pbf_writer dim(spec, schema::ShardingSpecProto::sharded_dim);
    dim.add_int64(schema::ShardedDimProto::axis, axis);
    protozero::pbf_writer simple(dim, schema::ShardedDimProto::simple_sharding);
    simple.add_int64(schema::SimpleShardedDimProto::num_shards, static_cast<int64_t>(devices.size()));
    simple.commit();
    dim.commit();
    spec.commit();
    writer.add_int32(schema::NodeDeviceConfigurationProto::pipeline_stage, stage);
  }
  onnx::append_message(out, schema::NodeProto::device_configurations, message);
  return out;
}

class Scopes : public ::testing::Test {
 protected:
  void SetUp() override {
    world_make(&w_, folder_.path().c_str(), 2, 8);
    bytes_ = read_file(w_.model_path);
  }
  void TearDown() override { world_end(&w_); }

  epl_model* load(const std::string& bytes) {
    epl_model* model = nullptr;
    must(epl_model_load_bytes(w_.engine, bytes.data(), bytes.size(), nullptr, nullptr, &model));
    return model;
  }

  epl_error* plan(const epl_model* model, const epl_strategy* strategy, int64_t ranks, epl_plan** out) {
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    return epl_plan_create(model, w_.trainer, strategy, &options, nullptr, out);
  }

  // The losses of some steps, whose last bits tell layouts apart.
  std::vector<double> losses(const epl_model* model, const epl_strategy* strategy, int64_t ranks) {
    epl_plan* made = nullptr;
    const std::string message = message_of(plan(model, strategy, ranks, &made));
    EXPECT_EQ(message, "");
    if (made == nullptr) return {};
    epl_session* session = nullptr;
    must(epl_session_create(made, nullptr, nullptr, &session));
    std::vector<double> out;
    for (int step = 0; step < 4; ++step) {
      epl_metrics metrics = EPL_METRICS_INIT;
      must(epl_session_step(session, w_.inputs, 2, nullptr, &metrics));
      out.push_back(metrics.loss);
    }
    epl_session_destroy(session);
    epl_plan_destroy(made);
    return out;
  }

  std::string stages(const epl_model* model, const epl_strategy* strategy, int64_t ranks) {
    epl_plan* made = nullptr;
    EXPECT_EQ(message_of(plan(model, strategy, ranks, &made)), "");
    if (made == nullptr) return "";
    epl_text* overview = nullptr;
    must(epl_plan_describe(made, EPL_STR("overview"), nullptr, &overview));
    epl_plan_destroy(made);
    const auto json = parse_json(text_and_end(overview));
    std::string out;
    for (const Json& device : *json->find("virtual_devices")) {
      for (const Json& one : *device.find("task_graphs")) out += one.find("name")->get<std::string>() + " ";
      out += print_json(*device.find("ranks")) + ";";
    }
    return out;
  }

  const TemporaryFolder folder_;
  world w_;
  std::string bytes_;
};

TEST_F(Scopes, ByCallsAreThoseOfTheJson) {
  epl_strategy *called = nullptr, *parsed = nullptr;
  must(epl_strategy_create(w_.engine, &called));
  must(epl_strategy_set(called, EPL_STR("pipeline.num_micro_batch"), EPL_STR("2")));
  int64_t first = -1, second = -1, inner = -1;
  must(epl_strategy_add_scope(called, EPL_SCOPE_TOP, EPL_SCOPE_REPLICATE, 1, EPL_STR("first"), &first));
  must(epl_strategy_add_scope(called, EPL_SCOPE_TOP, EPL_SCOPE_REPLICATE, 2, EPL_STR("second"), &second));
  must(epl_strategy_add_match(called, first, EPL_STR("node:net.0")));
  must(epl_strategy_add_scope(called, second, EPL_SCOPE_SPLIT, 2, NULL, 0, &inner));
  must(epl_strategy_add_match(called, inner, EPL_STR("*")));
  must(epl_strategy_parse(w_.engine, EPL_STR(R"({"pipeline.num_micro_batch": 2, "scopes": [
      {"name": "first", "replicate": 1, "match": "node:net.0"},
      {"name": "second", "replicate": 2, "scopes": [{"split": 2, "match": "*"}]}]})"),
                          &parsed));
  EXPECT_EQ(json_of(called), json_of(parsed));
  EXPECT_EQ(stages(w_.model, called, 3), "first [0];second.0 [1,2];");
  EXPECT_EQ(losses(w_.model, called, 3), losses(w_.model, parsed, 3));
  epl_strategy_destroy(called);
  epl_strategy_destroy(parsed);
}

TEST_F(Scopes, WrongCallsAreErrorsThatChangeNothing) {
  epl_strategy* strategy = nullptr;
  must(epl_strategy_create(w_.engine, &strategy));
  int64_t scope = 77, other = 77;
  const auto add = [&](int64_t outer, int32_t kind, int64_t count) {
    return message_of(epl_strategy_add_scope(strategy, outer, kind, count, NULL, 0, &other));
  };
  EXPECT_NE(add(EPL_SCOPE_TOP, 3, 1).find("kind is 3"), std::string::npos);
  EXPECT_NE(add(EPL_SCOPE_TOP, EPL_SCOPE_SPLIT, 0).find("device_count is 0"), std::string::npos);
  EXPECT_NE(add(0, EPL_SCOPE_SPLIT, 1).find("there is no scope 0"), std::string::npos);
  EXPECT_NE(message_of(epl_strategy_add_match(strategy, -1, EPL_STR("*"))).find("there is no scope -1"),
            std::string::npos);
  EXPECT_EQ(other, 77);
  EXPECT_EQ(json_of(strategy), "{}");
  must(epl_strategy_add_scope(strategy, EPL_SCOPE_DEFAULT, EPL_SCOPE_REPLICATE, 1, NULL, 0, &scope));
  EXPECT_EQ(scope, 0);
  EXPECT_NE(add(EPL_SCOPE_DEFAULT, EPL_SCOPE_SPLIT, 2).find("has a default already"), std::string::npos);
  must(epl_strategy_add_scope(strategy, scope, EPL_SCOPE_SPLIT, 2, NULL, 0, &other));
  EXPECT_EQ(json_of(strategy), R"({"default":{"replicate":1,"scopes":[{"split":2}]}})");
  epl_strategy_destroy(strategy);
}

TEST_F(Scopes, TheModelsOwnWordsAreTakenUnlessOthersAreGiven) {
  const std::string of_model = metadata(
      schema::ModelProto::metadata_props, "epl.strategy",
      R"({"pipeline.num_micro_batch":2,"scopes":[{"name":"early","replicate":1},{"name":"late","replicate":1}]})");
  epl_model* model = load(
      annotate(bytes_, of_model, {{"net.0", scope("early")}, {"net.1", scope("early")}, {"logits", scope("late")}}));
  epl_strategy* own = nullptr;
  must(epl_strategy_of_model(model, 2, &own));
  EXPECT_EQ(
      json_of(own),
      R"({"pipeline.num_micro_batch":2,"scopes":[{"name":"early","replicate":1,"match":["node:net.0","node:net.1"]},)"
      R"({"name":"late","replicate":1,"match":["node:logits"]}]})");
  EXPECT_EQ(stages(model, nullptr, 2), "early [0];late [1];");
  EXPECT_EQ(stages(model, nullptr, 4), "early [0,1];late [2,3];");
  EXPECT_EQ(stages(model, nullptr, 1), "default [0];");
  EXPECT_EQ(losses(model, nullptr, 2), losses(w_.model, w_.strategy, 1));
  epl_strategy* other = nullptr;
  must(epl_strategy_parse(w_.engine, EPL_STR(R"({"default":{"replicate":1}})"), &other));
  EXPECT_EQ(stages(model, other, 2), "default [0,1];");
  epl_strategy_destroy(other);
  epl_strategy_destroy(own);
  epl_model_destroy(model);

  model = load(annotate(bytes_, of_model, {{"net.0", scope("eraly")}}));
  const std::string why = message_of(epl_strategy_of_model(model, 2, &own));
  EXPECT_NE(why.find("no scope \"eraly\""), std::string::npos) << why;
  EXPECT_NE(why.find("early"), std::string::npos) << why;
  epl_plan* made = nullptr;
  EXPECT_NE(message_of(plan(model, nullptr, 2, &made)).find("does without"), std::string::npos);
  epl_model_destroy(model);
  EXPECT_EQ(taken(epl_strategy_of_model(w_.model, 2, &own)), EPL_ERROR_NOT_FOUND);
}

TEST_F(Scopes, DeviceConfigurationsAreRun) {
  epl_model* model = load(annotate(
      bytes_, configuration(4),
      {{"net.0", devices_of(0, "net.0.weight", {0, 1}, 0)}, {"logits", devices_of(1, "net.2.weight", {2, 3}, 1)}}));
  epl_strategy* own = nullptr;
  must(epl_strategy_of_model(model, 4, &own));
  EXPECT_EQ(json_of(own), R"({"scopes":[{"name":"stage0","split":2,"match":["node:net.0"],)"
                          R"("dims":{"net.0.weight":0}},)"
                          R"({"name":"stage1","split":2,"match":["node:logits"],"dims":{"net.2.weight":1}}]})");
  EXPECT_EQ(stages(model, nullptr, 4), "stage0 [0,1];stage1 [2,3];");
  EXPECT_EQ(stages(model, nullptr, 8), "stage0 [0,1,2,3];stage1 [4,5,6,7];");
  const auto wanted = losses(w_.model, w_.strategy, 1), found = losses(model, own, 4);
  ASSERT_EQ(wanted.size(), found.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6);
  epl_strategy_destroy(own);
  epl_model_destroy(model);

  for (const auto& [annotation, why] : std::map<std::string, std::string>{
           {devices_of(0, "net.0.weight", {0, 4}, 0), "net.0.weight is on device 4"},
           {devices_of(0, "net.9.weight", {0, 1}, 0), "\"net.9.weight\", which is no input or output of the node"},
           {devices_of(0, "net.0.weight", {0, 1, 2, 3, 0}, 0), "is cut into 5 shards along axis 0"}}) {
    model = load(annotate(bytes_, configuration(4), {{"net.0", annotation}}));
    const std::string message = message_of(epl_strategy_of_model(model, 4, &own));
    EXPECT_NE(message.find(why), std::string::npos) << message;
    epl_model_destroy(model);
  }
}

TEST_F(Scopes, DimensionsAreNamedByCalls) {
  epl_strategy *parsed = nullptr, *called = nullptr;
  must(epl_strategy_parse(w_.engine, EPL_STR(R"({"default":{"split":2,"dims":{"net.0.weight":1,"*":-1}}})"), &parsed));
  must(epl_strategy_create(w_.engine, &called));
  int64_t scope = 0;
  must(epl_strategy_add_scope(called, EPL_SCOPE_DEFAULT, EPL_SCOPE_SPLIT, 2, EPL_STR(""), &scope));
  must(epl_strategy_pin_dim(called, scope, EPL_STR("net.0.weight"), 1));
  must(epl_strategy_pin_dim(called, scope, EPL_STR("*"), -1));
  must(epl_strategy_pin_dim(called, scope, EPL_STR("net.0.weight"), 0));  // the first counts
  EXPECT_EQ(json_of(called), json_of(parsed));
  EXPECT_NE(message_of(epl_strategy_pin_dim(called, 7, EPL_STR("w"), 0)).find("there is no scope 7"),
            std::string::npos);
  EXPECT_EQ(taken(epl_strategy_pin_dim(called, scope, EPL_STR(""), 0)), EPL_ERROR_INVALID_ARGUMENT);
  epl_strategy_destroy(parsed);
  epl_strategy_destroy(called);
}

TEST_F(Scopes, APlanIsWrittenIntoItsModel) {
  const std::vector<std::pair<int64_t, const char*>> layouts = {
      {2, R"({"default": {"split": 2}})"},
      {2, R"({"default": {"split": 2, "dims": {"net.0.weight": 0}}})"},
      {4, R"({"default": {"split": 2, "dims": {"net.0.weight": 1}}})"},
      {4, R"({"pipeline.num_micro_batch": 4, "scopes": [
    {"name": "a", "replicate": 1, "match": "node:net.0"}, {"name": "b", "replicate": 1, "match": "*"}]})"},
      {3, R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "GPipe",
    "scopes": [{"name": "a", "replicate": 1, "match": "node:net.0"}, {"name": "b", "split": 2, "match": "*"}]})"}};
  for (const auto& [ranks, json] : layouts) {
    SCOPED_TRACE(json);
    epl_strategy* strategy = nullptr;
    must(epl_strategy_parse(w_.engine, TEXT(json), &strategy));
    epl_plan* made = nullptr;
    must(plan(w_.model, strategy, ranks, &made));
    const std::string first = cat(w_.out, ".onnx"), second = cat(w_.out, "2.onnx");
    must(epl_plan_export_onnx(made, TEXT(first.c_str()), nullptr));
    // Twice: annotations replace those that are there.
    epl_model* model = nullptr;
    must(epl_model_load(w_.engine, TEXT(first.c_str()), NULL, nullptr, &model));
    epl_plan* again = nullptr;
    must(plan(model, nullptr, ranks, &again));
    must(epl_plan_export_onnx(again, TEXT(second.c_str()), nullptr));
    EXPECT_EQ(read_file(first).size(), read_file(second).size());
    EXPECT_EQ(losses(model, nullptr, ranks), losses(w_.model, strategy, ranks));
    epl_plan_destroy(again);
    epl_plan_destroy(made);
    epl_model_destroy(model);
    epl_strategy_destroy(strategy);
  }
}

}  // namespace
}  // namespace epl::capi::scopes_test
