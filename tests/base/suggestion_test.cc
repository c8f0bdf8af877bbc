#include "core/base/suggestion.h"

#include <gtest/gtest.h>

#include <vector>

namespace epl::suggestion_test {
namespace {

TEST(Suggestion, SaysWhatWasMeantAndWhatThereIs) {
  const std::vector<std::string> losses = {"mse", "softmax_cross_entropy", "bce_with_logits"};
  EXPECT_EQ(choices("msee", losses), "; did you mean mse? There are: mse, softmax_cross_entropy, bce_with_logits.");
  EXPECT_EQ(choices("weather", losses), ". There are: mse, softmax_cross_entropy, bce_with_logits.");
  EXPECT_EQ(did_you_mean("MSE", losses), "; did you mean mse?");
  EXPECT_EQ(did_you_mean("cross_entropy", losses), "; did you mean softmax_cross_entropy?")
      << "what people remember is a part of the name";
  EXPECT_EQ(did_you_mean("", losses), "");
  EXPECT_EQ(did_you_mean(std::string(100000, 'x'), losses), "") << "names of any length cost nothing";
  EXPECT_EQ(choices("x", {}), "; there are none");
}

TEST(Suggestion, LongListsAreCut) {
  std::vector<std::string> names(100, "n");
  names[0] = "";
  const std::string text = short_list(names);
  EXPECT_TRUE(text.starts_with("\"\", n, n")) << text;
  EXPECT_TRUE(text.ends_with("n and 70 more")) << text;
}

}  // namespace
}  // namespace epl::suggestion_test
