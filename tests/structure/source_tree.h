// The files of the checkout as the structure tests see them.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace epl::structure {

struct SourceFile {
  std::string path;  // relative to the checkout, '/' between parts
  std::string text;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Every file below these folders whose name ends in one of `endings`, in order of path, without what cargo and go write
// beside a sample that is built where it is.
inline std::vector<SourceFile> files_below(const std::vector<std::string>& folders,
                                           const std::vector<std::string>& endings) {
  const std::filesystem::path top = EPL_SOURCE_DIR;
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    if (!std::filesystem::exists(top / folder)) continue;
    std::filesystem::recursive_directory_iterator entries(top / folder);
    for (auto at = begin(entries); at != end(entries); ++at) {
      const auto& entry = *at;
      const std::string name = entry.path().filename().string();
      if (name == "target" || name == "trainingpb") at.disable_recursion_pending();
      if (!entry.is_regular_file()) continue;
      const std::string path = std::filesystem::relative(entry.path(), top).generic_string();
      for (const std::string& ending : endings) {
        if (path.ends_with(ending)) {
          paths.push_back(path);
          break;
        }
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  for (const std::string& path : paths) files.push_back({path, read_text(top / path)});
  return files;
}

// C++ or C text with comments and the insides of literals blanked out, line breaks kept: what the compiler acts on.
inline std::string code_of(const std::string& text) {
  std::string code = text;
  enum { plain, line, block, quoted, character } state = plain;
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i], next = i + 1 < code.size() ? code[i + 1] : '\0';
    switch (state) {
      case plain:
        if (c == '/' && next == '/') state = line;
        if (c == '/' && next == '*') state = block;
        // A digit separator (50'000) is not a character literal.
        if (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(code[i - 1])))) state = character;
        if (c == '"') {
          if (i > 0 && code[i - 1] == 'R') {  // raw string: up to its own delimiter
            const size_t open = code.find('(', i);
            const std::string close = ")" + code.substr(i + 1, open - i - 1) + "\"";
            const size_t end = code.find(close, open);
            for (size_t k = i + 1; k < end && k < code.size(); ++k) {
              if (code[k] != '\n') code[k] = ' ';
            }
            i = end == std::string::npos ? code.size() : end + close.size() - 1;
          } else {
            state = quoted;
          }
        }
        if (state == line || state == block) code[i] = ' ';
        break;
      case line:
        if (c == '\n')
          state = plain;
        else
          code[i] = ' ';
        break;
      case block:
        if (c == '*' && next == '/') {
          code[i] = code[i + 1] = ' ';
          ++i;
          state = plain;
        } else if (c != '\n') {
          code[i] = ' ';
        }
        break;
      case quoted:
      case character:
        if (c == '\\') {
          code[i] = ' ';
          if (next != '\n') code[i + 1] = ' ';
          ++i;
        } else if (c == (state == quoted ? '"' : '\'') || c == '\n') {
          state = plain;
        } else {
          code[i] = ' ';
        }
        break;
    }
  }
  return code;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Blank where the preprocessor's lines are.
inline std::string without_directives(const std::string& text) {
  std::string code;
  bool directive = false;
  for (const std::string& line : lines_of(text)) {
    const size_t first = line.find_first_not_of(' ');
    directive = directive || (first != std::string::npos && line[first] == '#');
    code += (directive ? "" : line) + '\n';
    directive = directive && line.ends_with('\\');
  }
  return code;
}

}  // namespace epl::structure
