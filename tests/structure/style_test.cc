// What the sources must not contain, told by ARCHITECTURE.md as absences, and what keeps files readable.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tests/structure/source_tree.h"

namespace epl::structure::style_test {
namespace {

const std::vector<std::string> kCode = {".cc", ".h", ".c"};

struct Rule {
  std::vector<std::string> words;  // a line without any of them is not looked at: std::regex is slow
  std::string pattern;
  std::string why;
};

// Lines of a file's code that match, as "path:line: why".
std::vector<std::string> matches(const SourceFile& file, const Rule& rule) {
  std::vector<std::string> found;
  const std::regex pattern(rule.pattern);
  int number = 0;
  for (const std::string& line : lines_of(code_of(file.text))) {
    ++number;
    const auto in_line = [&](const std::string& word) { return line.find(word) != std::string::npos; };
    if (std::none_of(rule.words.begin(), rule.words.end(), in_line)) continue;
    if (std::regex_search(line, pattern)) found.push_back(file.path + ":" + std::to_string(number) + ": " + rule.why);
  }
  return found;
}

// Below the C API nothing takes from the process what the engine carries.
const std::vector<Rule> kBelowCapi = {
    {{"getenv"}, R"(\b(secure_)?getenv\s*\()", "reads the environment"},
    {{"exit", "abort", "terminate"},
     R"((std::|\s::|^\s*|[;{})]\s*)((exit|_exit|quick_exit)\s*\(|(abort|terminate)\s*\(\s*\)))",
     "ends the process"},
    {{"printf", "puts", "std::c"}, R"((^|[^\w])f?printf\s*\(|\bputs\s*\(|std::(cout|cerr|clog)\b)", "prints"},
    {{"clock", "timeofday"},
     R"(\b(system|steady|high_resolution)_clock::now\b|\bclock_gettime\s*\(|\bgettimeofday\s*\()",
     "asks the system's clock"},
    {{"signal", "sigaction", "atexit", "fork", "setlocale", "chdir"},
     R"((^|[^.>\w])(signal|sigaction|atexit|fork|setlocale|chdir)\s*\()",
     "changes the state of the process"},
    {{"thread_local"}, R"(\bthread_local\b)", "keeps state of its own per thread"},
};

TEST(Style, NothingBelowTheCApiTouchesTheProcess) {
  int files = 0;
  for (const SourceFile& file : files_below({"core", "frontends", "backends"}, kCode)) {
    if (file.path.starts_with("core/capi/")) continue;
    ++files;
    for (const Rule& rule : kBelowCapi) {
      for (const std::string& found : matches(file, rule)) ADD_FAILURE() << found;
    }
  }
  EXPECT_GT(files, 25);
}

TEST(Style, VendorsAreNamedOnlyInBackends) {
  const Rule vendor{
      {"#"},
      R"(^\s*#\s*(if|ifdef|ifndef|elif|include)\b.*(cuda|cublas|cudnn|nccl|dnnl|mkl|CUDA|NCCL|DNNL|gloo))",
      "names a vendor outside backends/"};
  for (const SourceFile& file : files_below({"core", "frontends", "include", "tools"}, kCode)) {
    for (const std::string& found : matches(file, vendor)) ADD_FAILURE() << found;
  }
}

// A function of the standard library that is not inlined is compiled in many files, and the linker keeps one of them:
// it must not be that of a processor which this machine does not have.
TEST(Style, SourcesForSomeProcessorsCallNoSharedFunctions) {
  const Rule shared{
      {"std::"}, R"(\bstd::(min|max|clamp|swap|sort|fill|fill_n|copy|copy_n)\s*\()", "is shared with other processors"};
  int files = 0;
  for (const SourceFile& file : files_below({"backends/cpu"}, {".simd.cc", ".simd.h", ".bf16.cc"})) {
    ++files;
    for (const std::string& found : matches(file, shared)) ADD_FAILURE() << found;
  }
  EXPECT_GT(files, 10);
}

// What a merge or a patch leaves beside the file that it changed.
TEST(Style, NothingIsLeftOfAPatch) {
  const std::vector<std::string> all = {"core",  "frontends", "backends", "include", "tools", "tests",
                                        "bench", "cmake",     "scripts",  "samples", "docs",  "bindings"};
  for (const SourceFile& file : files_below(all, {".orig", ".rej", ".bak"})) ADD_FAILURE() << file.path;
}

TEST(Style, FilesStayReadable) {
  // A file on this list is longer for the reason given; nothing else may pass.
  const std::map<std::string, std::string> longer = {{"include/epl.h", "a host includes one header"}};
  const std::vector<std::string> product = {"core", "frontends", "backends", "include", "tools"};
  const std::vector<std::string> beside = {"tests", "bench", "samples"};
  const std::vector<std::string> languages = {".cc", ".h", ".c", ".inc", ".py", ".go", ".rs", ".java"};
  std::set<std::string> long_ones;
  const auto check = [&](const std::vector<std::string>& folders, std::ptrdiff_t most) {
    for (const SourceFile& file : files_below(folders, languages)) {
      const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
      if (lines <= most) continue;
      long_ones.insert(file.path);
      EXPECT_TRUE(longer.count(file.path)) << file.path << " has " << lines << " lines; is it still one thing?";
    }
  };
  check(product, 450);
  check(beside, 600);
  for (const auto& [path, why] : longer)
    EXPECT_TRUE(long_ones.count(path)) << path << " is no longer long; this list needs it no more";
}

struct Function {
  int line = 0;  // where its head begins
  int lines = 0;
};

// The functions of a file that stand in namespaces and classes, with their lambdas and local classes in them.
std::vector<Function> functions_of(const std::string& text) {
  static const std::regex scope(R"((^|\s)(namespace|class|struct|union|enum|extern)(\s|$))");
  std::vector<Function> found;
  std::vector<bool> scopes;  // of the braces that are open
  int inside = 0;            // the depth of braces at which a function began; 0: in none
  std::string head;          // since the last statement ended
  int line = 1, head_line = 1;
  for (const char c : code_of(without_directives(text))) {
    line += c == '\n';
    if (c == '{') {
      const bool is_scope = head.find('(') == std::string::npos && std::regex_search(head, scope);
      scopes.push_back(is_scope);
      if (inside == 0 && !is_scope && head.find('(') != std::string::npos) {
        inside = static_cast<int>(scopes.size());
        found.push_back({.line = head_line});
      }
    } else if (c == '}' && !scopes.empty()) {
      if (static_cast<int>(scopes.size()) == inside) {
        found.back().lines = line - found.back().line + 1;
        inside = 0;
      }
      scopes.pop_back();
    }
    if (c == '{' || c == '}' || c == ';') {
      head.clear();
    } else if (!head.empty() || !std::isspace(static_cast<unsigned char>(c))) {
      if (head.empty()) head_line = line;
      head += c;
    }
  }
  return found;
}

TEST(Style, FunctionsStayReadable) {
  const std::vector<Function> seen = functions_of(
      "namespace a {\nclass B {\n  int f(\n    int x) {\n    if (x) {\n    }\n  }\n};\n"
      "int g() { return 1; }\nconst int list[] = {\n1,\n2};\n}\n");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].line, 3);
  EXPECT_EQ(seen[0].lines, 5);
  EXPECT_EQ(seen[1].lines, 1);
  constexpr int most = 70;
  size_t functions = 0;
  for (const SourceFile& file : files_below({"core", "frontends", "backends", "include", "tools"}, kCode)) {
    for (const Function& one : functions_of(file.text)) {
      ++functions;
      EXPECT_LE(one.lines, most) << file.path << ":" << one.line << " begins a function of " << one.lines
                                 << " lines; which steps has it?";
    }
  }
  EXPECT_GT(functions, 3000u);
}

