#include "tools/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tools/measure.h"
#include "tools/signals.h"
#include "tools/text.h"

namespace epl::tools {

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

namespace {

bool can_erase() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

}  // namespace

Progress::Progress() : terminal_(can_erase()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::start(const JobStart& e) {
  job_ = e;
  measurements_ = e.earlier_evaluations;
  notice({}, "training " + with_thousands(e.parameters) + " parameters in " + std::to_string(e.tensors) +
                 " tensors for " + with_thousands(e.steps) + " steps" +
                 (e.first_step > 0 ? ", of which " + with_thousands(e.first_step) + " are done" : "") +
                 "; memory planned: " + readable_bytes(e.planned_bytes));
}

std::string Progress::line(const StepDone& e, int columns) const {
  const double done = static_cast<double>(std::max<int64_t>(e.step - job_.first_step, 1)),
               seconds = std::max(e.seconds - job_.earlier_seconds, 1e-9);
  const std::string step = "step " + std::to_string(e.step) + "/" + std::to_string(job_.steps);
  const bool none = smooth_loss_ < 0 && std::isnan(last_loss_);  // nothing has counted so far
  const std::string alone = "loss " + fixed(none ? last_loss_ : smooth_loss_, 4);
  std::string loss = alone;
  if (held_out_ >= 0) loss += " held-out " + fixed(held_out_, 4);
  if (!measured_.empty()) loss += " " + measured_.substr(0, measured_.find(','));
  // In the order in which they go when there is no room; "" is the bar's place.
  const std::string left = clock_text(seconds / done * static_cast<double>(job_.steps - e.step)) + " left";
  const std::string speed =
      short_number(done * static_cast<double>(job_.units_per_step) / seconds) + " " + job_.unit + "/s";
  const std::string memory = readable_bytes(e.used_bytes) + " used";
  std::string out;
  for (const std::vector<std::string>& parts : {std::vector<std::string>{step, loss, left, speed, memory},
                                                {step, loss, left, speed},
                                                {step, loss, left},
                                                {step, loss},
                                                {step, alone, left},
                                                {step, alone},
                                                {step}}) {
    out.clear();
    for (const std::string& part : parts) out += (out.empty() ? "" : " | ") + part;
    if (static_cast<int>(out.size()) <= columns) break;
  }
  if (static_cast<int>(out.size()) > columns) return out.substr(0, static_cast<size_t>(std::max(columns, 0)));
  // What is left over is the bar's, where that is enough to see something in.
  const int width = std::min(columns - static_cast<int>(out.size()) - 3, 20);
  if (!terminal_ || width < 5) return out;
  const int full = static_cast<int>(width * e.step / std::max<int64_t>(job_.steps, 1));
  return step + " [" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), '.') + "]" + out.substr(step.size());
}

void Progress::step(const StepDone& e) {
  last_loss_ = e.loss;
  if (!std::isnan(e.loss)) smooth_loss_ = smooth_loss_ < 0 ? e.loss : 0.9 * smooth_loss_ + 0.1 * e.loss;
  const double pause = terminal_ ? 0.1 : 10;
  if (e.step != job_.steps && last_shown_ >= 0 && e.seconds - last_shown_ < pause) return;
  last_shown_ = e.seconds;
  // The last column stays empty: a terminal may wrap when it is filled.
  const std::string line = this->line(e, terminal_ ? terminal_columns() - 1 : 1000);
  if (terminal_) {
    std::fputs(("\r\033[K" + printable_line(line)).c_str(), stderr);
    shown_ = true;
  } else {
    say_error("%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::evaluated(const Evaluated& e) {
  if (!e.metrics.empty()) held_out_ = e.metrics.front().second;
  measured_ = metrics_text(e.metrics, 1);
  measurements_.push_back(e);
  notice({}, "measured after step " + with_thousands(e.step) + ": " + metrics_text(e.metrics) +
                 (e.best ? " (the best so far)" : ""));
}

void Progress::notice(const Json& event, const std::string& line) {
  if (event.is_object() && event.contains("unigram")) {
    unigram_ = event.at("unigram");
    bigram_ = event.at("bigram");
  }
  if (line.empty()) return;
  clear();
  say("%s\n", line.c_str());
  flush_output();
}

void Progress::warning(const std::string& message) {
  clear();
  say_error("epl: warning: %s\n", message.c_str());
}

void Progress::done(const JobDone& e) {
  std::string line =
      (e.ended == "steps" ? "done: " : e.ended + ": ") + with_thousands(e.step) + " steps in " + clock_text(e.seconds);
  if (held_out_ >= 0) {
    line += "; held-out loss " + fixed(held_out_, 4);
    if (unigram_ > 0) {
      line += " nats per byte (unigram " + fixed(unigram_, 4) + ", bigram " + fixed(bigram_, 4) + "; " +
              fixed(held_out_ / unigram_, 3) + " of the unigram's)";
    }
    if (!measured_.empty()) line += "; " + measured_;
  } else if (last_loss_ >= 0) {
    line += "; last loss " + fixed(last_loss_, 4);
  }
  if (!e.reason.empty()) line += "; " + e.reason;
  const Evaluated* best = best_of(measurements_);
  if (best != nullptr && best->step != measurements_.back().step)
    line += "; the best weights, of step " + with_thousands(best->step) + ", are in " + job_.out + "/best";
  if (e.ended != "steps") {
    line += e.resume.empty() ? "; there is no checkpoint to go on from"
                             : "; go on after step " + with_thousands(e.resume_step) + " with --resume " + e.resume;
  }
  if (!e.sample.empty()) line += "\n\nheld-out text, then what the model writes after >>>\n" + e.sample + "\n";
  notice({}, line);
}

}  // namespace epl::tools
