#include "core/runtime/checkpoint.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

#include "checkpoint_generated.h"
#include "core/base/hash.h"
#include "core/data/safetensors.h"

namespace epl {
namespace {

constexpr uint32_t manifest_format = 1;
constexpr std::string_view manifest_name = "manifest.epl", tensors_prefix = "tensors-", tensors_suffix = ".safetensors",
                           note_name = "saving.epl";
constexpr size_t largest_manifest = size_t{1} << 30;

// The generation in "tensors-12.safetensors", 0 for other names.
uint64_t generation_of(const std::string& file) {
  if (!file.starts_with(tensors_prefix) || !file.ends_with(tensors_suffix)) return 0;
  const char* begin = file.data() + tensors_prefix.size();
  const char* end = file.data() + file.size() - tensors_suffix.size();
  uint64_t value = 0;
  auto [stop, failure] = std::from_chars(begin, end, value);
  return failure == std::errc() && stop == end ? value : 0;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

Status damaged(const std::string& file, std::string message) {
  return Status(Code::data_loss, cat("damaged checkpoint: ", message), file);
}

// In pieces: a checkpoint may be larger than what memory is left.
Result<uint64_t> hash_of(const FileReader& file) {
  constexpr uint64_t piece_bytes = 4 << 20;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(piece_bytes, file.size())));
  Hash64 hash;
  for (uint64_t at = 0; at < file.size(); at += piece_bytes) {
    const auto bytes = static_cast<size_t>(std::min(piece_bytes, file.size() - at));
    EPL_TRY(file.read(at, piece.data(), bytes));
    hash.add(piece.data(), bytes);
  }
  return hash.value();
}

Result<std::vector<std::byte>> read_manifest(const std::string& path) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(path));
  if (file->size() > largest_manifest) return damaged(path, cat("a manifest of ", file->size(), " bytes"));
  return file->read_all();
}

// The manifest's bytes: the FlatBuffer and, after it, its XXH64.
std::vector<std::byte> encode(const Checkpoint& checkpoint, const std::string& tensors_file, uint64_t generation,
                              uint64_t bytes, uint64_t hash) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<manifest::Entry>> entries;
  for (const CheckpointItem& item : checkpoint.items) {
    // With its length: a name may hold a zero, at which a C string would end.
    entries.push_back(manifest::CreateEntry(builder, builder.CreateString(item.name), static_cast<uint8_t>(item.kind)));
  }
  std::vector<flatbuffers::Offset<manifest::Fact>> facts;
  for (const auto& [key, value] : checkpoint.facts)
    facts.push_back(manifest::CreateFactDirect(builder, key.c_str(), value.c_str()));
  const bool known = !facts.empty();  // without any, the bytes are those of older versions
  auto root = manifest::CreateManifestDirect(builder, manifest_format, checkpoint.numerics, generation, checkpoint.step,
                                             checkpoint.seed, checkpoint.units, checkpoint.data_position,
                                             tensors_file.c_str(), bytes, hash, &entries, known ? &facts : nullptr);
  manifest::FinishManifestBuffer(builder, root);
  const auto* start = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> out(start, start + builder.GetSize());
  const uint64_t own = hash64(out);
  const auto* tail = reinterpret_cast<const std::byte*>(&own);
  out.insert(out.end(), tail, tail + sizeof own);
  return out;
}

Result<const manifest::Manifest*> decode(const std::string& path, std::span<const std::byte> bytes) {
  uint64_t expected = 0;
  if (bytes.size() <= sizeof expected || bytes.size() > largest_manifest)
    return damaged(path, cat("a manifest of ", bytes.size(), " bytes"));
  auto body = bytes.first(bytes.size() - sizeof expected);
  std::memcpy(&expected, bytes.data() + body.size(), sizeof expected);
  if (hash64(body) != expected) return damaged(path, "the manifest's hash does not fit its bytes");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(body.data()), body.size());
  if (!manifest::VerifyManifestBuffer(verifier)) return damaged(path, "the manifest's structure is not valid");
  const manifest::Manifest* read = manifest::GetManifest(body.data());
  if (read->format() > manifest_format) {
    return unsupported("checkpoint format ", read->format(), " is newer than ", manifest_format,
                       ", which this library reads; use a newer library")
        .at(path);
  }
  return read;
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  switch (kind) {
    case StateKind::parameter:
      return "parameter";
    case StateKind::frozen:
      return "frozen";
    case StateKind::buffer:
      return "buffer";
    case StateKind::optimizer:
      return "optimizer";
  }
  return "unknown";
}

