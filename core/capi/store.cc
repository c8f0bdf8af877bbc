// The doors through which the processes of a job find each other: a store that one of them serves, its id, a folder, or
// the host's own callbacks.
#include "core/net/store.h"

#include <algorithm>
#include <charconv>

#include "core/base/shown.h"
#include "core/capi/session.h"
#include "core/capi/store.h"
#include "core/net/handshake.h"
#include "core/net/transport.h"

namespace epl::capi {
namespace {

constexpr std::string_view id_begins = "epl-id-1:", tcp_begins = "tcp://", folder_begins = "file://";
constexpr double default_join_seconds = 60, default_silence_seconds = 600;

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

Result<Secret> from_hexadecimal(std::string_view digits) {
  std::string bytes;
  bool well = digits.size() % 2 == 0;
  for (size_t i = 0; well && i < digits.size(); i += 2) {
    unsigned byte = 0;
    const auto [end, failure] = std::from_chars(digits.data() + i, digits.data() + i + 2, byte, 16);
    well = failure == std::errc() && end == digits.data() + i + 2;
    bytes += static_cast<char>(byte);
  }
  Secret out(bytes);
  wipe(bytes);
  if (!well) return invalid("the rendezvous is an id that no store has made");
  return out;
}

// A rendezvous for a message. One that nobody understands may be an id with a slip in it, so that digits of a secret
// are left out.
std::string shown_door(std::string_view name) { return shown(without_secrets(name), 100); }

// What the host has of a store of its own.
struct HostStore {
  epl_put_fn put = nullptr;
  epl_get_fn get = nullptr;
  void* userdata = nullptr;
};

// The status of an error that the host made, which ends here.
Status taken(epl_error* error, std::string_view call, const std::string& key) {
  if (error == nullptr) return {};
  const auto code = static_cast<Code>(epl_error_code(error));
  std::string message = cat("the host's ", call, " of ", shown(key), " failed: ", epl_error_message(error, nullptr));
  epl_error_destroy(error);
  return Status(code, std::move(message));
}

class HostRendezvous final : public Rendezvous {
 public:
  HostRendezvous(const HostStore& host, std::function<double()> seconds) : host_(host), seconds_(std::move(seconds)) {}

  Status put(const std::string& key, std::span<const std::byte> value, const Stop&) override {
    Status status = taken(host_.put(host_.userdata, key.data(), key.size(), value.data(), value.size()), "put", key);
    return status.code() == Code::misuse ? put_twice(key) : status;
  }

  // The host is asked in slices where the wait may be stopped, since nothing ends a call that it is in.
  Result<std::vector<std::byte>> get(const std::string& key, double timeout_seconds, const Stop& stop) override {
    constexpr size_t usual_bytes = 4096, max_bytes = size_t{1} << 30;
    constexpr int64_t slice = 250'000'000;
    std::vector<std::byte> value(usual_bytes);
    const double until = seconds_() + timeout_seconds;
    for (;;) {
      EPL_TRY(stop.check());
      const double left = std::clamp(until - seconds_(), 0.0, 1e8);
      auto nanoseconds = static_cast<int64_t>(left * 1e9);
      if (stop.can_stop()) nanoseconds = std::min(nanoseconds, slice);
      size_t bytes = 0;
      const Status status =
          taken(host_.get(host_.userdata, key.data(), key.size(), nanoseconds, value.data(), value.size(), &bytes),
                "get", key);
      if (status.code() == Code::deadline_exceeded && nanoseconds == slice && stop.can_stop()) continue;
      if (status.code() == Code::deadline_exceeded) return nobody_came(key, timeout_seconds);
      EPL_TRY(status);
      if (bytes > max_bytes) return error(Code::misuse, "the host's get of ", shown(key), " says ", bytes, " bytes");
      const bool complete = bytes <= value.size();
      value.resize(bytes);
      if (complete) return value;
    }
  }

