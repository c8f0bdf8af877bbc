// The documents are true of the checkout: what they point at exists, what they print is what the files say.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/structure/source_tree.h"

namespace epl::structure::docs_test {
namespace {

const std::filesystem::path kTop = EPL_SOURCE_DIR;

std::vector<SourceFile> documents() {
  std::vector<SourceFile> files = files_below({"docs", "bench", "tests", "samples"}, {".md"});
  for (const char* name : {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"})
    files.push_back({name, read_text(kTop / name)});
  return files;
}

// Without its blocks of code, where brackets mean other things.
std::string without_code(const std::string& text) {
  std::istringstream lines(text);
  std::string out, line;
  bool code = false;
  while (std::getline(lines, line)) {
    const bool fence = line.find("```") != std::string::npos;
    if (!fence && !code) out += line + "\n";
    code = code != fence;
  }
  return out;
}

TEST(Docs, LinksToFilesLeadSomewhere) {
  static const std::regex link(R"(\]\(([A-Za-z.][^)# ]*)(#[^)]*)?\))");
  int links = 0;
  for (const SourceFile& file : documents()) {
    EXPECT_FALSE(file.text.empty()) << file.path;
    const std::string text = without_code(file.text);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != std::string::npos) continue;
      ++links;
      EXPECT_TRUE(std::filesystem::exists(kTop / std::filesystem::path(file.path).parent_path() / target))
          << file.path << ": " << target;
    }
  }
  EXPECT_GT(links, 5);
}

// A path in backquotes that starts with one of our top folders is a promise that it exists; `x/NAME.cc` and globs are
// patterns.
TEST(Docs, PathsInBackquotesExist) {
  static const std::regex path(
      R"(`((?:core|frontends|backends|include|tools|samples|tests|docs|scripts|cmake|bench)/[\w./-]+)`)");
  int paths = 0;
  for (const SourceFile& file : documents()) {
    for (std::sregex_iterator it(file.text.begin(), file.text.end(), path), end; it != end; ++it) {
      const std::string target = (*it)[1];
      ++paths;
      EXPECT_TRUE(std::filesystem::exists(kTop / target)) << file.path << " speaks of " << target;
    }
  }
  EXPECT_GT(paths, 20);
}

// What pages for users tell to build has a rule.
TEST(Docs, TargetsExist) {
  std::string rules;
  for (const SourceFile& file : files_below({"cmake", "tests"}, {".cmake"})) rules += file.text;
  rules += read_text(kTop / "CMakeLists.txt");
  std::vector<SourceFile> pages = files_below({"docs", "samples"}, {".md"});
  pages.push_back({"README.md", read_text(kTop / "README.md")});
  static const std::regex target(R"(--target (\w+))");
  int targets = 0;
  for (const SourceFile& page : pages) {
    for (std::sregex_iterator it(page.text.begin(), page.text.end(), target), end; it != end; ++it, ++targets) {
      const std::string name = (*it)[1];
      EXPECT_TRUE(rules.find("add_library(" + name + " ") != std::string::npos ||
                  rules.find("add_executable(" + name + " ") != std::string::npos ||
                  rules.find("add_custom_target(" + name + " ") != std::string::npos)
          << page.path << ": there is no target " << name;
    }
  }
  EXPECT_GT(targets, 2);
}

TEST(Docs, ReadmePrintsTheFirstSample) {
  const std::string readme = read_text(kTop / "README.md"), sample = read_text(kTop / "samples/01_hello.c");
  ASSERT_GT(sample.size(), 500u);
  EXPECT_NE(readme.find("```c\n" + sample + "```"), std::string::npos)
      << "README.md must print samples/01_hello.c as it is: run scripts/readme.sh";
}

TEST(Docs, PagesOfLanguagesPrintTheirSamples) {
  for (const auto& [page, sample, language] : {std::tuple("docs/cpp.md", "samples/cpp/first.cc", "cpp"),
                                               std::tuple("docs/go.md", "samples/go/first/main.go", "go"),
                                               std::tuple("docs/python.md", "samples/python/first.py", "python")}) {
    const std::string text = read_text(kTop / sample);
    ASSERT_GT(text.size(), 500u) << sample;
    EXPECT_NE(read_text(kTop / page).find("```" + std::string(language) + "\n" + text + "```"), std::string::npos)
        << page << " must print " << sample << " as it is";
  }
}

// The page on Rust prints the front page of the crate, without the lines that only its test has.
TEST(Docs, RustPrintsTheFrontPageOfTheCrate) {
  const std::string crate = read_text(kTop / "bindings/rust/epl/README.md");
  const size_t begin = crate.find("```\n") + 4, end = crate.find("```", begin);
  std::string program = "```rust\n";
  std::istringstream lines(crate.substr(begin, end - begin));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    # ")) program += line + "\n";
  }
  ASSERT_GT(program.size(), 500u);
  EXPECT_NE(read_text(kTop / "docs/rust.md").find(program + "```"), std::string::npos)
      << "docs/rust.md must print the program of bindings/rust/epl/README.md";
}

// A reader who knows one page finds the same on the others.
TEST(Docs, PagesOfLanguagesHaveTheSameParts) {
  for (const char* page : {"cpp", "go", "python", "rust", "java"}) {
    const std::string text = read_text(kTop / "docs" / (std::string(page) + ".md"));
    size_t at = 0;
    for (const char* part : {"\n## Install\n", " first training\n", "\n## Several processes\n", "\n## Deploying\n"}) {
      at = text.find(part, at);
      EXPECT_NE(at, std::string::npos) << "docs/" << page << ".md lacks, or has elsewhere: " << part;
    }
    EXPECT_NE(text.substr(0, text.find("\n## Install\n")).find("x86-64"), std::string::npos)
        << "docs/" << page << ".md does not begin with the machines that programs run on";
    EXPECT_NE(text.find("training.md#the-keys-of-a-trainer"), std::string::npos)
        << "docs/" << page << ".md does not say where the keys of a trainer are";
    for (const char* topic : {"Errors", "Threads", "emory"}) {
      EXPECT_TRUE(text.find(std::string("**") + topic) != std::string::npos ||
                  std::regex_search(text, std::regex(std::string("(\\*\\*|## )[^\n]*") + topic)))
          << "docs/" << page << ".md says nothing of: " << topic;
    }
  }
}

// What a page shows of jobs is what a test of that language runs, but for where lines begin.
TEST(Docs, PagesOfLanguagesShowAJobThatIsTested) {
  const auto trimmed = [](const std::string& text) {
    std::istringstream lines(text);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("/// ")) line = line.substr(4);
      const size_t from = line.find_first_not_of(" \t");
      out += (from == std::string::npos ? "" : line.substr(from)) + "\n";
    }
    return out;
  };
  // And it shows settings that have types.
  for (const auto& [page, source, typed] :
       {std::tuple("python", "tests/bindings/python_test.py", "epl.optimizers.AdamW("),
        std::tuple("go", "bindings/go/example_test.go", "epl.TrainerSettings{"),
        std::tuple("rust", "bindings/rust/epl/src/job.rs", "TrainerSettings::new()"),
        std::tuple("java", "bindings/java/src/test/java/ai/epl/JobTest.java", "new JobSettings()"),
        std::tuple("cpp", "tests/bindings/cpp_throwing.cc", "epl::trainer_settings ")}) {
    const std::string text = read_text(kTop / "docs" / (std::string(page) + ".md"));
    const size_t section = text.find("\n## A training with everything\n"), fence = text.find("```", section),
                 begin = text.find('\n', fence) + 1, end = text.find("```", begin);
    ASSERT_NE(section, std::string::npos) << page;
    EXPECT_NE(trimmed(read_text(kTop / source)).find(trimmed(text.substr(begin, end - begin))), std::string::npos)
        << "docs/" << page << ".md shows something else than " << source;
    EXPECT_NE(text.substr(begin, end - begin).find(typed), std::string::npos) << page;
  }
}

