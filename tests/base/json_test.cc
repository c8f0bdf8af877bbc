// JSON as RFC 8259 has it, with bounds that a library needs.
#include "core/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace epl::json_test {
namespace {

std::string again(std::string_view text) {
  auto json = parse_json(text);
  return json.ok() ? print_json(*json) : json.status().message();
}

TEST(Json, TextsComeBackAsTheyAre) {
  for (const char* text :
       {"null", "true", "false", "0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "0.5", "1e+20", "[]", "{}", "[1,[2,[]],{\"a\":null}]", "{\"b\":1,\"a\":{\"c\":[true]}}", "\"\"",
        "\"a\\\"\\\\\\n\\u0001\"", "\"\xe2\x82\xac\xf0\x9f\x98\x80\""}) {
    EXPECT_EQ(again(text), text);
  }
  EXPECT_EQ(again(" [ 1 ,\t2\r\n] "), "[1,2]");
  EXPECT_EQ(again("\"\\u20ac\\ud83d\\ude00\\/\\b\\f\\t\\r\""), "\"\xe2\x82\xac\xf0\x9f\x98\x80/\\b\\f\\t\\r\"");
  EXPECT_EQ(again("1.5E2"), "150.0");
  EXPECT_EQ(again("1e-400"), "0.0");
  EXPECT_EQ(again("20000000000000000000"), "2e+19");
}

TEST(Json, WhatIsNotJsonIsRefusedWithItsByte) {
  struct Case {
    const char *text, *message;
  };
  const Case cases[] = {{"", "byte 0"},
                        {"[1,]", "byte 3: a value"},
                        {"{\"a\":1,}", "byte 7"},
                        {"{a:1}", "byte 1"},
                        {"[1", "byte 2"},
                        {"01", "begins with 0"},
                        {"1.", "after the point"},
                        {"1e", "exponent"},
                        {".5", "byte 0"},
                        {"+1", "byte 0"},
                        {"tru", "byte 0"},
                        {"truex", "byte 4"},
                        {"nan", "byte 0: the value is nan, and JSON has finite numbers alone"},
                        {"{\"lr\": NaN}", "byte 7: the value of \"lr\" is NaN"},
                        {"{\"betas\":[0.9,-Infinity]}", "the value of \"betas\" is -Infinity"},
                        {"{\"a\":{\"b\":1},\"c\":inf}", "the value of \"c\" is inf"},
                        {"{\"a\":{\"b\":1},\"c\":}", "a value of \"c\" is expected"},
                        {"nul", "byte 0: a word"},
                        {"1e999", "too large"},
                        {"\"a", "not closed"},
                        {"\"\x01\"", "control"},
                        {"\"\xff\"", "UTF-8"},
                        {"\"\xed\xa0\x80\"", "UTF-8"},
                        {"\"\\x\"", "escape"},
                        {"\"\\u12\"", "escape"},
                        {"\"\\ud800\"", "surrogate"},
                        {"\"\\udc00\"", "surrogate"},
                        {"1 2", "byte 2"},
                        {"{\"a\":1,\"b\":2,\"a\":3}", "\"a\" comes twice"},
                        {"[1}", "byte 2"},
                        {"\"\\", "escape"},
                        {"-", "byte 0"}};
  for (const Case& one : cases) {
    auto json = parse_json(one.text);
    ASSERT_FALSE(json.ok()) << one.text;
    EXPECT_NE(json.status().message().find(one.message), std::string::npos)
        << one.text << ": " << json.status().message();
  }
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(max_json_depth)).ok());
  for (const size_t depth : {size_t{max_json_depth} + 1, size_t{1000000}}) {
    EXPECT_NE(parse_json(nested(depth)).status().message().find("deeper than 64"), std::string::npos);
  }
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse_json(objects).ok());
}

TEST(Json, AreBuiltFromLists) {
  Json out;
  out["name"] = "w";
  out["items"].push_back({{"size", 3}, {"share", 0.5}, {"dims", std::vector<int64_t>{1, 2}}});
  out["pair"] = Json::array({"a", "b"});
  out["empty"] = Json::object();
  out["large"] = std::numeric_limits<uint64_t>::max();
  out["nan"] = std::nan("");
  EXPECT_EQ(
      print_json(out),
      R"({"name":"w","items":[{"size":3,"share":0.5,"dims":[1,2]}],"pair":["a","b"],"empty":{},"large":18446744073709551615,"nan":null})");
  EXPECT_EQ(print_json(Json{{"a", 1}, {"b", Json::array({1})}}, 2), "{\n  \"a\": 1,\n  \"b\": [\n    1\n  ]\n}");
  EXPECT_EQ(print_json(Json("\xff"
                            "a\xe2\x82")),
            "\"\xef\xbf\xbd"
            "a\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_TRUE(out.at("items")[0].at("size").is_int64());
  EXPECT_FALSE(out.at("large").is_int64());
  EXPECT_THROW(static_cast<void>(out.at("name").get<int64_t>()), InternalError);
}

TEST(Text, IsCutBetweenCharacters) {
  EXPECT_EQ(excerpt("abc", 3), "abc");
  EXPECT_EQ(excerpt("\xe2\x82\xac\xe2\x82\xac", 4), "\xe2\x82\xac...");
  EXPECT_EQ(excerpt("\xe2\x82\xac\xe2\x82\xac", 3), "\xe2\x82\xac...");
  EXPECT_EQ(to_utf8("a\xff\xe2\x82z"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
  EXPECT_FALSE(is_utf8("\xc0\x80"));
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));
  EXPECT_TRUE(is_utf8("\xf4\x8f\xbf\xbf"));
}

}  // namespace
}  // namespace epl::json_test