 private:
  const HostStore host_;
  const std::function<double()> seconds_;
};

struct Door {
  std::shared_ptr<Rendezvous> rendezvous;
  Secret secret;
};

// "tcp://HOST:PORT", "file:///FOLDER" or an id.
Result<Door> open_named(std::string_view name, std::string_view secret, const Host& host, double join_seconds) {
  const auto store = [&](std::string_view at, const Secret& known) -> Result<Door> {
    EPL_ASSIGN(const Endpoint endpoint, parse_endpoint(at));
    return Door{store_rendezvous(endpoint, known, host.seconds, join_seconds), known};
  };
  if (name.starts_with(tcp_begins)) return store(name.substr(tcp_begins.size()), secret);
  if (name.starts_with(folder_begins)) {
    const std::string_view folder = name.substr(folder_begins.size());
    if (!folder.starts_with('/'))
      return invalid("rendezvous ", shown_door(name), " is not file:///FOLDER: a folder from / on is expected");
    EPL_ASSIGN(auto rendezvous, folder_rendezvous(std::string(folder)));
    return Door{std::move(rendezvous), secret};
  }
  if (!name.starts_with(id_begins)) {
    return invalid("rendezvous ", shown_door(name),
                   " is neither tcp://HOST:PORT nor file:///FOLDER nor the id of a store");
  }
  if (!secret.empty()) return invalid("an id has its own secret; the session option secret is set as well");
  name.remove_prefix(id_begins.size());
  const size_t end = std::min(name.find(':'), name.size());
  EPL_ASSIGN(const Secret known, from_hexadecimal(name.substr(0, end)));
  return store(name.substr(std::min(end + 1, name.size())), known);
}

Result<double> seconds_of(int64_t nanoseconds, double otherwise, std::string_view name) {
  if (nanoseconds < 0) return invalid("session option ", name, " is ", nanoseconds);
  return nanoseconds == 0 ? otherwise : static_cast<double>(nanoseconds) * 1e-9;
}

}  // namespace

namespace {

Status take_integrity(const epl_session_options& known, SessionOptions& options) {
  EPL_ASSIGN(const std::string_view integrity,
             text_argument(known.integrity, known.integrity_length, "session option integrity"));
  static const std::vector<std::string> words = {"none", "hmac"};
  if (integrity.empty() || integrity == words[0]) return {};
  if (integrity != words[1])
    return invalid("session option integrity is ", shown(integrity), choices(integrity, words));
  if (options.secret.empty())
    return invalid("session option integrity is \"hmac\", which signs by the secret, and there is no secret");
  options.signs_frames = true;
  return {};
}

}  // namespace

Result<SessionOptions> session_options(const epl_session_options& known, const epl_plan& plan, const Stop& stop) {
  EPL_ASSIGN(const std::string_view name,
             text_argument(known.rendezvous, known.rendezvous_length, "session option rendezvous"));
  EPL_ASSIGN(const std::string_view secret, text_argument(known.secret, known.secret_length, "session option secret"));
  EPL_ASSIGN(const std::string_view address,
             text_argument(known.address, known.address_length, "session option address"));
  EPL_ASSIGN(const std::string_view transport,
             text_argument(known.transport, known.transport_length, "session option transport"));
  const int64_t world = plan.plan->options().ranks;
  if (known.first_rank < 0 || known.ranks < 0 || known.ranks > world || known.first_rank > world - known.ranks) {
    return invalid("the session has ", known.ranks, " ranks from rank ", known.first_rank, " on; the plan has ", world);
  }
  if ((known.put == nullptr) != (known.get == nullptr))
    return invalid("session options put and get go together; one is missing");
  if (known.put && !name.empty()) return invalid("the session has a rendezvous and callbacks; it takes one of them");
  SessionOptions options{
      .seed = plan.seed, .first_rank = static_cast<int>(known.first_rank), .ranks = static_cast<int>(known.ranks)};
  EPL_ASSIGN(options.join_seconds,
             seconds_of(known.join_timeout_nanoseconds, default_join_seconds, "join_timeout_nanoseconds"));
  EPL_ASSIGN(options.silence_seconds,
             seconds_of(known.silence_timeout_nanoseconds, default_silence_seconds, "silence_timeout_nanoseconds"));
  if (known.slices != 0 && known.slices != 1)
    return invalid("session option slices is ", known.slices, "; it is 0 or 1");
  options.slices = known.slices == 1;
  if (known.take_weights != 0 && known.take_weights != 1)
    return invalid("session option take_weights is ", known.take_weights, "; it is 0 or 1");
  options.take_weights = known.take_weights == 1;
  if (known.compare_every < -1)
    return invalid("session option compare_every is ", known.compare_every, "; it is a number of steps, 0 or -1");
  if (known.compare_every != 0) options.compare_every = std::max<int64_t>(known.compare_every, 0);
  options.secret = Secret(secret);
  if (!transport.empty()) {
    EPL_TRY(parse_transport(transport).status().with_context("session option transport"));
    options.transport = transport;
  }
  if (!name.empty()) {
    EPL_ASSIGN(Door door, open_named(name, secret, plan.engine->host, options.join_seconds));
    options.rendezvous = std::move(door.rendezvous);
    options.secret = std::move(door.secret);
  }
  EPL_TRY(take_integrity(known, options));
  const bool alone = options.ranks == world || (options.ranks == 0 && options.first_rank == 0);
  if (!address.empty()) {
    options.address = address;
  } else if (options.rendezvous && !alone) {
    EPL_ASSIGN(std::string own, options.rendezvous->own_address(stop));
    if (!own.empty()) options.address = std::move(own);
  }
  if (known.put)
    options.rendezvous =
        std::make_shared<HostRendezvous>(HostStore{known.put, known.get, known.userdata}, plan.engine->host.seconds);
  return options;
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_store_options_init(epl_store_options* options) {
  if (options) *options = EPL_STORE_OPTIONS_INIT;
}

epl_error* epl_store_create(const epl_engine* engine, const epl_store_options* options, epl_store** store) {
  return giving(store, "store", [&]() -> Result<std::unique_ptr<epl_store>> {
    EPL_REQUIRE(engine);
    epl_store_options known = EPL_STORE_OPTIONS_INIT;
    EPL_TRY(copy_options(options, known, "epl_store_options"));
    EPL_ASSIGN(std::string_view address, text_argument(known.address, known.address_length, "store option address"));
    EPL_ASSIGN(const std::string_view secret, text_argument(known.secret, known.secret_length, "store option secret"));
    auto made = std::make_unique<epl_store>();
    made->engine = engine->engine;
    made->secret = Secret(secret);
    if (known.secret == nullptr) {
      EPL_ASSIGN(const Digest drawn, draw());
      made->secret = digest_text(drawn);
    }
    EPL_ASSIGN(const Endpoint at, parse_endpoint(address.empty() ? "127.0.0.1:0" : address));
    EPL_ASSIGN(made->store, Store::serve(at, made->secret));
    made->address = made->store->at().text();
    return made;
  });
}

void epl_store_destroy(epl_store* store) { destroy(store); }

const char* epl_store_address(const epl_store* store, size_t* length) {
  const bool there = alive(store);
  if (length) *length = there ? store->address.size() : 0;
  return there ? store->address.c_str() : "";
}

epl_error* epl_store_id(const epl_store* store, epl_text** id) {
  return giving_text(id, "id", [&]() -> Result<std::string> {
    EPL_REQUIRE(store);
    return cat(id_begins, hexadecimal(store->secret.view()), ":", store->address);
  });
}
