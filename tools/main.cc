// epl: the command line, on the C API alone.
#include <algorithm>
#include <cstdio>

#include "tools/api.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/job.h"
#include "tools/json.h"
#include "tools/option_rules.h"
#include "tools/signals.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

std::string typed_line;

constexpr char first_steps[] = R"(  epl template gpt2 --layers 4 --width 128 --heads 4 --out model.onnx
  epl train model.onnx --text book.txt --steps 1000 --lr 2e-3 --out run
  epl evaluate run/trained.onnx --text book.txt)";

}  // namespace

int exit_code(int32_t error) {
  switch (error) {
    case EPL_ERROR_UNSUPPORTED:
      return 4;
    case EPL_ERROR_IO:
    case EPL_ERROR_EXHAUSTED:
      return 5;
    case EPL_ERROR_OUT_OF_MEMORY:
      return 6;
    case EPL_ERROR_INTERNAL:
    case EPL_ERROR_MISUSE:
      return 7;
    case EPL_ERROR_CANCELLED:
      return 130;
    default:
      return 3;
  }
}

std::string described_failure(const ApiError& e, bool of_another_rank) {
  std::string message = e.what();
  const std::string rank = "rank " + std::to_string(e.rank);
  if (of_another_rank && e.rank >= 0 && message.find(rank) == std::string::npos) message = rank + ": " + message;
  return e.where.empty() || message.find(e.where) != std::string::npos ? message : message + " (at " + e.where + ")";
}

namespace {

int run(int argc, char** argv) {
  CLI::App app("epl trains neural networks from ONNX files.", "epl");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", [] { return "epl " + version_text(); });
  struct Command {
    const char* name;
    const char* doc;
    Run (*add)(CLI::App&);
    Run run;
    CLI::App* app = nullptr;
  };
  Command commands[] = {
      {"train", "Train a model on text or tensors; writes trained.onnx, a checkpoint and a report.", add_train, {}},
      {"evaluate", "The loss of a model, or of a checkpoint of it, on data.", add_evaluate, {}},
      {"plan", "What training would do: memory to the byte, order of work, and why. Allocates nothing.", add_plan, {}},
      {"trace", "Record what every rank does in a step, and when, as a file for Perfetto.", add_trace, {}},
      {"inspect",
       "What a model, checkpoint or data file holds; without a file, what this build can do.",
       add_inspect,
       {}},
      {"devices", "What there is to run on, what a GPU here lacks, and what can be planned for.", add_devices, {}},
      {"export", "A checkpoint's weights as ONNX or safetensors.", add_export, {}},
      {"check", "Train cases with known answers and compare every number.", add_check, {}},
      {"fuzz-layouts", "Train under pairs of layouts drawn from a seed, and compare every bit.", add_fuzz_layouts, {}},
      {"bench", "What each level of equal bits costs, measured in rounds.", add_bench, {}},
      {"calibrate", "Measure this machine, so that plans are decided by its own numbers.", add_calibrate, {}},
      {"launch", "Start the processes of a job on this host; they find each other and end together.", add_launch, {}},
      {"template", "Write an ONNX model of a known family at any size, with seeded weights.", add_template, {}},
      {"completion", "Print the completion script of a shell.", add_completion, {}},
      {"man", "Print the man page.", add_man, {}},
  };
  for (Command& command : commands) {
    command.app = app.add_subcommand(command.name, command.doc);
    command.app->set_help_flag("-h,--help", "this text")->group(groups::other);
    command.run = command.add(*command.app);
  }
  app.footer(first_steps);  // after the commands, which would inherit it
  for (int i = 0; i < argc; ++i) typed_line += (i == 0 ? "epl" : " " + shell_word(argv[i]));
  check_values(app);
  // `epl help COMMAND` is `epl COMMAND --help`.
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.insert(words.begin() + (argc > 2 ? 2 : 1), "--help");
  }
  if (const std::string wrong = unknown_command(app, static_cast<int>(words.size()), words.data()); !wrong.empty())
    throw UsageError(wrong);
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app.get_subcommands();
    std::fputs(help_text(describe(app), parsed.empty() ? "" : parsed[0]->get_name(), library()).c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // the version was asked for
    throw UsageError(explain(app, e));
  }
  for (Command& command : commands) {
    if (!command.app->parsed()) continue;
    for (const std::string& wrong : {missing_choice(*command.app), option_without_meaning(*command.app)}) {
      if (!wrong.empty()) throw UsageError(wrong + " (see epl " + command.name + " --help)");
    }
    return command.run();
  }
  return 2;
}

}  // namespace

const std::string& command_line() { return typed_line; }

std::string version_text() {
  const uint32_t v = epl_version();
  return std::to_string(v / 1000000) + "." + std::to_string(v / 1000 % 1000) + "." + std::to_string(v % 1000);
}

namespace {

// On standard error for people; with --json on standard output as well, as the last line.
int report_failure(int argc, char** argv, int code, const std::string& message, const std::string& where) {
  say_error("epl: %s\n", message.c_str());
  if (std::find(argv, argv + argc, std::string_view("--json")) != argv + argc) {
    say_json({{"event", "error"}, {"exit_code", code}, {"message", printable_line(message)}, {"where", where}});
  }
  return code;
}

// What was printed must have arrived: a full disk is not a success.
int with_output(int code) {
  const char* why = output_failure();
  if (why == nullptr || code != 0) return code;
  say_error("epl: cannot write to standard output: %s\n", why);
  return exit_code(EPL_ERROR_IO);
}

}  // namespace
}  // namespace epl::tools

int main(int argc, char** argv) {
  using namespace epl::tools;
  try {
    return with_output(run(argc, argv));
  } catch (const ApiError& e) {
    const bool asked = e.code == EPL_ERROR_CANCELLED && interrupted();
    return report_failure(argc, argv, asked ? signal_exit_code() : exit_code(e.code), described_failure(e), e.where);
  } catch (const UsageError& e) {
    return report_failure(argc, argv, exit_usage, e.what(), "");
  } catch (const std::bad_alloc&) {
    return report_failure(argc, argv, exit_code(EPL_ERROR_OUT_OF_MEMORY), "out of memory", "");
  } catch (const std::exception& e) {
    return report_failure(argc, argv, exit_code(EPL_ERROR_INTERNAL), std::string("unexpected: ") + e.what(), "");
  }
}
