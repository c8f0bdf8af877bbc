// What the library says while a command runs, kept until the command has somebody to tell it to.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace epl::tools {

// Thread safety: any thread. What nobody took goes to standard error at the end, so that nothing is lost to a command
// that fails.
class HostLog {
 public:
  HostLog() = default;
  HostLog(const HostLog&) = delete;
  HostLog& operator=(const HostLog&) = delete;
  ~HostLog();
  void add(std::string message);
  std::vector<std::string> take();

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace epl::tools
