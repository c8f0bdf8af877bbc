// Signals and streams of a long job: what asks it to end, and what must not end it.
#pragma once

namespace epl::tools {

// From now on SIGINT, SIGTERM and SIGHUP ask the job to end after the step it is in; another, over a second later, ends
// the process at once. One that the parent had ignored (nohup, a shell's background job) stays ignored. A reader that
// closes our standard output, and a limit on the size of files, no longer end the process; writing then fails, which
// `output_failure` and errors tell.
void watch_signals();
// The signal that asked, 0 for none.
int signal_seen();
inline bool interrupted() { return signal_seen() != 0; }
// The exit code that a shell would show for that signal.
inline int signal_exit_code() { return 128 + signal_seen(); }
// Sends what was printed on its way; a failure is remembered for `output_failure`.
void flush_output();
// Why standard output did not take what was printed: "No space left on device"; null if it did. Flushes it.
const char* output_failure();

}  // namespace epl::tools
