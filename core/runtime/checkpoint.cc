#include "core/runtime/checkpoint.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "core/base/hash.h"
#include "core/data/safetensors.h"
#include "core/data/zip.h"
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

// In chunks: a checkpoint may be larger than what memory is left.
Result<uint64_t> hash_of(const FileReader& file, const Stop& stop = {}) {
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

Result<std::vector<std::byte>> read_manifest(const std::string& path) {
  EPL_ASSIGN(const std::shared_ptr<const FileReader> file, FileReader::open(path));
  return read_manifest(*file);
}

// Copies a piece into its place in the full tensor.
Status put_piece(const Tensor& piece, const Shape& offset, Tensor& full) {
  EPL_ASSIGN(const Tensor from, piece.load());
  const Shape &part = from.shape(), &all = full.shape();
  const auto size = static_cast<int64_t>(dtype_bytes(full.dtype()));
  const int64_t row = part.empty() ? 1 : part.back();
  const int64_t rows = row == 0 ? 0 : from.elements() / row;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t at = 0, rest = r, stride = part.empty() ? 0 : all.back();
    if (!part.empty()) at = offset.back();
    for (size_t d = part.size(); d-- > 1;) {
      at += (rest % part[d - 1] + offset[d - 1]) * stride;
      rest /= part[d - 1];
      stride *= all[d - 1];
    }
    std::memcpy(static_cast<std::byte*>(full.data()) + at * size,
                static_cast<const std::byte*>(from.data()) + r * row * size, static_cast<size_t>(row * size));
  }
  return {};
}

// Whether two boxes have an element in common.
bool overlap(const Shape& a, const Shape& a_offset, const Shape& b, const Shape& b_offset) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (a_offset[d] + a[d] <= b_offset[d] || b_offset[d] + b[d] <= a_offset[d]) return false;
  }
  return true;
}

// A tensor of its pieces, which must cover it once. One that is complete is left in its file.
Result<Tensor> assemble(const std::string& path, const Listed::Entry& entry, const std::vector<Tensor>& pieces) {
  const auto refuse = [&](std::string_view why) {
    return damaged_checkpoint(path, cat("tensor \"", entry.name, "\" ", why));
  };
  if (pieces.empty()) return refuse("has no pieces");
  if (is_full(entry) && entry.dims.empty()) return pieces[0];  // it says nothing of its size
  int64_t elements = 1, there = 0;
  for (const int64_t size : entry.dims) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return refuse("has a size that cannot be");
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Shape &part = pieces[p].shape(), &offset = entry.pieces[p].offset;
    if (pieces[p].dtype() != pieces[0].dtype()) return refuse("has pieces of several types");
    if (part.size() != entry.dims.size() || offset.size() != part.size())
      return refuse("has a piece of other dimensions");
    for (size_t d = 0; d < part.size(); ++d) {
      const bool within = offset[d] >= 0 && part[d] <= entry.dims[d] && offset[d] <= entry.dims[d] - part[d];
      if (!within) return refuse("has a piece that is not within it");
    }
    for (size_t q = 0; q < p; ++q) {
      const bool empty = pieces[p].elements() == 0 || pieces[q].elements() == 0;
      if (!empty && overlap(part, offset, pieces[q].shape(), entry.pieces[q].offset))
        return refuse("has pieces that overlap");
    }
    there += pieces[p].elements();
  }
  if (there != elements) return refuse(cat("has ", elements, " elements, its pieces ", there));
  if (pieces.size() == 1) return pieces[0];
  Tensor full(TensorType{pieces[0].dtype(), entry.dims});
  for (size_t p = 0; p < pieces.size(); ++p) EPL_TRY(put_piece(pieces[p], entry.pieces[p].offset, full));
  return full;
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
    case StateKind::gradient:
      return "gradient";
    case StateKind::optimizer:
      return "optimizer";
  }
  return "unknown";
}

namespace {

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
                cat(folder, " is not empty and holds no checkpoint (", quoted(names.front()),
                    " lies there); give a checkpoint a folder of its own"),
                folder);
}

}  // namespace

