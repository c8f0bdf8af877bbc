#include "core/net/carrier.h"

#include <algorithm>
#include <cstring>

#include "core/base/pack.h"
#include "core/base/pack_abi.h"
#include "core/net/rendezvous.h"

namespace epl::net {
namespace {

constexpr int handover_milliseconds = 2000;  // for peers to take what was sent to them, before it is dropped

struct Reason {
  char text[512] = "";
  epl_pack_reason to{text, sizeof text};
};

// The rendezvous as a pack sees it, under keys of its own.
struct Handover {
  Rendezvous& rendezvous;
  std::string prefix;
  double seconds;

  std::string key(const char* name) const { return prefix + name; }
  static void say(const epl_pack_reason* failure, const std::string& why) {
    const size_t fits = std::min<size_t>(why.size(), failure->size - 1);
    std::memcpy(failure->text, why.data(), fits);
    failure->text[fits] = '\0';
  }
  static int32_t put(void* context, const char* name, const void* value, uint64_t size,
                     const epl_pack_reason* failure) {
    const Handover& own = *static_cast<Handover*>(context);
    const Status status = own.rendezvous.put(own.key(name), {static_cast<const std::byte*>(value), size});
    if (!status.ok()) say(failure, status.message());
    return status.ok() ? 0 : -1;
  }
  static int64_t get(void* context, const char* name, void* value, uint64_t capacity, const epl_pack_reason* failure) {
    const Handover& own = *static_cast<Handover*>(context);
    const auto found = own.rendezvous.get(own.key(name), own.seconds);
    if (!found.ok()) return say(failure, found.status().message()), -1;
    std::copy_n(found->data(), std::min<size_t>(found->size(), capacity), static_cast<std::byte*>(value));
    return std::ssize(*found);
  }
};

}  // namespace

Result<std::shared_ptr<Carrier>> Carrier::join(const std::string& pack, const std::string& folder,
                                               const Joining& joining, Rendezvous& rendezvous) {
  auto opened = open_pack(folder, pack);
  if (!opened.ok()) return opened.status().with_context(cat("transport ", pack));
  const epl_pack_carrier* table = (*opened)->carrier;
  if (table == nullptr) return invalid("transport ", pack, ": pack ", pack, " moves no bytes between processes");
  Handover handover{rendezvous, cat(joining.group, "/", pack, " "), joining.join_seconds};
  const epl_pack_rendezvous given = {.struct_size = sizeof given,
                                     .rank = joining.rank,
                                     .size = joining.size,
                                     .address = joining.address.c_str(),
                                     .seconds = joining.join_seconds,
                                     .context = &handover,
                                     .put = Handover::put,
                                     .get = Handover::get};
  Reason reason;
  void* const end = table->join(&given, &reason.to);
  if (end == nullptr) {
    return error(Code::peer_failed, "rank ", joining.rank, " of ", joining.size, " joins group ", joining.group,
                 " by transport ", pack, "; ", reason.text);
  }
  return std::shared_ptr<Carrier>(new Carrier(*table, end));
}

Carrier::~Carrier() { table_.leave(end_, handover_milliseconds); }

Result<uint64_t> Carrier::send(int peer, std::span<const std::byte> bytes) {
  Reason reason;
  uint64_t number = 0;
  if (table_.send(end_, peer, bytes.data(), bytes.size(), &number, &reason.to) == 0) return number;
  return error(Code::peer_failed, reason.text);
}

Result<Carrier::Receipt> Carrier::receive(int peer, uint64_t number, void* bytes, int64_t size) {
  Reason reason;
  void* const receipt = table_.receive(end_, peer, number, bytes, static_cast<uint64_t>(size), &reason.to);
  if (receipt == nullptr) return error(Code::peer_failed, reason.text);
  return Receipt(*this, receipt);
}

Result<bool> Carrier::Receipt::wait(int milliseconds) {
  Reason reason;
  const int32_t come = carrier_->table_.wait(carrier_->end_, receipt_, milliseconds, &reason.to);
  if (come < 0) return error(Code::peer_failed, reason.text);
  return come == 1;
}

Carrier::Receipt::~Receipt() {
  if (receipt_ != nullptr) carrier_->table_.drop(carrier_->end_, receipt_);
}

}  // namespace epl::net
