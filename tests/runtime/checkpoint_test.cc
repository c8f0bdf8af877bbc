// Checkpoints: what is saved is loaded; whatever goes wrong, and wherever a process is killed, the last complete one
// stays.
#include "core/runtime/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/formats/zip.h"
#include "tests/byte_writer.h"
#include "tests/temporary_folder.h"

namespace epl::checkpoint_test {
namespace {

namespace fs = std::filesystem;

Checkpoint example(int64_t step) {
  Checkpoint c;
  c.step = step;
  c.seed = 18446744073709551615u;
  c.units = 8;
  c.data_position = step * 3;
  const float base = static_cast<float>(step);
  c.items = {{"w", StateKind::parameter, Tensor::from_floats({2, 2}, {base, 1, 2, 3})},
             {"w.mean", StateKind::optimizer, Tensor::from_floats({2, 2}, {4, base, 5, 6})},
             {"n", StateKind::buffer, Tensor::from_ints({step})},
             {"e", StateKind::frozen, Tensor(TensorType{DType::f32, {0}})}};
  return c;
}

void expect_equal(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.units, b.units);
  EXPECT_EQ(a.numerics, b.numerics);
  EXPECT_EQ(a.data_position, b.data_position);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    EXPECT_EQ(a.items[i].name, b.items[i].name);
    EXPECT_EQ(a.items[i].kind, b.items[i].kind);
    EXPECT_TRUE(identical(a.items[i].value, b.items[i].value)) << a.items[i].name;
  }
}

// Operations of one save over an existing checkpoint.
int operations_of_a_save(const std::string& folder) {
  int count = 0;
  EXPECT_TRUE(save_checkpoint(folder, example(2), [&](std::string_view, const std::string&) {
                return ++count, Status();
              }).ok());
  return count;
}

TEST(Checkpoint, RoundTripAndOneSetOfFiles) {
  const std::string folder = fresh_folder("round");
  for (int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(save_checkpoint(folder, example(step)).ok());
    auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    expect_equal(*loaded, example(step));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  }
}

TEST(Checkpoint, AFailureAtAnyOperationLeavesOneComplete) {
  const std::string folder = fresh_folder("fail");
  ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
  const int count = operations_of_a_save(folder);
  ASSERT_GT(count, 12);
  for (int fail = 1; fail <= count; ++fail) {
    ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
    int at = 0;
    std::string what;
    Status status = save_checkpoint(folder, example(2), [&](std::string_view operation, const std::string& path) {
      if (++at != fail) return Status();
      what = cat(operation, " ", path);
      return Status(Code::io, "no space left on device (injected)");
    });
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_NE(status.message().find("injected"), std::string::npos) << status.message();
    auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << "after a failed " << what << ": " << loaded.status().to_string();
    ASSERT_TRUE(loaded->step == 1 || loaded->step == 2);
    expect_equal(*loaded, example(loaded->step));
    // What the failure left behind does not stay.
    ASSERT_TRUE(save_checkpoint(folder, example(3)).ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2) << what;
  }
}

TEST(Checkpoint, AKillAtAnyOperationLeavesOneComplete) {
  const std::string folder = fresh_folder("kill");
  ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
  const int count = operations_of_a_save(folder);
  int old_ones = 0, new_ones = 0;
  for (int kill_at = 1; kill_at <= count; ++kill_at) {
    ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int at = 0;
      Status status = save_checkpoint(folder, example(2), [&](std::string_view, const std::string&) {
        if (++at == kill_at) ::kill(::getpid(), SIGKILL);
        return Status();
      });
      ::_exit(status.ok() ? 0 : 1);
    }
    int result = 0;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    ASSERT_TRUE(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL) << kill_at;
    auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << "killed at operation " << kill_at << ": " << loaded.status().to_string();
    expect_equal(*loaded, example(loaded->step));
    (loaded->step == 1 ? old_ones : new_ones) += 1;
  }
  EXPECT_GT(old_ones, 0);
  EXPECT_GT(new_ones, 0);  // killed between the renaming and the tidying up
  ASSERT_TRUE(save_checkpoint(folder, example(3)).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

TEST(Checkpoint, ADamagedByteAnywhereIsSeen) {
  const std::string folder = fresh_folder("damage");
  ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
  for (const auto& file : fs::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    auto rewrite = [&](const std::string& content) {
      std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << content;
    };
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      rewrite(damaged);
      auto loaded = load_checkpoint(folder);
      ASSERT_FALSE(loaded.ok()) << file.path() << " byte " << i;
      ASSERT_EQ(loaded.status().code(), Code::data_loss) << loaded.status().to_string();
      ASSERT_FALSE(loaded.status().where().empty());
    }
    for (size_t size = 0; size < whole.size(); size += 7) {
      rewrite(whole.substr(0, size));
      ASSERT_FALSE(load_checkpoint(folder).ok()) << file.path() << " cut at " << size;
    }
    rewrite(whole);
  }
  EXPECT_TRUE(load_checkpoint(folder).ok());
}

