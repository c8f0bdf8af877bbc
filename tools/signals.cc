#include "tools/signals.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace epl::tools {
namespace {

volatile std::sig_atomic_t seen = 0;

constexpr int watched[] = {SIGINT, SIGTERM, SIGHUP};

// From then on each has its usual effect, which is to end the process.
void on_signal(int number) {
  seen = number;
  for (int one : watched) ::signal(one, SIG_DFL);
}

}  // namespace

void watch_signals() {
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
