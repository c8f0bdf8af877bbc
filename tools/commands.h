// The subcommands: each adds its options and, when it is the one chosen, runs. The exit code is what `run` returns;
// errors are thrown (tools/api.h).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace epl::tools {

using Run = std::function<int()>;

Run add_train(CLI::App& app);
Run add_evaluate(CLI::App& app);
Run add_plan(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_export(CLI::App& app);
Run add_check(CLI::App& app);
Run add_template(CLI::App& app);
Run add_completion(CLI::App& app);
Run add_man(CLI::App& app);

// What was typed, quoted so that a shell reads it again.
const std::string& command_line();

// Of the library in use: "0.1.0".
std::string version_text();

// Set from Ctrl-C: running jobs stop after the step they are in, and keep what they have learnt.
void watch_interrupts();
bool interrupted();

}  // namespace epl::tools
