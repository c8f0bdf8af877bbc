#include "core/runtime/checkpoint.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/formats/safetensors.h"
#include "core/formats/zip.h"
#include "core/runtime/checkpoint_manifest.h"

namespace epl {
namespace {

constexpr std::string_view note_name = "saving.epl";
constexpr size_t max_note = 1 << 20;

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace

const StateKindRow& state_kind_row(StateKind kind) {
  using Refused = StateKindRow::Refused;
  static constexpr StateKindRow rows[] = {
      {.name = "parameter", .refused = Refused::not_finite},
      {.name = "frozen"},
      {.name = "buffer", .refused = Refused::not_finite},
      // A sum of squares may have overflowed. Its parameter then stands still, which is not damage.
      {.name = "optimizer", .refused = Refused::no_number},
      {.name = "gradient", .saved = false},
  };
  return rows[static_cast<size_t>(kind)];
}

namespace {

Result<std::vector<std::byte>> read_manifest(const std::string& path) {
  EPL_ASSIGN(const std::shared_ptr<const FileReader> file, FileReader::open(path));
  return read_manifest(*file);
}

// The tensors files that the manifest in a folder names; none where there is no manifest, or a damaged one.
// One that cannot be read just now is an error: what it names may be all that there is.
Result<std::vector<std::string>> current_tensors(const std::string& folder) {
  const std::string path = cat(folder, "/", manifest_name);
  const auto file = read_manifest(path);
  std::vector<std::string> names;
  if (!file.ok()) return file.status().code() == Code::not_found ? Result(names) : file.status();
  const auto read = decode_manifest(folder, *file);
  if (!read.ok()) return names;
  names.push_back((*read)->tensors_file()->str());
  if ((*read)->files()) {
    for (const manifest::File* one : *(*read)->files()) names.push_back(one->name()->str());
  }
  return names;
}

std::string lines(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += cat(name, "\n");
  return text;
}

// Not synced: half a note names nothing, and nothing has been written by then.
Status write_note(const std::string& path, const std::string& text, const FileHook& hook) {
  EPL_ASSIGN(std::unique_ptr<FileWriter> writer, FileWriter::create(path, hook));
  return writer->write(text.data(), text.size());
}

// The files of tensors that the note of an earlier save names, if there is one.
Result<std::vector<std::string>> noted(const std::string& folder) {
  std::vector<std::string> names;
  const auto file = FileReader::open(cat(folder, "/", note_name));
  if (file.status().code() == Code::not_found) return names;
  EPL_TRY(file.status());
  std::string text(static_cast<size_t>(std::min<uint64_t>((*file)->size(), max_note)), '\0');
  EPL_TRY((*file)->read(0, text.data(), text.size()));
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string name = text.substr(begin, end - begin);
    if (generation_of(name) != 0) names.push_back(std::move(name));
  }
  return names;
}

// What a save that was killed left behind: what its note names, but for what counts.
Status remove_named(const std::string& folder, const FileHook& hook) {
  EPL_ASSIGN(const std::vector<std::string> names, noted(folder));
  EPL_ASSIGN(const std::vector<std::string> current, current_tensors(folder));
  for (const std::string& name : names) {
    EPL_TRY(remove_file(cat(folder, "/", name, ".part"), hook));
    const bool counts = std::ranges::find(current, name) != current.end();
    if (!counts) EPL_TRY(remove_file(cat(folder, "/", name), hook));
  }
  return remove_file(cat(folder, "/", manifest_name, ".part"), hook);
}

// And the note.
Status tidy_up(const std::string& folder, const FileHook& hook) {
  EPL_TRY(remove_named(folder, hook));
  return remove_file(cat(folder, "/", note_name), hook);
}

bool has_note(const std::string& folder) {
  const std::vector<std::string> names = files_of(folder);
  return std::ranges::find(names, note_name) != names.end();
}

// A folder that nobody keeps other things in: empty, or a checkpoint's.
Status check_is_ours(const std::string& folder) {
  const std::vector<std::string> names = files_of(folder);
  const bool ours = names.empty() || std::ranges::any_of(names, [](const std::string& name) {
                      return name == manifest_name || name == note_name;
                    });
  if (ours) return {};
  return Status(Code::invalid_argument,
                cat(shown_path(folder), " is not empty and holds no checkpoint (", shown(names.front(), 200),
                    " lies there); give a checkpoint a folder of its own"),
                folder);
}

}  // namespace

Result<std::unique_ptr<CheckpointSave>> CheckpointSave::begin(const std::string& folder, int files,
                                                              const FileHook& hook) {
  if (folder.empty()) return invalid("a checkpoint needs a folder");
  const bool was_there = is_folder(folder);
  EPL_TRY(make_folder(folder, hook));
  std::unique_ptr<CheckpointSave> save(new CheckpointSave(folder, files, hook));
  save->made_folder_ = !was_there;
  EPL_TRY(check_is_ours(folder));
  const auto prepare = [&]() -> Status {
    // Newer than what is there, and than what a process of a save that was given up may still write.
    EPL_ASSIGN(std::vector<std::string> known, noted(folder));
    EPL_TRY(tidy_up(folder, hook));
    for (std::string& name : files_of(folder)) known.push_back(std::move(name));
    for (std::string& name : known) {
      if (name.ends_with(".part")) name.resize(name.size() - 5);
      save->generation_ = std::max(save->generation_, generation_of(name) + 1);
    }
    EPL_ASSIGN(std::vector<std::string> named, current_tensors(folder));
    for (int file = 0; file < files; ++file) named.push_back(tensors_name(save->generation_, file));
    return write_note(cat(folder, "/", note_name), lines(named), hook);
  };
  const Status ready = prepare();
  if (!ready.ok()) {
    save->give_up(true);
    return ready;
  }
  return save;
}

void CheckpointSave::give_up(bool all_written) {
  // The new manifest may be in place already, when only syncing its folder failed: then the next save tidies up.
  const auto now = current_tensors(folder_);
  const bool counts = now.ok() && !now->empty() && generation_of(now->front()) == generation_;
  if (!now.ok() || counts) return;
  static_cast<void>(all_written ? tidy_up(folder_, nullptr) : remove_named(folder_, nullptr));
  if (all_written && made_folder_) static_cast<void>(remove_empty_folder(folder_));
}

void remove_shard_file(const std::string& folder, uint64_t generation, int file) {
  static_cast<void>(remove_file(cat(folder, "/", tensors_name(generation, file))));
  static_cast<void>(remove_empty_folder(folder));
}

Status CheckpointSave::finish(const Checkpoint& checkpoint, std::span<const std::string> reports) {
  Listed all;
  std::map<std::string, size_t> by_name;
  for (const std::string& report : reports) {
    EPL_ASSIGN(const manifest::Manifest* read, decode_manifest(folder_, std::as_bytes(std::span(report))));
    EPL_ASSIGN(Listed one, list_manifest(folder_, *read));
    const auto file = static_cast<uint32_t>(all.files.size());
    all.files.push_back(one.files.front());
    for (Listed::Entry& entry : one.entries) {
      for (Listed::Shard& shard : entry.shards) shard.file = file;
      const auto [known, is_new] = by_name.emplace(entry.name, all.entries.size());
      if (is_new) {
        all.entries.push_back(std::move(entry));
        continue;
      }
      Listed::Entry& other = all.entries[known->second];
      if (other.kind != entry.kind || other.dims != entry.dims)
        return error(Code::misuse, "processes disagree about what ", entry.name, " is");
      other.shards.insert(other.shards.end(), entry.shards.begin(), entry.shards.end());
    }
  }
  if (all.files.empty()) return invalid("a checkpoint of no shard files");
  const std::vector<std::byte> bytes = encode_manifest(checkpoint, all, generation_);
  EPL_TRY(write_file_atomically(
      cat(folder_, "/", manifest_name), [&](FileWriter& writer) { return writer.write(bytes.data(), bytes.size()); },
      hook_));
  return tidy_up(folder_, hook_);
}

Result<std::string> write_shard_file(const std::string& folder, uint64_t generation, int file,
                                     std::span<const CheckpointShard> shards, const FileHook& hook) {
  Listed listed;
  NamedTensors values;
  std::map<std::string, size_t> by_name;
  for (const CheckpointShard& shard : shards) {
    const auto [known, is_new] = by_name.emplace(shard.name, listed.entries.size());
    if (is_new) listed.entries.push_back({shard.name, static_cast<uint8_t>(shard.kind), shard.full, {}});
    std::string key = shard.name;
    if (shard.value.shape() != shard.full) {
      for (const int64_t at : shard.offset) key += cat("@", at);
    }
    values.emplace_back(key, shard.value);
    listed.entries[known->second].shards.push_back(
        {0, std::move(key), shard.offset, static_cast<uint32_t>(shard.rank)});
  }
  const std::string name = tensors_name(generation, file), path = cat(folder, "/", name);
  EPL_TRY(save_safetensors(path, values, {{"format", "epl checkpoint"}}, hook));
  EPL_ASSIGN(std::shared_ptr<const FileReader> written, FileReader::open(path));
  EPL_ASSIGN(const uint64_t hash, hash_of(*written));
  listed.files.push_back({name, written->size(), hash});
  const std::vector<std::byte> bytes = encode_manifest({}, listed, generation, true);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const FileHook& hook) {
  std::vector<CheckpointShard> shards;
  for (const CheckpointItem& item : checkpoint.items) {
    const Shape& shape = item.value.shape();
    shards.push_back({item.name, item.kind, shape, Shape(shape.size(), 0), 0, item.value});
  }
  auto attempt = [&]() -> Status {
    EPL_ASSIGN(const std::unique_ptr<CheckpointSave> save, CheckpointSave::begin(folder, 1, hook));
    const auto report = write_shard_file(folder, save->generation(), 0, shards, hook);
    const Status status = report.ok() ? save->finish(checkpoint, std::span(&*report, 1)) : report.status();
    if (!status.ok()) save->give_up(true);
    return status;
  };
  const Status status = attempt();
  return status.ok() ? status : status.with_context(cat("saving checkpoint ", shown_path(folder)));
}

namespace {

// Counts and hashes what goes through.
class HashedWriter final : public ByteWriter {
 public:
  explicit HashedWriter(ByteWriter& out) : out_(out) {}
  Status write(const void* data, size_t bytes) override {
    EPL_TRY(out_.write(data, bytes));
    hash_.add(data, bytes);
    bytes_ += bytes;
    return {};
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t hash() const { return hash_.value(); }

 private:
  ByteWriter& out_;
  Hash64 hash_;
  uint64_t bytes_ = 0;
};

}  // namespace

Status write_checkpoint(ByteWriter& out, const Checkpoint& checkpoint) {
  constexpr uint64_t generation = 1;
  ZipWriter archive(out);
  Listed listed;
  NamedTensors values;
  for (const CheckpointItem& item : checkpoint.items) {
    values.emplace_back(item.name, item.value);
    listed.entries.push_back({item.name, static_cast<uint8_t>(item.kind), {}, {{0, item.name, {}, 0}}});
  }
  const std::string name = tensors_name(generation, 0);
  EPL_TRY(archive.begin(name));
  HashedWriter tensors(archive);
  EPL_TRY(write_safetensors(tensors, values, {{"format", "epl checkpoint"}}));
  listed.files.push_back({name, tensors.bytes(), tensors.hash()});
  const std::vector<std::byte> manifest = encode_manifest(checkpoint, listed, generation);
  EPL_TRY(archive.begin(std::string(manifest_name)));
  EPL_TRY(archive.write(manifest.data(), manifest.size()));
  return archive.finish();
}

Status remove_checkpoint(const std::string& folder, const FileHook& hook) {
  const FolderLock lock(folder);
  EPL_ASSIGN(const std::vector<std::string> tensors, current_tensors(folder));
  if (tensors.empty()) {
    // Half of one is removed as well: what a killed save into a new folder has left.
    if (!has_note(folder)) return Status(Code::not_found, cat("no checkpoint in ", shown_path(folder)), folder);
    EPL_TRY(tidy_up(folder, hook));
    return remove_empty_folder(folder, hook);
  }
  EPL_TRY(tidy_up(folder, hook));  // what an earlier note names, which is about to be overwritten
  // The note first: whatever ends this half way, the next save knows whose the tensors are.
  EPL_TRY(write_note(cat(folder, "/", note_name), lines(tensors), hook));
  EPL_TRY(remove_file(cat(folder, "/", manifest_name), hook));
  EPL_TRY(tidy_up(folder, hook));
  return remove_empty_folder(folder, hook);
}

}  // namespace epl
