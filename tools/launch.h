// epl launch: starts the processes of a job on this host, with what they need to find each other, and ends them
// together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl::tools {

struct LaunchOptions {
  int64_t processes = 0;           // of this host, without --hosts
  std::vector<std::string> hosts;  // NAME:COUNT
  std::string host;                // which of them this one is; empty: found by its name
  int64_t port = 29511;            // of the first host, where processes of several hosts meet
  std::string secret_file, logs;
  bool plain = false;
  double patience_seconds = 10;  // between asking processes to end and ending them
  std::string rendezvous;        // where the processes of one host meet; empty: at a store that is served for them
  bool quiet = false;            // says nothing itself
  std::vector<std::string> command;
};

struct LaunchHost {
  std::string name;
  int64_t count = 1, first = 0;  // its processes are [first, first + count)
};
// Throws where a host is not NAME:COUNT or comes twice.
std::vector<LaunchHost> launch_hosts(const std::vector<std::string>& words);
// Which of the hosts the one called `name` is: by its whole name, or by what stands before the first dot. Throws where
// none or several are.
size_t own_host(const std::vector<LaunchHost>& hosts, const std::string& name);
int launch(LaunchOptions o);

}  // namespace epl::tools