TEST(Checkpoint, NamesComeBackOrAreRefused) {
  const std::string folder = fresh_folder("names");
  Checkpoint odd = example(1);
  odd.items[0].name = std::string("a\0b", 3);
  odd.items[1].name = "\"\xc3\xa9\n";
  ASSERT_TRUE(save_checkpoint(folder, odd).ok());
  auto loaded = load_checkpoint(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  expect_equal(*loaded, odd);
  // What could not be found again is not written, and what is there stays.
  odd.items[1].name = "w\xff";
  Status refused = save_checkpoint(folder, odd);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("not UTF-8"), std::string::npos) << refused.message();
  EXPECT_TRUE(load_checkpoint(folder).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

TEST(Checkpoint, FactsComeBackAndOlderOnesHaveNone) {
  const std::string folder = fresh_folder("facts");
  Checkpoint saved = example(1);
  ASSERT_TRUE(save_checkpoint(folder, saved).ok());
  EXPECT_TRUE(load_checkpoint(folder)->facts.empty());
  saved.facts = {{"optimizer", "adamw"}, {"loss", "mse"}, {"groups", ""}};
  ASSERT_TRUE(save_checkpoint(folder, saved).ok());
  auto loaded = load_checkpoint(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->facts, saved.facts);
}

TEST(Checkpoint, FactsThatDifferSayWhatTheyMean) {
  const Facts saved = {{"optimizer", "adamw"},     {"optimizer.lr", "0.1"}, {"loss", "mse"},
                       {"loss.ignore_index", "1"}, {"data.batch", "8"},     {"data.seed", "1"},
                       {"data.hash", "a"},         {"model.graph", "x"},    {"only.saved", "1"}};
  Facts now = saved;
  now.erase("only.saved");
  now["only.now"] = "1";
  EXPECT_TRUE(compare_facts(saved, now).empty());
  const std::map<std::string, std::string> topics = {
      {"optimizer", "optimizer"}, {"optimizer.lr", "options"}, {"loss", "loss"},      {"loss.ignore_index", "loss"},
      {"data.batch", "batch"},    {"data.seed", "order"},      {"data.hash", "data"}, {"model.graph", "model"}};
  for (const auto& [key, topic] : topics) {
    Facts other = now;
    other[key] = "other";
    const auto found = compare_facts(saved, other);
    ASSERT_EQ(found.size(), 1u) << key;
    EXPECT_EQ(found[0].key, key);
    EXPECT_EQ(found[0].topic, topic);
    EXPECT_EQ(found[0].saved, saved.at(key));
    EXPECT_EQ(found[0].now, "other");
    EXPECT_EQ(found[0].breaks, topic != "options") << key;
  }
}

// A save into a new folder was killed before its manifest was in place: there is nothing to load, and what is there can
// be removed.
TEST(Checkpoint, HalfOfOneIsRemovedToo) {
  const std::string folder = fresh_folder("half");
  int halves = 0;
  for (int kill_at = 1;; ++kill_at) {
    fs::remove_all(folder);
    const pid_t child = ::fork();
    if (child == 0) {
      int at = 0;
      static_cast<void>(save_checkpoint(folder, example(1), [&](std::string_view, const std::string&) {
        if (++at == kill_at) ::kill(::getpid(), SIGKILL);
        return Status();
      }));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) break;  // there are no more operations
    if (fs::exists(folder + "/manifest.epl") || !fs::exists(folder + "/saving.epl")) continue;
    ++halves;
    EXPECT_FALSE(load_checkpoint(folder).ok());
    ASSERT_TRUE(remove_checkpoint(folder).ok()) << "killed at operation " << kill_at;
    EXPECT_FALSE(fs::exists(folder));
  }
  EXPECT_GT(halves, 4);
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/tensors-1.safetensors") << "mine";
  EXPECT_EQ(remove_checkpoint(folder).code(), Code::not_found);
  EXPECT_TRUE(fs::exists(folder + "/tensors-1.safetensors"));
}

TEST(Checkpoint, NobodyElsesFilesAreTouched) {
  const std::string folder = fresh_folder("mine");
  fs::create_directories(folder);
  auto put = [&](const std::string& name) { std::ofstream(fs::path(folder) / name) << "mine"; };
  auto mine = [&](const std::string& name) {
    std::ifstream in(fs::path(folder) / name);
    return std::string((std::istreambuf_iterator<char>(in)), {}) == "mine";
  };
  put("tensors-7.safetensors");
  const Status refused = save_checkpoint(folder, example(1));
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("holds no checkpoint"), std::string::npos) << refused.message();
  EXPECT_TRUE(mine("tensors-7.safetensors"));
  // Beside a checkpoint they stay as well, through saves and when it is removed.
  fs::remove(fs::path(folder) / "tensors-7.safetensors");
  ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
  for (const char* name : {"tensors-7.safetensors", "tensors-9.safetensors.part", "notes.txt"}) put(name);
  for (int64_t step : {2, 3}) ASSERT_TRUE(save_checkpoint(folder, example(step)).ok());
  EXPECT_EQ(load_checkpoint(folder)->step, 3);
  ASSERT_TRUE(remove_checkpoint(folder).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3);
  for (const char* name : {"tensors-7.safetensors", "tensors-9.safetensors.part", "notes.txt"})
    EXPECT_TRUE(mine(name)) << name;
  EXPECT_EQ(remove_checkpoint(folder).code(), Code::not_found);
}

TEST(Checkpoint, AFirstSaveThatIsKilledIsNoObstacle) {
  for (int kill_at = 1; kill_at < 30; ++kill_at) {
    const std::string folder = fresh_folder("first");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int at = 0;
      (void)save_checkpoint(folder, example(1), [&](std::string_view, const std::string&) {
        if (++at == kill_at) ::kill(::getpid(), SIGKILL);
        return Status();
      });
      ::_exit(0);
    }
    int result = 0;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    ASSERT_TRUE(save_checkpoint(folder, example(2)).ok()) << kill_at;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2) << kill_at;
    ASSERT_TRUE(remove_checkpoint(folder).ok());
    EXPECT_FALSE(fs::exists(folder));
    if (WIFEXITED(result)) return;  // the save has fewer operations
  }
}

