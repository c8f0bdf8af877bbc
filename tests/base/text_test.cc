// Texts that repeat what others have written: cut, and nothing in them acts on a terminal.
#include "core/base/text.h"

#include <gtest/gtest.h>

#include "core/base/shown.h"

namespace epl::text_test {
namespace {

// A control of each kind: C0, DEL, C1, both separators, marks and embeddings that turn the direction.
const std::vector<std::string> kActing = {
    "\x1b",         "\a",           "\r",           "\n",           "\x7f",         "\xc2\x80",
    "\xc2\x9b",     "\xc2\x9f",     "\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"};
// What is near these and is shown.
const std::vector<std::string> kShown = {" ",
                                         "~",
                                         "\xc2\xa0",
                                         "\xc3\x9b",
                                         "\xd8\x9d",
                                         "\xd9\x9c",
                                         "\xe2\x80\x8d",
                                         "\xe2\x80\x90",
                                         "\xe2\x80\xaf",
                                         "\xe2\x81\xa5",
                                         "\xe2\x81\xaa",
                                         "\xe2\x82\xac",
                                         "\xe3\x80\xae",
                                         "\xf0\x9f\x98\x80"};

TEST(Text, WhatActsOnATerminalIsEscaped) {
  for (const std::string& one : kActing) {
    const std::string name = "a" + one + "b";
    SCOPED_TRACE(quoted(one));
    EXPECT_EQ(acting_bytes(one + "b"), one.size());
    for (const std::string& said : {quoted(name), shown(name), shown_plain(name), shown_path(name), full_line(name)}) {
      EXPECT_EQ(said.find(one), std::string::npos);
      EXPECT_NE(said.find(one == "\n" ? "\\n" : "\\x"), std::string::npos) << said;
    }
    EXPECT_EQ(full_message(name).find(one) != std::string::npos, one == "\n");
    const std::string text = quoted(name);
    std::string_view left = text;
    std::string back;
    EXPECT_TRUE(parse_quoted(left, back) && left.empty());
    EXPECT_EQ(back, name);
  }
}

TEST(Text, WhatIsShownStays) {
  for (const std::string& one : kShown) {
    const std::string name = "a" + one + "b";
    EXPECT_EQ(acting_bytes(one), 0u) << one;
    EXPECT_EQ(quoted(name), "\"" + name + "\"");
    EXPECT_EQ(shown_plain(name), name);
    EXPECT_EQ(full_line(name), name);
    EXPECT_EQ(full_message(name), name);
  }
  EXPECT_EQ(quoted(std::string("\"\\")), R"("\"\\")");
}

TEST(Text, ACutControlIsNoneAndBytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(acting_bytes(""), 0u);
  EXPECT_EQ(acting_bytes("\xe2\x80"), 0u);
  EXPECT_EQ(acting_bytes("\xc2"), 0u);
  EXPECT_EQ(full_line("a\xff\xe2\x80"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_LT(full_line(std::string(1 << 20, 'x')).size(), 8100u);
}

}  // namespace
}  // namespace epl::text_test