// The page on Rust shows how an async program predicts, which the crate's documentation shows and its tests run.
TEST(Docs, RustPredictsInAsyncCodeAsTheCrateDoes) {
  std::istringstream lines(read_text(kTop / "bindings/rust/epl/src/predictor.rs"));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("/// ") && !line.starts_with("/// #")) shown += line.substr(4) + "\n";
  }
  const std::string page = read_text(kTop / "docs/rust.md");
  const size_t section = page.find("\n## Async\n"), begin = page.find("```rust\n", section) + 8,
               end = page.find("```", begin);
  ASSERT_NE(section, std::string::npos);
  ASSERT_GT(end, begin + 300);
  EXPECT_NE(shown.find("```\n" + page.substr(begin, end - begin) + "```"), std::string::npos)
      << "bindings/rust/epl/src/predictor.rs does not have what docs/rust.md shows";
}

// Everything that is shown of the second day is part of a program that runs.
TEST(Docs, TheSecondDayIsWhatRuns) {
  for (const auto& [page, sample] :
       {std::pair("cpp", "samples/cpp/second_day.cc"), std::pair("python", "samples/python/second_day.py"),
        std::pair("go", "bindings/go/second_day_test.go"), std::pair("rust", "bindings/rust/epl/tests/second_day.rs"),
        std::pair("java", "bindings/java/src/test/java/ai/epl/SecondDayTest.java")}) {
    const std::string text = read_text(kTop / "docs" / (std::string(page) + ".md")), program = read_text(kTop / sample);
    const size_t section = text.find("\n## The second day\n"), next = text.find("\n## ", section + 4);
    ASSERT_NE(section, std::string::npos) << page;
    int shown = 0;
    for (size_t fence = text.find("\n```", section); fence < next; fence = text.find("\n```", fence + 4), ++shown) {
      const size_t begin = text.find('\n', fence + 1) + 1;
      fence = text.find("\n```", begin);
      EXPECT_NE(program.find(text.substr(begin, fence - begin)), std::string::npos)
          << sample << " does not have what docs/" << page << ".md shows:\n"
          << text.substr(begin, fence - begin);
    }
    EXPECT_GE(shown, 5) << page;
  }
}

