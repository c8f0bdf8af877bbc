// What a job is told: read from text and JSON, checked, and listed in docs/training.md.
#include "core/job/settings.h"

#include "tests/page.h"

namespace epl::job_test {
namespace {

constexpr std::string_view begin_mark = "<!-- job settings -->\n", end_mark = "<!-- end of job settings -->\n";

std::string table() {
  std::string out = "\n| setting | default | meaning |\n|---|---|---|\n";
  for (const Option& option : job_options()) {
    const std::string value = option.json ? "" : attribute_text(option.value);
    out += cat("| `", option.name, "` | ", value.empty() || value == "\"\"" ? "" : cat("`", value, "`"), " | ",
               option.doc, " |\n");
  }
  return out + "\n";
}

TEST(JobSettings, ThePageListsThem) {
  expect_part_of_page("docs/training.md", begin_mark, end_mark, table(), "test_job");
}

Status refused(const char* name, Attribute value) {
  Attributes given;
  given.set(name, std::move(value));
  return read_job_settings(given).status();
}

TEST(JobSettings, WhatCannotBeIsNamed) {
  EXPECT_EQ(refused("keep", int64_t{0}).message(), "option \"keep\" of a job is 0; 1 is the smallest that it can be");
  EXPECT_EQ(refused("epochs", -0.5).where(), "epochs");
  EXPECT_NE(refused("resume_anyway", std::string("modl")).message().find("did you mean model?"), std::string::npos);
  EXPECT_TRUE(refused("resume_anyway", std::string("model, order,all")).ok());
  Attributes both;
  both.set("steps", int64_t{3});
  both.set("epochs", 1.0);
  EXPECT_EQ(read_job_settings(both).status().where(), "epochs");
}

}  // namespace
}  // namespace epl::job_test
