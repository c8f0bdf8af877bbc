// Signals and streams of a long job: what asks it to end, and what must not end it.
#pragma once

#include "include/epl.h"

namespace epl::tools {

// From now on SIGINT, SIGTERM and SIGHUP ask the job to end: they trigger `token`, which ends the call that it is in,
// whatever that waits for. Another one, over a second later, ends the process at once. One that the parent had ignored
// (nohup, a shell's background job) stays ignored. A reader that closes our standard output, and a limit on the size of
// files, no longer end the process; writing then fails, which `output_failure` and errors tell.
void watch_signals(epl_cancel* token);
// The token is about to go: what was seen is still known.
void forget_token();
// Of a job in several processes: how many seconds after the signal this process ends in any case, without saving. Where
// ranks agree on a step, none may leave before all have come, and one of them may hang. 0: it does not.
void end_within(unsigned seconds);
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
