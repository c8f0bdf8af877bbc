// Options in every form in which they are given: one meaning, one error.
#include "core/base/options.h"

#include <gtest/gtest.h>

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
