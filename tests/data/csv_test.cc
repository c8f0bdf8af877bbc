// Tables: right ones cell by cell, hostile ones refused with the line and the byte.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/data/split.h"
#include "tests/data/open_reader.h"

namespace epl::csv_test {
namespace {

std::string table(const std::string& text) {
  static int count = 0;  // a file each, because a test may have several
  const std::string path = temporary(cat("table_", count++, ".csv"));
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<float> floats(const Reader& reader, int64_t index, int field) {
  std::vector<float> out(static_cast<size_t>(reader.fields()[static_cast<size_t>(field)].second.elements()));
  EXPECT_TRUE(reader.read(index, field, out.data()).ok());
  return out;
}

TEST(Csv, ColumnsBecomeInputAndTarget) {
  const std::string path =
      table("\xef\xbb\xbfwidth,\"the \"\"price\"\", net\",height\r\n1,2,3\r\n\r\n -4.5 ,\"5e-1\" ,6\r\n7,8,9");
  auto last = open_reader("", path);
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  EXPECT_EQ((*last)->samples(), 3);
  EXPECT_EQ((*last)->fields()[0], (std::pair<std::string, TensorType>{"x", {DType::f32, {2}}}));
  EXPECT_EQ((*last)->fields()[1], (std::pair<std::string, TensorType>{"target", {DType::f32, {1}}}));
  EXPECT_EQ(floats(**last, 1, 0), (std::vector<float>{-4.5f, 0.5f}));
  EXPECT_EQ(floats(**last, 2, 1), (std::vector<float>{9}));
  auto named = open_reader("csv", path,
                           {{"target", std::string(R"("the \"price\", net")")}, {"input", std::string("features")}});
  ASSERT_TRUE(named.ok()) << named.status().to_string();
  EXPECT_EQ((*named)->fields()[0].first, "features");
  EXPECT_EQ(floats(**named, 0, 0), (std::vector<float>{1, 3}));
  EXPECT_EQ(floats(**named, 0, 1), (std::vector<float>{2}));
}

std::string in_units(const std::string& text, size_t bytes, bool big_endian, const std::string& mark) {
  std::string out = mark;
  for (const char c : text) {
    std::string unit(bytes, '\0');
    unit[big_endian ? bytes - 1 : 0] = c;
    out += unit;
  }
  return out;
}

// A file that is no text in UTF-8 is named as what it is, and what to do with it.
TEST(Csv, OtherEncodingsAreNamed) {
  const std::string text = "width,kind\n1,a\n22,b\n3,a\n";
  const std::pair<std::string, std::string> files[] = {
      {in_units(text, 2, false, "\xff\xfe"), "UTF-16LE; convert it to UTF-8"},
      {in_units(text, 2, true, "\xfe\xff"), "UTF-16BE; convert it to UTF-8"},
      {in_units(text, 4, false, std::string("\xff\xfe\0\0", 4)), "UTF-32LE; convert it to UTF-8"},
      {in_units(text, 4, true, std::string("\0\0\xfe\xff", 4)), "UTF-32BE; convert it to UTF-8"},
      {in_units(text, 2, false, ""), "UTF-16LE; convert it to UTF-8"},
      {in_units(text, 2, true, ""), "UTF-16BE; convert it to UTF-8"},
      {in_units(text, 4, false, ""), "UTF-32LE; convert it to UTF-8"},
      {in_units(text, 4, true, ""), "UTF-32BE; convert it to UTF-8"},
      {"width,kind\r1,a\r22,b\r", "carriage returns alone"},
      {"width,kind\n1,a\r22,b\r3,a\n", "line 2, column 2 \"kind\" (byte 13): a carriage return alone"},
      {"width,kind\n1,a\n2" + std::string("\0", 1) + "2,b\n", "line 3 (byte 16) has a byte that is zero"},
      {"width,kind\n1,caf\xe9\n2,b\n", "line 2, column 2 \"kind\" (byte 13): \"caf\xef\xbf\xbd\" is not in UTF-8"},
      {"width,gr\xf6\xdf"
       "e\n1,2\n",
       "line 1, column 2 (byte 6): \"gr\xef\xbf\xbd\xef\xbf\xbd"
       "e\" is not in UTF-8"},
      {"PK\x03\x04 and so on", "a zip archive, as workbooks of spreadsheets are"},
      {"\x1f\x8b\x08 and so on", "compressed by gzip"}};
  for (const auto& [bytes, words] : files) {
    for (const char* reader : {"csv", "tsv"}) {
      const auto opened =
          open_reader(reader, table(bytes), {{"classes", std::string("\"names\"")}, {"separator", std::string(",")}});
      ASSERT_FALSE(opened.ok()) << words;
      EXPECT_EQ(opened.status().code(), Code::invalid_argument);
      EXPECT_NE(opened.status().message().find(words), std::string::npos) << opened.status().message();
    }
  }
  // What is right stays right: quoted returns, other letters, and bytes that nobody reads.
  for (const char* well : {"width,kind\r\n1,\"a\rb\"\r\n2,b\r\n",
                           "width,gr\xc3\xb6\xc3\x9f"
                           "e\n1,2\n",
                           "width,other,kind\n1,caf\xe9,a\n2,b,b\n"}) {
    const auto opened =
        open_reader("csv", table(well), {{"classes", std::string("\"names\"")}, {"ignore", std::string("\"other\"")}});
    if (std::string_view(well).find("other") == std::string_view::npos) {
      EXPECT_TRUE(open_reader("csv", table(well), {{"classes", std::string("\"names\"")}}).ok()) << well;
    } else {
      EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    }
  }
}

TEST(Csv, ClassesAreIntegers) {
  auto reader = open_reader(
      "", table("kind;a;b\n2;0.5;1\n-100;1;2\n"),
      {{"classes", std::string("true")}, {"target", std::string("\"kind\"")}, {"separator", std::string(";")}});
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
  EXPECT_NE(open_reader("", table("a\tb\n\t2\n"), {{"separator", std::string("\t")}})
                .status()
                .message()
                .find("the value is missing"),
            std::string::npos);
  EXPECT_NE(
      open_reader("", table("a\tb\n1\t2\n")).status().message().find("separated by tabs: {\"separator\": \"\\t\"}"),
      std::string::npos);
  const std::string path = temporary("table.TSV");
  std::ofstream(path) << "a\tb\n1\t2\n";
  reader = open_reader("", path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(floats(**reader, 0, 1), (std::vector<float>{2}));
}

TEST(Csv, NumbersAsProgramsWriteThem) {
  auto reader = open_reader("", table("a,b,c,d,y\n+2,1e-60,True,1.5e3,-0.0\n.5,4.9e-324,false,1.,1e-400\n"));
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(floats(**reader, 0, 0), (std::vector<float>{2, 0, 1, 1500}));
  EXPECT_EQ(floats(**reader, 1, 0), (std::vector<float>{0.5f, 0, 0, 1}));
  EXPECT_EQ(floats(**reader, 1, 1), (std::vector<float>{0}));
}

TEST(Csv, ALineMayEndInsideQuotes) {
  auto reader = open_reader("", table("note,a,y\n\"two\nlines, \"\"so\"\"\",1,2\n\"\",3,4\nx,5,z\n"),
                            {{"ignore", std::string("\"note\"")}});
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.status().message().find("line 5, column 3 \"y\" (byte 44): \"z\" is not a number"),
            std::string::npos)
      << reader.status().message();
}

TEST(Csv, SeveralInputsOfNamedColumns) {
  const std::string path = table("id,a1,a2,b,kind,price,weight\n7,1,2,30,low,5,6\n8,3,4,-40,high,7,8\n");
  auto reader =
      open_reader("", path,
                  {{"inputs", std::string(R"({"x": ["a*"], "n": {"columns": "b", "dtype": "i64"}, "kind": "kind"})")},
                   {"target", std::string(R"(["weight", "price"])")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  using Fields = std::vector<std::pair<std::string, TensorType>>;
  EXPECT_EQ((*reader)->fields(), (Fields{{"x", {DType::f32, {2}}},
                                         {"n", {DType::i64, {1}}},
                                         {"kind", {DType::i64, {1}}},
                                         {"target", {DType::f32, {2}}}}));
  EXPECT_EQ(floats(**reader, 1, 0), (std::vector<float>{3, 4}));
  EXPECT_EQ(floats(**reader, 1, 3), (std::vector<float>{8, 7}));
  int64_t value = 0;
  ASSERT_TRUE((*reader)->read(1, 1, &value).ok());
  EXPECT_EQ(value, -40);
  ASSERT_TRUE((*reader)->read(1, 2, &value).ok());
  EXPECT_EQ(value, 0);  // high, low
  EXPECT_EQ((*reader)->columns(0), (std::vector<std::string>{"a1", "a2"}));
  const auto refused = [&](const char* inputs, const char* target, std::string_view message) {
    auto bad = open_reader("", path, {{"inputs", std::string(inputs)}, {"target", std::string(target)}});
    ASSERT_FALSE(bad.ok()) << inputs;
    EXPECT_NE(bad.status().message().find(message), std::string::npos) << bad.status().message();
  };
  refused(R"({"x": ["a1", "B"]})", "",
          "there is no column \"B\"; did you mean b? There are: id, a1, a2, b, kind, price, weight");
  refused(R"({"x": ["a1", "weight"]})", "", "column \"weight\" is in the target and in field x");
  refused(R"({"x": ["a1"], "z": ["a1"]})", "", "column \"a1\" is in field x and in field z");
  refused(R"({"x": ["c*"]})", "", "no column that is left fits \"c*\"");
  refused(R"({"x": ["a1", "kind"]})", "", "column \"kind\" of field x holds texts, column \"a1\" numbers");
  refused(R"({"x": {"columns": ["a1"], "dtyp": "i64"}})", "", "dtyp");
  refused(R"(["a1"])", "", "an object is expected");
  refused("", R"("Price")", "did you mean price?");
  refused("", R"(["kind", "price"])", "classes are one column");
}

TEST(Csv, TextsAreClassesInTheOrderOfTheAlphabet) {
  const std::string path = table("a,species\n1,virginica\n2,setosa\n3,\"versi, color\"\n4,setosa\n");
  auto reader = open_reader("", path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->classes().size(), 1u);
  EXPECT_EQ((*reader)->classes()[0].names, (std::vector<std::string>{"setosa", "versi, color", "virginica"}));
  for (const auto& [row, expected] : std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {1, 0}, {2, 1}, {3, 0}}) {
    int64_t value = -1;
    ASSERT_TRUE((*reader)->read(row, 1, &value).ok());
    EXPECT_EQ(value, expected) << row;
  }
  // Another file under the options of this one has the same numbers, whatever texts it holds.
  const std::string alike = (*reader)->options_alike();
  EXPECT_EQ(
      alike,
      R"({"target":["species"],"classes":["setosa","versi, color","virginica"],"inputs":{"x":{"columns":["a"],"dtype":"f32"}}})");
  auto second = open_reader("", table("species,a\nvirginica,1\n"),
                            {{"target", std::string(R"(["species"])")},
                             {"classes", std::string(R"(["setosa","versi, color","virginica"])")}});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  int64_t value = -1;
  ASSERT_TRUE((*second)->read(0, 1, &value).ok());
  EXPECT_EQ(value, 2);
  auto unknown =
      open_reader("", table("species,a\nvirginika,1\n"),
                  {{"target", std::string(R"(["species"])")}, {"classes", std::string(R"(["setosa","virginica"])")}});
  EXPECT_NE(unknown.status().message().find("line 2, column 1 \"species\" (byte 10): \"virginika\" is none of the "
                                            "classes that were given; did you mean virginica?"),
            std::string::npos)
      << unknown.status().message();
  // Names that look like numbers, and numbers that pandas has written as fractions.
  auto names = open_reader("", table("a,y\n1,10\n2,9\n"), {{"classes", std::string("\"names\"")}});
  EXPECT_EQ((*names)->classes()[0].names, (std::vector<std::string>{"10", "9"}));
  auto numbers = open_reader("", table("a,y\n1,0.0\n2,2.0\n"), {{"classes", std::string("true")}});
  ASSERT_TRUE(numbers.ok()) << numbers.status().to_string();
  ASSERT_TRUE((*numbers)->read(1, 1, &value).ok());
  EXPECT_EQ(value, 2);
  EXPECT_NE(open_reader("", path, {{"classes", std::string("false")}})
                .status()
                .message()
                .find("the target \"species\" holds texts"),
            std::string::npos);
}

// What is held out teaches nothing: the mean that fills a gap is that of the samples that are trained on.
TEST(Csv, MeansComeFromTheTrainedPart) {
  std::string text = "a,y\n";
  for (int i = 0; i < 30; ++i) text += cat(i % 5 == 2 ? "" : cat(i * i), ",", i, "\n");
  const std::string path = table(text);
  const auto part = [&](const char* name, const std::string& missing) {
    auto whole = open_reader("", path, {{"missing", missing}});
    EXPECT_TRUE(whole.ok()) << whole.status().to_string();
    return split_reader(std::move(*whole), name, 0.4, 0);
  };
  const auto trained = part("train", "\"mean\""), other = part("held_out", "\"mean\"");
  ASSERT_TRUE(trained.ok()) << trained.status().to_string();
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  const Reader *train = trained->get(), *held_out = other->get();
  double sum = 0;
  int values = 0;
  for (int64_t i = 0; i < train->samples(); ++i) {
    if (train->row(i) % 5 == 2) continue;
    sum += floats(*train, i, 0)[0];
    ++values;
  }
  const auto mean = static_cast<float>(sum / values);
  int gaps = 0;
  for (const Reader* reader : {train, held_out}) {
    for (int64_t i = 0; i < reader->samples(); ++i) {
      const int64_t row = reader->row(i);
      gaps += row % 5 == 2;
      EXPECT_EQ(floats(*reader, i, 0)[0], row % 5 == 2 ? mean : static_cast<float>(row * row)) << "row " << row;
    }
  }
  EXPECT_EQ(gaps, 6);
  EXPECT_NE(mean, 281.25f) << "the mean of all rows";
  EXPECT_EQ(train->options_alike(), held_out->options_alike());
  EXPECT_NE(train->options_alike().find(cat("\"missing\":{\"a\":")), std::string::npos);
}

TEST(Csv, MissingValuesAreErrorsUnlessToldOtherwise) {
  const std::string path = table("a,b,y\n1,10,1\n,20,2\n3,NA,3\n5,30,nan\n");
  auto refused = open_reader("", path);
  EXPECT_NE(refused.status().message().find(
                "line 3, column 1 \"a\" (byte 13): the value is missing (\"\"); the option missing says"),
            std::string::npos)
      << refused.status().message();
  auto mean = open_reader("", table("a,b,y\n1,10,1\n,20,2\n3,NA,3\n5,30,4\n"), {{"missing", std::string("\"mean\"")}});
  ASSERT_TRUE(mean.ok()) << mean.status().to_string();
  EXPECT_EQ(floats(**mean, 1, 0), (std::vector<float>{3, 20}));
  EXPECT_EQ(floats(**mean, 2, 0), (std::vector<float>{3, 20}));
  EXPECT_NE((*mean)->options_alike().find(R"("missing":{"a":3.0,"b":20.0})"), std::string::npos)
      << (*mean)->options_alike();
  EXPECT_NE(
      open_reader("", path, {{"missing", std::string("\"mean\"")}}).status().message().find("line 5, column 3 \"y\""),
      std::string::npos);  // a target is not made up
  auto drop = open_reader("", path, {{"missing", std::string("\"drop\"")}});
  ASSERT_TRUE(drop.ok()) << drop.status().to_string();
  EXPECT_EQ((*drop)->samples(), 1);
  EXPECT_EQ(floats(**drop, 0, 0), (std::vector<float>{1, 10}));
  auto number = open_reader("", path, {{"missing", std::string(R"({"a": -1, "b": 0.5, "y": "drop"})")}});
  ASSERT_TRUE(number.ok()) << number.status().to_string();
  EXPECT_EQ((*number)->samples(), 3);
  EXPECT_EQ(floats(**number, 1, 0), (std::vector<float>{-1, 20}));
  EXPECT_EQ(floats(**number, 2, 0), (std::vector<float>{3, 0.5f}));
  EXPECT_NE(
      open_reader("", path, {{"missing", std::string("\"median\"")}}).status().message().find("\"drop\" and a number"),
      std::string::npos);
  // Rows that are dropped count for no mean; the ones behind them stay in their places.
  auto both = open_reader("", table("a,b,y\n100,,1\n1,1,2\n,2,3\n3,3,4\n"),
                          {{"missing", std::string(R"({"a": "mean", "b": "drop"})")}});
  ASSERT_TRUE(both.ok()) << both.status().to_string();
  EXPECT_EQ(floats(**both, 1, 0), (std::vector<float>{2, 2}));
  EXPECT_NE(open_reader("", table("a,y\n,1\n"), {{"missing", std::string("\"mean\"")}})
                .status()
                .message()
                .find("no value at all"),
            std::string::npos);
  EXPECT_NE(open_reader("", table("a,y\n,1\n"), {{"missing", std::string("\"drop\"")}})
                .status()
                .message()
                .find("leaves none"),
            std::string::npos);
}

TEST(Csv, AHeadThatIsNoneIsAnError) {
  const std::string path = table("5.1,3.5,0\n4.9,3.0,1\n");
  EXPECT_NE(open_reader("", path).status().message().find("say {\"header\": false}"), std::string::npos);
  auto without = open_reader("", path, {{"header", std::string("false")}});
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  EXPECT_EQ((*without)->samples(), 2);
  EXPECT_EQ((*without)->columns(0), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(floats(**without, 0, 0), (std::vector<float>{5.1f, 3.5f}));
  auto with = open_reader("", path, {{"header", std::string("true")}});
  ASSERT_TRUE(with.ok()) << with.status().to_string();
  EXPECT_EQ((*with)->samples(), 1);
}

TEST(Csv, ColumnsThatAreNoInputsAreLeftOutByName) {
  const std::string path = table(",a,name,y\n0,1,x,2\n1,3,z,4\n");
  EXPECT_NE(open_reader("", path).status().message().find(
                "column 1 has no name, like the index that pandas writes. Leave it out by {\"ignore\": \"\"}"),
            std::string::npos);
  EXPECT_NE(open_reader("", path, {{"ignore", std::string("\"\"")}})
                .status()
                .message()
                .find("column \"name\" holds texts, no numbers. Leave it out by {\"ignore\": \"name\"}"),
            std::string::npos);
  auto reader = open_reader("", path, {{"ignore", std::string(R"(["", "n*"])")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(floats(**reader, 1, 0), (std::vector<float>{3}));
  EXPECT_NE(open_reader("", table("a,b,a\n1,2,3\n"), {{"target", std::string("\"b\"")}})
                .status()
                .message()
                .find("two columns are called \"a\""),
            std::string::npos);
}

TEST(Csv, HostileTablesAreRefusedWithThePosition) {
  const std::vector<std::pair<std::string, std::string>> tables = {
      {"", "is empty"},
      {"\n \r\n\n", "is empty"},
      {"a,b\n", "no line below"},
      {"a\n1\n", "line 1: a table needs two columns"},
      {"a,b\n1,2\n1,x\n", "line 3, column 2 \"b\" (byte 10): \"x\" is not a number"},
      {"a,b\n\n1,\n", "line 3, column 2 \"b\" (byte 7): the value is missing (\"\")"},
      {"a,b\n1,1\n1,2 3\n", "is not a number"},
      {"a,b\n1,nan\n", "the value is missing (\"nan\")"},
      {"a,b\n1,inf\n", "is not a finite number"},
      {"a,b\n1,1e39\n", "too large for a 32-bit number"},
      {"a,b\n1,1e400\n", "is not a finite number"},
      {"a,b\n1,2\n1,0x10\n", "is not a number"},
      {"a,b\n1,2,3\n", "line 2, column 3 (byte 8): a cell too many"},
      {"a,b\n1,2\n3\n", "line 3, column 1 \"a\" (byte 8): the line ends after 1 cells"},
      {"a,b\n\"1,2\n", "line 2, column 1 \"a\" (byte 4): a quote that is never closed"},
      {"a,b\n\"1\"2,3\n", "text behind a closed quote"},
      {std::string("a,b\n1,1\n1,2\0\n", 13), "line 3 (byte 11) has a byte that is zero"},
      {"a,b\n1,2\n" + std::string(100000, '"') + "\n", "line 3, column 1 \"a\" (byte 8): \"\\\"\\\""},
      {"a,b\n1," + std::string(100000, '9') + "\n", "is not a finite number"},
  };
  for (const auto& [text, message] : tables) {
    auto reader = open_reader("", table(text));
    ASSERT_FALSE(reader.ok()) << text.substr(0, 40);
    EXPECT_EQ(reader.status().code(), Code::invalid_argument) << text.substr(0, 40);
    EXPECT_NE(reader.status().message().find(message), std::string::npos)
        << text.substr(0, 40) << ": " << reader.status().message();
    EXPECT_LT(reader.status().message().size(), 250u);
  }
}

TEST(Csv, OptionsThatDoNotFitAreNamed) {
  const std::string path = table("width,price\n1,2.5\n");
  EXPECT_NE(
      open_reader("", path, {{"target", std::string("\"prize\"")}}).status().message().find("did you mean price?"),
      std::string::npos);
  EXPECT_NE(
      open_reader("", path, {{"classes", std::string("true")}}).status().message().find("\"2.5\" is not an integer"),
      std::string::npos);
  EXPECT_NE(open_reader("", path, {{"separator", std::string(";;")}}).status().message().find("one character"),
            std::string::npos);
  EXPECT_EQ(open_reader("csv", "/nowhere/at.csv").status().code(), Code::not_found);
}

}  // namespace
}  // namespace epl::csv_test