namespace {

// The tensors file that the manifest in a folder names; "" where there is no manifest, or a damaged one. One that
// cannot be read just now is an error: what it names may be all that there is.
Result<std::string> current_tensors(const std::string& folder) {
  const auto file = read_manifest(cat(folder, "/", manifest_name));
  if (!file.ok()) return file.status().code() == Code::not_found ? Result<std::string>(std::string()) : file.status();
  auto read = decode(folder, *file);
  return read.ok() ? (*read)->tensors_file()->str() : std::string();
}

// Not synced: half a note names nothing, and nothing has been written by then.
Status write_note(const std::string& path, const std::string& text, const FileHook& hook) {
  EPL_ASSIGN(std::unique_ptr<FileWriter> writer, FileWriter::create(path, hook));
  return writer->write(text.data(), text.size());
}

// What a save that was killed left behind: the note that it wrote, and what the note names, but for what counts.
Status tidy_up(const std::string& folder, const FileHook& hook) {
  const std::string note = cat(folder, "/", note_name);
  const auto file = FileReader::open(note);
  if (!file.ok()) return file.status().code() == Code::not_found ? Status() : file.status();
  std::string text(static_cast<size_t>(std::min<uint64_t>((*file)->size(), 1000)), '\0');
  EPL_TRY((*file)->read(0, text.data(), text.size()));
  EPL_ASSIGN(const std::string current, current_tensors(folder));
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string name = text.substr(begin, end - begin);
    if (generation_of(name) == 0) continue;
    EPL_TRY(remove_file(cat(folder, "/", name, ".part"), hook));
    if (name != current) EPL_TRY(remove_file(cat(folder, "/", name), hook));
  }
  EPL_TRY(remove_file(cat(folder, "/", manifest_name, ".part"), hook));
  return remove_file(note, hook);
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
                cat(folder, " is not empty and holds no checkpoint (", epl::quoted(names.front()),
                    " lies there); give a checkpoint a folder of its own"),
                folder);
}

}  // namespace

Status save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const FileHook& hook) {
  if (folder.empty()) return invalid("a checkpoint needs a folder");
  EPL_TRY(make_folder(folder, hook));
  const FolderLock turn(folder);
  EPL_TRY(check_is_ours(folder));
  EPL_TRY(tidy_up(folder, hook));
  uint64_t generation = 1;
  for (std::string name : files_of(folder)) {
    if (name.ends_with(".part")) name.resize(name.size() - 5);
    generation = std::max(generation, generation_of(name) + 1);
  }
  EPL_ASSIGN(const std::string old, current_tensors(folder));
  const std::string tensors = cat(tensors_prefix, generation, tensors_suffix), tensors_path = cat(folder, "/", tensors);
  NamedTensors values;
  for (const CheckpointItem& item : checkpoint.items) values.emplace_back(item.name, item.value);
  auto attempt = [&]() -> Status {
    EPL_TRY(write_note(cat(folder, "/", note_name), cat(tensors, "\n", old, "\n"), hook));
    EPL_TRY(save_safetensors(tensors_path, values, {{"format", "epl checkpoint"}}, hook));
    EPL_ASSIGN(std::shared_ptr<const FileReader> written, FileReader::open(tensors_path));
    EPL_ASSIGN(uint64_t hash, hash_of(*written));
    const std::vector<std::byte> bytes = encode(checkpoint, tensors, generation, written->size(), hash);
    return write_file_atomically(
        cat(folder, "/", manifest_name), [&](FileWriter& writer) { return writer.write(bytes.data(), bytes.size()); },
        hook);
  };
  if (Status status = attempt(); !status.ok()) {
    // The new manifest may be in place already, when only syncing its folder failed: then the next save tidies up.
    const auto now = current_tensors(folder);
    if (now.ok() && *now != tensors) (void)tidy_up(folder, nullptr);
    return status.with_context(cat("saving checkpoint ", folder));
  }
  return tidy_up(folder, hook);
}

