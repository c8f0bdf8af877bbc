// Metrics against scikit-learn and PyTorch in float64 (metric_reference.py); the same bits however the samples are cut.
#include "core/train/metric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/exact_sum.h"

namespace epl::metric_test {
namespace {

Tensor series(Shape shape, int64_t seed, double scale = 1, double offset = 0) {
  Tensor data({DType::f64, std::move(shape)});
  for (int64_t i = 0; i < data.elements(); ++i)
    data.set(i, (static_cast<double>((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5) * scale + offset);
  return data;
}

// In integers, so that many are equal.
Tensor in_steps(Tensor data) {
  for (int64_t i = 0; i < data.elements(); ++i) data.set(i, std::nearbyint(data.get(i)));
  return data;
}

Tensor classes_of(Shape shape, int64_t classes) {
  Tensor target({DType::i64, std::move(shape)});
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, i % 11 == 3 ? -100 : (i * 3 + i / 7) % classes);
  return target;
}

struct Case {
  MetricSubject subject;
  Tensor output, target;
};

Case make_case(const std::string& name) {
  Case made;
  if (name == "five classes" || name == "two classes" || name == "inner classes") {
    const bool inner = name == "inner classes";
    const int64_t classes = name == "two classes" ? 2 : inner ? 4 : 5;
    made.output = inner ? series({6, 4, 5}, 9) : series({40, classes}, 3, 4);
    made.target = inner ? classes_of({6, 5}, 4) : classes_of({40}, classes);
    made.subject = {.task = Task::classes, .class_axis = 1, .ignored = -100};
  } else if (name == "one kind") {
    made.output = series({17, 5}, 3, 4);
    made.target = Tensor({DType::i64, {17}});
    for (int64_t i = 0; i < 17; ++i) made.target.set_int(i, 2);
    made.subject = {.task = Task::classes, .class_axis = 1, .ignored = -100};
  } else if (name == "tied") {
    made.output = in_steps(series({41, 2}, 3, 3));
    made.target = classes_of({41}, 2);
    made.subject = {.task = Task::classes, .class_axis = 1, .ignored = -100};
  } else if (name == "tied labels") {
    made.output = in_steps(series({41, 2}, 2, 3));
    made.target = series({41, 2}, 8);
    for (int64_t i = 0; i < made.target.elements(); ++i) made.target.set(i, made.target.get(i) > 0.1 ? 1 : 0);
    made.subject = {.task = Task::probabilities};
  } else if (name.starts_with("constant")) {
    made.target = series({7, 1}, 8, 0);
    made.output = name == "constant" ? series({7, 1}, 2) : made.target;
    made.subject = {.task = Task::numbers};
  } else if (name == "one of two constant") {
    made.output = series({9, 2}, 2);
    made.target = series({9, 2}, 8);
    for (int64_t i = 1; i < 18; i += 2) made.target.set(i, 0);
    made.subject = {.task = Task::numbers};
  } else if (name == "label" || name == "labels") {
    const Shape shape = {40, name == "label" ? 1 : 3};
    made.output = series(shape, 2);
    made.target = series(shape, 8);
    for (int64_t i = 0; i < made.target.elements(); ++i) made.target.set(i, made.target.get(i) > 0.1 ? 1 : 0);
    made.subject = {.task = Task::probabilities};
  } else {
    const double offset = name == "far from zero" ? 1e6 : 0;
    const Shape shape = {40, name == "three columns" ? 3 : 1};
    made.output = series(shape, 2, 1, offset);
    made.target = series(shape, 8, 1, offset);
    made.subject = {.task = Task::numbers};
  }
  made.subject.output = made.output.type();
  return made;
}

std::unique_ptr<Metric> make(const std::string& text, const MetricSubject& subject) {
  auto specs = parse_metrics(text);
  EXPECT_TRUE(specs.ok()) << specs.status().to_string();
  if (!specs.ok()) return nullptr;
  auto made = specs->front().row->make(specs->front().options, subject);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(*made) : nullptr;
}

// Samples [first, last) along dimension 0.
Tensor rows(const Tensor& full, int64_t first, int64_t last) {
  TensorType type = full.type();
  type.shape[0] = last - first;
  Tensor part(type);
  const int64_t each = full.bytes() / full.shape()[0];
  std::memcpy(part.data(), static_cast<const std::byte*>(full.data()) + first * each,
              static_cast<size_t>(part.bytes()));
  return part;
}
Scored part_of(const Case& c, int64_t first, int64_t last) {
  return {rows(c.output, first, last), rows(c.target, first, last), {}};
}

struct Expected {
  const char *name, *metric;
  double value;
};

// clang-format off
const std::vector<Expected>& expected() {
  static const std::vector<Expected> all = {
      {"five classes", "accuracy", 0.25},
      {"five classes", "perplexity", 7.990216194224825},
      {"five classes", "bits_per_byte", 2.9982345392128713},
      {"five classes", "bits_per_byte(bytes=3.5)", 0.8566384397751061},
      {"five classes", "f1(average=micro)", 0.25},
      {"five classes", "f1(average=macro)", 0.2203921568627451},
      {"five classes", "top_k(k=2)", 0.3611111111111111},
      {"five classes", "f1", 0.2203921568627451},
      {"two classes", "accuracy", 0.5555555555555556},
      {"two classes", "perplexity", 2.479388042135053},
      {"two classes", "bits_per_byte", 1.3099840812887615},
      {"two classes", "bits_per_byte(bytes=3.5)", 0.3742811660825033},
      {"two classes", "f1(average=micro)", 0.5555555555555556},
      {"two classes", "f1(average=macro)", 0.55},
      {"two classes", "f1", 0.6},
      {"two classes", "f1(positive=0)", 0.5},
      {"two classes", "auc", 0.5952380952380952},
      {"inner classes", "accuracy", 0.2962962962962963},
      {"inner classes", "perplexity", 4.066344708295832},
      {"one column", "mae", 0.453960396039604},
      {"one column", "r2", -1.6756571945719618},
      {"one column", "rmse", 0.4769821890035363},
      {"three columns", "mae", 0.4539603960396039},
      {"three columns", "r2", -1.7400476841625254},
      {"three columns", "rmse", 0.4769821890035363},
      {"far from zero", "mae", 0.45396039603219834},
      {"far from zero", "r2", -1.6756571946576457},
      {"far from zero", "rmse", 0.4769821889959123},
      {"label", "accuracy", 0.225},
      {"label", "f1", 0.11428571428571428},
      {"label", "f1(average=micro)", 0.11428571428571428},
      {"label", "auc", 0.125},
      {"labels", "accuracy", 0.20833333333333334},
      {"labels", "f1", 0.09523809523809523},
      {"labels", "f1(average=micro)", 0.09523809523809523},
      {"labels", "auc", 0.10694444444444444},
      {"one kind", "accuracy", 0.35294117647058826},
      {"one kind", "f1(average=macro)", 0.13043478260869565},
      {"one kind", "f1(average=micro)", 0.35294117647058826},
      {"one kind", "top_k(k=2)", 0.35294117647058826},
      {"one kind", "perplexity", 7.404986838788678},
      {"tied", "auc", 0.5416666666666666},
      {"tied", "accuracy", 0.5405405405405406},
      {"tied", "f1", 0.5853658536585366},
      {"tied labels", "auc", 0.0975},
      {"tied labels", "f1", 0.13793103448275862},
      {"constant", "r2", 0.0},
      {"constant and met", "r2", 1.0},
      {"one of two constant", "r2", -0.938019052271617},
      {"one of two constant", "mae", 0.3528602860286028},
      {"one of two constant", "rmse", 0.4048608490238237},
  };
  return all;
}
// clang-format on

TEST(Metric, IsThatOfScikitLearnAndPyTorch) {
  for (const Expected& e : expected()) {
    const Case c = make_case(e.name);
    auto metric = make(e.metric, c.subject);
    ASSERT_NE(metric, nullptr) << e.name << " " << e.metric;
    metric->add({c.output, c.target, {}});
    const double tolerance = std::string(e.name) == "far from zero" ? 1e-9 : 1e-13;
    EXPECT_NEAR(metric->value(), e.value, tolerance * std::max(1.0, std::fabs(e.value))) << e.name << " " << e.metric;
  }
}

TEST(Metric, IsTheSameBitsWhateverTheBatchesAndTheirOrder) {
  for (const Expected& e : expected()) {
    const Case c = make_case(e.name);
    auto full = make(e.metric, c.subject);
    ASSERT_NE(full, nullptr);
    full->add({c.output, c.target, {}});
    const int64_t count = c.output.shape()[0];
    for (int64_t batch : {1, 3, 7}) {
      auto backwards = make(e.metric, c.subject), first = make(e.metric, c.subject), second = make(e.metric, c.subject);
      for (int64_t last = count; last > 0; last -= batch)
        backwards->add(part_of(c, std::max<int64_t>(last - batch, 0), last));
      EXPECT_EQ(backwards->value(), full->value()) << e.name << " " << e.metric << " in batches of " << batch;
      for (int64_t at = 0, i = 0; at < count; at += batch, ++i)
        (i % 2 ? first : second)->add(part_of(c, at, std::min(count, at + batch)));
      first->merge(*second);
      EXPECT_EQ(first->value(), full->value()) << e.name << " " << e.metric << " merged";
    }
  }
}

TEST(Metric, OfNothingIsNoNumber) {
  for (const char* name : {"accuracy", "perplexity", "f1", "top_k(k=2)"}) {
    const Case c = make_case("five classes");
    auto metric = make(name, c.subject);
    EXPECT_TRUE(std::isnan(metric->value())) << name;
  }
  EXPECT_TRUE(std::isnan(make("r2", make_case("one column").subject)->value()));
  EXPECT_TRUE(std::isnan(make("auc", make_case("label").subject)->value()));
}

// Of 0.1, which no double is, a formula makes a spread that is only rounding, and a share of it that is anything.
TEST(Metric, AConstantTargetHasNoSpread) {
  for (double constant : {0.1, -1e-7, 1e17 / 3, 123456.789}) {
    Case c = make_case("one column");
    for (int64_t i = 0; i < 40; ++i) c.target.set(i, constant);
    auto missed = make("r2", c.subject), met = make("r2", c.subject);
    missed->add({c.output, c.target, {}});
    met->add({c.target, c.target, {}});
    EXPECT_EQ(missed->value(), 0) << constant;
    EXPECT_EQ(met->value(), 1) << constant;
  }
}

TEST(Metric, OneKindAloneHasNoArea) {
  Case c = make_case("label");
  for (int64_t i = 0; i < 40; ++i) c.target.set(i, 1);
  auto metric = make("auc", c.subject);
  metric->add({c.output, c.target, {}});
  EXPECT_TRUE(std::isnan(metric->value())) << "scikit-learn warns that it is not defined";
}

TEST(Metric, IgnoredTargetsAloneAreNothing) {
  Case c = make_case("five classes");
  for (int64_t i = 0; i < 40; ++i) c.target.set_int(i, -100);
  for (const char* name : {"accuracy", "perplexity", "f1", "top_k(k=2)"}) {
    auto metric = make(name, c.subject);
    metric->add({c.output, c.target, {}});
    EXPECT_TRUE(std::isnan(metric->value())) << name;
  }
}

TEST(Metric, ScoresThatAreNoNumbersMiss) {
  Case c = make_case("five classes");
  for (int64_t i = 0; i < c.output.elements(); ++i) c.output.set(i, NAN);
  for (const char* name : {"accuracy", "f1", "top_k(k=4)"}) {
    auto metric = make(name, c.subject);
    metric->add({c.output, c.target, {}});
    EXPECT_EQ(metric->value(), 0) << name;
  }
}

TEST(Metric, TakesTheLossesTermsWhereTheyAreTheLogLoss) {
  const Case c = make_case("five classes");
  auto metric = make("bits_per_byte", c.subject);
  Tensor two({DType::f64, {40}});
  for (int64_t i = 0; i < 40; ++i) two.set(i, 2 * std::log(2.0));
  metric->add({c.output, c.target, two});
  EXPECT_DOUBLE_EQ(metric->value(), 2);
}

TEST(Metric, RefusesWhatItIsNotOf) {
  const auto refused = [](const std::string& text, const char* name) {
    auto specs = parse_metrics(text);
    if (!specs.ok()) return specs.status().message();
    auto made = specs->front().row->make(specs->front().options, make_case(name).subject);
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_NE(refused("accuracy", "one column").find("classes or probabilities"), std::string::npos);
  EXPECT_NE(refused("mae", "five classes").find("the targets here are class indices"), std::string::npos);
  EXPECT_NE(refused("auc", "five classes").find("two classes"), std::string::npos);
  EXPECT_NE(refused("top_k(k=6)", "five classes").find("there are 5 classes"), std::string::npos);
  EXPECT_NE(refused("f1(average=mean)", "labels").find("binary, macro and micro"), std::string::npos);
  EXPECT_NE(refused("f1(average=binary)", "labels").find("two classes"), std::string::npos);
  EXPECT_NE(refused("bits_per_byte(bytes=0)", "five classes").find("not positive"), std::string::npos);
}

TEST(Metric, NamesAreRead) {
  auto specs = parse_metrics(" accuracy , top_k( k = 2 ),f1(average=micro, output=logits)");
  ASSERT_TRUE(specs.ok()) << specs.status().to_string();
  ASSERT_EQ(specs->size(), 3u);
  EXPECT_EQ((*specs)[0].label, "accuracy");
  EXPECT_EQ((*specs)[1].label, "top_k(k=2)");
  EXPECT_EQ((*specs)[1].options.integer("k"), 2);
  EXPECT_EQ((*specs)[2].label, "f1(average=micro,output=logits)");
  EXPECT_EQ((*specs)[2].output, "logits");
  EXPECT_TRUE(parse_metrics("")->empty());
  const std::pair<const char*, const char*> wrong[] = {{"acuracy", "did you mean accuracy?"},
                                                       {"top_k(n=3)", "has no option \"n\""},
                                                       {"top_k(k=many)", "an integer is expected"},
                                                       {"top_k(k", "not closed"},
                                                       {"accuracy,,mae", "a name is missing"},
                                                       {"mae,mae", "named twice"},
                                                       {"top_k(=5)", "is not NAME=VALUE"},
                                                       {"top_k(5)", "has no option \"5\""},
                                                       {"top_k(k=1,k=2)", "given twice"}};
  for (const auto& [text, message] : wrong) {
    auto read = parse_metrics(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find(message), std::string::npos) << read.status().message();
  }
}

TEST(Metric, EveryRowSaysWhatItIs) {
  ASSERT_GE(metric_table().rows.size(), 9u);
  for (const MetricRow& row : metric_table().rows) {
    EXPECT_GT(row.doc.size(), 40u) << row.name;
    const bool tested =
        std::ranges::any_of(expected(), [&](const Expected& e) { return std::string(e.metric).starts_with(row.name); });
    EXPECT_TRUE(tested) << row.name << " has no numbers of another implementation";
  }
}

TEST(ExactSum, IsRoundedOnceWhateverTheOrder) {
  ExactSum sum;
  for (double term : {1e100, 1.0, -1e100, 1e-30, 3.0}) sum.add(term);
  EXPECT_EQ(sum.value(), 4.0);
  EXPECT_EQ(sum.rest(), 1e-30);
  ExactSum half;  // halfway between two doubles, but for a little more
  half.add(1.0);
  half.add(0x1p-53);
  EXPECT_EQ(half.value(), 1.0);
  half.add(0x1p-110);
  EXPECT_EQ(half.value(), 1.0 + 0x1p-52);
  ExactSum forth, back;
  for (int i = 0; i < 1000; ++i) {
    forth.add(std::sin(i) * std::pow(10, i % 40));
    back.add(std::sin(999 - i) * std::pow(10, (999 - i) % 40));
  }
  EXPECT_EQ(forth.value(), back.value());
  back.add(back);
  EXPECT_EQ(back.value(), 2 * forth.value());
  ExactSum infinite;
  infinite.add(INFINITY);
  EXPECT_EQ(infinite.value(), INFINITY);
  infinite.add(-INFINITY);
  EXPECT_TRUE(std::isnan(infinite.value()));
}

}  // namespace
}  // namespace epl::metric_test
