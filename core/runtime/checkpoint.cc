#include "core/runtime/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>

#include "checkpoint_generated.h"
#include "core/base/hash.h"
#include "core/data/safetensors.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t manifest_format = 1;
constexpr std::string_view manifest_name = "manifest.epl", tensors_prefix = "tensors-", tensors_suffix = ".safetensors";
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
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) names.push_back(it->path().filename().string());
  return names;
}

Status damaged(const std::string& file, std::string message) { return Status(Code::data_loss, cat("damaged checkpoint: ", message), file); }

// The manifest's bytes: the FlatBuffer and, after it, its XXH64.
std::vector<std::byte> encode(const Checkpoint& checkpoint, const std::string& tensors_file, uint64_t generation, uint64_t bytes, uint64_t hash) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<manifest::Entry>> entries;
  for (const CheckpointItem& item : checkpoint.items) {
    // With its length: a name may hold a zero, at which a C string would end.
    entries.push_back(manifest::CreateEntry(builder, builder.CreateString(item.name), static_cast<uint8_t>(item.kind)));
  }
  auto root = manifest::CreateManifestDirect(builder, manifest_format, checkpoint.numerics, generation, checkpoint.step, checkpoint.seed,
                                             checkpoint.units, checkpoint.data_position, tensors_file.c_str(), bytes, hash, &entries);
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
  if (bytes.size() <= sizeof expected || bytes.size() > largest_manifest) return damaged(path, cat("a manifest of ", bytes.size(), " bytes"));
  auto body = bytes.first(bytes.size() - sizeof expected);
  std::memcpy(&expected, bytes.data() + body.size(), sizeof expected);
  if (hash64(body) != expected) return damaged(path, "the manifest's hash does not fit its bytes");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(body.data()), body.size());
  if (!manifest::VerifyManifestBuffer(verifier)) return damaged(path, "the manifest's structure is not valid");
  const manifest::Manifest* read = manifest::GetManifest(body.data());
  if (read->format() > manifest_format) {
    return unsupported("checkpoint format ", read->format(), " is newer than ", manifest_format, ", which this library reads; use a newer library").at(path);
  }
  return read;
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  switch (kind) {
    case StateKind::parameter: return "parameter";
    case StateKind::frozen: return "frozen";
    case StateKind::buffer: return "buffer";
    case StateKind::optimizer: return "optimizer";
  }
  return "unknown";
}

Status save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const FileHook& hook) {
  if (folder.empty()) return invalid("a checkpoint needs a folder");
  EPL_TRY(make_folder(folder, hook));
  uint64_t generation = 1;
  for (const std::string& name : files_of(folder)) generation = std::max(generation, generation_of(name) + 1);
  const std::string tensors = cat(tensors_prefix, generation, tensors_suffix), tensors_path = cat(folder, "/", tensors);
  NamedTensors values;
  for (const CheckpointItem& item : checkpoint.items) values.emplace_back(item.name, item.value);
  auto attempt = [&]() -> Status {
    EPL_TRY(save_safetensors(tensors_path, values, {{"format", "epl checkpoint"}}, hook));
    EPL_ASSIGN(std::shared_ptr<const MappedFile> written, MappedFile::open(tensors_path));
    const std::vector<std::byte> bytes = encode(checkpoint, tensors, generation, written->bytes().size(), hash64(written->bytes()));
    return write_file_atomically(cat(folder, "/", manifest_name), [&](FileWriter& writer) { return writer.write(bytes.data(), bytes.size()); }, hook);
  };
  Status status = attempt();
  if (!status.ok()) {
    // The new manifest may be in place already, when only syncing its folder failed: then it needs its tensors.
    auto current = MappedFile::open(cat(folder, "/", manifest_name));
    auto read = current.ok() ? decode(folder, (*current)->bytes()) : Result<const manifest::Manifest*>(current.status());
    if (!read.ok() || (*read)->tensors_file()->str() != tensors) {
      std::error_code ignored;
      fs::remove(tensors_path, ignored);
    }
    return status.with_context(cat("saving checkpoint ", folder));
  }
  for (const std::string& name : files_of(folder)) {
    const bool leftover = name.ends_with(".part") && (name.starts_with(tensors_prefix) || name.starts_with(manifest_name));
    if (leftover || (generation_of(name) > 0 && name != tensors)) EPL_TRY(remove_file(cat(folder, "/", name), hook));
  }
  return {};
}

Result<Checkpoint> load_checkpoint(const std::string& folder) {
  const std::string path = cat(folder, "/", manifest_name);
  auto opened = MappedFile::open(path);
  if (!opened.ok()) return opened.status().with_context(cat("no checkpoint in ", folder));
  std::shared_ptr<const MappedFile> file = *opened;
  EPL_ASSIGN(const manifest::Manifest* read, decode(path, file->bytes()));
  const std::string tensors = read->tensors_file()->str();
  if (generation_of(tensors) == 0) return damaged(path, cat("it names ", epl::quoted(tensors.substr(0, 100)), " as its tensors"));
  const std::string tensors_path = cat(folder, "/", tensors);
  EPL_ASSIGN(std::shared_ptr<const MappedFile> data, MappedFile::open(tensors_path));
  if (data->bytes().size() != read->tensors_bytes()) {
    return damaged(tensors_path, cat("it has ", data->bytes().size(), " bytes, the manifest says ", read->tensors_bytes()));
  }
  if (hash64(data->bytes()) != read->tensors_hash()) return damaged(tensors_path, "its hash is not the one in the manifest");
  EPL_ASSIGN(std::shared_ptr<const Safetensors> values, Safetensors::parse(data->bytes(), data, tensors_path));

  Checkpoint out;
  out.step = read->step();
  out.seed = read->seed();
  out.units = read->units();
  out.numerics = read->numerics();
  out.data_position = read->data_position();
  if (out.step < 0 || out.data_position < -1) return damaged(path, cat("step ", out.step, ", data position ", out.data_position));
  const size_t count = read->entries() ? read->entries()->size() : 0;
  if (count != values->entries().size()) return damaged(path, cat("it lists ", count, " tensors, ", tensors, " holds ", values->entries().size()));
  std::set<std::string> seen;
  for (size_t i = 0; i < count; ++i) {
    const manifest::Entry* entry = read->entries()->Get(static_cast<flatbuffers::uoffset_t>(i));
    const std::string name = entry->name()->str();
    const SafetensorsEntry* value = values->find(name);
    if (value == nullptr) return damaged(path, cat("tensor \"", name, "\" is listed but not in ", tensors));
    if (!seen.insert(name).second) return damaged(path, cat("tensor \"", name, "\" is listed twice"));
    if (entry->kind() > static_cast<uint8_t>(StateKind::optimizer)) return damaged(path, cat("tensor \"", name, "\" is of kind ", entry->kind()));
    out.items.push_back({name, static_cast<StateKind>(entry->kind()), values->tensor(*value)});
  }
  return out;
}

}  // namespace epl