TEST(Style, NoUnfinishedWorkAndNoTraceOfAMachine) {
  // Written in two pieces, so that this file passes its own test.
  const std::vector<std::string> words = {std::string("TO") + "DO",
                                          std::string("FIX") + "ME",
                                          std::string("XX") + "X",
                                          std::string("not impl") + "emented yet",
                                          std::string("/wo") + "rk/",
                                          std::string("site-") + "packages",
                                          std::string("pypi") + ".org",
                                          std::string("pythonhosted") + ".org",
                                          std::string("debian") + ".org",
                                          std::string("crates") + ".io",
                                          std::string("proxy.golang") + ".org"};
  auto files = files_below(
      {"core", "frontends", "backends", "include", "tools", "tests", "bench", "samples", "docs", "cmake", "scripts",
       ".ci"},
      {".cc", ".h", ".c", ".py", ".sh", ".txt", ".md", ".cmake", ".go", ".rs", ".java", ".json", ".fbs", "/run"});
  for (const char* name : {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CMakeLists.txt", "CMakePresets.json",
                           "quickstart", "test"}) {
    files.push_back({name, read_text(std::string(EPL_SOURCE_DIR) + "/" + name)});
  }
  EXPECT_GT(files.size(), 60u);
  for (const SourceFile& file : files) {
    for (const std::string& word : words) {
      const size_t at = file.text.find(word);
      if (at == std::string::npos) continue;
      ADD_FAILURE() << file.path << ":" << 1 + std::count(file.text.begin(), file.text.begin() + at, '\n') << ": \""
                    << word << '"';
    }
  }
}

