// The folder of a run before its first step: what could not be saved at the end is refused while nothing is lost.
#include "tools/output_folder.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"
#include "tools/api.h"

namespace epl::tools::output_folder_test {
namespace {

namespace fs = std::filesystem;

class OutputFolders : public testing::Test {
 protected:
  const TemporaryFolder temporary;
  std::string path = temporary / "out";
};

TEST_F(OutputFolders, ADiskWithoutRoomIsRefusedBeforeTheFirstStep) {
  const OutputFolder folder(path);
  fs::create_directory(path);
  struct statvfs disk{};
  ASSERT_EQ(::statvfs(path.c_str(), &disk), 0);
  const auto room = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  folder.check_outputs(path + "/report.html", room / 2);
  try {
    folder.check_outputs(path + "/report.html", 2 * room + (int64_t{1} << 30));
    FAIL() << "twice what there is has room";
  } catch (const ApiError& e) {
    EXPECT_EQ(e.code, EPL_ERROR_IO);
    for (const char* words : {"has room for ", "a checkpoint and the trained model need ", "--out"})
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
  // Trying leaves nothing but the folders, and the lock of the one who has them.
  for (const auto& entry : fs::recursive_directory_iterator(path))
    EXPECT_TRUE(entry.is_directory() || entry.path().filename() == ".epl.lock") << entry.path();
}

}  // namespace
}  // namespace epl::tools::output_folder_test
