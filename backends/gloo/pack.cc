// libepl_gloo.so: bytes go from rank to rank over Gloo's TCP connections. A sender's bytes are copied, so that its
// operand is free at once; Gloo asks for them when the receiver has said where they go. See docs/packs.md.
#include <gloo/config.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/pack_failure.h"

namespace epl::gloo_pack {
namespace {

using gloo::transport::UnboundBuffer;
constexpr auto for_ever = std::chrono::hours(24 * 365);  // whoever waits ends this by himself

constexpr const char* library = "Gloo";

// What is sent or received: Gloo knows it by the buffer, the engine by the rest.
struct Transfer {
  std::unique_ptr<char[]> copy;  // of what is sent
  std::unique_ptr<UnboundBuffer> buffer;
  bool over = false;
  std::string failure;
};

// Waits for transfers in their order, on a thread of its own: Gloo's waiting cannot be left and taken up again.
class Waiter {
 public:
  using Wait = bool (*)(UnboundBuffer&);
  using Stop = void (*)(UnboundBuffer&);
  Waiter(Wait wait, Stop stop) : wait_(wait), stop_(stop), thread_([this] { serve(); }) {}
  ~Waiter() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
      if (!queue_.empty()) stop_(*queue_.front()->buffer);
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::shared_ptr<Transfer> transfer) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(transfer));
    changed_.notify_all();
  }
  // Whether it is over within so long.
  bool wait_for(const Transfer& transfer, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return transfer.over; });
  }
  bool wait_for_all(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return queue_.empty(); });
  }
  // Returns when nobody waits for it any more.
  void give_up(const Transfer& transfer) {
    std::unique_lock lock(mutex_);
    if (transfer.over) return;
    const bool awaited = queue_.front().get() == &transfer;
    if (!awaited) std::erase_if(queue_, [&](const auto& one) { return one.get() == &transfer; });
    if (!awaited) return;
    stop_(*transfer.buffer);
    changed_.wait(lock, [&] { return transfer.over; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (closing_) return;
      const std::shared_ptr<Transfer> first = queue_.front();
      lock.unlock();
      std::string failure;
      try {
        if (!wait_(*first->buffer)) failure = "it was given up";
      } catch (const std::exception& e) {
        failure = e.what();
      }
      lock.lock();
      first->failure = std::move(failure);
      first->over = true;
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  const Wait wait_;
  const Stop stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Transfer>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

// One rank's connections to all others.
class End {
 public:
  explicit End(const epl_pack_rendezvous& rendezvous) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = rendezvous.address;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    context_ = device_->createContext(rendezvous.rank, rendezvous.size);
    // Gloo waits five times as long for a connection.
    context_->setTimeout(
        std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(rendezvous.seconds * 200))));
    connect(rendezvous);
    context_->setTimeout(for_ever);
    sent_ = std::make_unique<Waiter>([](UnboundBuffer& b) { return b.waitSend(); },
                                     [](UnboundBuffer& b) { b.abortWaitSend(); });
    received_ = std::make_unique<Waiter>([](UnboundBuffer& b) { return b.waitRecv(); },
                                         [](UnboundBuffer& b) { b.abortWaitRecv(); });
  }
  ~End() {
    received_.reset();
    sent_.reset();
    for (int peer = 0; peer < context_->size; ++peer) {
      if (context_->getPair(peer)) context_->getPair(peer)->close();
    }
  }

  uint64_t send(int peer, const void* bytes, size_t size) {
    auto transfer = std::make_shared<Transfer>();
    transfer->copy = std::make_unique_for_overwrite<char[]>(size);
    std::memcpy(transfer->copy.get(), bytes, size);
    transfer->buffer = context_->createUnboundBuffer(transfer->copy.get(), size);
    transfer->buffer->send(peer, ++number_);
    sent_->add(std::move(transfer));
    return number_;
  }
  std::shared_ptr<Transfer> receive(int peer, uint64_t number, void* bytes, size_t size) {
    auto transfer = std::make_shared<Transfer>();
    transfer->buffer = context_->createUnboundBuffer(bytes, size);
    transfer->buffer->recv(peer, number);
    received_->add(transfer);
    return transfer;
  }
  Waiter& received() { return *received_; }
  void leave(std::chrono::milliseconds time) { sent_->wait_for_all(time); }

 private:
  // Each rank has a pair for each other, whose address goes to that one.
  void connect(const epl_pack_rendezvous& rendezvous) {
    char reason[256] = "";
    const epl_pack_reason failure{reason, sizeof reason};
    const auto key = [](int from, int to) { return std::to_string(from) + " to " + std::to_string(to); };
    for (int peer = 0; peer < rendezvous.size; ++peer) {
      if (peer == rendezvous.rank) continue;
      const std::vector<char> own = context_->createPair(peer)->address().bytes();
      if (rendezvous.put(rendezvous.context, key(rendezvous.rank, peer).c_str(), own.data(), own.size(), &failure) != 0)
        throw std::runtime_error(reason);
    }
    for (int peer = 0; peer < rendezvous.size; ++peer) {
      if (peer == rendezvous.rank) continue;
      std::vector<char> theirs(gloo::transport::Address::kMaxByteSize);
      const int64_t size = rendezvous.get(rendezvous.context, key(peer, rendezvous.rank).c_str(), theirs.data(),
                                          theirs.size(), &failure);
      if (size < 0) throw std::runtime_error(reason);
      if (size > std::ssize(theirs)) throw std::runtime_error("an address that is too long");
      theirs.resize(static_cast<size_t>(size));
      context_->getPair(peer)->connect(theirs);
    }
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::unique_ptr<Waiter> sent_, received_;
  uint64_t number_ = 0;
};

using Receipt = std::shared_ptr<Transfer>;

void* join(const epl_pack_rendezvous* rendezvous, const epl_pack_reason* failure) {
  return guarded(failure, library, static_cast<void*>(nullptr), [&]() -> void* { return new End(*rendezvous); });
}
void leave(void* end, int32_t milliseconds) {
  std::unique_ptr<End> own(static_cast<End*>(end));
  own->leave(std::chrono::milliseconds(milliseconds));
}
int32_t send(void* end, int32_t peer, const void* bytes, uint64_t size, uint64_t* number,
             const epl_pack_reason* failure) {
  return send_from<End>(end, library, peer, bytes, size, number, failure);
}
void* receive(void* end, int32_t peer, uint64_t number, void* bytes, uint64_t size, const epl_pack_reason* failure) {
  return guarded(failure, library, static_cast<void*>(nullptr),
                 [&]() -> void* { return new Receipt(static_cast<End*>(end)->receive(peer, number, bytes, size)); });
}
int32_t wait(void* end, void* receipt, int32_t milliseconds, const epl_pack_reason* failure) {
  const Receipt& transfer = *static_cast<Receipt*>(receipt);
  if (!static_cast<End*>(end)->received().wait_for(*transfer, std::chrono::milliseconds(milliseconds))) return 0;
  if (transfer->failure.empty()) return 1;
  refuse(failure, library, transfer->failure.c_str());
  return -1;
}
void drop(void* end, void* receipt) {
  std::unique_ptr<Receipt> own(static_cast<Receipt*>(receipt));
  static_cast<End*>(end)->received().give_up(**own);
}

}  // namespace
}  // namespace epl::gloo_pack

#define EPL_GLOO_TEXT(x) #x
#define EPL_GLOO_VERSION(major, minor, patch) EPL_GLOO_TEXT(major) "." EPL_GLOO_TEXT(minor) "." EPL_GLOO_TEXT(patch)

extern "C" __attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  using namespace epl::gloo_pack;
  static const epl_pack_carrier carrier = {.struct_size = sizeof carrier,
                                           .join = join,
                                           .leave = leave,
                                           .send = send,
                                           .receive = receive,
                                           .wait = wait,
                                           .drop = drop};
  static const epl_pack pack = {
      .struct_size = sizeof(epl_pack),
      .abi = EPL_PACK_ABI,
      .reserved = 0,
      .name = "gloo",
      .version = "Gloo " EPL_GLOO_VERSION(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH) " over TCP",
      .device = nullptr,
      .kernels = nullptr,
      .kernel_count = 0,
      .codecs = nullptr,
      .codec_count = 0,
      .carrier = &carrier};
  return &pack;
}