// What they show of a topic is part of what is run.
TEST(Docs, PagesOfLanguagesShowWhatRuns) {
  constexpr const char* processes = "\n## Several processes\n";
  constexpr const char* shapes = "\n## Batches of several shapes\n";
  constexpr const char* own = "\n## Data and operators of the program's own\n";
  constexpr const char* java = "bindings/java/src/test/java/ai/epl/PageTest.java";
  for (const auto& [page, topic, sample] :
       {std::tuple("cpp", processes, "samples/cpp/processes.cc"),
        std::tuple("go", processes, "samples/go/processes/main.go"),
        std::tuple("go", shapes, "bindings/go/example_test.go"), std::tuple("go", own, "bindings/go/example_test.go"),
        std::tuple("python", processes, "samples/python/processes.py"),
        std::tuple("rust", processes, "bindings/rust/epl/examples/processes.rs"),
        std::tuple("rust", shapes, "bindings/rust/epl/tests/training.rs"),
        std::tuple("rust", own, "bindings/rust/epl/tests/hostdata.rs"),
        std::tuple("java", processes, "samples/java/Processes.java"), std::tuple("java", shapes, java),
        std::tuple("java", "\n## Data of your own\n", java), std::tuple("java", "\n## Closing, and memory\n", java),
        std::tuple("java", "\nSettings have types as well", java)}) {
    const std::string text = read_text(kTop / "docs" / (std::string(page) + ".md"));
    const size_t section = text.find(topic), fence = text.find("\n```", section),
                 begin = text.find('\n', fence + 1) + 1, end = text.find("```", begin);
    ASSERT_NE(section, std::string::npos) << page << topic;
    ASSERT_GT(end, begin + 100) << page << topic;
    EXPECT_NE(read_text(kTop / sample).find(text.substr(begin, end - begin)), std::string::npos)
        << sample << " does not have what docs/" << page << ".md shows";
  }
}

// What the page on embedding shows is compiled and run.
TEST(Docs, EmbeddingShowsWhatRuns) {
  const std::string page = read_text(kTop / "docs/embedding.md"), program = read_text(kTop / "tests/capi/embedding.c");
  int blocks = 0;
  for (size_t at = 0; (at = page.find("```c\n", at)) != std::string::npos; ++blocks) {
    at += 5;
    const size_t end = page.find("```", at);
    EXPECT_NE(program.find(page.substr(at, end - at)), std::string::npos)
        << "tests/capi/embedding.c does not have this block:\n"
        << page.substr(at, end - at);
    at = end + 3;
  }
  EXPECT_GT(blocks, 4);
}

// The rows of the tables behind `head` whose first cell begins with a word in backquotes: all such words of that cell,
// and the rest of the row.
struct TableRow {
  std::vector<std::string> words;
  std::string rest;
};

