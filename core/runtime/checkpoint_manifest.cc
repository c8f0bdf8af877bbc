#include "core/runtime/checkpoint_manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "core/base/hash.h"
#include "core/base/shown.h"

namespace epl {
namespace {

constexpr std::string_view tensors_prefix = "tensors-", tensors_suffix = ".safetensors";

// Bytes of a damaged file may lie anywhere: FlatBuffers' verifier looks at where a vector begins, not at its elements.
std::vector<int64_t> numbers(const flatbuffers::Vector<int64_t>& from) {
  std::vector<int64_t> out(from.size());
  if (!out.empty()) std::memcpy(out.data(), from.Data(), out.size() * sizeof(int64_t));
  for (int64_t& number : out) number = flatbuffers::EndianScalar(number);
  return out;
}

}  // namespace

std::string tensors_name(uint64_t generation, int file) {
  return cat(tensors_prefix, generation, file == 0 ? std::string() : cat(".", file), tensors_suffix);
}

uint64_t generation_of(const std::string& file) {
  if (!file.starts_with(tensors_prefix) || !file.ends_with(tensors_suffix)) return 0;
  const char* begin = file.data() + tensors_prefix.size();
  const char* end = file.data() + file.size() - tensors_suffix.size();
  uint64_t value = 0;
  auto [stop, failure] = std::from_chars(begin, end, value);
  int number = 0;
  if (failure == std::errc() && stop != end && *stop == '.') {
    const auto read = std::from_chars(stop + 1, end, number);
    stop = read.ptr, failure = number > 0 ? read.ec : std::errc::invalid_argument;
  }
  return failure == std::errc() && stop == end ? value : 0;
}

Status damaged_checkpoint(const std::string& file, std::string message) {
  return Status(Code::data_loss, cat("damaged checkpoint: ", message), file);
}

bool is_full(const Listed::Entry& entry) {
  return entry.shards.size() == 1 && entry.shards[0].file == 0 && entry.shards[0].key == entry.name;
}

std::vector<std::byte> encode_manifest(const Checkpoint& checkpoint, const Listed& listed, uint64_t generation,
                                       bool with_shards) {
  flatbuffers::FlatBufferBuilder builder;
  const bool plain = !with_shards && listed.files.size() == 1 && std::ranges::all_of(listed.entries, is_full);
  std::vector<flatbuffers::Offset<manifest::Entry>> entries;
  for (const Listed::Entry& entry : listed.entries) {
    // With its length: a name may hold a zero, at which a C string would end.
    if (plain) {
      entries.push_back(manifest::CreateEntry(builder, builder.CreateString(entry.name), entry.kind));
      continue;
    }
    std::vector<flatbuffers::Offset<manifest::Piece>> shards;
    for (const Listed::Shard& shard : entry.shards) {
      const auto key = builder.CreateString(shard.key);
      shards.push_back(manifest::CreatePiece(builder, shard.file, key, builder.CreateVector(shard.offset), shard.rank));
    }
    const auto name = builder.CreateString(entry.name);
    const auto dims = builder.CreateVector(entry.dims);
    entries.push_back(manifest::CreateEntry(builder, name, entry.kind, dims, builder.CreateVector(shards)));
  }
  std::vector<flatbuffers::Offset<manifest::Fact>> facts;
  for (const auto& [key, value] : checkpoint.facts)
    facts.push_back(manifest::CreateFactDirect(builder, key.c_str(), value.c_str()));
  std::vector<flatbuffers::Offset<manifest::File>> files;
  for (size_t f = 1; f < listed.files.size(); ++f) {
    const Listed::File& file = listed.files[f];
    files.push_back(manifest::CreateFileDirect(builder, file.name.c_str(), file.bytes, file.hash));
  }
  const bool known = !facts.empty();  // without any, the bytes are those of older versions
  const Listed::File& first = listed.files.front();
  auto root = manifest::CreateManifestDirect(builder, plain ? 1 : manifest_format, checkpoint.numerics, generation,
                                             checkpoint.step, checkpoint.seed, checkpoint.units,
                                             checkpoint.data_position, first.name.c_str(), first.bytes, first.hash,
                                             &entries, known ? &facts : nullptr, files.empty() ? nullptr : &files);
  manifest::FinishManifestBuffer(builder, root);
  const auto* start = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> out(start, start + builder.GetSize());
  const uint64_t own = hash64(out);
  const auto* tail = reinterpret_cast<const std::byte*>(&own);
  out.insert(out.end(), tail, tail + sizeof own);
  return out;
}

Result<const manifest::Manifest*> decode_manifest(const std::string& path, std::span<const std::byte> bytes) {
  uint64_t expected = 0;
  if (bytes.size() <= sizeof expected || bytes.size() > max_manifest)
    return damaged_checkpoint(path, cat("a manifest of ", bytes.size(), " bytes"));
  auto body = bytes.first(bytes.size() - sizeof expected);
  std::memcpy(&expected, bytes.data() + body.size(), sizeof expected);
  if (hash64(body) != expected) return damaged_checkpoint(path, "the manifest's hash does not fit its bytes");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(body.data()), body.size());
  if (!manifest::VerifyManifestBuffer(verifier))
    return damaged_checkpoint(path, "the manifest's structure is not valid");
  const manifest::Manifest* read = manifest::GetManifest(body.data());
  if (read->format() > manifest_format) {
    return unsupported("checkpoint format ", read->format(), " is newer than ", manifest_format,
                       ", which this library reads; use a newer library")
        .at(path);
  }
  return read;
}

Result<Listed> list_manifest(const std::string& path, const manifest::Manifest& read) {
  Listed out;
  out.files.push_back({read.tensors_file()->str(), read.tensors_bytes(), read.tensors_hash()});
  if (read.files()) {
    for (const manifest::File* file : *read.files())
      out.files.push_back({file->name()->str(), file->bytes(), file->hash()});
  }
  for (const Listed::File& file : out.files) {
    if (generation_of(file.name) == 0)
      return damaged_checkpoint(path, cat("it names ", quoted(excerpt(file.name, 100)), " as its tensors"));
  }
  std::set<std::string> seen;
  for (flatbuffers::uoffset_t e = 0; read.entries() && e < read.entries()->size(); ++e) {
    const manifest::Entry* entry = read.entries()->Get(e);
    Listed::Entry one{entry->name()->str(), entry->kind(), {}, {}};
    if (!seen.insert(one.name).second)
      return damaged_checkpoint(path, cat("tensor ", shown(one.name, 200), " is listed twice"));
    if (one.kind >= std::size(state_kinds) || !state_kind_row(static_cast<StateKind>(one.kind)).saved)
      return damaged_checkpoint(path, cat("tensor ", shown(one.name, 200), " is of kind ", one.kind));
    if (entry->dims()) one.dims = numbers(*entry->dims());
    if (!entry->pieces()) one.shards.push_back({0, one.name, {}, 0});
    for (flatbuffers::uoffset_t p = 0; entry->pieces() && p < entry->pieces()->size(); ++p) {
      const manifest::Piece* shard = entry->pieces()->Get(p);
      if (shard->file() >= out.files.size())
        return damaged_checkpoint(path, cat("a shard of tensor ", shown(one.name, 200), " is in file ", shard->file(),
                                            " of ", out.files.size()));
      one.shards.push_back({shard->file(), shard->key()->str(), {}, shard->rank()});
      if (shard->offset()) one.shards.back().offset = numbers(*shard->offset());
    }
    out.entries.push_back(std::move(one));
  }
  return out;
}

}  // namespace epl