Status remove_checkpoint(const std::string& folder, const FileHook& hook) {
  const FolderLock turn(folder);
  EPL_ASSIGN(const std::string tensors, current_tensors(folder));
  if (tensors.empty()) {
    // Half of one is removed as well: what a killed save into a new folder has left.
    if (!has_note(folder)) return Status(Code::not_found, cat("no checkpoint in ", folder), folder);
    EPL_TRY(tidy_up(folder, hook));
    return remove_empty_folder(folder, hook);
  }
  EPL_TRY(tidy_up(folder, hook));  // what an earlier note names, which is about to be overwritten
  // The note first: whatever ends this half way, the next save knows whose the tensors are.
  EPL_TRY(write_note(cat(folder, "/", note_name), cat(tensors, "\n"), hook));
  EPL_TRY(remove_file(cat(folder, "/", manifest_name), hook));
  EPL_TRY(tidy_up(folder, hook));
  return remove_empty_folder(folder, hook);
}

Result<Checkpoint> load_checkpoint(const std::string& folder) {
  const std::string path = cat(folder, "/", manifest_name);
  auto file = read_manifest(path);
  if (!file.ok()) return file.status().with_context(cat("no checkpoint in ", folder));
  EPL_ASSIGN(const manifest::Manifest* read, decode(path, *file));
  const std::string tensors = read->tensors_file()->str();
  if (generation_of(tensors) == 0)
    return damaged(path, cat("it names ", epl::quoted(excerpt(tensors, 100)), " as its tensors"));
  const std::string tensors_path = cat(folder, "/", tensors);
  EPL_ASSIGN(std::shared_ptr<const FileReader> data, FileReader::open(tensors_path));
  if (data->size() != read->tensors_bytes()) {
    return damaged(tensors_path, cat("it has ", data->size(), " bytes, the manifest says ", read->tensors_bytes()));
  }
  EPL_ASSIGN(uint64_t hash, hash_of(*data));
  if (hash != read->tensors_hash()) return damaged(tensors_path, "its hash is not the one in the manifest");
  EPL_ASSIGN(std::shared_ptr<const Safetensors> values, Safetensors::open(data));

  Checkpoint out;
  out.step = read->step();
  out.seed = read->seed();
  out.units = read->units();
  out.numerics = read->numerics();
  out.data_position = read->data_position();
  if (out.step < 0 || out.data_position < -1)
    return damaged(path, cat("step ", out.step, ", data position ", out.data_position));
  if (read->facts()) {
    for (const manifest::Fact* fact : *read->facts()) out.facts[fact->key()->str()] = fact->value()->str();
  }
  const size_t count = read->entries() ? read->entries()->size() : 0;
  if (count != values->entries().size())
    return damaged(path, cat("it lists ", count, " tensors, ", tensors, " holds ", values->entries().size()));
  std::set<std::string> seen;
  for (size_t i = 0; i < count; ++i) {
    const manifest::Entry* entry = read->entries()->Get(static_cast<flatbuffers::uoffset_t>(i));
    const std::string name = entry->name()->str();
    const SafetensorsEntry* value = values->find(name);
    if (value == nullptr) return damaged(path, cat("tensor \"", name, "\" is listed but not in ", tensors));
    if (!seen.insert(name).second) return damaged(path, cat("tensor \"", name, "\" is listed twice"));
    if (entry->kind() > static_cast<uint8_t>(StateKind::optimizer))
      return damaged(path, cat("tensor \"", name, "\" is of kind ", entry->kind()));
    out.items.push_back({name, static_cast<StateKind>(entry->kind()), values->tensor(*value)});
  }
  return out;
}

}  // namespace epl
