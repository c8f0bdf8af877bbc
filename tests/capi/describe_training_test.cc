// What `epl inspect` says of training, from the files of tests/cases.
#include <gtest/gtest.h>

#include "core/capi/describe.h"
#include "core/frontend/model.h"

namespace epl::capi::describe_training_test {
namespace {

Json training_of(const std::string& name) {
  auto model = load_model(std::string(EPL_SOURCE_DIR) + "/tests/cases/" + name + "/model.onnx");
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? describe_training(**model) : Json();
}

TEST(DescribeTraining, TellsWeightsFromStatistics) {
  const Json training = training_of("resnet_adamw");
  int trainable = 0, statistics = 0;
  for (const Json& one : training.at("initializers")) {
    trainable += one.at("trainable").get<bool>();
    statistics += one.contains("reason") && one.at("reason") == "a running statistic";
    EXPECT_NE(one.at("trainable").get<bool>(), one.contains("reason"));
  }
  EXPECT_EQ(trainable, 20);
  EXPECT_EQ(statistics, 12);
  EXPECT_TRUE(training.at("obstacles").empty()) << print_json(training.at("obstacles"), 2);
}

TEST(DescribeTraining, SaysAtWhichSizesOpenDimensionsWereTaken) {
  const Json training = training_of("mlp_dynamic_batch_adamw");
  EXPECT_GT(training.at("open_dimensions_as").get<int64_t>(), 0);
  EXPECT_FALSE(training_of("mlp_sgd_legacy").contains("open_dimensions_as"));
}

TEST(DescribeTraining, NamesWhyAnIntegerTableIsNotTrained) {
  const Json training = training_of("bert_class_adamw");
  bool found = false;
  for (const Json& one : training.at("initializers")) {
    if (one.at("name") != "bert.embeddings.position_ids") continue;
    found = true;
    EXPECT_EQ(one.at("reason"), "not floating-point");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace epl::capi::describe_training_test
