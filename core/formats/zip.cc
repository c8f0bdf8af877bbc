#include "core/formats/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "core/base/shown.h"

namespace epl {
namespace {

Status damaged_zip(const FileReader& file, std::string message) {
  return Status(Code::data_loss, cat("not a zip archive: ", message), file.path());
}

// Little-endian fields of a record.
class Record {
 public:
  explicit Record(std::string_view bytes) : bytes_(bytes) {}
  bool has(size_t bytes) const { return bytes_.size() >= bytes; }
  template <class T> T take() {
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes_[i])) << (8 * i)));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view text(size_t bytes) {
    const std::string_view out = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return out;
  }

 private:
  std::string_view bytes_;
};

uLong add_to_sum(uLong sum, const void* data, size_t bytes) {
  const auto* from = static_cast<const Bytef*>(data);
  for (size_t at = 0; at < bytes; at += 1 << 30)
    sum = crc32(sum, from + at, static_cast<uInt>(std::min<size_t>(bytes - at, 1 << 30)));
  return sum;
}

struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

Status bytes_at(const FileReader& file, uint64_t offset, uint64_t bytes, std::string_view what, std::string& out) {
  if (offset > file.size() || bytes > file.size() - offset)
    return damaged_zip(file, cat(what, " lies outside the file; is it truncated?"));
  out.resize(bytes);
  return file.read(offset, out.data(), out.size());
}

// From the record at the end of the file, behind which a comment may stand.
Result<Directory> find_directory(const FileReader& file) {
  constexpr uint64_t record = 22, max_comment = 65535;
  const uint64_t tail_bytes = std::min<uint64_t>(file.size(), record + max_comment);
  std::string tail, locator, large;
  EPL_TRY(bytes_at(file, file.size() - tail_bytes, tail_bytes, "the end", tail));
  const size_t found = tail.rfind("PK\x05\x06");
  if (found == std::string::npos || tail.size() - found < record)
    return damaged_zip(file, "it has no directory at its end; is it truncated?");
  Record end(std::string_view(tail).substr(found + 4));
  end.text(6);  // the numbers of disks, and of entries on this one
  Directory out;
  out.entries = end.take<uint16_t>();
  out.bytes = end.take<uint32_t>();
  out.offset = end.take<uint32_t>();
  if (out.entries != 0xffff && out.bytes != 0xffffffff && out.offset != 0xffffffff) return out;
  // Numbers that do not fit stand in another record, which a locator in front of this one points to.
  const uint64_t here = file.size() - tail_bytes + found;
  if (here < 20) return damaged_zip(file, "its directory is too large for its record");
  EPL_TRY(bytes_at(file, here - 20, 20, "the locator", locator));
  if (!locator.starts_with("PK\x06\x07")) return out;  // just so many entries
  Record at(std::string_view(locator).substr(8));
  EPL_TRY(bytes_at(file, at.take<uint64_t>(), 56, "the large directory record", large));
  if (!large.starts_with("PK\x06\x06")) return damaged_zip(file, "its large directory record is not there");
  Record fields(std::string_view(large).substr(32));
  out.entries = fields.take<uint64_t>();
  out.bytes = fields.take<uint64_t>();
  out.offset = fields.take<uint64_t>();
  return out;
}

// Sizes that do not fit into 32 bits stand in an extra field, those that need it in this order.
void read_large_sizes(std::string_view extra, ZipEntry& entry, uint64_t& header) {
  while (extra.size() >= 4) {
    Record field(extra);
    const auto id = field.take<uint16_t>(), bytes = field.take<uint16_t>();
    if (bytes > extra.size() - 4) return;
    if (id == 1) {
      Record values(extra.substr(4, bytes));
      size_t left = bytes;
      for (uint64_t* value : {&entry.size, &entry.packed, &header}) {
        if (*value != 0xffffffff || left < 8) continue;
        *value = values.take<uint64_t>();
        left -= 8;
      }
    }
    extra.remove_prefix(4 + size_t{bytes});
  }
}

