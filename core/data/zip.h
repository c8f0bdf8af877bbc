// Zip archives (APPNOTE.TXT 6.3, zip64 included) as far as numpy.savez writes them: entries stored or deflated.
#pragma once

#include <string>
#include <vector>

#include "core/base/file.h"

namespace epl {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of its bytes in the file
  uint64_t packed = 0, size = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

// The entries of the archive's directory, in its order. Every range lies inside the file.
Result<std::vector<ZipEntry>> read_zip(const FileReader& file);
// The bytes of an entry, inflated if need be; its sum is checked.
Result<std::vector<std::byte>> read_zip_entry(const FileReader& file, const ZipEntry& entry);

}  // namespace epl