Result<std::unique_ptr<CheckpointSave>> CheckpointSave::begin(const std::string& folder, int parts,
                                                              const FileHook& hook) {
  if (folder.empty()) return invalid("a checkpoint needs a folder");
  const bool was_there = is_folder(folder);
  EPL_TRY(make_folder(folder, hook));
  std::unique_ptr<CheckpointSave> save(new CheckpointSave(folder, parts, hook));
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
    for (int part = 0; part < parts; ++part) named.push_back(tensors_name(save->generation_, part));
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

void remove_checkpoint_part(const std::string& folder, uint64_t generation, int part) {
  static_cast<void>(remove_file(cat(folder, "/", tensors_name(generation, part))));
  static_cast<void>(remove_empty_folder(folder));
}

Status CheckpointSave::finish(const Checkpoint& checkpoint, std::span<const std::string> parts) {
  Listed all;
  std::map<std::string, size_t> by_name;
  for (const std::string& part : parts) {
    EPL_ASSIGN(const manifest::Manifest* read, decode_manifest(folder_, std::as_bytes(std::span(part))));
    EPL_ASSIGN(Listed one, list_manifest(folder_, *read));
    const auto file = static_cast<uint32_t>(all.files.size());
    all.files.push_back(one.files.front());
    for (Listed::Entry& entry : one.entries) {
      for (Listed::Piece& piece : entry.pieces) piece.file = file;
      const auto [known, is_new] = by_name.emplace(entry.name, all.entries.size());
      if (is_new) {
        all.entries.push_back(std::move(entry));
        continue;
      }
      Listed::Entry& other = all.entries[known->second];
      if (other.kind != entry.kind || other.dims != entry.dims)
        return error(Code::misuse, "processes disagree about what ", entry.name, " is");
      other.pieces.insert(other.pieces.end(), entry.pieces.begin(), entry.pieces.end());
    }
  }
  if (all.files.empty()) return invalid("a checkpoint of no parts");
  const std::vector<std::byte> bytes = encode_manifest(checkpoint, all, generation_);
  EPL_TRY(write_file_atomically(
      cat(folder_, "/", manifest_name), [&](FileWriter& writer) { return writer.write(bytes.data(), bytes.size()); },
      hook_));
  return tidy_up(folder_, hook_);
}

Result<std::string> write_checkpoint_part(const std::string& folder, uint64_t generation, int part,
                                          std::span<const CheckpointPiece> pieces, const FileHook& hook) {
  Listed listed;
  NamedTensors values;
  std::map<std::string, size_t> by_name;
  for (const CheckpointPiece& piece : pieces) {
    const auto [known, is_new] = by_name.emplace(piece.name, listed.entries.size());
    if (is_new) listed.entries.push_back({piece.name, static_cast<uint8_t>(piece.kind), piece.full, {}});
    std::string key = piece.name;
    if (piece.value.shape() != piece.full) {
      for (const int64_t at : piece.offset) key += cat("@", at);
    }
    values.emplace_back(key, piece.value);
    listed.entries[known->second].pieces.push_back(
        {0, std::move(key), piece.offset, static_cast<uint32_t>(piece.rank)});
  }
  const std::string name = tensors_name(generation, part), path = cat(folder, "/", name);
  EPL_TRY(save_safetensors(path, values, {{"format", "epl checkpoint"}}, hook));
  EPL_ASSIGN(std::shared_ptr<const FileReader> written, FileReader::open(path));
  EPL_ASSIGN(const uint64_t hash, hash_of(*written));
  listed.files.push_back({name, written->size(), hash});
  const std::vector<std::byte> bytes = encode_manifest({}, listed, generation, true);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const FileHook& hook) {
  std::vector<CheckpointPiece> pieces;
  for (const CheckpointItem& item : checkpoint.items) {
    const Shape& shape = item.value.shape();
    pieces.push_back({item.name, item.kind, shape, Shape(shape.size(), 0), 0, item.value});
  }
  auto attempt = [&]() -> Status {
    EPL_ASSIGN(const std::unique_ptr<CheckpointSave> save, CheckpointSave::begin(folder, 1, hook));
    const auto part = write_checkpoint_part(folder, save->generation(), 0, pieces, hook);
    const Status status = part.ok() ? save->finish(checkpoint, std::span(&*part, 1)) : part.status();
    if (!status.ok()) save->give_up(true);
    return status;
  };
  const Status status = attempt();
  return status.ok() ? status : status.with_context(cat("saving checkpoint ", folder));
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

CheckpointFiles CheckpointFiles::in_folder(const std::string& folder) {
  return {folder, [folder](const std::string& file) { return FileReader::open(cat(folder, "/", file)); }};
}

Result<CheckpointFiles> CheckpointFiles::in_archive(std::shared_ptr<const FileReader> archive) {
  EPL_ASSIGN(std::vector<ZipEntry> entries, read_zip(*archive));
  const std::string name = archive->path();
  return CheckpointFiles{
      name, [archive, entries](const std::string& file) -> Result<std::shared_ptr<const FileReader>> {
        const auto found = std::ranges::find(entries, file, &ZipEntry::name);
        const std::string place = cat(archive->path(), ": ", file);
        if (found == entries.end()) return Status(Code::not_found, cat("the archive has no ", file), place);
        if (found->deflated)
          return unsupported(place, " is packed; a checkpoint holds its files as they are: unpack it into a folder");
        return FileReader::part_of(archive, place, found->offset, found->size);
      }};
}

Result<CheckpointFiles> CheckpointFiles::at(const std::string& path) {
  if (is_folder(path)) return in_folder(path);
  auto file = FileReader::open(path);
  if (!file.ok()) return file.status().with_context(cat("no checkpoint in ", path));
  return in_archive(*std::move(file));
}

Status remove_checkpoint(const std::string& folder, const FileHook& hook) {
  const FolderLock turn(folder);
  EPL_ASSIGN(const std::vector<std::string> tensors, current_tensors(folder));
  if (tensors.empty()) {
    // Half of one is removed as well: what a killed save into a new folder has left.
    if (!has_note(folder)) return Status(Code::not_found, cat("no checkpoint in ", folder), folder);
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

Result<Checkpoint> load_checkpoint(const std::string& path, const Stop& stop) {
  EPL_ASSIGN(const CheckpointFiles files, CheckpointFiles::at(path));
  return load_checkpoint(files, stop);
}

Result<Checkpoint> load_checkpoint(const CheckpointFiles& from, const Stop& stop) {
  const auto manifest = from.open(std::string(manifest_name));
  if (manifest.status().code() == Code::not_found)
    return manifest.status().with_context(cat("no checkpoint in ", from.name));
  EPL_TRY(manifest.status());
  const std::string path = (*manifest)->path();
  EPL_ASSIGN(const std::vector<std::byte> file, read_manifest(**manifest));
  EPL_ASSIGN(const manifest::Manifest* read, decode_manifest(path, file));
  EPL_ASSIGN(const Listed listed, list_manifest(path, *read));
  std::vector<std::shared_ptr<const Safetensors>> files;
  for (const Listed::File& one : listed.files) {
    EPL_ASSIGN(std::shared_ptr<const FileReader> data, from.open(one.name));
    const std::string& place = data->path();
    if (data->size() != one.bytes)
      return damaged_checkpoint(place, cat("it has ", data->size(), " bytes, the manifest says ", one.bytes));
    EPL_ASSIGN(uint64_t hash, hash_of(*data, stop));
    if (hash != one.hash) return damaged_checkpoint(place, "its hash is not the one in the manifest");
    EPL_ASSIGN(std::shared_ptr<const Safetensors> values, Safetensors::open(data));
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
  for (const Listed::Entry& entry : listed.entries) count += entry.pieces.size();
  if (count != held) return damaged_checkpoint(path, cat("it lists ", count, " tensors, its files hold ", held));
  std::set<const SafetensorsEntry*> taken;
  for (const Listed::Entry& entry : listed.entries) {
    std::vector<Tensor> pieces;
    for (const Listed::Piece& piece : entry.pieces) {
      const SafetensorsEntry* value = files[piece.file]->find(piece.key);
      if (value == nullptr)
        return damaged_checkpoint(
            path, cat("tensor \"", piece.key, "\" is listed but not in ", listed.files[piece.file].name));
      if (!taken.insert(value).second)
        return damaged_checkpoint(path, cat("tensor \"", piece.key, "\" is listed twice"));
      pieces.push_back(files[piece.file]->tensor(*value));
    }
    EPL_ASSIGN(Tensor full, assemble(path, entry, pieces));
    out.items.push_back({entry.name, static_cast<StateKind>(entry.kind), std::move(full)});
  }
  return out;
}

}  // namespace epl
