// Memory of the CPU that lies in files: every verb that reaches it, order between streams, and what fails.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>

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
  constexpr int count = 200;
  constexpr int64_t bytes = 10000;
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
