// Checkpoints: whatever stands in the folder, an error or a checkpoint whose tensors can be read and which is the same
// after a save.
//
// An input is one byte of flags, the size of the manifest as four bytes (little-endian), the manifest without its hash
// and the tensors file. A changed byte fits no hash, and a reader that stops there would never be tried further: with
// flag 1 the manifest gets its true hash, with flag 2 it gets size and hash of the tensors.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint_generated.h"
#include "core/base/hash.h"
#include "core/runtime/checkpoint.h"
#include "tests/temporary_folder.h"

namespace {

using Bytes = std::vector<std::byte>;
namespace fs = std::filesystem;

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) std::abort();
}

// Puts the tensors' size and hash into a manifest that has these fields.
void sign_tensors(Bytes& manifest, std::span<const std::byte> tensors) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(manifest.data()), manifest.size());
  if (!epl::manifest::VerifyManifestBuffer(verifier)) return;
  auto* table = flatbuffers::GetMutableRoot<flatbuffers::Table>(manifest.data());
  table->SetField<uint64_t>(epl::manifest::Manifest::VT_TENSORS_BYTES, tensors.size(), 0);
  table->SetField<uint64_t>(epl::manifest::Manifest::VT_TENSORS_HASH, epl::hash64(tensors), 0);
}

bool same(const epl::Checkpoint& a, const epl::Checkpoint& b) {
  if (a.step != b.step || a.seed != b.seed || a.units != b.units || a.numerics != b.numerics ||
      a.data_position != b.data_position)
    return false;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (a.items[i].name != b.items[i].name || a.items[i].kind != b.items[i].kind) return false;
    if (!epl::identical(a.items[i].value, b.items[i].value)) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const epl::TemporaryFolder folder(true);  // in memory: a save waits for the disk
  constexpr size_t head = 5;
  if (size < head) return 0;
  uint32_t manifest_size = 0;
  std::memcpy(&manifest_size, data + 1, sizeof manifest_size);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const size_t split = head + std::min<size_t>(manifest_size, size - head);
  Bytes manifest(bytes + head, bytes + split);
  const std::span<const std::byte> tensors(bytes + split, size - split);
  if (data[0] & 2) sign_tensors(manifest, tensors);
  if (data[0] & 1) {
    const uint64_t hash = epl::hash64(manifest);
    const auto* tail = reinterpret_cast<const std::byte*>(&hash);
    manifest.insert(manifest.end(), tail, tail + sizeof hash);
  }
  const std::string loaded_folder = folder.path() + "/a", saved_folder = folder.path() + "/b";
  fs::create_directory(loaded_folder);
  write_file(loaded_folder + "/manifest.epl", manifest);
  write_file(loaded_folder + "/tensors-7.safetensors", tensors);
  auto loaded = epl::load_checkpoint(loaded_folder);
  if (!loaded.ok()) return 0;
  if (!epl::save_checkpoint(saved_folder, *loaded).ok()) std::abort();
  auto again = epl::load_checkpoint(saved_folder);
  if (!again.ok() || !same(*loaded, *again)) std::abort();
  return 0;
}
