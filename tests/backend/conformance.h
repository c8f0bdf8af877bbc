// What the conformance suite shares: a host whose memory can be made to fail, a device of every backend, and ranks that
// call a group's communicators from threads of their own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/backend/device.h"
#include "core/net/rendezvous.h"
#include "tests/backend/far_device.h"
#include "tests/thirds.h"

namespace epl {

inline double test_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct TestHost {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> limit{INT64_MAX};

  Host host(int threads = 2) {
    Host host;
    host.seconds = test_seconds;
    host.allocate = [this](size_t size, size_t alignment) -> void* {
      if (bytes + static_cast<int64_t>(size) > limit) return nullptr;
      bytes += static_cast<int64_t>(size);
      return std::aligned_alloc(alignment, size);
    };
    host.release = [this](void* memory, size_t size, size_t) {
      bytes -= static_cast<int64_t>(size);
      std::free(memory);
    };
    host.log = [](LogLevel, std::string_view) {};
    host.threads = threads;
    host.packs = EPL_PACK_FOLDER;
    return host;
  }
};

// What is built in, and the far device twice: with other orders of its streams.
inline std::vector<std::string> backend_names() {
  static const bool added =
      (add_backend(far_backend("far", 1)), add_backend(far_backend("far_in_other_order", 2)), true);
  std::vector<std::string> names = backend_table().names();
  if (added) names.insert(names.end(), {"far", "far_in_other_order"});
  return names;
}

// A device of its own kind that this machine may not have, as a GPU.
inline bool may_be_missing(const std::string& backend, const Status& opened) {
  return backend == "cuda" && (opened.code() == Code::unsupported || opened.code() == Code::not_found);
}

// One test per backend: TEST_P(Backend, ...) runs on all rows of the table.
class Backend : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = open_device(GetParam(), memory.host());
    if (may_be_missing(GetParam(), opened.status())) GTEST_SKIP() << opened.status().message();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device = std::move(*opened);
  }
  std::unique_ptr<Buffer> buffer(int64_t bytes) {
    auto result = device->allocate(bytes);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? std::move(*result) : nullptr;
  }
  std::unique_ptr<Stream> stream(int threads = 1) {
    auto result = device->create_stream(threads);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? std::move(*result) : nullptr;
  }

  TestHost memory;
  std::shared_ptr<Device> device;
};

// Memory of the host in that of a device.
struct Staged {
  Staged(Device& device, Stream& stream, const void* data, int64_t size)
      : host(static_cast<std::byte*>(const_cast<void*>(data))), bytes(host == nullptr ? 0 : size) {
    buffer = device.allocate(bytes).value();
    stream.upload(buffer->data(), host, bytes);
  }
  bool holds(const Staged& other) const {
    return bytes >= other.bytes && other.host >= host && other.host + other.bytes <= host + bytes &&
           other.host != nullptr;
  }
  std::byte* at(const void* data) const {
    return data == nullptr ? nullptr
                           : static_cast<std::byte*>(buffer->data()) + (static_cast<const std::byte*>(data) - host);
  }
  void bring_back(Stream& stream) { stream.download(host, buffer->data(), bytes); }

  std::byte* host;
  int64_t bytes;
  std::unique_ptr<Buffer> buffer;
};

// How the ranks of a group come together: made in this process, or joined one by one by a transport, as over processes
// of one host, which may share memory, or of several.
struct Way {
  std::string device;
  std::string transport;  // empty: made
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.device << ' ' << way.transport; }
};

inline Result<std::vector<std::unique_ptr<Communicator>>> join_all(Device& device, int ranks,
                                                                   const std::string& transport) {
  const auto rendezvous = memory_rendezvous();
  std::vector<std::unique_ptr<Communicator>> group(static_cast<size_t>(ranks));
  std::vector<Status> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto joined = device.join(
          {.group = "world", .rank = r, .size = ranks, .transport = transport, .join_seconds = 20}, *rendezvous);
      if (joined.ok()) group[r] = std::move(*joined);
      failures[r] = joined.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& failure : failures) EPL_TRY(failure);
  return group;
}

// The rank of the job that a thread is (on_ranks), whose device has the memory and the streams of its calls.
inline int& rank_of_thread() {
  static thread_local int rank = 0;
  return rank;
}

// Tests over groups of ranks: TEST_P(Ranks, ...) runs on every device that computes, for several numbers of ranks that
// come together in every way. They are many, so ./test has a third of them.
class Ranks : public testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  void SetUp() override {
    EPL_ONE_OF_THREE();
    // Little room, so that devices reduce piece by piece.
    auto opened = open_device(std::get<0>(GetParam()).device, memory.host(), {.ranks = ranks(), .room_bytes = 1 << 16});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device = std::move(*opened);
    auto created = joined() ? join_all(*device, ranks(), way().transport) : device->create_group("world", ranks());
    ASSERT_TRUE(created.ok()) << created.status().to_string();
    group = std::move(*created);
    ASSERT_EQ(group.size(), static_cast<size_t>(ranks()));
  }
  int ranks() const { return std::get<1>(GetParam()); }
  const Way& way() const { return std::get<0>(GetParam()); }
  bool joined() const { return !way().transport.empty(); }
  // Over processes a send keeps nothing of its caller's: what became of it is told by the next call.
  Status outcome(Communicator& c, Stream& s, const Status& status) const {
    return joined() && status.ok() ? c.run(s, {.kind = Collective::Kind::barrier}) : status;
  }

  // A call on memory of the host, which goes through buffers where the device cannot read it.
  Status run(Communicator& c, Stream& s, const Collective& call) {
    const bool invalid = !check_collective(call, c.rank(), c.size()).ok();
    if (device->shares_host_memory() || invalid) {
      Status status = c.run(s, call);
      return status.ok() ? s.synchronize() : status;
    }
    const bool many_from = call.kind == Collective::Kind::reduce_scatter || call.kind == Collective::Kind::all_to_all ||
                           call.kind == Collective::Kind::combine;
    const bool many_to = call.kind == Collective::Kind::all_gather || call.kind == Collective::Kind::dispatch ||
                         call.kind == Collective::Kind::all_to_all;
    Device& own = device->of_rank(rank_of_thread());
    Staged from(own, s, call.source, call.bytes() * (many_from ? c.size() : 1));
    Staged to(own, s, call.target, call.bytes() * (many_to ? c.size() : 1));
    Staged owners(own, s, call.owners, call.rows * c.size() * 8);
    Collective there = call;
    if (call.owners) there.owners = reinterpret_cast<const int64_t*>(owners.at(call.owners));
    Staged& target = from.holds(to) ? from : to;
    there.source = (to.holds(from) ? target : from).at(call.source);
    there.target = target.at(call.target);
    Status status = c.run(s, there);
    if (status.ok()) target.bring_back(s);
    // The buffers go: what was issued before a call that was refused still names them.
    const Status waited = s.synchronize();
    return status.ok() ? waited : status;
  }

  TestHost memory;
  std::shared_ptr<Device> device;
  std::vector<std::unique_ptr<Communicator>> group;
};

// Calls body(rank, communicator, stream) on a thread for each rank and joins them.
inline void on_ranks(Device& device, std::vector<std::unique_ptr<Communicator>>& group,
                     const std::function<void(int, Communicator&, Stream&)>& body, int threads = 1) {
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < group.size(); ++r) {
    ranks.emplace_back([&, r] {
      rank_of_thread() = static_cast<int>(r);
      auto stream = device.of_rank(static_cast<int>(r)).create_stream(threads);
      ASSERT_TRUE(stream.ok());
      body(static_cast<int>(r), *group[r], **stream);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace epl
