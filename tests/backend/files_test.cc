// Memory of the CPU that lies in files: every verb that reaches it, order between streams, and what fails.
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/backend/conformance.h"
#include "tests/temporary_folder.h"

namespace epl::files_test {
namespace {

class CpuFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    device = open_device("cpu", memory.host(), {.folder = folder.path()}).value();
    stream = device->create_stream(2).value();
    other = device->create_stream(1).value();
  }
  std::byte* in_file(int64_t bytes) {
    buffers.push_back(device->allocate_in(MemoryKind::file, bytes).value());
    return static_cast<std::byte*>(buffers.back()->data());
  }
  static std::vector<uint8_t> numbers(size_t bytes, uint8_t first) {
    std::vector<uint8_t> out(bytes);
    std::iota(out.begin(), out.end(), first);
    return out;
  }

  const TemporaryFolder folder;
  TestHost memory;
  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream, other;
  std::vector<std::unique_ptr<Buffer>> buffers;
};

TEST_F(CpuFiles, ArePresentWhereAFolderIsNamed) {
  EXPECT_TRUE(device->has_memory(MemoryKind::file));
  EXPECT_TRUE(device->moves_beside());
  EXPECT_FALSE(device->has_memory(MemoryKind::host));
  const auto without = open_device("cpu", memory.host()).value();
  EXPECT_FALSE(without->has_memory(MemoryKind::file));
  EXPECT_EQ(without->allocate_in(MemoryKind::file, 64).status().code(), Code::unsupported);
}

// More than what goes from file to file at once, and no whole pages.
TEST_F(CpuFiles, HoldWhatWasWritten) {
  constexpr int64_t bytes = (5 << 20) / 2 + 77;
  const std::vector<uint8_t> given = numbers(bytes, 3);
  std::byte *const one = in_file(bytes), *const two = in_file(bytes + 1000);
  stream->upload(one, given.data(), bytes);
  stream->copy(two + 1000, one, bytes);
  stream->fill(two, 1000, 9);
  std::vector<uint8_t> back(bytes + 1000);
  stream->download(back.data(), two, bytes + 1000);
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(std::vector<uint8_t>(back.begin(), back.begin() + 1000), std::vector<uint8_t>(1000, 9));
  EXPECT_EQ(std::vector<uint8_t>(back.begin() + 1000, back.end()), given);
  stream->fill(one, bytes, 7);
  stream->download(back.data(), one, bytes);
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(std::vector<uint8_t>(back.begin(), back.begin() + bytes), std::vector<uint8_t>(bytes, 7));
}

// More commands than a stream and a file have room for.
TEST_F(CpuFiles, AreReadAndWrittenInTheOrderOfEvents) {
  constexpr int count = 1200;
  constexpr int64_t bytes = 5000;
  std::byte* const file = in_file(count * bytes);
  std::vector<std::vector<uint8_t>> from, to(count, std::vector<uint8_t>(bytes));
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < count; ++i) from.push_back(numbers(bytes, static_cast<uint8_t>(i)));
  for (int i = 0; i < count; ++i) {
    stream->evict(file + i * bytes, from[static_cast<size_t>(i)].data(), bytes);
    events.push_back(device->create_event());
    stream->record(*events.back());
  }
  for (int i = count; i-- > 0;) {
    other->wait(*events[static_cast<size_t>(i)]);
    other->fetch(to[static_cast<size_t>(i)].data(), file + i * bytes, bytes);
  }
  ASSERT_TRUE(other->synchronize().ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(to, from);
}

// Commands wait for this for some seconds at most, and none has to.
class Gate {
 public:
  explicit Gate(Device& device) : event_(device.create_event()), stream_(device.create_stream(1).value()) {
    posts_ = stream_->host()->posts();
    post_ = posts_->add();
    stream_->record(*event_);
    late_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      was_late_ = !changed_.wait_for(lock, std::chrono::seconds(10), [this] { return opened_; });
      posts_->end(post_);
    });
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Event& event() { return *event_; }
  // Gives whether it has opened by itself before.
  bool open() {
    if (!late_.joinable()) return was_late_;
    {
      std::lock_guard lock(mutex_);
      opened_ = true;
    }
    changed_.notify_all();
    late_.join();
    return was_late_;
  }

 private:
  std::unique_ptr<Event> event_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Posts> posts_;
  uint64_t post_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool opened_ = false, was_late_ = false;
  std::thread late_;
};

// What waits to be written holds up neither who gives commands nor who reads.
TEST_F(CpuFiles, AreReadWhileTheyAreWritten) {
  constexpr int count = 200;
  constexpr int64_t bytes = 5000;
  std::byte* const file = in_file((count + 1) * bytes);
  const std::vector<uint8_t> old = numbers(bytes, 1), given = numbers(bytes, 2);
  stream->evict(file, old.data(), bytes);
  ASSERT_TRUE(stream->synchronize().ok());
  Gate gate(*device);
  stream->wait(gate.event());
  for (int i = 0; i < count; ++i) stream->evict(file + (i + 1) * bytes, given.data(), bytes);
  std::vector<uint8_t> to(bytes);
  other->fetch(to.data(), file, bytes);
  ASSERT_TRUE(other->synchronize().ok());
  EXPECT_EQ(to, old);
  EXPECT_FALSE(gate.open()) << "a read or the caller has waited for writes";
  ASSERT_TRUE(stream->synchronize().ok());
  stream->fetch(to.data(), file + count * bytes, bytes);
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(to, given);
}

