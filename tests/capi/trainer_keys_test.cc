// docs/training.md lists every key of a trainer with every option of every row, as the library describes them.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "include/epl.h"
#include "tests/page.h"

namespace epl::trainer_keys_test {
namespace {

constexpr const char* page = "docs/training.md";
constexpr std::string_view begin_mark = "<!-- keys of a trainer: run test_capi with EPL_UPDATE_DOCS=1 -->\n";
constexpr std::string_view end_mark = "<!-- end of keys of a trainer -->\n";

Json described() {
  epl_engine* engine = nullptr;
  epl_text* text = nullptr;
  EXPECT_EQ(epl_engine_create(nullptr, &engine), nullptr);
  EXPECT_EQ(epl_engine_describe(engine, &text), nullptr);
  Json all = parse_json(epl_text_data(text, nullptr)).value();
  epl_text_destroy(text);
  epl_engine_destroy(engine);
  return all;
}

// As a cell of a table.
std::string cell(const Json& value) {
  if (value.is_null()) return "must be given";
  if (value.is_structured() ? value.empty() : value.is_string() && value.text().empty()) return "";
  return cat("`", value.is_string() ? value.text() : print_json(value), "`");
}

std::string line(std::string_view key, std::string_view type, const Json& value, std::string_view doc) {
  std::string escaped;
  for (const char c : doc) escaped += c == '|' || c == '<' ? cat("\\", c) : std::string(1, c);
  return cat("| ", key, " | ", type, " | ", cell(value), " | ", escaped, " |\n");
}

// With the range of its numbers.
std::string type_of(const Json& row, const std::string& option) {
  const Json* range = row.at("option_ranges").find(option);
  return cat(row.at("option_types").at(option).text(), range ? ", " : "", range ? range->text() : "");
}

// What some rows declare in the same words is one line, which names them.
struct Option {
  std::string name, type, doc;
  Json value;
  std::vector<std::string> rows;
};

std::vector<Option> options_of(const Json& rows) {
  std::vector<Option> out;
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.at("options").items()) {
      const Json* doc = row.at("option_docs").find(name);
      Option one{name, type_of(row, name), doc ? doc->text() : "", value, {}};
      const auto same = std::ranges::find_if(out, [&](const Option& other) {
        return other.name == one.name && other.type == one.type && other.doc == one.doc && other.value == one.value;
      });
      Option& kept = same != out.end() ? *same : out.emplace_back(std::move(one));
      kept.rows.push_back(cat("`", row.at("name").text(), "`"));
    }
  }
  std::ranges::stable_sort(out, {}, &Option::name);
  return out;
}

// The rows that a key names, and their options.
std::string rows_of(std::string_view key, const Json& rows) {
  std::string out;
  for (const Json& row : rows)
    out += line(cat("`", key, "` = `", row.at("name").text(), "`"), "", "", row.at("doc").text());
  for (const Option& one : options_of(rows)) {
    const std::string of = one.rows.size() == rows.size() ? "all" : join(one.rows, ", ");
    out += line(cat("`", key, ".", one.name, "`, of ", of), one.type, one.value, one.doc);
  }
  return out;
}

std::string table() {
  const Json all = described();
  const Json& own = all.at("trainer");
  std::string out = "\n| key | takes | default | meaning |\n|---|---|---|---|\n";
  for (const auto& [name, value] : own.at("options").items()) {
    out += line(cat("`", name, "`"), type_of(own, name), value, own.at("option_docs").at(name).text());
    for (const auto& [key, rows] :
         {std::pair("loss", "losses"), std::pair("optimizer", "optimizers"), std::pair("schedule", "schedules")})
      if (name == key) out += rows_of(key, all.at(rows));
  }
  return out + "\n";
}

TEST(Options, TheTableOfATrainersKeysIsFresh) {
  expect_part_of_page(page, begin_mark, end_mark, table(), "test_capi --gtest_filter='Options*'");
}

// Whatever the library takes is in the table, and what the table has is taken.
TEST(Options, EveryKeyOfTheTableIsTaken) {
  epl_engine* engine = nullptr;
  epl_trainer* trainer = nullptr;
  ASSERT_EQ(epl_engine_create(nullptr, &engine), nullptr);
  ASSERT_EQ(epl_trainer_create(engine, &trainer), nullptr);
  const Json all = described();
  for (const auto& [key, value] : all.at("trainer").at("options").items()) {
    const std::string text = value.is_string() ? value.text() : print_json(value);
    if (text.empty()) continue;  // not set
    epl_error* failure = epl_trainer_set(trainer, key.data(), key.size(), text.data(), text.size());
    EXPECT_EQ(failure, nullptr) << key << ": " << epl_error_message(failure, nullptr);
    epl_error_destroy(failure);
  }
  epl_trainer_destroy(trainer);
  epl_engine_destroy(engine);
}

}  // namespace
}  // namespace epl::trainer_keys_test
