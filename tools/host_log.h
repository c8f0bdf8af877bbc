// What the library logs while a command runs, kept until the command can show it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace epl::tools {

// Thread safety: any thread. What was not shown goes to standard error at the end, so that nothing is lost when a
// command fails.
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
