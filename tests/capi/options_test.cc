// core/capi/options.json is what the typed settings of the bindings are generated from (cmake/interface): it says what
// the library says of itself.
#include "core/base/json.h"
#include "include/epl.h"
#include "tests/page.h"

namespace epl::options_test {
namespace {

std::string described() {
  epl_engine* engine = nullptr;
  epl_text* text = nullptr;
  EXPECT_EQ(epl_engine_create(nullptr, &engine), nullptr);
  EXPECT_EQ(epl_engine_describe(engine, &text), nullptr);
  const Json all = parse_json(epl_text_data(text, nullptr)).value();
  epl_text_destroy(text);
  epl_engine_destroy(engine);
  Json out = Json::object();
  for (const char* key : {"trainer", "losses", "optimizers", "schedules", "job"}) {
    const Json& rows = all.at(key);
    Json kept = Json::array();
    const auto keep = [&](const Json& row) {
      Json one = Json::object();
      for (const char* part : {"name", "doc", "options", "option_types", "option_ranges", "option_docs"})
        one[part] = row.at(part);
      kept.push_back(std::move(one));
    };
    if (rows.is_object()) keep(rows);
    for (size_t i = 0; rows.is_array() && i < rows.size(); ++i) keep(rows[i]);
    out[key] = std::move(kept);
  }
  return print_json(out, 1) + "\n";
}

// cmake/interface reads the listing: run `python3 cmake/interface` after it has changed.
TEST(Options, TheListingIsWhatTheLibrarySays) {
  expect_page("core/capi/options.json", described(), "test_capi --gtest_filter='Options*'");
}

}  // namespace
}  // namespace epl::options_test
