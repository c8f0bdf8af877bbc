// What a model writes, as a terminal may show it.
#include "tools/language.h"

#include <gtest/gtest.h>

namespace epl::tools::language_test {
namespace {

TEST(Printable, KeepsUtf8) {
  for (const char* text : {"Élève à l'école\n", "日本語", "Ωμέγα", "😀 ~ \xf4\x8f\xbf\xbf", "\xc2\xa0"})
    EXPECT_EQ(with_dots(text), text);
}

TEST(Printable, WhatIsNoCharacterBecomesADot) {
  for (const auto& [bytes, shown] :
       std::vector<std::pair<std::string, std::string>>{{"a\x1b[31mb\tc\x7f", "a.[31mb.c."},  // control characters
                                                        {"\xc2\x85", "."},                    // and those beyond ASCII
                                                        {"\xe9t\xe9", ".t."},                 // Latin-1
                                                        {"\xc3", "."},
                                                        {"\xe6\x97", ".."},  // cut off
                                                        {"\xc0\xaf", ".."},
                                                        {"\xe0\x80\xaf", "..."},
                                                        {"\xf0\x80\x80\xaf", "...."},  // longer than need be
                                                        {"\xed\xa0\x80", "..."},       // half of a pair
                                                        {"\xf4\x90\x80\x80", "...."},
                                                        {"\xff", "."},
                                                        {std::string("a\0b", 3), "a.b"}}) {
    EXPECT_EQ(with_dots(bytes), shown);
  }
}

}  // namespace
}  // namespace epl::tools::language_test
