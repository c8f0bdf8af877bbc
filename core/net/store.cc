#include "core/net/store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/shown.h"
#include "core/base/thread.h"
#include "core/net/handshake.h"

namespace epl {
namespace {

constexpr std::string_view about = "epl store 1";  // raised when what follows changes
constexpr size_t max_guests = 256;                 // whom nobody knows yet; of more the first one goes
constexpr uint32_t max_key = 4096;
constexpr uint64_t max_value = uint64_t{1} << 26;
constexpr double max_seconds = 1e6;
// Of everything that is kept and half said. Cards take some hundred bytes each; who fills this is turned away.
constexpr uint64_t max_held = uint64_t{1} << 28;
constexpr int busy_milliseconds = 10;  // to wait where the system has no room for a connection

enum class Ask : uint32_t { put, get, look };  // `get` is answered once the value is there, `look` at once
enum class Told : uint32_t { done, absent, put_before, full };
struct Request {
  Ask ask = Ask::put;
  uint32_t key_bytes = 0;
  uint64_t value_bytes = 0;
};
struct Reply {
  Told told = Told::done;
  uint32_t unused = 0;
  uint64_t value_bytes = 0;
};

using Value = std::shared_ptr<const std::string>;

// A client that is known. It has one answer at a time: while something is untold, or while it waits, nothing more that
// it says is looked at, and in the end not even read. So it takes no more memory than one request does.
class Client {
 public:
  explicit Client(Descriptor own) : socket(std::move(own)) {}
  Descriptor socket;
  std::string waits_for;  // a key; empty: for none