// Entry `in`, of which 46 bytes are there, and its local header, behind which its bytes begin.
Status read_entry(const FileReader& file, Record& in, size_t left, ZipEntry& entry, size_t& used) {
  in.text(4);  // the mark, which has been looked at, then versions
  in.text(4);
  const auto flags = in.take<uint16_t>(), method = in.take<uint16_t>();
  in.text(4);  // time and date
  entry.crc = in.take<uint32_t>();
  entry.packed = in.take<uint32_t>();
  entry.size = in.take<uint32_t>();
  const size_t name = in.take<uint16_t>(), extra = in.take<uint16_t>(), comment = in.take<uint16_t>();
  in.text(8);  // disk and attributes
  uint64_t header = in.take<uint32_t>();
  used = 46 + name + extra + comment;
  if (used > left) return damaged_zip(file, "an entry of its directory is cut off");
  entry.name = in.text(name);
  read_large_sizes(in.text(extra), entry, header);
  if (flags & 1) return Status(Code::unsupported, cat("entry ", shown(entry.name, 200), " is encrypted"), file.path());
  if (method != 0 && method != 8) {
    return Status(Code::unsupported,
                  cat("entry ", shown(entry.name, 200), " is packed by method ", method,
                      "; numpy.savez and savez_compressed use others"),
                  file.path());
  }
  entry.deflated = method == 8;
  std::string local;
  EPL_TRY(bytes_at(file, header, 30, cat("entry ", shown(entry.name, 200)), local));
  if (!local.starts_with("PK\x03\x04"))
    return damaged_zip(file, cat("entry ", shown(entry.name, 200), " does not begin where the directory says"));
  Record lengths(std::string_view(local).substr(26));
  const uint64_t local_name = lengths.take<uint16_t>(), local_extra = lengths.take<uint16_t>();
  entry.offset = header + 30 + local_name + local_extra;
  if (entry.offset > file.size() || entry.packed > file.size() - entry.offset)
    return damaged_zip(file, cat("entry ", shown(entry.name, 200), " ends outside the file; is it truncated?"));
  if (!entry.deflated && entry.packed != entry.size)
    return damaged_zip(file, cat("entry ", shown(entry.name, 200), " has two sizes"));
  // Deflate packs 258 bytes into two bits at the very best.
  if (entry.deflated && entry.size / 1040 > entry.packed)
    return damaged_zip(file,
                       cat("entry ", shown(entry.name, 200), " cannot hold ", entry.size, " bytes in ", entry.packed));
  return {};
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip(const FileReader& file) {
  EPL_ASSIGN(const Directory directory, find_directory(file));
  std::string all;
  EPL_TRY(bytes_at(file, directory.offset, directory.bytes, "its directory", all));
  std::string_view left = all;
  std::vector<ZipEntry> out;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (left.size() < 46 || !left.starts_with("PK\x01\x02"))
      return damaged_zip(file,
                         cat("its directory has ", directory.entries, " entries, of which entry ", i, " is not there"));
    Record in(left);
    ZipEntry entry;
    size_t used = 0;
    EPL_TRY(read_entry(file, in, left.size(), entry, used));
    left.remove_prefix(used);
    out.push_back(std::move(entry));
  }
  return out;
}

Result<std::vector<std::byte>> read_zip_entry(const FileReader& file, const ZipEntry& entry) {
  std::vector<std::byte> out(entry.size);
  uLong sum = crc32(0, nullptr, 0);
  if (!entry.deflated) {
    EPL_TRY(file.read(entry.offset, out.data(), out.size()));
  } else {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
      return error(Code::out_of_memory, "there is no memory to unpack ", shown_path(file.path()));
    std::vector<std::byte> packed(std::min<uint64_t>(entry.packed, 1 << 18));
    uint64_t read = 0, made = 0;
    Status status;
    int result = Z_OK;
    while (result == Z_OK && status.ok()) {
      if (stream.avail_in == 0 && read < entry.packed) {
        const size_t bytes = std::min<uint64_t>(packed.size(), entry.packed - read);
        status = file.read(entry.offset + read, packed.data(), bytes);
        read += bytes;
        stream.next_in = reinterpret_cast<Bytef*>(packed.data());
        stream.avail_in = static_cast<uInt>(bytes);
      }
      const auto room = static_cast<uInt>(std::min<uint64_t>(out.size() - made, std::numeric_limits<uInt>::max()));
      Bytef none = 0;  // inflate wants memory even where nothing is left to write
      stream.next_out = room > 0 ? reinterpret_cast<Bytef*>(out.data() + made) : &none;
      stream.avail_out = room;
      if (status.ok()) result = inflate(&stream, Z_NO_FLUSH);
      made += room - stream.avail_out;
    }
    inflateEnd(&stream);
    EPL_TRY(status);
    if (result == Z_MEM_ERROR)
      return error(Code::out_of_memory, "there is no memory to unpack ", shown_path(file.path()));
    if (result != Z_STREAM_END || made != out.size())
      return damaged_zip(file, cat("entry ", shown(entry.name, 200), " does not unpack to its ", entry.size, " bytes"));
  }
  sum = add_to_sum(sum, out.data(), out.size());
  if (sum != entry.crc)
    return damaged_zip(file, cat("entry ", shown(entry.name, 200), " has another checksum than the directory says"));
  return out;
}

