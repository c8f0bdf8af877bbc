// What nobody else may know: neither in a core dump, nor in a message.
#include "core/base/secret.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace epl::secret_test {
namespace {

// The flags of the mapping that an address lies in, of /proc/self/smaps.
std::string flags_at(const void* address) {
  std::ifstream in("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= reinterpret_cast<unsigned long>(address) && reinterpret_cast<unsigned long>(address) < end;
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(Secret, StandsInNoCoreDump) {
  const Secret secret("what nobody else may know"), copy = secret;
  EXPECT_EQ(secret.view(), "what nobody else may know");
  EXPECT_EQ(copy.view().data(), secret.view().data()) << "there is one of it";
  const std::string flags = flags_at(secret.view().data());
  if (flags.empty()) GTEST_SKIP() << "no /proc/self/smaps here";
  EXPECT_NE(flags.find(" dd"), std::string::npos) << flags;
}

TEST(Secret, MayBeEmpty) {
  for (const Secret& none : {Secret(), Secret(""), Secret(std::string())}) {
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(none.view(), "");
  }
}

TEST(Secret, IsOverwritten) {
  std::string text(100, 'x');
  const char* const place = text.data();
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::string_view(place, 1), std::string_view("\0", 1));
}

// An id with any slip in it: no run of its digits is left.
TEST(Secret, IsNotInMessages) {
  const std::string digits = "5049a0ffc3d2e1b05049a0ffc3d2e1b0";
  for (const std::string& text :
       {"epl_id-1:" + digits + ":127.0.0.1:29511", "EPL-ID-1:" + digits, digits, "tcp://epl-id-1:" + digits + ":h:1",
        " epl-id-1:" + digits.substr(0, 20) + "\n" + digits.substr(20) + ":127.0.0.1:29511"}) {
    const std::string shown = without_secrets(text);
    for (size_t i = 0; i + 6 <= digits.size(); ++i)
      EXPECT_EQ(shown.find(digits.substr(i, 6)), std::string::npos) << shown;
  }
  EXPECT_EQ(without_secrets("tcp://node-12.example.org:29511"), "tcp://node-12.example.org:29511");
  EXPECT_EQ(without_secrets("[fe80::1%eth0]:80"), "[fe80::1%eth0]:80");
}

}  // namespace
}  // namespace epl::secret_test
