#include "tools/launch_output.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace epl::tools {
namespace {

constexpr size_t long_line = 1 << 16;
constexpr size_t room = 4 << 20;  // bytes that wait for a reader

}  // namespace

// What there is of a line that has not ended.
std::string PrefixedLines::begun() {
  std::string out = (in_line_ ? "" : prefix_) + kept_;
  kept_.clear();
  in_line_ = true;
  return out;
}

std::string PrefixedLines::take(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (std::exchange(may_feed_, false) && text.front() == '\n') {
      out += '\n';
      over_itself_ = false;
      text.remove_prefix(1);
      continue;
    }
    const size_t end = text.find_first_of("\r\n");
    kept_ += text.substr(0, end);
    if (end == std::string_view::npos) break;
    const bool returns = text[end] == '\r';
    if (in_line_ || !kept_.empty() || !returns) out += begun();
    out += text[end];
    in_line_ = false;
    over_itself_ = may_feed_ = returns;
    text.remove_prefix(end + 1);
  }
  if (kept_.size() >= long_line) out += begun();
  return out;
}

std::string PrefixedLines::idle() { return over_itself_ && !kept_.empty() ? begun() : ""; }

std::string PrefixedLines::end() {
  const bool open = in_line_ || !kept_.empty();
  std::string out = open ? begun() + "\n" : "";
  in_line_ = false;
  return out;
}

struct LaunchOutput::State {
  State(int descriptor, int eventfd) : to(descriptor), wake(::fcntl(eventfd, F_DUPFD_CLOEXEC, 0)) {}
  State(const State&) = delete;
  ~State() {
    if (wake >= 0) ::close(wake);
  }
  const int to, wake;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> queue;
  size_t bytes = 0;  // in the queue, the part that is being written included
  uint64_t dropped = 0;
  bool lossy = false, closing = false;

  // Ends once there is nothing left and nothing more to come. A reader who takes nothing holds it up for ever, and it
  // goes with the process then.
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      const std::string text = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      write_all(text);
      lock.lock();
      const bool was_full = bytes >= room;
      bytes -= text.size();
      if (was_full && bytes < room) static_cast<void>(::eventfd_write(wake, 1));
      if (dropped > 0 && bytes < room) tell_dropped();
      changed.notify_all();
    }
  }
  void tell_dropped() {
    std::string note = "epl: " + std::to_string(dropped) + " bytes of output are left out, since nobody read them\n";
    dropped = 0;
    bytes += note.size();
    queue.push_back(std::move(note));
  }
  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t wrote = ::write(to, text.data(), text.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return;  // nobody reads it; the job goes on
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }
};

LaunchOutput::LaunchOutput(int descriptor, int wake) : state_(std::make_shared<State>(descriptor, wake)) {
  std::thread([state = state_] { state->run(); }).detach();
}

LaunchOutput::~LaunchOutput() {
  std::lock_guard lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
}

void LaunchOutput::write(std::string text) {
  if (text.empty()) return;
  std::lock_guard lock(state_->mutex);
  if (state_->lossy && state_->bytes >= room) {
    state_->dropped += text.size();
    return;
  }
  state_->bytes += text.size();
  state_->queue.push_back(std::move(text));
  state_->changed.notify_all();
}

bool LaunchOutput::full() const {
  std::lock_guard lock(state_->mutex);
  return !state_->lossy && state_->bytes >= room;
}

void LaunchOutput::be_lossy() {
  std::lock_guard lock(state_->mutex);
  state_->lossy = true;
}

bool LaunchOutput::drain(int milliseconds) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                  [&] { return state_->queue.empty() && state_->bytes == 0; });
}

}  // namespace epl::tools
