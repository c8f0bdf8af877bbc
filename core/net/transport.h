// What moves operands between the processes of a job, as a caller names it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace epl {

// "shared,gloo": what a transport allows.
struct Transport {
  bool shares = false;
  std::string carrier;  // a pack; empty: sockets

  std::string text() const;  // one spelling of each
};

// "sockets" or the name of a pack that carries; behind "shared," for groups of several hosts alone; "shared": sockets
// then. What is none of these is refused with a list.
Result<Transport> parse_transport(std::string_view text);

}  // namespace epl
