// Zip archives (APPNOTE.TXT 6.3, zip64 included) as far as numpy.savez and the writer below write them: entries stored
// or deflated.
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

// Writes an archive of stored entries from its beginning to its end, without going back: what an entry's bytes are is
// known behind them. Sizes are those of zip64 where they need it.
class ZipWriter final : public ByteWriter {
 public:
  explicit ZipWriter(ByteWriter& out) : out_(out) {}
  // An entry begins; what `write` is given belongs to it until the next one begins.
  Status begin(std::string name);
  Status write(const void* data, size_t bytes) override;
  // Ends the last entry, and writes the directory. The stream below is not finished.
  Status finish() override;

 private:
  Status put(const std::string& record);
  Status end_entry();
  ByteWriter& out_;
  uint64_t at_ = 0;
  std::vector<ZipEntry> entries_;  // their offsets are those of their headers
  bool open_ = false;
};

}  // namespace epl
