// ARCHITECTURE.md stays short and true: its length, its picture of the folders, its glossary, and every path that it,
// CONTRIBUTING.md and the pages of decisions name.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/structure/source_tree.h"

namespace epl::structure::architecture_test {
namespace {

const std::filesystem::path kTop = EPL_SOURCE_DIR;

// As `wc -w` counts them.
int words_of(const std::string& text) {
  std::istringstream in(text);
  int words = 0;
  for (std::string word; in >> word;) ++words;
  return words;
}

std::vector<SourceFile> decisions() { return files_below({"docs/decisions"}, {".md"}); }

std::vector<SourceFile> pages() {
  std::vector<SourceFile> files = decisions();
  for (const char* name : {"ARCHITECTURE.md", "CONTRIBUTING.md"}) files.push_back({name, read_text(kTop / name)});
  return files;
}

TEST(Architecture, IsReadInTenMinutes) {
  EXPECT_EQ(words_of("a  | b\n`c d`"), 5);
  constexpr int most = 2500;
  const int words = words_of(read_text(kTop / "ARCHITECTURE.md"));
  EXPECT_LE(words, most)
      << "one pass or type: the head of its file; a reason: docs/decisions; a recipe: CONTRIBUTING.md";
  EXPECT_GT(words, 1000);
}

// The paths of a text, in backquotes or not, that begin with a folder at the top of the checkout, and names of files
// alone, in backquotes. `NAME` and `*` make a pattern of it.
struct Named {
  std::vector<std::string> paths, names;
};
Named named_by(const std::string& text) {
  static const std::regex path(
      R"((core|frontends|backends|include|tools|samples|tests|docs|scripts|cmake|bench|bindings)/[\w./*-]*)");
  static const std::regex name(R"(`([\w.]+\.(cc|h|py|cmake|txt|json|md|sh|inc|fbs|abi|c))`)");
  static const std::regex pattern(R"(\*|NAME)");
  Named named;
  for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it) {
    const char before = it->position() == 0 ? ' ' : text[static_cast<size_t>(it->position()) - 1];
    const bool within =
        std::isalnum(static_cast<unsigned char>(before)) || std::string("/-._>*").find(before) != std::string::npos;
    std::string found = it->str();
    while (found.back() == '.' || found.back() == '/') found.pop_back();
    if (!within && !std::regex_search(found, pattern)) named.paths.push_back(found);
  }
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
    if (!std::regex_search(std::string((*it)[1]), pattern)) named.names.push_back((*it)[1]);
  }
  return named;
}

// The names of all files of the checkout's own folders.
std::set<std::string> names_of_files() {
  std::set<std::string> names;
  for (const auto& top : std::filesystem::directory_iterator(kTop)) {
    const std::string folder = top.path().filename().string();
    names.insert(folder);
    if (!top.is_directory() || folder.starts_with(".") || folder == "build") continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top.path()))
      names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(Architecture, PathsExist) {
  const Named seen =
      named_by("`core/a.h` (docs/b), `x.cc`. build/release-tests/c, core/NAME.cc, `tests/N*`; ../docs/d.");
  EXPECT_EQ(seen.paths, (std::vector<std::string>{"core/a.h", "docs/b"}));
  EXPECT_EQ(seen.names, std::vector<std::string>{"x.cc"});
  const std::set<std::string> names = names_of_files();
  size_t paths = 0;
  for (const SourceFile& page : pages()) {
    const Named named = named_by(page.text);
    paths += named.paths.size();
    for (const std::string& path : named.paths)
      EXPECT_TRUE(std::filesystem::exists(kTop / path)) << page.path << " speaks of " << path;
    for (const std::string& name : named.names) EXPECT_TRUE(names.contains(name)) << page.path << " speaks of " << name;
  }
  EXPECT_GT(paths, 200u);
}

// The floors of the picture, by folder.
std::map<std::string, int> floors_of(const std::string& text) {
  static const std::regex folder(R"((core|backends|frontends)/\w+)");
  std::map<std::string, int> floors;
  const size_t begin = text.find("```text\nfloor ");
  std::istringstream picture(text.substr(begin, text.find("```", begin + 3) - begin));
  int floor = -1;
  for (std::string line; std::getline(picture, line);) {
    const size_t digit = line.find_first_not_of(' ');
    if (digit != std::string::npos && std::isdigit(static_cast<unsigned char>(line[digit]))) floor = line[digit] - '0';
    for (std::sregex_iterator it(line.begin(), line.end(), folder), end; it != end; ++it) {
      EXPECT_TRUE(floors.emplace(it->str(), floor).second) << it->str() << " stands twice in the picture";
    }
  }
  return floors;
}

