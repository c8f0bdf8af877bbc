// Where the processes of one job find each other before they are connected: a small store of bytes under names that all
// of them reach. What is put stays. Who joins a group (Device::join) puts how it is reached, and gets the same of its
// peers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/stop.h"

namespace epl {

// Thread safety: any threads, and for those that reach over processes any processes, may call at once. Where `stop`
// says so, a call waits no longer and gives its status.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Once for each key: a second one is Code::misuse and changes nothing, so that two who take themselves for the same
  // rank are noticed.
  virtual Status put(const std::string& key, std::span<const std::byte> value, const Stop& stop = {}) = 0;
  // Waits until somebody has put it, at most so long; then Code::deadline_exceeded, which names the key.
  virtual Result<std::vector<std::byte>> get(const std::string& key, double timeout_seconds, const Stop& stop = {}) = 0;
  // The address of this host as it is seen on the way here, under which the others may reach it; empty where that is
  // not known.
  virtual Result<std::string> own_address(const Stop& /*stop*/ = {}) { return std::string(); }

  // The same with text.
  Status put_text(const std::string& key, std::string_view value, const Stop& stop = {});
  Result<std::string> get_text(const std::string& key, double timeout_seconds, const Stop& stop = {});

 protected:
  static Status put_twice(const std::string& key);
  static Status nobody_came(const std::string& key, double timeout_seconds);
};

// For ranks of one process.
std::shared_ptr<Rendezvous> memory_rendezvous();
// For processes that share a folder: a file for each key. The folder is made where it is not there, for this user
// alone; it is of one run of one job, and whoever started the job removes it.
Result<std::shared_ptr<Rendezvous>> folder_rendezvous(const std::string& folder);

}  // namespace epl
