// The command line on terminals of several widths, as a person sees it: what it draws stays on its line.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace epl::tools::terminal_test {
namespace {

constexpr int no_terminal = -2;

struct Shown {
  std::string text;
  int code = -1;
};

// Runs the tool on a pseudo-terminal of that width.
Shown on_terminal(const std::vector<std::string>& words, unsigned short columns, const char* kind,
                  const std::string& folder) {
  winsize size{24, columns, 0, 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) return {.text = "", .code = no_terminal};
  if (child == 0) {
    if (::chdir(folder.c_str()) != 0) ::_exit(99);
    ::setenv("TERM", kind, 1);
    std::vector<char*> argv = {const_cast<char*>(EPL_TOOL)};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(EPL_TOOL, argv.data());
    ::_exit(98);
  }
  Shown out;
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) out.text.append(buffer, static_cast<size_t>(n));
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return out;
}

std::string folder_with_job() {
  const TemporaryFolder& folder = program_folder();
  std::ofstream text(folder / "text.txt");
  for (int i = 0; i < 200; ++i) text << "line " << i << ": the quick brown fox jumps over the lazy dog\n";
  return folder.path();
}

// What was drawn between two returns of the carriage, without escape sequences.
std::vector<std::string> drawn(const std::string& text) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' || text[i] == '\n') {
      lines.emplace_back();
    } else if (text[i] == '\033') {
      while (i < text.size() && !std::isalpha(static_cast<unsigned char>(text[i]))) ++i;
    } else {
      lines.back() += text[i];
    }
  }
  return lines;
}

TEST(Terminal, TheProgressLineFits) {
  const std::string folder = folder_with_job();
  const Shown made = on_terminal({"template", "gpt2", "--layers", "1", "--width", "16", "--heads", "2", "--context",
                                  "8", "--vocab", "256", "--out", "m.onnx"},
                                 80, "xterm", folder);
  if (made.code == no_terminal) GTEST_SKIP() << "this system gives no pseudo-terminals";
  ASSERT_EQ(made.code, 0) << made.text;
  for (const unsigned short columns : {120, 80, 40, 24}) {
    const Shown shown = on_terminal({"train", "m.onnx", "--text", "text.txt", "--batch", "4", "--steps", "30",
                                     "--sample-bytes", "0", "--out", "run" + std::to_string(columns)},
                                    columns, "xterm", folder);
    ASSERT_EQ(shown.code, 0) << shown.text;
    int bars = 0;
    for (const std::string& line : drawn(shown.text)) {
      if (!line.starts_with("step ")) continue;
      ++bars;
      EXPECT_LT(line.size(), columns) << line;
      EXPECT_NE(line.find("/30"), std::string::npos) << line;
      if (columns >= 40) {
        EXPECT_NE(line.find("loss "), std::string::npos) << "what was measured takes the loss's place: " << line;
      }
    }
    EXPECT_GT(bars, 0) << shown.text;
    if (columns == 120) {
      EXPECT_NE(shown.text.find(" used"), std::string::npos);
    }
    if (columns >= 40) {
      EXPECT_NE(shown.text.find("loss "), std::string::npos);
    }
  }
  // A terminal that cannot erase gets lines.
  const Shown dumb = on_terminal(
      {"train", "m.onnx", "--text", "text.txt", "--batch", "4", "--steps", "5", "--sample-bytes", "0", "--out", "dumb"},
      80, "dumb", folder);
  EXPECT_EQ(dumb.code, 0);
  EXPECT_EQ(dumb.text.find('\033'), std::string::npos);
  EXPECT_NE(dumb.text.find("step 5/5"), std::string::npos) << dumb.text;
}

}  // namespace
}  // namespace epl::tools::terminal_test
