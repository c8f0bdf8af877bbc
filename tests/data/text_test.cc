// The bytes of a text.
#include <gtest/gtest.h>

#include <fstream>

#include "core/data/open.h"
#include "tests/data/open_reader.h"

namespace epl::text_test {
namespace {

std::string text_file(const std::string& bytes) {
  static int count = 0;
  const std::string path = temporary(cat("text_", count++, ".txt"));
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Every second byte of such a text is a zero, which a model would learn as readily as letters.
TEST(Text, AnotherEncodingIsNamed) {
  for (const auto& [mark, name] : {std::pair{std::string("\xff\xfe"), "UTF-16LE"},
                                   {std::string("\xfe\xff"), "UTF-16BE"},
                                   {std::string("\xff\xfe\0\0", 4), "UTF-32LE"},
                                   {std::string("\0\0\xfe\xff", 4), "UTF-32BE"}}) {
    const std::string path = text_file(mark + std::string(200, 'a'));
    auto reader = open_reader("", path);
    ASSERT_FALSE(reader.ok()) << name;
    EXPECT_EQ(reader.status().message(),
              cat("the file is in ", name, "; convert it to UTF-8, as by: iconv -f ", name, " -t UTF-8"));
    EXPECT_EQ(reader.status().where(), path);
  }
  auto whole = open_reader("", text_file("\xef\xbb\xbf" + std::string(200, 'a')));
  EXPECT_TRUE(whole.ok()) << whole.status().to_string();
}

using Fields = std::vector<std::pair<std::string, TensorType>>;

// A model may have an input called target: the target then has another name, in every reader that makes one.
TEST(TargetName, IsThatOfTheOption) {
  const std::string text = text_file(std::string(200, 'a'));
  auto opened = open_dataset(text, R"({"context": 4, "input": "target", "target_name": "label"})", "");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->dataset->reader().fields(), (Fields{{"target", {DType::i64, {4}}}, {"label", {DType::i64, {4}}}}));
  EXPECT_NE(opened->options_alike().find(R"("target_name":"label")"), std::string::npos)
      << "another file is read alike";

  const std::string table = temporary("named_target.csv");
  std::ofstream(table, std::ios::binary) << "a,b,kind\n1,2,x\n3,4,y\n";
  opened = open_dataset(table, R"({"inputs": {"x": "a", "target": "b"}, "target_name": "label"})", "");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->dataset->reader().fields(),
            (Fields{{"x", {DType::f32, {1}}}, {"target", {DType::f32, {1}}}, {"label", {DType::i64, {}}}}));
  EXPECT_EQ(opened->dataset->reader().classes().front().field, "label");
}

TEST(TargetName, TwoFieldsOfOneNameAreRefused) {
  const std::string table = temporary("two_targets.csv");
  std::ofstream(table, std::ios::binary) << "a,b,kind\n1,2,x\n3,4,y\n";
  for (const auto& [path, options] : {std::pair{table, R"({"inputs": {"x": "a", "target": "b"}})"},
                                      {text_file(std::string(200, 'a')), R"({"context": 4, "input": "target"})"}}) {
    auto opened = open_dataset(path, options, "");
    ASSERT_FALSE(opened.ok()) << options;
    EXPECT_NE(opened.status().message().find("two fields of the data are called \"target\", one for an input and the "
                                             "target; {\"target_name\": \"label\"} calls the target otherwise"),
              std::string::npos)
        << opened.status().to_string();
    EXPECT_EQ(opened.status().where(), path);
  }
}

}  // namespace
}  // namespace epl::text_test
