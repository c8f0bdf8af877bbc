// A checkpoint as it is read: from a folder or an archive, checked in full before anything is returned.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/formats/safetensors.h"
#include "core/formats/zip.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/checkpoint_manifest.h"

namespace epl {

Result<uint64_t> hash_of(const FileReader& file, const Stop& stop) {
  constexpr uint64_t chunk_bytes = 4 << 20;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(chunk_bytes, file.size())));
  Hash64 hash;
  for (uint64_t at = 0; at < file.size(); at += chunk_bytes) {
    const auto bytes = static_cast<size_t>(std::min(chunk_bytes, file.size() - at));
    EPL_TRY(stop.check());
    EPL_TRY(file.read(at, chunk.data(), bytes));
    hash.add(chunk.data(), bytes);
  }
  return hash.value();
}

Result<std::vector<std::byte>> read_manifest(const FileReader& file) {
  if (file.size() > max_manifest) return damaged_checkpoint(file.path(), cat("a manifest of ", file.size(), " bytes"));
  return file.read_all();
}

namespace {

// Whether two boxes have an element in common.
bool overlap(const Shape& a, const Shape& a_offset, const Shape& b, const Shape& b_offset) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (a_offset[d] + a[d] <= b_offset[d] || b_offset[d] + b[d] <= a_offset[d]) return false;
  }
  return true;
}

// A tensor of its shards, which must cover it once. Shards are left in their files.
Result<std::vector<PositionedBox>> assemble(const std::string& path, const Listed::Entry& entry,
                                            const std::vector<Tensor>& shards) {
  const auto refuse = [&](std::string_view why) {
    return damaged_checkpoint(path, cat("tensor ", shown(entry.name, 200), " ", why));
  };
  if (shards.empty()) return refuse("has no shards");
  if (is_full(entry) && entry.dims.empty()) return std::vector{PositionedBox::all(shards[0])};  // it says no size
  int64_t elements = 1, there = 0;
  for (const int64_t size : entry.dims) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return refuse("has a size that cannot be");
  }
  for (size_t p = 0; p < shards.size(); ++p) {
    const Shape &part = shards[p].shape(), &offset = entry.shards[p].offset;
    if (shards[p].dtype() != shards[0].dtype()) return refuse("has shards of several types");
    if (part.size() != entry.dims.size() || offset.size() != part.size())
      return refuse("has a shard of other dimensions");
    for (size_t d = 0; d < part.size(); ++d) {
      const bool within = offset[d] >= 0 && part[d] <= entry.dims[d] && offset[d] <= entry.dims[d] - part[d];
      if (!within) return refuse("has a shard that is not within it");
    }
    for (size_t q = 0; q < p; ++q) {
      const bool empty = shards[p].elements() == 0 || shards[q].elements() == 0;
      if (!empty && overlap(part, offset, shards[q].shape(), entry.shards[q].offset))
        return refuse("has shards that overlap");
    }
    there += shards[p].elements();
  }
  if (there != elements) return refuse(cat("has ", elements, " elements, its shards ", there));
  std::vector<PositionedBox> positioned;
  for (size_t p = 0; p < shards.size(); ++p) {
    positioned.push_back(PositionedBox::all(shards[p]));
    positioned.back().offset = entry.shards[p].offset;
  }
  return positioned;
}

}  // namespace

CheckpointFiles CheckpointFiles::in_folder(const std::string& folder) {
  return {folder, [folder](const std::string& file) { return FileReader::open(cat(folder, "/", file)); }, true};
}

Result<CheckpointFiles> CheckpointFiles::in_archive(std::shared_ptr<const FileReader> archive) {
  EPL_ASSIGN(std::vector<ZipEntry> entries, read_zip(*archive));
  const std::string name = archive->path();
  return CheckpointFiles{
      name, [archive, entries](const std::string& file) -> Result<std::shared_ptr<const FileReader>> {
        const auto found = std::ranges::find(entries, file, &ZipEntry::name);
        const std::string inside = cat(archive->path(), ": ", file);
        if (found == entries.end())
          return Status(Code::not_found, cat("the archive has no ", shown_path(file)), inside);
        if (found->deflated)
          return unsupported(shown_path(inside),
                             " is packed; a checkpoint holds its files as they are: unpack it into a folder");
        return FileReader::part_of(archive, inside, found->offset, found->size);
      }};
}

Result<CheckpointFiles> CheckpointFiles::at(const std::string& path) {
  if (is_folder(path)) return in_folder(path);
  auto file = FileReader::open(path);
  // A link may lead to a folder that is removed just now, and be pointed at another before it is.
  std::error_code ignored;
  if (!file.ok() && std::filesystem::is_symlink(path, ignored)) return in_folder(path);
  if (!file.ok()) return file.status().with_context(cat("no checkpoint in ", shown_path(path)));
  return in_archive(*std::move(file));
}

Result<Checkpoint> load_checkpoint(const std::string& path, const Stop& stop) {
  EPL_ASSIGN(const CheckpointFiles files, CheckpointFiles::at(path));
  return load_checkpoint(files, stop);
}

