// What a person sees of a running job: one line that stays in its place and within its terminal, a line now and then
// elsewhere (a pipe, a file, a terminal that cannot erase).
#pragma once

#include <string>

#include "tools/listener.h"
#include "tools/text.h"

namespace epl::tools {

class Progress : public Listener {
 public:
  Progress();
  ~Progress() override;
  void start(const JobStart& e) override;
  void step(const StepDone& e) override;
  void evaluated(const Evaluated& e) override;
  void notice(const Json& event, const std::string& line) override;
  void warning(const std::string& message) override;
  void done(const JobDone& e) override;

 private:
  void clear();
  // Of at most this many columns; what matters least is left out first.
  std::string line(const StepDone& e, int columns) const;

  bool terminal_;  // it can erase a line
  JobStart job_;
  std::string measured_;  // metrics of the held-out data
  std::vector<Evaluated> measurements_;
  double held_out_ = -1, smooth_loss_ = -1, last_loss_ = -1, last_shown_ = -1;
  double unigram_ = -1, bigram_ = -1;  // what a notice said of baselines, for the last line
  bool shown_ = false;
};

// Of the terminal behind standard error; 80 where it does not say.
int terminal_columns();

}  // namespace epl::tools