// Within one stream a read comes behind the write before it, and a write behind the read.
TEST_F(CpuFiles, OfOneStreamKeepTheirOrder) {
  constexpr int64_t bytes = 3 << 20;
  std::byte* const file = in_file(bytes);
  std::vector<uint8_t> to(bytes);
  for (uint8_t i = 1; i < 20; ++i) {
    const std::vector<uint8_t> given = numbers(bytes, i), next = numbers(bytes, static_cast<uint8_t>(i + 100));
    stream->evict(file, given.data(), bytes);
    stream->fetch(to.data(), file, bytes);
    stream->evict(file, next.data(), bytes);
    ASSERT_TRUE(stream->synchronize().ok());
    ASSERT_EQ(to, given);
  }
}

// Each file has threads of its own, and the second command of a stream may rely on a wait of the first one.
TEST_F(CpuFiles, OfOneStreamKeepTheirOrderInTwo) {
  constexpr int64_t bytes = 5000;
  std::byte *const one = in_file(bytes), *const two = in_file(bytes);
  const std::vector<uint8_t> given = numbers(bytes, 1), later = numbers(bytes, 2);
  for (std::byte* const file : {one, two}) stream->evict(file, given.data(), bytes);
  ASSERT_TRUE(stream->synchronize().ok());
  for (const bool writes : {false, true}) {
    std::vector<uint8_t> first(bytes), second(bytes);
    Gate gate(*device);
    stream->wait(gate.event());
    if (writes) {
      stream->evict(one, later.data(), bytes);
      stream->evict(two, later.data(), bytes);
      other->fetch(second.data(), two, bytes);  // which nothing orders
    } else {
      stream->fetch(first.data(), one, bytes);
      stream->fetch(second.data(), two, bytes);
    }
    ASSERT_TRUE(other->synchronize().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(second, writes ? given : std::vector<uint8_t>(bytes)) << "the second command has not waited";
    EXPECT_FALSE(gate.open());
    ASSERT_TRUE(stream->synchronize().ok());
    stream->fetch(second.data(), two, bytes);
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(second, writes ? later : given);
  }
}

// A stream that reads files waits for no more than it is told, and for all of that.
TEST_F(CpuFiles, WaitForSeveralStreams) {
  constexpr int64_t bytes = 100;
  std::byte* const file = in_file(bytes);
  std::vector<uint8_t> to(bytes), given = numbers(bytes, 5);
  stream->evict(file, given.data(), bytes);
  stream->fetch(to.data(), file, bytes);
  ASSERT_TRUE(stream->synchronize().ok());
  std::vector<std::unique_ptr<Gate>> gates;
  for (int i = 0; i < 3; ++i) {
    gates.push_back(std::make_unique<Gate>(*device));
    stream->wait(gates.back()->event());
  }
  to.assign(bytes, 0);
  stream->fetch(to.data(), file, bytes);
  const auto behind = device->create_event();
  stream->record(*behind);
  for (const auto& gate : gates) {
    EXPECT_EQ(to[0], 0);
    EXPECT_FALSE(gate->open());
  }
  other->wait(*behind);
  EXPECT_EQ(to, given);
  EXPECT_TRUE(other->synchronize().ok());
  EXPECT_TRUE(stream->synchronize().ok());
}

int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

TEST_F(CpuFiles, AreNeverResident) {
  constexpr int64_t piece = 1 << 20, pieces = 128;
  std::vector<uint8_t> bytes(piece, 1);
  std::byte* const file = in_file(pieces * piece);
  const int64_t before = resident_pages();
  for (int64_t i = 0; i < pieces; ++i) {
    stream->upload(file + i * piece, bytes.data(), piece);
    stream->fetch(bytes.data(), file + i * piece, piece);
  }
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_LT((resident_pages() - before) * 4096, 16 * piece);
}

// No file may be longer than a MiB while this lives: some file systems would take their last byte for a longer one.
class ShortFiles {
 public:
  ShortFiles() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 1 << 20;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ShortFiles(const ShortFiles&) = delete;
  ~ShortFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*const handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_F(CpuFiles, TakeTheirRoomAtOnce) {
  const ShortFiles limited;
  const auto refused = device->allocate_in(MemoryKind::file, int64_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("offload.folder: taking 1,152,921,504,606,846,976 bytes"),
            std::string::npos)
      << refused.status().to_string();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(CpuFiles, AreNotMadeWhereThereIsNoFolder) {
  std::ofstream(folder / "a file") << "x";
  for (const std::string& name : {folder / "gone", folder / "a file"}) {
    const auto there = open_device("cpu", memory.host(), {.folder = name}).value();
    const Status status = there->allocate_in(MemoryKind::file, 64).status();
    EXPECT_NE(status.message().find("offload.folder: making a file in"), std::string::npos) << status.to_string();
    EXPECT_FALSE(status.ok());
  }
}

// Who waits for what failed has failed with it.
TEST_F(CpuFiles, ThatEndFailWhoeverReadsThem) {
  constexpr int64_t bytes = 5000;
  std::byte* const file = in_file(bytes);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(folder.path() + "/")) std::filesystem::resize_file(entry.path(), 100);
  }
  std::vector<uint8_t> to(bytes);
  stream->fetch(to.data(), file, bytes);
  const auto event = device->create_event();
  stream->record(*event);
  other->wait(*event);
  for (Stream* one : {other.get(), stream.get()}) {
    const Status status = one->synchronize();
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_NE(status.message().find("ends at byte 100 of 5000"), std::string::npos) << status.to_string();
  }
  EXPECT_TRUE(stream->synchronize().ok());
}

}  // namespace
}  // namespace epl::files_test