TEST(Checkpoint, SavesToOneFolderTakeTurns) {
  const std::string folder = fresh_folder("turns");
  std::vector<Status> results(12);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = save_checkpoint(folder, example(static_cast<int64_t>(i))); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(load_checkpoint(folder).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

// Rows 0 and 1 of w by one process, row 2 in two shards by another, and a scalar and a tensor that one of them has
// whole.
std::vector<std::vector<CheckpointShard>> cut_shards() {
  return {{{"w", StateKind::parameter, {3, 2}, {0, 0}, 0, Tensor::from_floats({2, 2}, {0, 1, 2, 3})},
           {"s", StateKind::optimizer, {}, {}, 0, Tensor::scalar(DType::f32, 7)}},
          {{"w", StateKind::parameter, {3, 2}, {2, 1}, 1, Tensor::from_floats({1, 1}, {5})},
           {"w", StateKind::parameter, {3, 2}, {2, 0}, 2, Tensor::from_floats({1, 1}, {4})},
           {"b", StateKind::buffer, {2}, {0}, 1, Tensor::from_floats({2}, {8, 9})}}};
}

Status save_cut(const std::string& folder, const std::vector<std::vector<CheckpointShard>>& shards,
                const FileHook& hook = nullptr) {
  Checkpoint checkpoint = example(2);
  checkpoint.facts = {{"optimizer", "adamw"}};
  EPL_ASSIGN(const auto save, CheckpointSave::begin(folder, static_cast<int>(shards.size()), hook));
  std::vector<std::string> reports;
  Status status;
  for (size_t p = 0; p < shards.size() && status.ok(); ++p) {
    auto report = write_shard_file(folder, save->generation(), static_cast<int>(p), shards[p], hook);
    status = report.status();
    if (report.ok()) reports.push_back(*report);
  }
  if (status.ok()) status = save->finish(checkpoint, reports);
  if (!status.ok()) save->give_up(false);
  return status;
}

TEST(Checkpoint, ShardsOfSeveralProcessesAreOneCheckpoint) {
  const std::string folder = fresh_folder("pieces");
  for (int again = 0; again < 2; ++again) {
    const Status saved = save_cut(folder, cut_shards());
    ASSERT_TRUE(saved.ok()) << saved.to_string();
    auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    ASSERT_EQ(loaded->items.size(), 3u);
    EXPECT_EQ(loaded->step, 2);
    EXPECT_TRUE(identical(loaded->items[0].value, Tensor::from_floats({3, 2}, {0, 1, 2, 3, 4, 5})));
    EXPECT_TRUE(identical(loaded->items[1].value, Tensor::scalar(DType::f32, 7)));
    EXPECT_TRUE(identical(loaded->items[2].value, Tensor::from_floats({2}, {8, 9})));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3);
  }
  // One process alone takes the folder over, and all files of the others go.
  ASSERT_TRUE(save_checkpoint(folder, example(3)).ok());
  expect_equal(*load_checkpoint(folder), example(3));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  ASSERT_TRUE(save_cut(folder, cut_shards()).ok());
  ASSERT_TRUE(remove_checkpoint(folder).ok());
  EXPECT_FALSE(fs::exists(folder));
}

TEST(Checkpoint, ShardsThatDoNotFitAreDamage) {
  const std::string folder = fresh_folder("misfits");
  const auto expect = [&](const std::function<void(std::vector<std::vector<CheckpointShard>>&)>& change,
                          std::string_view why) {
    auto shards = cut_shards();
    change(shards);
    ASSERT_TRUE(save_cut(folder, shards).ok());
    const Status status = load_checkpoint(folder).status();
    EXPECT_EQ(status.code(), Code::data_loss);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  expect([](auto& p) { p[1].erase(p[1].begin()); }, "has 6 elements, its shards 5");
  expect([](auto& p) { p[1][0].offset = {1, 0}; }, "shards that overlap");
  expect([](auto& p) { p[1][0].offset = {3, 0}; }, "not within it");
  expect([](auto& p) { p[1][0].offset = {-1, 0}; }, "not within it");
  expect([](auto& p) { p[1][0].value = Tensor::from_floats({1}, {5}), p[1][0].offset = {5}; }, "other dimensions");
  expect([](auto& p) { p[1][0].value = Tensor::from_ints({1}).reshaped({1, 1}); }, "several types");
  auto shards = cut_shards();
  for (size_t i : {0, 1}) shards[1][i].full = {4, 2};
  EXPECT_EQ(save_cut(folder, shards).code(), Code::misuse) << "the processes disagree";
}

TEST(Checkpoint, AFailureOfAnyPartLeavesTheOldOne) {
  const std::string folder = fresh_folder("parts");
  int count = 0;
  ASSERT_TRUE(
      save_cut(folder, cut_shards(), [&](std::string_view, const std::string&) { return ++count, Status(); }).ok());
  ASSERT_GT(count, 15);
  for (int fail = 1; fail <= count; ++fail) {
    ASSERT_TRUE(save_checkpoint(folder, example(1)).ok());
    int at = 0;
    const Status status = save_cut(folder, cut_shards(), [&](std::string_view, const std::string&) {
      return ++at == fail ? Status(Code::io, "no space left on device (injected)") : Status();
    });
    auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << fail << ": " << loaded.status().to_string();
    EXPECT_TRUE(loaded->step == 1 || loaded->items.size() == 3) << fail;
    if (status.ok()) continue;  // it was about to remove the old files, which the next save does
    ASSERT_TRUE(save_checkpoint(folder, example(4)).ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2) << fail;
  }
}

// A process that has not noticed yet that its job has given up the save writes its shard file all the same: no obstacle
// for the next save, which has other names and removes it, and nothing that stays when the checkpoint goes.
TEST(Checkpoint, APartThatComesTooLateGoesWithTheNextSave) {
  const std::string folder = fresh_folder("late");
  const auto shards = cut_shards();
  uint64_t before = 0;
  for (int64_t step : {1, 2}) {  // the first save, and one over another
    {
      const auto given_up = CheckpointSave::begin(folder, 2);
      ASSERT_TRUE(given_up.ok()) << given_up.status().to_string();
      ASSERT_TRUE(write_shard_file(folder, (*given_up)->generation(), 0, shards[0]).ok());
      (*given_up)->give_up(false);
      EXPECT_GT((*given_up)->generation(), before);
      before = (*given_up)->generation();
      ASSERT_TRUE(write_shard_file(folder, before, 1, shards[1]).ok());
    }
    {
      const auto next = CheckpointSave::begin(folder, 2);
      ASSERT_TRUE(next.ok()) << next.status().to_string();
      EXPECT_GT((*next)->generation(), before) << "one that is still being written is not taken for one of its own";
    }
    Checkpoint checkpoint = example(2);
    checkpoint.step = step;
    ASSERT_TRUE(save_checkpoint(folder, checkpoint).ok());
    EXPECT_EQ(load_checkpoint(folder)->step, step);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  }
  auto given_up = CheckpointSave::begin(folder, 2).value();
  given_up->give_up(false);
  ASSERT_TRUE(write_shard_file(folder, given_up->generation(), 1, shards[1]).ok());
  given_up.reset();
  ASSERT_TRUE(remove_checkpoint(folder).ok());
  EXPECT_FALSE(fs::exists(folder));
}

// A save that fails leaves nothing of it, and not the folder that it has made: a run on a full disk tries again and
// again.
TEST(Checkpoint, ASaveThatFailsLeavesNoLitter) {
  const std::string folder = fresh_folder("litter");
  int operations = 0;
  ASSERT_TRUE(save_checkpoint(folder, example(2), [&](std::string_view, const std::string&) {
                ++operations;
                return Status();
              }).ok());
  fs::remove_all(folder);
  int failed = 0;
  for (int fails = 0; fails < operations; ++fails) {
    for (const bool there : {false, true}) {
      if (there) fs::create_directories(folder);
      int count = 0;
      const Status status = save_checkpoint(folder, example(2), [&](std::string_view doing, const std::string&) {
        return count++ == fails && doing != "sync" ? error(Code::exhausted, "no space left") : Status();
      });
      const bool saved = fs::exists(folder + "/manifest.epl");
      if (status.ok() || saved) {
        fs::remove_all(folder);
        continue;
      }
      ++failed;
      EXPECT_EQ(status.code(), Code::exhausted);
      EXPECT_EQ(fs::exists(folder), there) << "operation " << fails;
      if (there) {
        EXPECT_TRUE(fs::is_empty(folder)) << "operation " << fails << ": " << fs::directory_iterator(folder)->path();
      }
      fs::remove_all(folder);
    }
  }
  EXPECT_GT(failed, 4);
}

Result<Checkpoint> load_archive(const std::string& bytes) {
  EPL_ASSIGN(const CheckpointFiles files, CheckpointFiles::in_archive(reader_of("stream", bytes)));
  return load_checkpoint(files);
}

TEST(CheckpointStream, HasTheFilesOfTheFolderForm) {
  BytesWritten out;
  ASSERT_TRUE(write_checkpoint(out, example(7)).ok());
  const auto loaded = load_archive(out.text);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  expect_equal(*loaded, example(7));
  const std::string folder = fresh_folder("stream");
  ASSERT_TRUE(save_checkpoint(folder, example(7)).ok());
  const auto file = reader_of("stream", out.text);
  const auto entries = read_zip(*file);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  for (const ZipEntry& entry : *entries) {
    const auto bytes = read_zip_entry(*file, entry);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    EXPECT_TRUE(*bytes == *(*FileReader::open(cat(folder, "/", entry.name)))->read_all()) << entry.name;
  }
  // As a file it is opened like a folder.
  std::ofstream(folder + ".zip", std::ios::binary) << out.text;
  const auto from_file = load_checkpoint(folder + ".zip");
  ASSERT_TRUE(from_file.ok()) << from_file.status().to_string();
  expect_equal(*from_file, example(7));
}

TEST(CheckpointStream, WhatEndsOrDiffersAnywhereIsAnError) {
  BytesWritten out;
  ASSERT_TRUE(write_checkpoint(out, example(7)).ok());
  for (size_t size = 0; size < out.text.size(); ++size)
    ASSERT_FALSE(load_archive(out.text.substr(0, size)).ok()) << size;
  int harmless = 0;
  for (size_t at = 0; at < out.text.size(); ++at) {
    std::string damaged = out.text;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const auto loaded = load_archive(damaged);
    if (!loaded.ok()) continue;
    expect_equal(*loaded, example(7));  // a date of the archive, say, or what it says of an entry twice
    ++harmless;
  }
  EXPECT_LT(harmless, 300);
  for (size_t room = 0; room < out.text.size(); room += 7) {
    FullWriter full(room);
    EXPECT_EQ(write_checkpoint(full, example(7)).message(), "the bucket is gone") << room;
  }
}

TEST(Checkpoint, WhatIsNotThereIsNamed) {
  auto loaded = load_checkpoint("/nowhere/checkpoint");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), Code::not_found);
  EXPECT_NE(loaded.status().message().find("no checkpoint in /nowhere/checkpoint"), std::string::npos);
  const std::string file = fresh_folder("file");
  fs::create_directories(fs::path(file).parent_path());
  std::ofstream(file) << "x";
  EXPECT_NE(save_checkpoint(file, example(1)).message().find("is not a folder"), std::string::npos);
  EXPECT_EQ(save_checkpoint("/proc/nothing/here", example(1)).code(), Code::not_found);
}

}  // namespace
}  // namespace epl::checkpoint_test