// What tests write is gone when they end, also where they fail.
TEST(Style, TestsAskOneFileForATemporaryFolder) {
  const std::vector<std::string> words = {
      "temp_directory_path", "TempDir(", "mkdtemp", "mkstemp", "tmpfile", "\"/tmp", "/dev/shm"};
  const std::string home = "tests/temporary_folder.h";
  int files = 0;
  for (const SourceFile& file : files_below({"tests"}, kCode)) {
    if (file.path == home || file.path == "tests/structure/style_test.cc") continue;
    ++files;
    for (const std::string& word : words) {
      EXPECT_EQ(file.text.find(word), std::string::npos) << file.path << ": " << word << "; " << home << " has folders";
    }
  }
  EXPECT_GT(files, 100);
}

// A message about an unknown name is one sentence, or ends like every other of its kind.
TEST(Style, UnknownNamesAreToldInOneWay) {
  const std::vector<std::string> homes = {"core/base/suggestion.cc",
                                          "tools/words.cc"};  // the command line sees nothing of the inside
  const std::vector<std::string> words = {std::string("did you ") + "mean ",
                                          std::string("There ") + "are: ", std::string("Known ") + "are "};
  for (const SourceFile& file : files_below({"core", "frontends", "backends", "tools"}, kCode)) {
    if (std::find(homes.begin(), homes.end(), file.path) != homes.end()) continue;
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      for (const std::string& word : words) {
        const size_t at = line.find(word);
        if (at == std::string::npos || line.find("//") < at) continue;
        ADD_FAILURE() << file.path << ":" << number << ": \"" << word
                      << "\": core/base/suggestion.h has these words (choices, did_you_mean, short_list)";
      }
    }
  }
}

// Names of strangers and words that went wrong must not act on a terminal, wherever the tool prints them.
TEST(Style, TheToolSaysEverythingThroughOneFunction) {
  static const std::regex prints(R"re(\bstd::(v?f?printf|v?f?puts|putchar|cout|cerr)\b)re");
  // Whole documents of ours, JSON that a program reads, and what moves a terminal's own line.
  static const std::regex own(R"re(printable(_line)?\(|stdout\)|"\\r\\033\[K", stderr\))re");
  int seen = 0;
  for (const SourceFile& file : files_below({"tools"}, kCode)) {
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      if (!std::regex_search(line, prints)) continue;
      ++seen;
      EXPECT_TRUE(std::regex_search(line, own))
          << file.path << ":" << number << ": prints by itself; tools/text.h has say() and say_error()";
    }
  }
  EXPECT_GT(seen, 3);
}

// Messages are put together and followed by others ("; go on with ...", " (see --help)"): a sentence alone has no full
// stop.
bool ends_a_lone_sentence(const std::string& line) {
  static const std::regex maker(
      R"re(\b(invalid|error|unsupported|UsageError|ApiError|warning)\(.*"([^"]*[^".])\."\);)re");
  std::smatch found;
  if (line.find(".\");") == std::string::npos || !std::regex_search(line, found, maker)) return false;
  const std::string last = found[2];
  return last.find(". ") == std::string::npos && last.find("? ") == std::string::npos &&
         !(last.size() > 1 && last[0] == ' ' && std::isupper(static_cast<unsigned char>(last[1])));
}

TEST(Style, MessagesHaveNoFullStopAtTheirEnd) {
  EXPECT_TRUE(ends_a_lone_sentence("  return invalid(\"the batch of \", n, \" is odd.\");"));
  EXPECT_FALSE(ends_a_lone_sentence("  return invalid(\"the batch of \", n, \" is odd\");"));
  EXPECT_FALSE(ends_a_lone_sentence("  return invalid(choices(name, known), \" The loss declares more.\");"));
  for (const SourceFile& file : files_below({"core", "frontends", "backends", "tools"}, kCode)) {
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      EXPECT_FALSE(ends_a_lone_sentence(line)) << file.path << ":" << number << ": a message ends in a full stop";
    }
  }
}

TEST(Style, TheRulesSeeCodeAndNotComments) {
  const SourceFile file{"a.cc",
                        "// getenv(\"x\")\nint f() { return 50'000; }\nconst char* s = \"exit(1)\";\n/* abort()\n */ "
                        "int g = getenv (\"a\\\"b\");\n"
                        "auto r = R\"(printf(1)\nprintf(2))\"; void h() { snprintf(b, 1, \"\"); }\n"};
  int found = 0;
  for (const Rule& rule : kBelowCapi) {
    for (const std::string& line : matches(file, rule)) {
      EXPECT_EQ(line, "a.cc:5: reads the environment");
      ++found;
    }
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace epl::structure::style_test
