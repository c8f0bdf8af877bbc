#include "tools/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "tools/report.h"

namespace epl::tools {

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e7) return "?";
  const int64_t s = static_cast<int64_t>(std::llround(seconds));
  char buffer[64];
  if (s >= 3600) {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld:%02lld", static_cast<long long>(s / 3600), static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  } else {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld", static_cast<long long>(s / 60), static_cast<long long>(s % 60));
  }
  return buffer;
}

std::string short_number(double value) {
  if (value >= 1e6) return fixed(value / 1e6, 1) + "M";
  if (value >= 1e3) return fixed(value / 1e3, 1) + "k";
  return fixed(value, value < 10 ? 1 : 0);
}

Progress::Progress(int64_t steps, bool json, int64_t planned_bytes)
    : steps_(steps), json_(json), terminal_(!json && ::isatty(STDERR_FILENO)), planned_bytes_(planned_bytes), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { clear(); }

double Progress::seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

std::string Progress::time_left(int64_t step) const {
  const int64_t done = step - first_step_ + 1;
  return clock_text(seconds() / static_cast<double>(done) * static_cast<double>(steps_ - step));
}

std::string Progress::bar(int64_t step, double loss, int64_t used_bytes) const {
  std::string out = "step " + std::to_string(step) + "/" + std::to_string(steps_);
  if (terminal_) {
    constexpr int width = 20;
    const int full = static_cast<int>(width * step / std::max<int64_t>(steps_, 1));
    out += " [" + std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(width - full), '.') + "]";
  }
  out += " loss " + fixed(loss, 4);
  if (held_out_ >= 0) out += " held-out " + fixed(held_out_, 4);
  out += " | " + short_number(static_cast<double>(units_) / seconds()) + " " + unit + "/s | " + time_left(step) + " left | memory " +
         readable_bytes(planned_bytes_) + " planned, " + readable_bytes(used_bytes) + " used";
  return out;
}

void Progress::step(int64_t step, double loss, int64_t units, int64_t used_bytes) {
  if (first_step_ < 0) first_step_ = step;
  units_ += units;
  smooth_loss_ = smooth_loss_ < 0 ? loss : 0.9 * smooth_loss_ + 0.1 * loss;
  if (json_) {
    const double rate = static_cast<double>(units_) / std::max(seconds(), 1e-9);
    std::printf("%s\n", print_json({{"event", "step"}, {"step", step}, {"loss", loss}, {std::string(unit) + "_per_second", rate},
                             {"planned_bytes", planned_bytes_}, {"used_bytes", used_bytes}}).c_str());
    std::fflush(stdout);
    return;
  }
  const double now = seconds(), pause = terminal_ ? 0.1 : 10;
  if (step != steps_ && last_shown_ >= 0 && now - last_shown_ < pause) return;
  last_shown_ = now;
  const std::string line = bar(step, smooth_loss_, used_bytes);
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    shown_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::event(const Json& json, const std::string& line) {
  clear();
  if (json_) {
    std::printf("%s\n", print_json(json).c_str());
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

}  // namespace epl::tools
