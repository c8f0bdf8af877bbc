// docs/readers.md, from the rows. Run with EPL_UPDATE_DOCS=1 to write the page again.
#include <gtest/gtest.h>

#include "core/data/reader.h"
#include "tests/page.h"

namespace epl::documentation_test {
namespace {

std::string default_text(const Option& option) {
  const auto* text = std::get_if<std::string>(&option.value);
  if (option.json || (text && text->empty()) || std::holds_alternative<Doubles>(option.value)) return "";
  return cat("`", text && *text == "\t" ? "\"\\t\"" : attribute_text(option.value), "`");
}

std::string reader_documentation() {
  std::string out =
      "<!-- Generated from the rows of core/data/readers: run test_data with EPL_UPDATE_DOCS=1. -->\n"
      "# Readers\n\n"
      "What `epl train --data` and `epl_dataset_open` read. A reader is chosen by what a file begins with, else by the "
      "end of its name, or by\n"
      "the option `reader`. Its options are given as JSON: `--data-options '{\"target\": \"price\"}'`. "
      "[training.md](training.md) shows each at work.\n\n"
      "**Options from strangers.** A service may pass on options that a client wrote. What a client can reach with "
      "them "
      "is the folder of the data: a file\n"
      "that an option names lies there. An absolute name, `..`, and a link that leads out of the folder are errors. "
      "The "
      "error is the same whether\n"
      "there is such a file or not. Options that are the host's own may name files anywhere: the host opens the data "
      "by "
      "`epl_dataset_open_within`, with\n"
      "the folder \"/\". `epl train` does so for the options that its user types. `epl_engine_describe` lists the "
      "options of each reader that name files, as `files`.\n";
  for (const ReaderRow& row : reader_table().rows) {
    out += cat("\n## ", row.name, "\n\n", row.folder ? "A folder." : cat("Files: ", join(row.suffixes, ", "), "."), " ",
               row.doc, "\n");
    if (row.options.empty()) continue;
    out += "\n| option | default | meaning |\n|---|---|---|\n";
    for (const Option& option : row.options)
      out += cat("| `", option.name, "` | ", default_text(option), " | ", option.doc, " |\n");
  }
  return out;
}

TEST(Readers, DocumentationIsUpToDate) { expect_page("docs/readers.md", reader_documentation(), "test_data"); }

}  // namespace
}  // namespace epl::documentation_test
