// Options in every form in which they are given: one meaning, one error.
#include "core/base/options.h"

#include <gtest/gtest.h>

#include <limits>

namespace epl::options_test {
namespace {

const std::vector<Option>& declared() {
  static const std::vector<Option> options = {{.name = "rate", .value = 0.5},
                                              {.name = "betas", .value = Doubles{0.9, 0.99}},
                                              {.name = "fast", .value = false},
                                              {.name = "size", .value = int64_t{1}, .required = true},
                                              {.name = "order", .value = "up", .words = {"", "up", "down"}},
                                              {.name = "extra", .value = "", .json = true}};
  return options;
}

Attributes by_list(std::string_view list) {
  auto rows = parse_rows(list, ';', "thing");
  EXPECT_TRUE(rows.ok()) << rows.status().to_string();
  auto given = parse_options(rows.value().at(0).options, declared(), "thing a");
  EXPECT_TRUE(given.ok()) << given.status().to_string();
  auto all = complete_options(declared(), *given, "thing a");
  EXPECT_TRUE(all.ok()) << all.status().to_string();
  return *all;
}

TEST(Options, EveryFormHasOneMeaning) {
  const auto json = parse_options(R"({"rate": 2, "betas": [0.1, 1], "fast": true, "size": 7, "extra": {"a": [1]}})",
                                  declared(), "thing a");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ(json->number("rate"), 2);
  EXPECT_EQ(std::get<Doubles>(*json->find("betas")), (Doubles{0.1, 1}));
  EXPECT_TRUE(json->flag("fast"));
  EXPECT_EQ(json->integer("size"), 7);
  EXPECT_EQ(json->text("order"), "up");
  EXPECT_EQ(json->text("extra"), R"({"a":[1]})");
  const Attributes list = by_list("a(rate=2, betas=[0.1,1], fast, size=+7, extra={\"a\":[1]}); b");
  const auto values = complete_options(declared(),
                                       {{"rate", int64_t{2}},
                                        {"betas", Doubles{0.1, 1}},
                                        {"fast", true},
                                        {"size", int64_t{7}},
                                        {"extra", R"({"a":[1]})"}},
                                       "thing a");
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  for (const Option& option : declared()) {
    EXPECT_TRUE(identical(*json->find(option.name), *list.find(option.name))) << option.name;
    EXPECT_TRUE(identical(*json->find(option.name), *values->find(option.name))) << option.name;
  }
}

TEST(Options, EveryFormHasOneError) {
  const auto by_json = [](std::string_view text) {
    return parse_options(text, declared(), "thing a").status().message();
  };
  const auto by_text = [](const char* name, const char* text) {
    return parse_options(OptionTexts{{name, text}}, declared(), "thing a").status().message();
  };
  const auto by_value = [](const char* name, const Attribute& value) {
    return complete_options(declared(), Attributes{{"size", int64_t{1}}, {name, value}}, "thing a").status().message();
  };
  const std::string unknown =
      "thing a has no option \"rat\"; did you mean rate? There are: rate, betas, fast, size, order, extra.";
  EXPECT_EQ(by_json(R"({"rat": 1})"), unknown);
  EXPECT_EQ(by_text("rat", "1"), unknown);
  EXPECT_EQ(by_value("rat", int64_t{1}), unknown);
  const std::string word = "option \"order\" of thing a is \"left\"; one of \"\", up, down is expected";
  EXPECT_EQ(by_json(R"({"order": "left"})"), word);
  EXPECT_EQ(by_text("order", "left"), word);
  EXPECT_EQ(by_value("order", "left"), word);
  EXPECT_EQ(by_json(R"({"size": 1.5})"), "option \"size\" of thing a is 1.5; an integer is expected");
  EXPECT_EQ(by_text("rate", "1e999"), "option \"rate\" of thing a is \"1e999\"; a finite number is expected");
  EXPECT_EQ(by_text("betas", "1,x"), "option \"betas\" of thing a is \"1,x\"; a list of numbers is expected");
  EXPECT_EQ(by_json(R"({"rate": 1})"), "thing a needs option size");
  EXPECT_EQ(by_json("[]"), "the options of thing a are not a JSON object: []");
}

TEST(Options, EveryFormKeepsTheRange) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Option> ranged = {
      {.name = "rate", .value = 0.5, .range = at_least(0)},
      {.name = "shares", .value = Doubles{}, .range = {.from = 0, .to = 1, .without_to = true}},
      {.name = "size", .value = int64_t{1}, .range = {.from = 1, .to = 8}},
      {.name = "sizes", .value = Ints{}, .range = more_than(0)},
      {.name = "factor", .value = 0.5, .range = {.from = -0.5, .to = 1, .without_from = true, .without_to = true}}};
  const auto message = [&](const char* name, const char* text, const Attribute& value) {
    const std::string by_text = parse_options(OptionTexts{{name, text}}, ranged, "a thing").status().message();
    const std::string by_value = complete_options(ranged, {{name, value}}, "a thing").status().message();
    EXPECT_EQ(by_text.empty(), by_value.empty()) << by_text << by_value;
    EXPECT_EQ(by_text.substr(by_text.find(';') + 1), by_value.substr(by_value.find(';') + 1));
    const std::string json = cat("{\"", name, "\": ", text, "}");
    if (std::string_view(text).find_first_of("n,") == std::string_view::npos) {
      EXPECT_EQ(parse_options(json, ranged, "a thing").ok(), by_text.empty()) << json;
    }
    return by_text;
  };
  EXPECT_EQ(message("rate", "-1", -1.0),
            "option \"rate\" of a thing is \"-1\"; a finite number is expected, 0 or more");
  EXPECT_NE(message("rate", "nan", nan), "");
  EXPECT_EQ(message("rate", "0", 0.0), "");
  EXPECT_EQ(message("shares", "0,1", Doubles{0, 1}),
            "option \"shares\" of a thing is \"0,1\"; a list of numbers is expected, each from 0 to below 1");
  EXPECT_NE(message("shares", "0,nan", Doubles{0, nan}), "");
  EXPECT_EQ(message("shares", "0,0.5", Doubles{0, 0.5}), "");
  EXPECT_EQ(message("size", "9", int64_t{9}),
            "option \"size\" of a thing is \"9\"; an integer is expected, from 1 to 8");
  EXPECT_EQ(message("size", "8", int64_t{8}), "");
  EXPECT_EQ(message("sizes", "1,0", Ints{1, 0}),
            "option \"sizes\" of a thing is \"1,0\"; a list of integers is expected, each more than 0");
  EXPECT_EQ(message("factor", "1", 1.0),
            "option \"factor\" of a thing is \"1\"; a finite number is expected, between -0.5 and 1");
  EXPECT_NE(message("factor", "-0.5", -0.5), "");
  EXPECT_EQ(message("factor", "-0.25", -0.25), "");
}

TEST(Options, ListsOfRowsAreRead) {
  const auto refused = [](std::string_view list) { return parse_rows(list, ',', "thing").status().message(); };
  EXPECT_EQ(parse_rows(" a , b( x = 1 ,y=(2,3)) ,", ',', "thing")->size(), 2u);
  EXPECT_EQ(parse_rows("b( x = 1 ,y=(2,3))", ',', "thing")->at(0).options, (OptionTexts{{"x", "1"}, {"y", "(2,3)"}}));
  EXPECT_EQ(refused("a,,b"), "thing: a name is missing, got \"\"");
  EXPECT_EQ(refused("(x=1)"), "thing: a name is missing, got \"(x=1)\"");
  EXPECT_EQ(refused("a(x"), "thing a(x: the parenthesis is not closed");
  EXPECT_EQ(refused("a(x=1,x=2)"), "thing a(x=1,x=2): x is given twice");
  EXPECT_EQ(refused("a(=1)"), "thing a(=1): \"=1\" is not NAME=VALUE");
}

}  // namespace
}  // namespace epl::options_test
