#include "tools/host_log.h"

#include <utility>

#include "tools/text.h"

namespace epl::tools {

HostLog::~HostLog() {
  for (const std::string& message : take()) say_error("epl: %s\n", message.c_str());
}

void HostLog::add(std::string message) {
  std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
}

std::vector<std::string> HostLog::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

}  // namespace epl::tools
