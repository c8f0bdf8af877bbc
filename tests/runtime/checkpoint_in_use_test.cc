// A checkpoint that a run replaces while another reads it is read as it was or as it is then.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/runtime/checkpoint.h"
#include "tests/temporary_folder.h"

namespace epl::checkpoint_in_use_test {
namespace {

namespace fs = std::filesystem;

Checkpoint example(int64_t step) {
  Checkpoint c;
  c.step = step;
  c.items = {{"w", StateKind::parameter, Tensor::from_floats({2}, {static_cast<float>(step), 1})}};
  return c;
}

void expect_step(const Checkpoint& loaded, int64_t step) {
  EXPECT_EQ(loaded.step, step);
  ASSERT_EQ(loaded.items.size(), 1u);
  EXPECT_TRUE(identical(loaded.items[0].value, example(step).items[0].value));
}

// Runs `meanwhile` after file `after` was opened for the first time.
CheckpointFiles interrupted(const std::string& folder, const std::string& after, std::function<void()> meanwhile) {
  CheckpointFiles files = CheckpointFiles::in_folder(folder);
  files.open = [open = files.open, after, meanwhile, done = false](const std::string& name) mutable {
    auto opened = open(name);
    if (!done && name.starts_with(after)) {
      done = true;
      meanwhile();
    }
    return opened;
  };
  return files;
}

TEST(CheckpointInUse, ASaveThatReplacesItWhileItIsReadIsNoDamage) {
  const std::string run = fresh_folder("rotated"), link = run + "/checkpoint";
  const auto step = [&](int n) { return cat(run, "/step-", n); };
  // `removed`: the folder that the link led to goes too, as a run does that keeps one.
  const auto turn = [&](int to, bool removed) {
    ASSERT_TRUE(save_checkpoint(step(to), example(to)).ok());
    fs::remove(link + ".part");
    fs::create_symlink(fs::path(step(to)).filename(), link + ".part");
    fs::rename(link + ".part", link);
    if (removed) ASSERT_TRUE(remove_checkpoint(step(to - 1)).ok());
  };
  for (const bool removed : {false, true}) {
    for (const std::string after : {"manifest", "tensors"}) {
      SCOPED_TRACE(cat(after, removed ? ", removed" : ""));
      fs::remove_all(run);
      turn(1, false);
      const auto loaded = load_checkpoint(interrupted(link, after, [&] { turn(2, removed); }));
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      // What is open by then is still read.
      expect_step(*loaded, after == "tensors" ? 1 : 2);
      // And over the same folder.
      const auto again =
          load_checkpoint(interrupted(link, after, [&] { ASSERT_TRUE(save_checkpoint(step(2), example(3)).ok()); }));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      expect_step(*again, after == "tensors" ? 2 : 3);
    }
  }
}

TEST(CheckpointInUse, OneThatIsGoneWhileItIsReadIsNotThere) {
  const std::string folder = fresh_folder("gone");
  ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
  const auto loaded =
      load_checkpoint(interrupted(folder, "manifest", [&] { ASSERT_TRUE(remove_checkpoint(folder).ok()); }));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), Code::not_found);
  // A link that leads nowhere stays an error too.
  fs::create_symlink("nowhere", folder + ".link");
  EXPECT_EQ(load_checkpoint(folder + ".link").status().code(), Code::not_found);
  fs::remove(folder + ".link");
}

TEST(CheckpointInUse, OneThatIsReplacedAgainAndAgainIsNotReadForever) {
  const std::string folder = fresh_folder("busy");
  int step = 1;
  ASSERT_TRUE(save_checkpoint(folder, example(step)).ok());
  CheckpointFiles files = CheckpointFiles::in_folder(folder);
  files.open = [open = files.open, &step, folder](const std::string& name) {
    auto opened = open(name);
    if (name.starts_with("manifest")) EXPECT_TRUE(save_checkpoint(folder, example(++step)).ok());
    return opened;
  };
  EXPECT_EQ(load_checkpoint(files).status().code(), Code::busy);
}

}  // namespace
}  // namespace epl::checkpoint_in_use_test