namespace {

// All files are opened before one is read: what is open stays, whatever a save removes.
Result<std::vector<std::shared_ptr<const FileReader>>> open_tensors(const CheckpointFiles& from, const Listed& listed) {
  std::vector<std::shared_ptr<const FileReader>> files;
  for (const Listed::File& one : listed.files) {
    EPL_ASSIGN(std::shared_ptr<const FileReader> data, from.open(one.name));
    if (data->size() != one.bytes)
      return damaged_checkpoint(data->path(), cat("it has ", data->size(), " bytes, the manifest says ", one.bytes));
    files.push_back(std::move(data));
  }
  return files;
}

Result<std::vector<std::byte>> find_manifest(const CheckpointFiles& from) {
  const auto manifest = from.open(std::string(manifest_name));
  if (manifest.status().code() == Code::not_found)
    return manifest.status().with_context(cat("no checkpoint in ", shown_path(from.name)));
  EPL_TRY(manifest.status());
  return read_manifest(**manifest);
}

Result<Checkpoint> load_listed(const CheckpointFiles& from, std::span<const std::byte> file, const Stop& stop) {
  const std::string path = cat(from.name, from.in_use ? "/" : ": ", manifest_name);
  EPL_ASSIGN(const manifest::Manifest* read, decode_manifest(path, file));
  EPL_ASSIGN(const Listed listed, list_manifest(path, *read));
  EPL_ASSIGN(const auto opened, open_tensors(from, listed));
  std::vector<std::shared_ptr<const Safetensors>> files;
  for (size_t f = 0; f < opened.size(); ++f) {
    EPL_ASSIGN(uint64_t hash, hash_of(*opened[f], stop));
    if (hash != listed.files[f].hash)
      return damaged_checkpoint(opened[f]->path(), "its hash is not the one in the manifest");
    EPL_ASSIGN(std::shared_ptr<const Safetensors> values, Safetensors::open(opened[f]));
    files.push_back(std::move(values));
  }

  Checkpoint out;
  out.content = hash64(file);
  out.step = read->step();
  out.seed = read->seed();
  out.units = read->units();
  out.numerics = read->numerics();
  out.data_position = read->data_position();
  if (out.step < 0 || out.data_position < -1)
    return damaged_checkpoint(path, cat("step ", out.step, ", data position ", out.data_position));
  if (read->facts()) {
    for (const manifest::Fact* fact : *read->facts()) out.facts[fact->key()->str()] = fact->value()->str();
  }
  size_t count = 0, held = 0;
  for (const auto& one : files) held += one->entries().size();
  for (const Listed::Entry& entry : listed.entries) count += entry.shards.size();
  if (count != held) return damaged_checkpoint(path, cat("it lists ", count, " tensors, its files hold ", held));
  std::set<const SafetensorsEntry*> taken;
  for (const Listed::Entry& entry : listed.entries) {
    std::vector<Tensor> shards;
    for (const Listed::Shard& shard : entry.shards) {
      const SafetensorsEntry* value = files[shard.file]->find(shard.key);
      if (value == nullptr)
        return damaged_checkpoint(
            path, cat("tensor ", shown(shard.key, 200), " is listed but not in ", listed.files[shard.file].name));
      if (!taken.insert(value).second)
        return damaged_checkpoint(path, cat("tensor ", shown(shard.key, 200), " is listed twice"));
      shards.push_back(files[shard.file]->tensor(*value));
    }
    EPL_ASSIGN(std::vector<PositionedBox> positioned, assemble(path, entry, shards));
    Tensor full = shards.size() == 1 ? shards[0] : joined({shards[0].dtype(), entry.dims}, positioned);
    out.items.push_back({entry.name, static_cast<StateKind>(entry.kind), std::move(full), std::move(positioned)});
  }
  return out;
}

// Where a path leads once links are followed; empty where it leads nowhere.
std::string target_of(const std::string& path) {
  std::error_code failure;
  return std::filesystem::canonical(path, failure).string();
}

}  // namespace

Result<Checkpoint> load_checkpoint(const CheckpointFiles& from, const Stop& stop) {
  // Between the manifest and the tensors that it names a save may replace both. That is seen by a manifest which is no
  // longer the one that was read, and then the new one is read.
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    EPL_TRY(stop.check());
    const std::string target = from.in_use ? target_of(from.name) : std::string();
    const auto manifest = find_manifest(from);
    Result<Checkpoint> loaded = manifest.ok() ? load_listed(from, *manifest, stop) : manifest.status();
    if (loaded.ok() || !from.in_use) return loaded;
    bool replaced = target != target_of(from.name);
    if (manifest.ok() && !replaced) {
      const auto now = find_manifest(from);
      replaced = now.ok() ? *now != *manifest : now.status().code() == Code::not_found;
    }
    if (!replaced) return loaded;
  }
  return Status(Code::busy,
                cat("saves replaced the checkpoint ", tries, " times while it was read; read one that stays"),
                from.name);
}

}  // namespace epl
