// What a pack moves between processes, as one rank's communicators use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/backend/device.h"

struct epl_pack_carrier;

namespace epl::net {

// Thread safety: one rank's, so one thread at a time.
class Carrier {
 public:
  // `pack` by its name; `folder` is where packs are. All ranks at the same time.
  static Result<std::shared_ptr<Carrier>> join(const std::string& pack, const std::string& folder,
                                               const Joining& joining, Rendezvous& rendezvous);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // Never waits; the bytes are free afterwards. The number tells the receiver which ones they are.
  Result<uint64_t> send(int peer, std::span<const std::byte> bytes);

  // What a peer has sent. The bytes are not written to after its end.
  class Receipt {
   public:
    Receipt() = default;
    Receipt(Carrier& carrier, void* receipt) : carrier_(&carrier), receipt_(receipt) {}
    ~Receipt();
    Receipt(Receipt&& other) noexcept : carrier_(other.carrier_), receipt_(std::exchange(other.receipt_, nullptr)) {}
    Receipt& operator=(Receipt&& other) noexcept {
      std::swap(carrier_, other.carrier_), std::swap(receipt_, other.receipt_);
      return *this;
    }
    bool open() const { return receipt_ != nullptr; }
    // Whether the bytes have come within so long.
    Result<bool> wait(int milliseconds);

   private:
    Carrier* carrier_ = nullptr;
    void* receipt_ = nullptr;
  };
  Result<Receipt> receive(int peer, uint64_t number, void* bytes, int64_t size);

 private:
  Carrier(const epl_pack_carrier& table, void* end) : table_(table), end_(end) {}
  const epl_pack_carrier& table_;
  void* end_;
};

}  // namespace epl::net
