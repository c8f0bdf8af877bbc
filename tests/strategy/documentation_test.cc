// docs/strategy.md, from the table of keys. Run with EPL_UPDATE_DOCS=1 to write the page again.
#include <gtest/gtest.h>

#include "core/strategy/pipeline.h"
#include "core/strategy/strategy.h"
#include "tests/page.h"
#include "tests/strategy/found_plans_page.h"
#include "tests/strategy/strategy_page.h"

namespace epl::documentation_test {
namespace {

std::string values_of(const ConfigKey& key) {
  if (std::holds_alternative<bool>(key.value)) return "true, false";
  if (std::holds_alternative<int64_t>(key.value)) return "an integer";
  std::vector<std::string> words;
  for (const std::string& word : key.words) words.push_back(word.empty() ? "\"\"" : word);
  return words.empty() ? "a text" : join(words, ", ");
}

std::string strategy_documentation() {
  std::string text = cat(opening, micro_batches, found_stages);
  for (const PipelineRow& row : pipeline_table().rows) {
    if (row.words.empty()) continue;
    std::vector<std::string> words;
    for (const std::string& word : row.words) words.push_back(cat("`", word, "`"));
    const PipelineShape shape{.virtual_devices = 4, .chunks = row.chunks == 0 ? 2 : row.chunks, .micro_batches = 8};
    text += cat("| ", join(words, ", "), " | ", row.chunks == 0 ? "`pipeline.virtual_stages`" : cat(row.chunks), " | ",
                static_cast<int>(idle_share(row, shape) * 100 + 0.5), " % | ", row.doc, " |\n");
  }
  text += cat(found_plans, closing);
  for (const ConfigKey& key : config_keys()) {
    text += cat("| `", key.name, "` | ", attribute_text(key.value), " | ", values_of(key), " | ",
                key.built             ? "yes"
                : key.settled.empty() ? "not yet"
                                      : "no",
                " | ", key.doc, key.settled.empty() ? "" : cat("; no other value: ", key.settled), " |\n");
  }
  return text +
         "\nWhat `reproducible.level` = `run` allows, and the pack that makes use of it: [packs.md](packs.md).\n";
}

TEST(Strategy, DocumentationIsUpToDate) { expect_page("docs/strategy.md", strategy_documentation(), "test_strategy"); }

}  // namespace
}  // namespace epl::documentation_test
