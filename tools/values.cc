#include "tools/values.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tools/words.h"

namespace epl::tools {
namespace {

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

std::string short_value(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

using Rule = std::function<std::string(const std::string& text, double value)>;

// A finite number of which the rule says what is wrong, or nothing.
CLI::Validator number(Rule rule) {
  return CLI::Validator(
      [rule = std::move(rule)](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0' || !std::isfinite(value)) return in_quotes(text) + " is not a number";
        return rule(text, value);
      },
      "", "number");
}

template <class T> std::string integer_problem(const std::string& text, T least) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed == std::errc::result_out_of_range) return text + " is beyond what an integer here can be";
  const bool complete = failed == std::errc() && end == text.data() + text.size();
  if (!complete) return in_quotes(text) + " is not an integer" + (std::is_signed_v<T> ? "" : " of at least 0");
  if (value >= least) return "";
  return least == 0 ? text + " is negative" : text + " is not " + std::to_string(least) + " or more";
}

// A stat that a name of any length survives.
int kind_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return S_ISDIR(info.st_mode) ? 2 : 1;
}

std::string not_opened(const std::string& path) {
  return path.empty() ? "a name is missing" : "cannot open " + path + ": " + std::strerror(errno);
}

}  // namespace

CLI::Validator any_number() {
  return number([](const std::string&, double) { return std::string(); });
}

CLI::Validator at_least(double least) {
  return number([least](const std::string& text, double value) {
    return value >= least ? ""
           : least == 0   ? text + " is negative"
                          : text + " is not " + short_value(least) + " or more";
  });
}

CLI::Validator above(double bound) {
  return number([bound](const std::string& text, double value) {
    return value > bound ? "" : text + " is not above " + short_value(bound);
  });
}

CLI::Validator between(double least, double greatest) {
  return number([=](const std::string& text, double value) {
    return value >= least && value <= greatest
               ? ""
               : text + " is not from " + short_value(least) + " to " + short_value(greatest);
  });
}

CLI::Validator integer_value(int64_t least) {
  return CLI::Validator([least](std::string& text) { return integer_problem(text, least); }, "", "integer_value");
}

CLI::Validator seed_number() {
  return CLI::Validator([](std::string& text) { return integer_problem<uint64_t>(text, 0); }, "", "seed_number");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        return std::find(words.begin(), words.end(), text) != words.end()
                   ? std::string()
                   : "there is no " + in_quotes(text) + choices(text, words);
      },
      "", "one_of");
}

CLI::Validator list_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        for (size_t at = 0; at <= text.size();) {
          const size_t end = std::min(text.find(',', at), text.size());
          const std::string word = text.substr(at, end - at);
          if (std::find(words.begin(), words.end(), word) == words.end())
            return "there is no " + in_quotes(word) + choices(word, words);
          at = end + 1;
        }
        return std::string();
      },
      "", "list_of");
}

CLI::Validator existing_file() {
  return CLI::Validator(
      [](std::string& path) {
        const int kind = kind_of(path);
        if (kind == 1) return std::string();
        return kind == 2 ? path + " is a folder, a file is expected" : not_opened(path);
      },
      "FILE", "existing_file");
}

CLI::Validator file_name() {
  return CLI::Validator(
      [](std::string& path) {
        if (path.empty()) return std::string("the name of a file is expected");
        return kind_of(path) == 2 ? path + " is a folder, a file is expected" : std::string();
      },
      "FILE", "file_name");
}

CLI::Validator existing_folder() {
  return CLI::Validator(
      [](std::string& path) {
        const int kind = kind_of(path);
        if (kind == 2) return std::string();
        return kind == 1 ? path + " is a file, a folder is expected" : not_opened(path);
      },
      "FOLDER", "existing_folder");
}

CLI::Validator existing_data() {
  // Whether there are files that match, the library says.
  return CLI::Validator(
      [](std::string& path) {
        const bool is_pattern = path.find_first_of("*?") != std::string::npos;
        return kind_of(path) != 0 || is_pattern ? std::string() : not_opened(path);
      },
      "PATH", "existing_data");
}

void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
    const std::string type = option->get_type_name();
    if (type == "FLOAT") option->check(any_number());
    if (type == "INT") option->check(integer_value(INT64_MIN));
    if (type == "UINT") option->check(seed_number());
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) check_values(*command);
}

}  // namespace epl::tools