  bool all_told() const { return told_ == head_.size() + value_->size(); }
  bool ready() const { return all_told() && waits_for.empty(); }
  void answer(Told told, Value value = nullptr) {
    value_ = value ? std::move(value) : none();
    head_ = bytes_of(Reply{.told = told, .value_bytes = value_->size()});
    told_ = 0;
    waits_for.clear();
  }
  // Sends what it takes at the moment; false where it has gone.
  bool tell() {
    while (!all_told()) {
      const std::string_view left = told_ < head_.size() ? std::string_view(head_).substr(told_)
                                                         : std::string_view(*value_).substr(told_ - head_.size());
      const ssize_t sent = ::send(socket.number(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) return sent == 0 || errno == EAGAIN || errno == EINTR;
      told_ += static_cast<size_t>(sent);
    }
    value_ = none();
    head_.clear();
    told_ = 0;
    return true;
  }

  std::string_view said() const { return std::string_view(said_).substr(taken_); }
  bool listens() const { return all_told() && (waits_for.empty() || said().size() < read_bytes); }
  // Reads what has come; how many bytes, or -1 where it has gone.
  int64_t hear() {
    char room[read_bytes];
    const ssize_t got = ::recv(socket.number(), room, sizeof room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return -1;
    said_.erase(0, std::exchange(taken_, 0));
    said_.append(room, static_cast<size_t>(got));
    return got;
  }
  void take(size_t bytes) {
    taken_ += bytes;
    if (taken_ < said_.size()) return;
    said_ = std::string();  // the room of a large value as well
    taken_ = 0;
  }

 private:
  static constexpr size_t read_bytes = 1 << 16;
  static const Value& none() {
    static const Value empty = std::make_shared<const std::string>();
    return empty;
  }
  std::string said_;
  size_t taken_ = 0;  // of what it has said
  std::string head_;  // of the answer, and what it holds; of both so much has been told
  Value value_ = none();
  size_t told_ = 0;
};

class TcpStore final : public Store {
 public:
  TcpStore(Descriptor listener, Endpoint at, Secret secret)
      : listener_(std::move(listener)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        at_(std::move(at)),
        secret_(std::move(secret)) {}
  ~TcpStore() override {
    closing_ = true;
    static_cast<void>(::eventfd_write(wake_.number(), 1));
    thread_.join();
  }
  Status start() {
    if (!wake_.open()) return error(Code::io, "the system gives no eventfd");
    EPL_ASSIGN(thread_, Thread::start("epl-store", [this] { run(); }));
    return {};
  }
  const Endpoint& at() const override { return at_; }

 private:
  void run() {
    while (!closing_) {
      try {
        serve_once();
      } catch (const std::bad_alloc&) {
        clients_.clear();  // who asked for too much cannot be told; all ask again or end with an error
        guests_.clear();
        count_held();
        ::poll(nullptr, 0, busy_milliseconds);
      }
    }
  }

  void serve_once() {
    std::vector<pollfd> waiting = {{.fd = wake_.number(), .events = POLLIN, .revents = 0},
                                   {.fd = listener_.number(), .events = POLLIN, .revents = 0}};
    for (const Client& client : clients_) {
      const int events = (client.listens() ? POLLIN : 0) | (client.all_told() ? 0 : POLLOUT);
      waiting.push_back({.fd = client.socket.number(), .events = static_cast<short>(events), .revents = 0});
    }
    for (Guest& guest : guests_) waiting.push_back({.fd = guest.socket().number(), .events = POLLIN, .revents = 0});
    if (::poll(waiting.data(), waiting.size(), -1) < 0 || waiting[0].revents != 0) return;
    size_t at = 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++at) {
      const bool stays = waiting[at].revents == 0 || serve(*client);
      if (!stays) held_ -= client->said().size();
      client = stays ? std::next(client) : clients_.erase(client);
    }
    for (auto guest = guests_.begin(); guest != guests_.end(); ++at) {
      const bool stays = waiting[at].revents == 0 || !let_in(*guest);
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    if (waiting[1].revents != 0) take_guest();
  }

  void take_guest() {
    auto socket = accept_next(listener_);
    if (!socket.ok() || !socket->open()) {
      // Where there are no more descriptors, the longest unknown makes room.
      if (!socket.ok() && !guests_.empty()) guests_.pop_front();
      if (!socket.ok()) ::poll(nullptr, 0, busy_milliseconds);
      return;
    }
    if (guests_.size() == max_guests) guests_.pop_front();
    auto guest = Guest::greet(std::move(*socket), secret_, std::string(about));
    if (guest.ok()) guests_.push_back(std::move(*guest));
  }

  // Whether the guest is done with.
  bool let_in(Guest& guest) {
    const Guest::State state = guest.read();
    if (state == Guest::State::unknown) return false;
    if (state == Guest::State::known && guest.tell(Verdict::welcome).ok())
      clients_.emplace_back(std::move(guest.socket()));
    return true;
  }

  // Whether the client stays.
  bool serve(Client& client) {
    if (!client.tell()) return false;
    const int64_t got = client.listens() ? client.hear() : 0;
    if (got < 0) return false;
    held_ += static_cast<uint64_t>(got);
    if (held_ > max_held && !client.said().empty()) return false;
    while (client.ready()) {
      const std::optional<Request> request = next_request(client);
      if (!request) break;
      if (!well_formed(*request)) return false;
      answer(client, *request);
      if (!client.tell()) return false;
    }
    return true;
  }

  static bool well_formed(const Request& request) {
    return request.ask <= Ask::look && request.key_bytes > 0 && request.key_bytes <= max_key &&
           request.value_bytes <= max_value && (request.ask == Ask::put || request.value_bytes == 0);
  }
  // A request of which everything has come, or whose head is wrong.
  static std::optional<Request> next_request(const Client& client) {
    Request request;
    if (client.said().size() < sizeof request) return std::nullopt;
    std::memcpy(&request, client.said().data(), sizeof request);
    const bool complete = client.said().size() - sizeof request >= request.key_bytes + request.value_bytes;
    return complete || !well_formed(request) ? std::optional(request) : std::nullopt;
  }

  void answer(Client& client, const Request& request) {
    const std::string key(client.said().substr(sizeof request, request.key_bytes));
    const auto found = values_.find(key);
    if (request.ask == Ask::put) {
      client.answer(put(key, found != values_.end(), client.said().substr(sizeof request + key.size()), request));
      if (found == values_.end()) tell_those_who_wait_for(key);
    } else if (found != values_.end()) {
      client.answer(Told::done, found->second);
    } else if (request.ask == Ask::get) {
      client.waits_for = key;
    } else {
      client.answer(Told::absent);
    }
    const size_t bytes = sizeof request + key.size() + request.value_bytes;
    client.take(bytes);
    held_ -= bytes;
  }

  Told put(const std::string& key, bool there, std::string_view text, const Request& request) {
    if (there) return Told::put_before;
    const uint64_t bytes = key.size() + request.value_bytes;
    if (stored_ + bytes > max_held / 2) return Told::full;
    values_.emplace(key, std::make_shared<const std::string>(text.substr(0, request.value_bytes)));
    stored_ += bytes;
    held_ += bytes;
    return Told::done;
  }

  // They are written to once they can be, which is mostly at once.
  void tell_those_who_wait_for(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return;
    for (Client& client : clients_) {
      if (client.waits_for == key) client.answer(Told::done, found->second);
    }
  }

  void count_held() {
    held_ = stored_;
    for (const Client& client : clients_) held_ += client.said().size();
  }

  const Descriptor listener_, wake_;
  const Endpoint at_;
  const Secret secret_;
  std::map<std::string, Value> values_;
  uint64_t stored_ = 0, held_ = 0;  // bytes: of keys and values, and with what is half said
  std::list<Client> clients_;
  std::list<Guest> guests_;
  std::atomic<bool> closing_{false};
  Thread thread_;
};

// Each call has a connection to itself, because one may wait for what another one puts.
class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(Endpoint at, Secret secret, std::function<double()> clock, double connect_seconds)
      : at_(std::move(at)), secret_(std::move(secret)), clock_(std::move(clock)), connect_seconds_(connect_seconds) {}

  Status put(const std::string& key, std::span<const std::byte> value, const Stop& stop) override {
    const Request request{Ask::put, static_cast<uint32_t>(key.size()), value.size()};
    const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
    EPL_ASSIGN(const Answered answered, ask(request, key, text, connect_seconds_, stop));
    if (answered.told == Told::full)
      return error(Code::exhausted, "store ", at_.text(), " has no room for ", shown(key, 200), ", ", value.size(),
                   " bytes");
    return answered.told == Told::put_before ? put_twice(key) : Status();
  }

  Result<std::vector<std::byte>> get(const std::string& key, double timeout_seconds, const Stop& stop) override {
    const bool waits = timeout_seconds > 0;
    const Request request{waits ? Ask::get : Ask::look, static_cast<uint32_t>(key.size()), 0};
    auto answered = ask(request, key, "", waits ? std::min(timeout_seconds, max_seconds) : connect_seconds_, stop);
    if (!answered.ok()) EPL_TRY(stop.check());
    const bool absent =
        answered.ok() ? answered->told == Told::absent : waits && answered.status().code() == Code::deadline_exceeded;
    if (absent) return nobody_came(key, timeout_seconds).with_context(cat("store ", at_.text()));
    if (!answered.ok()) return answered.status();
    const auto* bytes = reinterpret_cast<const std::byte*>(answered->value.data());
    return std::vector<std::byte>(bytes, bytes + answered->value.size());
  }

  Result<std::string> own_address(const Stop& stop) override {
    EPL_ASSIGN(Descriptor socket, connection(stop));
    std::string address = epl::own_address(socket);
    keep(std::move(socket));
    return address;
  }

 private:
  struct Answered {
    Told told = Told::done;
    std::string value;
  };

  Result<Answered> ask(const Request& request, const std::string& key, std::string_view value, double seconds,
                       const Stop& stop) {
    if (key.empty() || key.size() > max_key || value.size() > max_value)
      return invalid("a store takes keys of 1 to ", max_key, " bytes and values of ", max_value, ", got ", key.size(),
                     " and ", value.size());
    EPL_ASSIGN(Descriptor socket, connection(stop));
    auto talk = [&]() -> Result<Answered> {
      const Deadline deadline(clock_, seconds, &stop);
      EPL_TRY(send_all(socket, cat(bytes_of(request), key, value), deadline));
      Reply reply;
      EPL_TRY(receive_all(socket, &reply, sizeof reply, deadline));
      if (reply.told > Told::full || reply.value_bytes > max_value)
        return error(Code::peer_failed, "what it answers makes no sense");
      Answered answered{reply.told, std::string(reply.value_bytes, '\0')};
      EPL_TRY(receive_all(socket, answered.value.data(), answered.value.size(), deadline));
      return answered;
    };
    auto answered = talk();
    if (!answered.ok()) return answered.status().with_context(cat("store ", at_.text()));
    keep(std::move(socket));
    return answered;
  }

  Result<Descriptor> connection(const Stop& stop) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Descriptor socket = std::move(idle_.back());
        idle_.pop_back();
        return socket;
      }
    }
    const Deadline deadline(clock_, connect_seconds_, &stop);
    auto socket = connect_within(at_, deadline, true);
    Status status = socket.status();
    if (status.ok()) status = introduce(*socket, secret_, std::string(about), 0, deadline).status();
    if (!status.ok()) return status.with_context(cat("store ", at_.text()));
    return socket;
  }
  void keep(Descriptor socket) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }

  const Endpoint at_;
  const Secret secret_;
  const std::function<double()> clock_;
  const double connect_seconds_;
  std::mutex mutex_;
  std::vector<Descriptor> idle_;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::serve(const Endpoint& at, const Secret& secret) {
  Endpoint bound = at;
  EPL_ASSIGN(Descriptor listener, listen_at(bound, 128));
  auto made = std::make_unique<TcpStore>(std::move(listener), std::move(bound), secret);
  EPL_TRY(made->start());
  return std::unique_ptr<Store>(std::move(made));
}

std::shared_ptr<Rendezvous> store_rendezvous(const Endpoint& at, const Secret& secret,
                                             const std::function<double()>& clock, double connect_seconds) {
  return std::make_shared<StoreRendezvous>(at, secret, clock, connect_seconds);
}

}  // namespace epl
