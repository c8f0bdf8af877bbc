// A rendezvous that one process serves over TCP and the others reach. Who connects shows first that it knows the
// store's secret (core/net/handshake.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/secret.h"
#include "core/net/rendezvous.h"
#include "core/net/tcp.h"

namespace epl {

// Serves until it is destroyed. Thread safety: `at` may be read by any thread.
class Store {
 public:
  virtual ~Store() = default;
  // Where it listens; port 0 has become the one that was free.
  static Result<std::unique_ptr<Store>> serve(const Endpoint& at, const Secret& secret);
  virtual const Endpoint& at() const = 0;
};

// The rendezvous of a store elsewhere. It is reached at the first call, for which it may take so long to begin.
std::shared_ptr<Rendezvous> store_rendezvous(const Endpoint& at, const Secret& secret,
                                             const std::function<double()>& clock, double connect_seconds);

}  // namespace epl
