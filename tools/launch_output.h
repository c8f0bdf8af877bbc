// What processes print, on its way through epl launch: whole lines with "[rank] " before each, to a reader who may be
// slow. Nothing here waits for that reader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace epl::tools {

// The lines of one stream. A carriage return ends a line as well, so that progress that writes over itself passes
// through; of a line without an end comes what there is once it is long.
class PrefixedLines {
 public:
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}
  // What may go on, now that this has come.
  std::string take(std::string_view text);
  // The same when nothing has come for a while: the line that stands behind a carriage return.
  std::string idle();
  // And what is left at the end, as a line.
  std::string end();

 private:
  std::string begun();
  std::string prefix_;
  std::string kept_;          // of the line that has not ended
  bool in_line_ = false;      // some of it has gone on
  bool over_itself_ = false;  // the line before it ended in a carriage return
  bool may_feed_ = false;     // that return came last: a line feed belongs to it
};

// Where such text goes: a queue with a bound, and a thread that writes. Thread safety: one caller.
class LaunchOutput {
 public:
  // Writes to `descriptor`, which is open as long as the process lives. `wake`: an eventfd that is told when there is
  // room again.
  LaunchOutput(int descriptor, int wake);
  LaunchOutput(const LaunchOutput&) = delete;
  ~LaunchOutput();  // what the reader does not take is dropped
  // Takes it in any case, so that what has been read from a process is not lost. Once `lossy`, what finds no room is
  // counted instead.
  void write(std::string text);
  // Whether its producers should wait.
  bool full() const;
  // From now on nobody waits for the reader.
  void be_lossy();
  // Whether all has been written, after so many milliseconds at most.
  bool drain(int milliseconds);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace epl::tools
