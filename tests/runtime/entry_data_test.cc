// What a file gives to a plan, looked at before the first step: a label that the model cannot take is named by its
// field, its row and its value, whatever type the file has for it and however it is read.
#include "core/runtime/entry_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/data/files.h"
#include "core/data/split.h"
#include "tests/runtime/graph_model.h"
#include "tests/runtime/skip_mlp.h"

namespace epl::entry_data_test {
namespace {

// Labels as numbers, in a type of the file's own.
class Labels : public Reader {
 public:
  Labels(DType type, std::vector<double> values, std::string name = "target") : values_(std::move(values)) {
    fields_ = {{"x", {DType::f32, {12}}}, {std::move(name), {type, {}}}};
  }
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return static_cast<int64_t>(values_.size()); }
  Status read(int64_t index, int field, void* target) const override {
    if (field == 0) {
      std::fill_n(static_cast<float*>(target), 12, 0.5f);
    } else {
      Tensor value(TensorType{fields_[1].second.dtype, {}});
      value.set(0, values_[static_cast<size_t>(index)]);
      std::memcpy(target, value.data(), static_cast<size_t>(value.bytes()));
    }
    return {};
  }

 private:
  std::vector<double> values_;
  std::vector<std::pair<std::string, TensorType>> fields_;
};

std::vector<double> labels(int64_t count, int64_t at = -1, double wrong = 0) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i == at ? wrong : static_cast<double>(i % 4));
  return out;
}

std::shared_ptr<const CompiledPlan> make_plan() {
  PlanOptions options;
  options.model = GraphModel::parse(skip_mlp);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "sgd";
  return CompiledPlan::create(test_host(1), options).value();
}

Status checked(std::unique_ptr<Reader> reader, bool bound = true) {
  static const std::shared_ptr<const CompiledPlan> plan = make_plan();
  const Entry& entry = *plan->entry(EntryKind::train);
  EPL_ASSIGN(const auto dataset, Dataset::create(std::move(reader), {.batch = 8, .shuffled = true, .seed = 3}));
  if (bound) EPL_TRY(bind_dataset(*dataset, entry));
  return check_dataset(*dataset, entry);
}

TEST(EntryData, LabelsThatFitAreTaken) {
  for (const DType type : {DType::i64, DType::i32, DType::u8, DType::i8, DType::u16, DType::u32, DType::u64, DType::f16,
                           DType::bf16, DType::f32, DType::f64}) {
    const Status status = checked(std::make_unique<Labels>(type, labels(50)));
    EXPECT_TRUE(status.ok()) << dtype_name(type) << ": " << status.to_string();
    if (!is_float(type)) continue;
    // -100 is ignored, in any type that has it.
    const Status ignored = checked(std::make_unique<Labels>(type, labels(50, 37, -100)));
    EXPECT_TRUE(ignored.ok()) << dtype_name(type) << ": " << ignored.to_string();
  }
}

TEST(EntryData, LabelsOutOfRangeAreNamedInEveryType) {
  const std::pair<double, std::string> wrong[] = {{4, "4"},     {-1, "-1"},        {1.5, "1.5"},
                                                  {NAN, "nan"}, {INFINITY, "inf"}, {-100.5, "-100.5"}};
  for (const DType type : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::u16, DType::u32, DType::u64,
                           DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const auto& [value, text] : wrong) {
      const bool is_unsigned = type == DType::u8 || type == DType::u16 || type == DType::u32 || type == DType::u64;
      const bool whole = std::isfinite(value) && value == std::floor(value);
      if (!is_float(type) && (!whole || (is_unsigned && value < 0))) continue;
      if (type == DType::bf16 && value == -100.5) continue;  // it has no such number
      for (const bool bound : {true, false}) {
        const Status status = checked(std::make_unique<Labels>(type, labels(50, 37, value)), bound);
        EXPECT_EQ(status.code(), Code::invalid_argument) << dtype_name(type) << " " << text;
        EXPECT_NE(status.message().find(
                      cat("field target, row 37 (counted from 0), holds ", text, ", which is not a class of 4")),
                  std::string::npos)
            << dtype_name(type) << ": " << status.message();
      }
    }
  }
}

