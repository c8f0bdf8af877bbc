#include "tools/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace epl::tools {
namespace {

volatile std::sig_atomic_t seen = 0;
std::atomic<int64_t> seen_at = 0;  // milliseconds
std::atomic<epl_cancel*> triggered = nullptr;
volatile std::sig_atomic_t seconds_to_end = 0;

int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

constexpr int watched[] = {SIGINT, SIGTERM, SIGHUP};

// A second request has the signal's usual effect, which is to end the process. What follows within a second is the same
// request: timeout(1) and others signal a process, and then its group.
void on_signal(int number) {
  const int kept = errno;
  if (seen == 0) {
    seen_at = now();
    seen = number;
    if (epl_cancel* token = triggered) epl_cancel_trigger(token);
    if (seconds_to_end > 0) ::alarm(static_cast<unsigned>(seconds_to_end));
  } else if (now() - seen_at > 1000) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  errno = kept;
}

void on_alarm(int) {
  constexpr char said[] =
      "epl: another process does not end its step, which cannot be left alone; this one ends without saving\n";
  static_cast<void>(!::write(STDERR_FILENO, said, sizeof said - 1));
  ::_exit(128 + seen);
}

}  // namespace

void watch_signals(epl_cancel* token) {
  triggered = token;
  ::signal(SIGALRM, on_alarm);
  for (int number : watched) {
    struct sigaction before{};
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = on_signal;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

void forget_token() { triggered = nullptr; }

void end_within(unsigned seconds) {
  seconds_to_end = static_cast<int>(seconds);
  if (seconds == 0) ::alarm(0);
}

int signal_seen() { return seen; }

namespace {
int output_errno = 0;
}  // namespace

void flush_output() {
  if (std::fflush(stdout) != 0 && output_errno == 0) output_errno = errno;
}

const char* output_failure() {
  flush_output();
  if (std::ferror(stdout) != 0 && output_errno == 0) output_errno = EIO;
  return output_errno == 0 ? nullptr : std::strerror(output_errno);
}

}  // namespace epl::tools
