// Connections over TCP whose every wait has an end.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/base/descriptor.h"
#include "core/base/secret.h"
#include "core/base/status.h"
#include "core/base/stop.h"

namespace epl {

// Until when something is waited for: a point in time by the host's clock, or until the call is to stop (`stop`, which
// must outlive this), whatever comes first.
class Deadline {
 public:
  Deadline(const std::function<double()>& clock, double seconds, const Stop* stop = nullptr)
      : clock_(clock), at_(clock() + seconds), stop_(stop != nullptr && stop->can_stop() ? stop : nullptr) {}
  double left() const { return at_ - clock_(); }  // negative when it has passed
  Status stopped() const { return stop_ != nullptr ? stop_->check() : Status(); }
  // How long poll may wait before these are asked again: `left`, rounded up, not negative, or a slice of it.
  int milliseconds() const;

 private:
  const std::function<double()>& clock_;
  double at_;
  const Stop* stop_;
};

// "10.0.0.1:29511", "name:29511", "[fe80::1]:29511".
struct Endpoint {
  std::string host;
  int port = 0;
  std::string text() const;
};
Result<Endpoint> parse_endpoint(std::string_view text);
// Whether only this host reaches itself under it.
bool is_loopback(std::string_view host);

// Listens at an address of this host; port 0 is any that is free, and is then that one.
Result<Descriptor> listen_at(Endpoint& at, int waiting);
// The next connection, which does not block; none where nobody waits to be taken.
Result<Descriptor> accept_next(const Descriptor& listener);
// Tries until the deadline where nobody listens there (yet) if `patient`, else once. The connection does not block.
Result<Descriptor> connect_within(const Endpoint& to, const Deadline& deadline, bool patient);
// A value as it lies in memory: both ends are of one kind.
std::string_view bytes_of(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
// The whole of it, or an error.
Status send_all(const Descriptor& socket, std::string_view bytes, const Deadline& deadline);
Status receive_all(const Descriptor& socket, void* bytes, size_t count, const Deadline& deadline);
// The numeric addresses of the two ends; empty where there is none.
std::string own_address(const Descriptor& socket);
std::string peer_address(const Descriptor& socket);

}  // namespace epl
