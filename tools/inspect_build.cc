#include "tools/inspect_build.h"

#include <algorithm>
#include <cstdio>

#include "tools/text.h"

namespace epl::tools {
namespace {

std::string name_of(const Json& row) {
  return row.is_string() ? row.get<std::string>() : row.at("name").get<std::string>();
}

// The first sentence: the rest is in the JSON.
std::string first_sentence(const std::string& doc) {
  const size_t end = doc.find(". ");
  return end == std::string::npos ? doc : doc.substr(0, end + 1);
}

std::string options_of(const Json& row) {
  std::string out;
  for (const char* key : {"options", "suffixes"}) {
    if (!row.is_object() || !row.contains(key) || row.at(key).empty()) continue;
    std::string list;
    if (row.at(key).is_object()) {
      for (const auto& [name, value] : row.at(key).items()) list += (list.empty() ? "" : ", ") + name;
    } else {
      for (const Json& one : row.at(key))
        list += (list.empty() ? "" : ", ") + (one.is_string() ? one.get<std::string>() : print_json(one));
    }
    out += "\n      " + std::string(key) + ": " + list;
  }
  return out;
}

}  // namespace

void print_build(const Json& engine) {
  say("epl %s, %s, %lld threads\n", engine.at("version").get<std::string>().c_str(),
      engine.at("processor").get<std::string>().c_str(), static_cast<long long>(engine.value("threads", 1)));
  // Every list of rows, whatever there is; lists of bare names stand in a line.
  for (const auto& [key, rows] : engine.items()) {
    if (!rows.is_array() || rows.empty()) continue;
    std::string title = key;
    std::replace(title.begin(), title.end(), '_', ' ');
    if (!rows.front().is_object() || !rows.front().contains("doc") || key == "strategy_keys") {
      std::string names;
      for (const Json& row : rows) names += (names.empty() ? "" : ", ") + name_of(row);
      say("\n%s\n  %s\n", title.c_str(), names.c_str());
      continue;
    }
    say("\n%s\n", title.c_str());
    for (const Json& row : rows)
      say("  %s: %s%s\n", name_of(row).c_str(), first_sentence(row.at("doc").get<std::string>()).c_str(),
          options_of(row).c_str());
  }
  say("\nWith defaults, and what is not shown here: epl inspect --json\n");
}

}  // namespace epl::tools
