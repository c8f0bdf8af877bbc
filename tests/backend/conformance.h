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

namespace epl {

struct TestHost {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> limit{INT64_MAX};

  Host host(int threads = 2) {
    Host host;
    host.seconds = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
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
    return host;
  }
};

inline std::vector<std::string> backend_names() { return backend_table().names(); }

// One test per backend: TEST_P(Backend, ...) runs on all rows of the table.
class Backend : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = open_device(GetParam(), memory.host());
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

// Tests over groups of ranks: TEST_P(Ranks, ...) runs on every device that computes, for several numbers of ranks.
class Ranks : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    auto opened = open_device(std::get<0>(GetParam()), memory.host());
    ASSERT_TRUE(opened.ok());
    device = std::move(*opened);
    auto created = device->create_group("world", ranks());
    ASSERT_TRUE(created.ok());
    group = std::move(*created);
    ASSERT_EQ(group.size(), static_cast<size_t>(ranks()));
  }
  int ranks() const { return std::get<1>(GetParam()); }

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
      auto stream = device.create_stream(threads);
      ASSERT_TRUE(stream.ok());
      body(static_cast<int>(r), *group[r], **stream);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace epl
