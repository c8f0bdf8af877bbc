#include "core/net/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <system_error>

#include "core/base/shown.h"

namespace epl {
namespace {

constexpr int try_again_milliseconds = 20;
constexpr double slice_seconds = 0.02;  // how long a wait lasts that may be stopped before that is asked

std::string reason(int error_number) { return std::generic_category().message(error_number); }

struct Freed {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, Freed>;

Result<Addresses> resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = cat(endpoint.port);
  const int failure = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (failure == EAI_MEMORY) return Status::no_memory();
  if (failure != 0)
    return error(Code::io, "no address is known for ", without_secrets(endpoint.host), ": ", ::gai_strerror(failure));
  return Addresses(found);
}

Status set_up(const Descriptor& socket) {
  const int on = 1, flags = ::fcntl(socket.number(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.number(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return error(Code::io, "a connection cannot be set up: ", reason(errno));
  }
  return {};
}

// 0, or the number of the error.
int wait_for(const Descriptor& socket, short events, const Deadline& deadline) {
  for (;;) {
    pollfd waiting{.fd = socket.number(), .events = events, .revents = 0};
    const int ready = ::poll(&waiting, 1, deadline.milliseconds());
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
    if (!deadline.stopped().ok()) return ECANCELED;
    if (ready == 0 && deadline.left() <= 0) return ETIMEDOUT;
  }
}

// 0, or the number of the error.
int try_to_connect(const addrinfo& address, const Deadline& deadline, Descriptor& socket) {
  socket = Descriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return errno;
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (const int failure = wait_for(socket, POLLOUT, deadline); failure != 0) return failure;
  int failure = 0;
  socklen_t length = sizeof failure;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &failure, &length) == 0 ? failure : errno;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  const int failure =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return failure == 0 ? host : "";
}

// Whether it may be the name of a host, or an address. Nothing else is asked for in the network: it might be a secret.
bool is_host(std::string_view host) {
  constexpr size_t longest_name = 253, longest_part = 63;
  if (host.empty() || host.size() > longest_name) return false;
  if (host.find(':') != std::string_view::npos) {
    in6_addr ignored;
    return ::inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &ignored) == 1;
  }
  size_t part = 0;
  for (const char c : host) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c != '.' && c != '-' && c != '_' && !letter) return false;
    part = c == '.' ? 0 : part + 1;
    if (part > longest_part) return false;
  }
  return true;
}

}  // namespace

int Deadline::milliseconds() const {
  return static_cast<int>(std::ceil(std::clamp(left(), 0.0, stop_ != nullptr ? slice_seconds : 1e6) * 1e3));
}

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  int port = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const bool well = failure == std::errc() && end == digits.data() + digits.size() && port >= 0 && port <= 65535;
  if (!well || !is_host(host)) {
    return invalid("address ", shown(without_secrets(text), 100), " is not HOST:PORT, as 10.0.0.1:29511");
  }
  return Endpoint{std::string(host), port};
}

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

Result<Descriptor> listen_at(Endpoint& at, int waiting) {
  EPL_ASSIGN(const Addresses addresses, resolve(at, AI_PASSIVE));
  int failure = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (!socket.open() || ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket.number(), one->ai_addr, one->ai_addrlen) != 0 || ::listen(socket.number(), waiting) != 0 ||
        ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
      failure = errno;
      continue;
    }
    at.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    return socket;
  }
  return error(Code::io, "nobody can listen at ", at.text(), ": ", reason(failure));
}

Result<Descriptor> accept_next(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    return error(Code::io, "no connection can be taken: ", reason(errno));
  if (socket.open()) EPL_TRY(set_up(socket));
  return socket;
}

Result<Descriptor> connect_within(const Endpoint& to, const Deadline& deadline, bool patient) {
  for (;;) {
    EPL_ASSIGN(const Addresses addresses, resolve(to, 0));
    int failure = 0;
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      Descriptor socket;
      failure = try_to_connect(*one, deadline, socket);
      if (failure == ECANCELED) break;
      if (failure != 0) continue;
      EPL_TRY(set_up(socket));
      return socket;
    }
    EPL_TRY(deadline.stopped());
    if (!patient || deadline.left() <= 0)
      return error(Code::peer_failed, to.text(), " cannot be reached: ", reason(failure));
    ::poll(nullptr, 0, std::min(try_again_milliseconds, deadline.milliseconds()));
  }
}

Status send_all(const Descriptor& socket, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    int failure = sent < 0 ? errno : 0;
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    if (failure == EAGAIN) failure = wait_for(socket, POLLOUT, deadline);
    if (failure == ECANCELED) return deadline.stopped();
    if (failure == ETIMEDOUT) return error(Code::deadline_exceeded, "the other end does not read");
    if (failure != 0 && failure != EINTR)
      return error(Code::peer_failed, "the connection has ended: ", reason(failure));
  }
  return {};
}

Status receive_all(const Descriptor& socket, void* bytes, size_t count, const Deadline& deadline) {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::recv(socket.number(), to, count, MSG_DONTWAIT);
    int failure = got < 0 ? errno : 0;
    if (got == 0) return error(Code::peer_failed, "the connection has ended");
    if (got > 0) to += got, count -= static_cast<size_t>(got);
    if (failure == EAGAIN) failure = wait_for(socket, POLLIN, deadline);
    if (failure == ECANCELED) return deadline.stopped();
    if (failure == ETIMEDOUT) return error(Code::deadline_exceeded, "the other end says nothing");
    if (failure != 0 && failure != EINTR)
      return error(Code::peer_failed, "the connection has ended: ", reason(failure));
  }
  return {};
}

std::string own_address(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? numeric(address, length)
                                                                                             : "";
}

std::string peer_address(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return ::getpeername(socket.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? numeric(address, length)
                                                                                             : "";
}

}  // namespace epl
