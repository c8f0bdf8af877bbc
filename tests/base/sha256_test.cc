// SHA-256 and HMAC against the vectors of FIPS 180-4 and RFC 4231.
#include "core/base/sha256.h"

#include <gtest/gtest.h>

namespace epl::sha256_test {
namespace {

TEST(Sha256, gives_the_published_digests) {
  EXPECT_EQ(digest_text(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_text(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_text(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 million;  // in pieces that do not fit into blocks
  for (int i = 0; i < 1000; ++i) million.add(std::string(1000, 'a'));
  EXPECT_EQ(digest_text(million.value()), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Frames have any size and begin anywhere.
TEST(Sha256, gives_the_same_digest_wherever_the_bytes_lie_and_however_they_are_cut) {
  std::string text(300, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 % 251);
  for (size_t begin = 0; begin < 70; ++begin) {
    const std::string_view all = std::string_view(text).substr(begin, 200);
    const std::string aligned(all);
    for (const size_t cut : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{199}}) {
      Sha256 hash;
      hash.add(all.substr(0, cut));
      hash.add(all.substr(cut));
      EXPECT_EQ(hash.value(), sha256(aligned)) << begin << " " << cut;
      EXPECT_EQ(hash.value(), hash.value());  // a value is not the end
    }
  }
}

TEST(Sha256, hmac_gives_the_published_digests) {
  EXPECT_EQ(digest_text(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(digest_text(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      digest_text(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, digests_are_compared_whole) {
  const Digest a = sha256("a");
  Digest b = a;
  EXPECT_TRUE(same_digest(a, b));
  b.back() ^= 1;
  EXPECT_FALSE(same_digest(a, b));
  EXPECT_FALSE(same_digest(a, std::span(a).first(16)));
}

}  // namespace
}  // namespace epl::sha256_test