// What core/layers.txt allows goes down in the picture, and each folder stands no higher than it must.
TEST(Architecture, PictureHasTheLayers) {
  const std::map<std::string, int> floors = floors_of(read_text(kTop / "ARCHITECTURE.md"));
  std::istringstream layers(read_text(kTop / "core/layers.txt"));
  size_t folders = 0;
  for (std::string line; std::getline(layers, line);) {
    if (line.empty() || line.front() == '#' || line.find(':') == std::string::npos) continue;
    const std::string folder = line.substr(0, line.find(':'));
    if (folder.find('/') == std::string::npos) continue;  // include, and what has no inside
    ++folders;
    ASSERT_TRUE(floors.contains(folder)) << "the picture lacks " << folder;
    std::istringstream allowed(line.substr(line.find(':') + 1));
    int below = -1;
    for (std::string other; allowed >> other;) {
      if (other.find('/') == std::string::npos) continue;
      ASSERT_TRUE(floors.contains(other)) << other;
      below = std::max(below, floors.at(other));
    }
    EXPECT_EQ(floors.at(folder), below + 1) << folder;
  }
  EXPECT_EQ(folders, floors.size());
}

// The cells of the rows of each table below a heading, without the head of the table.
std::vector<std::vector<std::string>> rows_below(const std::string& text, const std::string& heading) {
  const size_t begin = text.find("\n" + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(text.substr(begin, text.find("\n## ", begin + 4) - begin))) {
    if (!line.starts_with("|")) continue;
    if (line.starts_with("|---")) {
      rows.pop_back();  // the head
      continue;
    }
    std::vector<std::string> cells;
    std::istringstream in(line.substr(1));
    for (std::string cell; std::getline(in, cell, '|');) {
      const size_t first = cell.find_first_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
    rows.push_back(cells);
  }
  return rows;
}

// A word of ours, the word of the field, and what is meant. No word stands twice, so that each has one meaning.
TEST(Architecture, GlossaryHasBothWords) {
  const auto rows = rows_below(read_text(kTop / "ARCHITECTURE.md"), "## Glossary");
  std::set<std::string> words;
  for (const std::vector<std::string>& cells : rows) {
    ASSERT_EQ(cells.size(), 3u) << cells.front();
    for (const std::string& cell : cells) EXPECT_NE(cell, "") << "in the row of \"" << cells.front() << '"';
    std::istringstream ours(cells.front());
    for (std::string word; std::getline(ours >> std::ws, word, ',');)
      EXPECT_TRUE(words.insert(word).second) << word << " stands twice";
  }
  EXPECT_GE(rows.size(), 25u);
  EXPECT_LE(rows.size(), 40u);
}

// A decision is half a page: what was the question, what is the answer, which answers lost and why.
TEST(Architecture, DecisionsSayWhatLost) {
  static const std::regex name(R"(docs/decisions/(\d\d)-[a-z0-9-]+\.md)");
  int number = 0;
  for (const SourceFile& page : decisions()) {
    std::smatch found;
    ASSERT_TRUE(std::regex_match(page.path, found, name)) << page.path;
    EXPECT_EQ(std::stoi(found[1]), ++number) << page.path;
    EXPECT_TRUE(page.text.starts_with("# " + found[1].str() + ". ")) << page.path;
    const size_t context = page.text.find("\n## Context\n"), decision = page.text.find("\n## Decision\n"),
                 lost = page.text.find("\n## Alternatives that lost\n\n- **");
    EXPECT_LT(context, decision) << page.path;
    EXPECT_LT(decision, lost) << page.path;
    EXPECT_NE(lost, std::string::npos) << page.path;
    EXPECT_LE(words_of(page.text), 300) << page.path;
  }
  EXPECT_GT(number, 30);
}

}  // namespace
}  // namespace epl::structure::architecture_test
