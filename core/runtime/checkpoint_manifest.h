// The manifest of a checkpoint as bytes: a FlatBuffer (checkpoint.fbs) and its XXH64. core/runtime/checkpoint.cc and
// checkpoint_load.cc alone use it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint_generated.h"
#include "core/runtime/checkpoint.h"

namespace epl {

inline constexpr uint32_t manifest_format = 2;  // 1: one file, in which every tensor is complete
inline constexpr std::string_view manifest_name = "manifest.epl";
inline constexpr size_t max_manifest = size_t{1} << 30;

// "tensors-12.safetensors", and of further processes "tensors-12.3.safetensors".
std::string tensors_name(uint64_t generation, int file);
// The generation in such a name, 0 for other names.
uint64_t generation_of(const std::string& file);
Status damaged_checkpoint(const std::string& file, std::string message);

// What a manifest says of tensors.
struct Listed {
  struct Shard {
    uint32_t file = 0;
    std::string key;
    Shape offset;
    uint32_t rank = 0;
  };
  struct Entry {
    std::string name;
    uint8_t kind = 0;
    Shape dims;
    std::vector<Shard> shards;
  };
  struct File {
    std::string name;
    uint64_t bytes = 0, hash = 0;
  };
  std::vector<File> files;
  std::vector<Entry> entries;
};

// Whether the first file has it in one piece.
bool is_full(const Listed::Entry& entry);

// Of a file's bytes, read in chunks: a checkpoint may be larger than what memory is left.
Result<uint64_t> hash_of(const FileReader& file, const Stop& stop = {});
Result<std::vector<std::byte>> read_manifest(const FileReader& file);

// The manifest's bytes. Where every tensor is complete and in one file they are those of format 1.
std::vector<std::byte> encode_manifest(const Checkpoint& checkpoint, const Listed& listed, uint64_t generation,
                                       bool with_shards = false);
// Of bytes that are kept; errors name `path`.
Result<const manifest::Manifest*> decode_manifest(const std::string& path, std::span<const std::byte> bytes);
Result<Listed> list_manifest(const std::string& path, const manifest::Manifest& read);

}  // namespace epl
