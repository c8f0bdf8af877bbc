// What of epl launch is computed from words alone.
#include <algorithm>
#include <charconv>

#include "tools/api.h"
#include "tools/launch.h"

namespace epl::tools {

std::vector<LaunchHost> launch_hosts(const std::vector<std::string>& words) {
  std::vector<LaunchHost> hosts;
  int64_t first = 0;
  for (const std::string& word : words) {
    const size_t colon = word.rfind(':');
    LaunchHost host{word.substr(0, colon), 1, first};
    if (colon != std::string::npos) {
      const char* const end = word.data() + word.size();
      const auto [stop, failure] = std::from_chars(word.data() + colon + 1, end, host.count);
      if (failure != std::errc() || stop != end || host.count < 1 || host.count > 4096)
        throw UsageError("--hosts: \"" + word + "\" is not NAME:COUNT, as node1:4");
    }
    if (host.name.empty()) throw UsageError("--hosts: \"" + word + "\" has no name");
    if (std::ranges::any_of(hosts, [&](const LaunchHost& other) { return other.name == host.name; }))
      throw UsageError("--hosts: " + host.name + " stands there twice");
    first += host.count;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

size_t own_host(const std::vector<LaunchHost>& hosts, const std::string& name) {
  const auto short_name = [](const std::string& whole) { return whole.substr(0, whole.find('.')); };
  std::vector<size_t> same, alike;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == name) same.push_back(i);
    if (short_name(hosts[i].name) == short_name(name)) alike.push_back(i);
  }
  if (same.size() == 1) return same[0];
  if (alike.size() == 1) return alike[0];
  throw UsageError("this host is called " + name + ", which is " + (alike.empty() ? "none" : "several") +
                   " of --hosts; --host NAME says which it is");
}

}  // namespace epl::tools