namespace {

// Little-endian fields of a record that is made.
class MadeRecord {
 public:
  explicit MadeRecord(std::string_view mark) : bytes_(mark) {}
  MadeRecord& u16(uint64_t value) { return put(value, 2); }
  MadeRecord& u32(uint64_t value) { return put(value, 4); }
  MadeRecord& u64(uint64_t value) { return put(value, 8); }
  MadeRecord& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  MadeRecord& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

constexpr uint64_t in_extra = 0xffffffff, zip64_version = 45, version = 20, day = 33;  // 1 January 1980
constexpr uint64_t behind_data = 1 << 3, utf8_name = 1 << 11;  // flags: sum and sizes follow the bytes

}  // namespace

Status ZipWriter::put(const std::string& record) {
  EPL_TRY(out_.write(record.data(), record.size()));
  at_ += record.size();
  return {};
}

Status ZipWriter::begin(std::string name) {
  EPL_TRY(end_entry());
  ZipEntry entry;
  entry.name = std::move(name);
  entry.offset = at_;
  // With the extra field of zip64 the sizes behind the bytes have 64 bits.
  EPL_TRY(put(MadeRecord("PK\x03\x04")
                  .u16(zip64_version)
                  .u16(behind_data | utf8_name)
                  .u16(0)
                  .u16(0)
                  .u16(day)
                  .u32(0)
                  .u32(in_extra)
                  .u32(in_extra)
                  .u16(entry.name.size())
                  .u16(20)
                  .text(entry.name)
                  .u16(1)
                  .u16(16)
                  .u64(0)
                  .u64(0)
                  .bytes()));
  entries_.push_back(std::move(entry));
  open_ = true;
  return {};
}

Status ZipWriter::write(const void* data, size_t bytes) {
  EPL_TRY(out_.write(data, bytes));
  ZipEntry& entry = entries_.back();
  entry.crc = static_cast<uint32_t>(add_to_sum(entry.crc, data, bytes));
  entry.size += bytes;
  at_ += bytes;
  return {};
}

Status ZipWriter::end_entry() {
  if (!open_) return {};
  open_ = false;
  const ZipEntry& entry = entries_.back();
  return put(MadeRecord("PK\x07\x08").u32(entry.crc).u64(entry.size).u64(entry.size).bytes());
}

Status ZipWriter::finish() {
  EPL_TRY(end_entry());
  const uint64_t directory = at_;
  for (const ZipEntry& entry : entries_) {
    const bool large = entry.size >= in_extra || entry.offset >= in_extra;
    MadeRecord record("PK\x01\x02");
    record.u16(large ? zip64_version : version).u16(zip64_version).u16(behind_data | utf8_name).u16(0).u16(0).u16(day);
    record.u32(entry.crc).u32(large ? in_extra : entry.size).u32(large ? in_extra : entry.size);
    record.u16(entry.name.size()).u16(large ? 28 : 0).u16(0).u16(0).u16(0).u32(0);
    record.u32(large ? in_extra : entry.offset).text(entry.name);
    if (large) record.u16(1).u16(24).u64(entry.size).u64(entry.size).u64(entry.offset);
    EPL_TRY(put(record.bytes()));
  }
  const uint64_t bytes = at_ - directory, end = at_, count = entries_.size();
  const bool large = directory >= in_extra || count >= 0xffff;
  if (large) {
    EPL_TRY(put(MadeRecord("PK\x06\x06")
                    .u64(44)
                    .u16(zip64_version)
                    .u16(zip64_version)
                    .u32(0)
                    .u32(0)
                    .u64(count)
                    .u64(count)
                    .u64(bytes)
                    .u64(directory)
                    .bytes()));
    EPL_TRY(put(MadeRecord("PK\x06\x07").u32(0).u64(end).u32(1).bytes()));
  }
  const uint64_t few = large ? 0xffff : count;
  return put(MadeRecord("PK\x05\x06")
                 .u16(0)
                 .u16(0)
                 .u16(few)
                 .u16(few)
                 .u32(bytes)
                 .u32(large ? in_extra : directory)
                 .u16(0)
                 .bytes());
}

}  // namespace epl