std::vector<TableRow> table_rows(const std::string& page, std::string_view head) {
  static const std::regex word("`([^`]+)`");
  std::vector<TableRow> rows;
  for (size_t at = page.find(head); (at = page.find("\n| `", at)) != std::string::npos;) {
    ++at;
    const std::string line = page.substr(at, page.find('\n', at) - at);
    const size_t cell = line.find(" | ");
    TableRow row{{}, cell == std::string::npos ? "" : line.substr(cell + 3)};
    const std::string first = line.substr(0, cell);
    for (std::sregex_iterator it(first.begin(), first.end(), word), end; it != end; ++it) row.words.push_back((*it)[1]);
    rows.push_back(row);
  }
  return rows;
}

// Every call of OrtTrainingApi, as 1.19.2 has them.
TEST(Docs, MigrationFromOnnxRuntimeHasEveryCall) {
  static const char* const calls[] = {"LoadCheckpoint",
                                      "SaveCheckpoint",
                                      "CreateTrainingSession",
                                      "CreateTrainingSessionFromBuffer",
                                      "TrainingSessionGetTrainingModelOutputCount",
                                      "TrainingSessionGetEvalModelOutputCount",
                                      "TrainingSessionGetTrainingModelOutputName",
                                      "TrainingSessionGetEvalModelOutputName",
                                      "LazyResetGrad",
                                      "TrainStep",
                                      "EvalStep",
                                      "SetLearningRate",
                                      "GetLearningRate",
                                      "OptimizerStep",
                                      "RegisterLinearLRScheduler",
                                      "SchedulerStep",
                                      "GetParametersSize",
                                      "CopyParametersToBuffer",
                                      "CopyBufferToParameters",
                                      "ReleaseTrainingSession",
                                      "ReleaseCheckpointState",
                                      "ExportModelForInferencing",
                                      "SetSeed",
                                      "TrainingSessionGetTrainingModelInputCount",
                                      "TrainingSessionGetEvalModelInputCount",
                                      "TrainingSessionGetTrainingModelInputName",
                                      "TrainingSessionGetEvalModelInputName",
                                      "AddProperty",
                                      "GetProperty",
                                      "LoadCheckpointFromBuffer",
                                      "GetParameterTypeAndShape",
                                      "UpdateParameter",
                                      "GetParameter"};
  const std::string page = read_text(kTop / "docs/migrating-from-onnxruntime.md");
  const std::vector<TableRow> rows = table_rows(page, "## Call by call");
  for (const std::string call : calls) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const TableRow& r) {
      return std::find(r.words.begin(), r.words.end(), call) != r.words.end();
    });
    EXPECT_NE(row, rows.end()) << "no row of the table says what stands in place of " << call;
  }
}

bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) {
    if ((at == 0 || !inside(text[at - 1])) && !inside(text[at + word.size()])) return true;
  }
  return false;
}

// What pages for newcomers name of the interface is there.
TEST(Docs, MigrationPagesNameWhatExists) {
  static const std::regex name(R"(\b(epl_[a-z_]+[a-z]|EPL_(?:ENTRY|PORT|STATE)_[A-Z]+)\b)");
  const std::string header = read_text(kTop / "include/epl.h");
  int names = 0;
  for (const char* page : {"docs/migrating-from-onnxruntime.md", "docs/migrating-from-epl.md"}) {
    const std::string text = read_text(kTop / page);
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it, ++names) {
      EXPECT_TRUE(has_word(header, (*it)[1])) << page << ": " << (*it)[1];
    }
  }
  EXPECT_GT(names, 40);
}

// What the page says of a key of the original is what the table of keys says: yes, not yet, or no.
TEST(Docs, MigrationFromEplSaysOfKeysWhatHolds) {
  const std::vector<TableRow> keys = table_rows(read_text(kTop / "docs/strategy.md"), "## Keys");
  const std::string page = read_text(kTop / "docs/migrating-from-epl.md");
  int rows = 0;
  for (const TableRow& row : table_rows(page, "## Keys")) {
    if (row.words.front().find('.') == std::string::npos) break;  // the next table
    ++rows;
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const TableRow& k) { return k.words == row.words; });
    ASSERT_NE(key, keys.end()) << row.words.front();
    std::string built = "yes";
    for (const std::string word : {"not yet", "no"}) {
      if (key->rest.find(" | " + word + " | ") != std::string::npos) built = word;
    }
    EXPECT_EQ(row.rest.substr(0, row.rest.find(" |")), built) << row.words.front();
  }
  EXPECT_EQ(rows, 26);
  // Keys that are here alone, and whatever else has the form of one.
  static const std::regex named(R"re(["`]((?:auto|io|communication|pipeline|gradient_checkpoint|zero|offload|amp)re"
                                R"re(|cluster|optimizer|memory|reproducible|split|outputs|batch)\.[a-z_0-9]+)["`])re");
  for (std::sregex_iterator it(page.begin(), page.end(), named), end; it != end; ++it) {
    const std::string key = (*it)[1];
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(), [&](const TableRow& k) { return k.words.front() == key; }))
        << key;
  }
}

