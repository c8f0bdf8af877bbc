#include "core/net/transport.h"

#include <algorithm>

#include "core/base/pack.h"
#include "core/base/shown.h"

namespace epl {

std::string Transport::text() const { return cat(shares ? "shared," : "", carrier.empty() ? "sockets" : carrier); }

Result<Transport> parse_transport(std::string_view text) {
  Transport out;
  std::string known = "sockets";
  std::string_view rest = text;
  if (rest == "shared" || rest.starts_with("shared,")) {
    out.shares = true;
    rest.remove_prefix(std::min(rest.size(), std::string_view("shared,").size()));
    if (rest.empty()) return out;
  }
  if (rest == "sockets") return out;
  for (const PackRow& row : pack_table().rows) {
    if (!row.carries) continue;
    known += cat(", ", row.name);
    if (rest == row.name) return out.carrier = rest, out;
  }
  return invalid("transport ", shown(text, 40), "; there are ", known,
                 ", each also behind \"shared,\": then ranks of one host share memory");
}

}  // namespace epl
