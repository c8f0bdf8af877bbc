// The subcommands: each adds its options and, when it is the one chosen, runs. The exit code is what `run` returns;
// errors are thrown (tools/api.h).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace epl::tools {

using Run = std::function<int()>;

Run add_train(CLI::App& app);
Run add_evaluate(CLI::App& app);
Run add_plan(CLI::App& app);
Run add_trace(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_devices(CLI::App& app);
Run add_export(CLI::App& app);
Run add_check(CLI::App& app);
Run add_fuzz_layouts(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_calibrate(CLI::App& app);
Run add_launch(CLI::App& app);
Run add_template(CLI::App& app);
Run add_completion(CLI::App& app);
Run add_man(CLI::App& app);

// The command line, quoted so that a shell can read it again.
const std::string& command_line();

// Of the library in use: "0.1.0".
std::string version_text();

// Exit codes beyond 0, done, and 1, a check did not hold; 128 + N: a signal asked to end.
inline constexpr int exit_usage = 2;
inline constexpr int exit_weights_are_saved = 8;  // a step failed; the weights before it are saved
int exit_code(int32_t error);                     // of an EPL_ERROR_...

// An error of the library as a person reads it: the message, and where, unless the message says so.
class ApiError;
// `of_another_rank`: it may be of a rank that this process does not have, so that the rank is named.
std::string described_failure(const ApiError& error, bool of_another_rank = false);

}  // namespace epl::tools