// A number that the input's type does not have is found before the first step, as a label is.
TEST(EntryData, NumbersThatAnInputCannotHoldAreNamed) {
  for (const auto& [type, wrong] : {std::pair{"bool", 2.0}, {"bool", 0.5}, {"f16", 1e6}}) {
    PlanOptions options;
    options.model = GraphModel::parse(cat("graph marked(x: f32[8,12] batch 0, m: ", type, R"([8] batch 0) {
  w: f32[12] = param
  forward:
  p: f32[8,12] = mul(x, w)
  r: f32[8] = sum(p) {axes=[1],keep=false}
  c: f32[8] = cast(m) {to=@f32}
  y: f32[8] = mul(r, c)
  output y = y
}
)"));
    options.training = false;
    const auto plan = CompiledPlan::create(test_host(1), options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Entry& entry = *(*plan)->entry(EntryKind::predict);
    for (const bool right : {true, false}) {
      std::vector<double> values(50, 1.0);
      if (!right) values[37] = wrong;
      const auto dataset = Dataset::create(std::make_unique<Labels>(DType::f32, values, "m"), {.batch = 8}).value();
      ASSERT_TRUE(bind_dataset(*dataset, entry).ok());
      const Status status = check_dataset(*dataset, entry);
      EXPECT_EQ(status.ok(), right) << status.to_string();
      if (right) continue;
      EXPECT_NE(status.message().find("field m, row 37 (counted from 0), the value is "), std::string::npos)
          << status.message();
      EXPECT_NE(status.message().find(cat("which ", type, " cannot hold")), std::string::npos) << status.message();
    }
  }
}

TEST(EntryData, ARowIsThatOfTheFile) {
  // Of a part that is drawn.
  auto part = split_reader(std::make_unique<Labels>(DType::f32, labels(80, 37, 9)), "train", 0.2, 1).value();
  Status status = checked(std::move(part));
  if (status.ok())
    status = checked(split_reader(std::make_unique<Labels>(DType::f32, labels(80, 37, 9)), "held_out", 0.2, 1).value());
  EXPECT_NE(status.message().find("row 37 (counted from 0), holds 9"), std::string::npos) << status.message();
  // And of several files.
  std::vector<std::unique_ptr<Reader>> files;
  files.push_back(std::make_unique<Labels>(DType::f64, labels(20)));
  files.push_back(std::make_unique<Labels>(DType::f64, labels(20, 7, -3)));
  status = checked(join_files(std::move(files), {"a.csv", "b.csv"}).value());
  EXPECT_NE(status.message().find("field target, row 7 (counted from 0) of b.csv, holds -3"), std::string::npos)
      << status.message();
}

// Of a batch that was given, the row is found as well: what no check has looked at before is named by its sample.
TEST(EntryData, ASampleOfABatchIsNamed) {
  for (const int64_t prefetch : {0, 3}) {
    const auto dataset = Dataset::create(std::make_unique<Labels>(DType::i64, labels(48)),
                                         {.batch = 8, .shuffled = true, .seed = 3, .prefetch = prefetch})
                             .value();
    EXPECT_EQ(dataset->position_given(1, 0), "");
    std::set<std::string> seen;
    for (int batch = 0; batch < 6; ++batch) {
      const auto given = dataset->next().value();
      for (int64_t row = 0; row < 8; ++row) {
        const std::string position = dataset->position_given(1, row);
        ASSERT_TRUE(position.starts_with("row ") && position.ends_with(" of the dataset")) << position;
        EXPECT_EQ(std::atoi(position.c_str() + 4) % 4, given[1].get_int(row));
        seen.insert(position);
      }
    }
    EXPECT_EQ(seen.size(), 48u);
    EXPECT_EQ(dataset->position_given(1, 8), "");
    EXPECT_EQ(dataset->position_given(2, 0), "");
  }
}

}  // namespace
}  // namespace epl::entry_data_test
