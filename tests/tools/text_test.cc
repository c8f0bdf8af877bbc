// What the tool prints: nothing that acts on a terminal, and no more than fits.
#include "tools/text.h"

#include <gtest/gtest.h>

#include "tools/json.h"

namespace epl::tools::text_test {
namespace {

TEST(Printable, WhatActsOnATerminalIsEscaped) {
  EXPECT_EQ(printable("a\x1b[31m\r\x7f\xc2\x9b"), "a\\x1b[31m\\x0d\\x7f\\x9b");
  EXPECT_EQ(printable("a\xe2\x80\xaey\xe2\x81\xa6z\xd8\x9c"), "a\\u202ey\\u2066z\\u061c");
  EXPECT_EQ(printable("a\nb\tc"), "a\nb\tc");
  EXPECT_EQ(printable_line("a\nb\tc"), "a\\nb\\x09c");
  EXPECT_EQ(printable("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(Printable, WhatIsNoTextIsReplaced) {
  const std::string replaced = "\xef\xbf\xbd";
  // A byte alone, a cut character, one in a form that is too long, half of a pair, one beyond the last.
  EXPECT_EQ(printable("\xff"), replaced);
  EXPECT_EQ(printable("\xe2\x80"), replaced + replaced);
  EXPECT_EQ(printable("\xc0\x80"), replaced + replaced);
  EXPECT_EQ(printable("\xe0\x80\x80"), replaced + replaced + replaced);
  EXPECT_EQ(printable("\xed\xa0\x80"), replaced + replaced + replaced);
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), replaced + replaced + replaced + replaced);
}

TEST(Printable, WordsAndLinesAreCutInTheirMiddle) {
  const std::string path(500, 'p');
  EXPECT_EQ(printable("wrote " + path + "\n"), "wrote " + path + "\n");
  const std::string cut = printable_line("no file " + std::string(1 << 20, 'x') + "yz; give another");
  EXPECT_LT(cut.size(), 600u);
  EXPECT_TRUE(cut.starts_with("no file xxx") && cut.ends_with("xyz; give another")) << cut;
  std::string words, lines;
  for (int i = 0; i < 10000; ++i) words += "word ", lines += "line\n";
  EXPECT_LT(printable(words).size(), 4100u);
  EXPECT_EQ(printable(lines), lines);
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\xe2\x82\xac";
  EXPECT_EQ(printable_line(wide).find("\xef\xbf\xbd"), std::string::npos);
}

TEST(Printable, NamesInTablesAreOneLine) {
  const Json said = printable_json({{"a\nb", {"c\x1b", 3, std::string(10000, 'n')}}});
  EXPECT_EQ(said.begin().key(), "a\\nb");
  EXPECT_EQ(said.front()[0].get<std::string>(), "c\\x1b");
  EXPECT_EQ(said.front()[1].get<int>(), 3);
  EXPECT_LT(said.front()[2].get<std::string>().size(), 600u);
}

TEST(Printable, IsWhatIsPrinted) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  say("a %s\n%d\n", "b\x1b", 3);
  say_error("epl: %s\n", "a\nb");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a b\\x1b\n3\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "epl: a\\nb\n");
}

}  // namespace
}  // namespace epl::tools::text_test