// Every folder of the engine has its place in the architecture's table.
TEST(Docs, ArchitectureNamesEveryFolder) {
  const std::string text = read_text(kTop / "ARCHITECTURE.md");
  int folders = 0;
  for (const char* parent : {"core", "backends", "frontends"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kTop / parent)) {
      if (!entry.is_directory()) continue;
      ++folders;
      const std::string folder = std::string(parent) + "/" + entry.path().filename().string();
      EXPECT_NE(text.find("`" + folder + "`"), std::string::npos)
          << "ARCHITECTURE.md does not say what " << folder << " is for";
    }
  }
  EXPECT_GT(folders, 10);
}

TEST(Docs, RecipesCoverWhatIsAddedByRows) {
  const std::string text = read_text(kTop / "CONTRIBUTING.md");
  for (const char* recipe : {"## An op", "## A kernel", "## A rewrite", "## A pass", "## An optimizer", "## A loss",
                             "## A metric", "## A schedule", "## A reader", "## A pack", "## A strategy key",
                             "## A template", "## An option of the command line"}) {
    EXPECT_NE(text.find(recipe), std::string::npos) << recipe;
  }
}

// What the recipes tell to write or to run exists: macros of rows, programs of tests, variables that write files again,
// fields.
TEST(Docs, RecipesNameWhatExists) {
  const std::string text = read_text(kTop / "CONTRIBUTING.md");
  std::string sources;
  for (const SourceFile& file : files_below({"core", "frontends", "backends", "include", "tests"}, {".h", ".cc"})) {
    if (file.path.find("docs_test") == std::string::npos) sources += file.text;
  }
  static const std::regex macro(R"(\b(EPL_[A-Z]+)\()"), variable(R"(\b(EPL_UPDATE_[A-Z]+)=1)"),
      program(R"(`[\w/-]*\btest_([a-z]+)`)");
  int named = 0;
  const auto each = [&](const std::regex& pattern, auto&& exists) {
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it, ++named)
      EXPECT_TRUE(exists((*it)[1])) << (*it)[1];
  };
  each(macro, [&](const std::string& name) { return sources.find("#define " + name + "(") != std::string::npos; });
  each(variable, [&](const std::string& name) { return sources.find('"' + name + '"') != std::string::npos; });
  each(program, [&](const std::string& name) { return std::filesystem::is_directory(kTop / "tests" / name); });
  EXPECT_GE(named, 12);
  struct Told {
    const char *word, *file, *there;
  };
  for (const Told& told : {Told{"`optimizer_of`", "tests/cases/generate.py", "def optimizer_of("},
                           Told{"`fixtures`", "tests/rewrite/generate.py", "def fixtures("},
                           Told{"`NEAR_MISSES`", "tests/rewrite/generate.py", "NEAR_MISSES = {"},
                           Told{"`launch_everywhere`", "tests/kernels/kernel_harness.h", " launch_everywhere("},
                           Told{"`default_passes`", "core/strategy/pass.cc", " default_passes()"},
                           Told{"`verify_plan`", "core/strategy/plan.cc", "Status verify_plan("},
                           Told{"`cases`", "tests/train/train_step_test.cc", " cases()"},
                           Told{"`config_keys`", "core/strategy/strategy.cc", " config_keys()"},
                           Told{"`ModelWriter`", "frontends/onnx/templates/initial_weights.h", "ModelWriter"},
                           Told{"`open_reader`", "tests/data/open_reader.h", " open_reader("}}) {
    EXPECT_NE(text.find(told.word), std::string::npos) << told.word;
    EXPECT_NE(read_text(kTop / told.file).find(told.there), std::string::npos) << told.file << ": " << told.there;
  }
}

}  // namespace
}  // namespace epl::structure::docs_test
