// Tables: right ones cell by cell, hostile ones refused with the line and the byte.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/data/open_reader.h"

namespace epl {
namespace {

std::string table(const std::string& text) {
  const std::string path = temporary("table.csv");
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<float> floats(const Reader& reader, int64_t index, int field) {
  std::vector<float> out(static_cast<size_t>(reader.fields()[static_cast<size_t>(field)].second.elements()));
  EXPECT_TRUE(reader.read(index, field, out.data()).ok());
  return out;
}

TEST(Csv, ColumnsBecomeInputAndTarget) {
  const std::string path = table("\xef\xbb\xbfwidth,\"the \"\"price\"\", net\",height\r\n1,2,3\r\n\r\n -4.5 ,\"5e-1\" ,6\r\n7,8,9");
  auto last = open_reader("", path);
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  EXPECT_EQ((*last)->samples(), 3);
  EXPECT_EQ((*last)->fields()[0], (std::pair<std::string, TensorType>{"x", {DType::f32, {2}}}));
  EXPECT_EQ((*last)->fields()[1], (std::pair<std::string, TensorType>{"target", {DType::f32, {1}}}));
  EXPECT_EQ(floats(**last, 1, 0), (std::vector<float>{-4.5f, 0.5f}));
  EXPECT_EQ(floats(**last, 2, 1), (std::vector<float>{9}));
  auto named = open_reader("csv", path, {{"target", std::string("the \"price\", net")}, {"input", std::string("features")}});
  ASSERT_TRUE(named.ok()) << named.status().to_string();
  EXPECT_EQ((*named)->fields()[0].first, "features");
  EXPECT_EQ(floats(**named, 0, 0), (std::vector<float>{1, 3}));
  EXPECT_EQ(floats(**named, 0, 1), (std::vector<float>{2}));
}

TEST(Csv, ClassesAreWholeNumbers) {
  auto reader = open_reader("", table("kind;a;b\n2;0.5;1\n-100;1;2\n"),
                            {{"classes", true}, {"target", std::string("kind")}, {"separator", std::string(";")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->fields()[1].second, (TensorType{DType::i64, {}}));
  int64_t label = 0;
  ASSERT_TRUE((*reader)->read(1, 1, &label).ok());
  EXPECT_EQ(label, -100);
  EXPECT_EQ(floats(**reader, 1, 0), (std::vector<float>{1, 2}));
}

TEST(Csv, ATabSeparatesWhereItIsToldTo) {
  auto reader = open_reader("", table("a\tb\tc\n\"1\"\t 2\t3\n"), {{"separator", std::string("\t")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(floats(**reader, 0, 0), (std::vector<float>{1, 2}));
  EXPECT_NE(open_reader("", table("a\tb\n\t2\n"), {{"separator", std::string("\t")}}).status().message().find("\"\" is no"), std::string::npos);
}

TEST(Csv, HostileTablesAreRefusedWithThePlace) {
  const std::vector<std::pair<std::string, std::string>> tables = {
      {"", "is empty"},
      {"\n \r\n\n", "is empty"},
      {"a,b\n", "no line below"},
      {"a\n1\n", "line 1, column 1 (byte 0): a table needs two columns"},
      {"a,b\n1,x\n", "line 2, column 2 (byte 6): \"x\" is no finite number"},
      {"a,b\n\n1,\n", "line 3, column 2 (byte 7): \"\" is no"},
      {"a,b\n1,2 3\n", "is no finite number"},
      {"a,b\n1,nan\n", "is no finite number"},
      {"a,b\n1,inf\n", "is no finite number"},
      {"a,b\n1,1e39\n", "is no finite number"},
      {"a,b\n1,0x10\n", "is no finite number"},
      {"a,b\n1,2,3\n", "line 2, column 3 (byte 8): a cell too many"},
      {"a,b\n1,2\n3\n", "line 3, column 1 (byte 8): the line ends after 1 cells"},
      {"a,b\n\"1,2\n", "line 2, column 1 (byte 4): a quote that the line does not close"},
      {"a,b\n\"1\"2,3\n", "text behind a closed quote"},
      {std::string("a,b\n1,2\0\n", 9), "is no finite number"},
      {"a,b\n" + std::string(100000, '"') + "\n", "line 2"},
      {"a,b\n1," + std::string(100000, '9') + "\n", "is no finite number"},
  };
  for (const auto& [text, message] : tables) {
    auto reader = open_reader("", table(text));
    ASSERT_FALSE(reader.ok()) << text.substr(0, 40);
    EXPECT_EQ(reader.status().code(), Code::data_loss) << text.substr(0, 40);
    EXPECT_NE(reader.status().message().find(message), std::string::npos) << text.substr(0, 40) << ": " << reader.status().message();
    EXPECT_LT(reader.status().message().size(), 200u);
  }
}

TEST(Csv, OptionsThatDoNotFitAreNamed) {
  const std::string path = table("width,price\n1,2.5\n");
  EXPECT_NE(open_reader("", path, {{"target", std::string("prize")}}).status().message().find("did you mean price?"), std::string::npos);
  EXPECT_NE(open_reader("", path, {{"classes", true}}).status().message().find("\"2.5\" is no whole number"), std::string::npos);
  EXPECT_NE(open_reader("", path, {{"separator", std::string(";;")}}).status().message().find("one character"), std::string::npos);
  EXPECT_EQ(open_reader("csv", "/nowhere/at.csv").status().code(), Code::not_found);
}

}  // namespace
}  // namespace epl
