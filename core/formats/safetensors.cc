#include "core/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/tensor_file.h"

namespace epl {
namespace {

constexpr size_t max_header = 100'000'000;  // the format's own limit
constexpr std::string_view type_names[dtype_count] = {"F32", "F64", "F16", "BF16", "I8",  "I16", "I32",
                                                      "I64", "U8",  "U16", "U32",  "U64", "BOOL"};

Status damaged_safetensors(const std::string& file, std::string message) {
  return Status(Code::data_loss, cat("not a safetensors file: ", message), file);
}

Status too_short(const std::string& file, uint64_t bytes) {
  return damaged_safetensors(file, cat("it has ", bytes, " bytes, the length of the header alone takes 8"));
}
Status cut_header(const std::string& file, uint64_t header, uint64_t bytes) {
  return damaged_safetensors(file, cat("a header of ", header, " bytes in a file of ", bytes, "; is it truncated?"));
}

constexpr size_t max_dims = 16;  // EPL_MAX_NDIM: what a caller can be told of

// The range [begin, end) that the header gives, relative to the data, or -1s.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

Status read_entry(const std::string& file, const std::string& name, const Json& json, SafetensorsEntry& entry,
                  ByteRange& range) {
  auto bad = [&](auto&&... what) { return damaged_safetensors(file, cat("tensor ", shown(name, 200), " ", what...)); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets") ||
      json.size() != 3) {
    return bad("needs dtype, shape and data_offsets, and nothing else");
  }
  const Json &dtype = json.at("dtype"), &shape = json.at("shape"), &offsets = json.at("data_offsets");
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    return bad("has a field of the wrong type");
  const auto* known = std::find(type_names, type_names + dtype_count, dtype.text());
  if (known == type_names + dtype_count)
    return bad("has dtype ", excerpt(print_json(dtype), 40), ", which is not supported");
  entry.name = name;
  entry.type.dtype = static_cast<DType>(known - type_names);
  if (shape.size() > max_dims) return bad("has ", shape.size(), " dimensions; tensors have up to ", max_dims);
  uint64_t count = 1, limit = uint64_t{1} << 60;
  for (const Json& size : shape) {
    if (!size.is_number_unsigned()) return bad("has a size that is not an integer, ", excerpt(print_json(size), 40));
    uint64_t value = size.get<uint64_t>();
    if (value > limit || (value > 0 && count > limit / value)) return bad("has impossible sizes");
    count *= value;
    entry.type.shape.push_back(static_cast<int64_t>(value));
  }
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return bad("has offsets that are not integers");
  range = {offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  if (range.begin > range.end || range.end - range.begin != count * dtype_bytes(entry.type.dtype)) {
    return bad("has ", range.begin, " to ", range.end, " for its bytes, but ", entry.type.text(), " needs ",
               count * dtype_bytes(entry.type.dtype));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Safetensors>> Safetensors::open(const std::string& path) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(path));
  return open(std::move(file));
}

Result<std::shared_ptr<const Safetensors>> Safetensors::open(std::shared_ptr<const FileReader> file) {
  uint64_t length = 0;
  if (file->size() < sizeof length) return too_short(file->path(), file->size());
  EPL_TRY(file->read(0, &length, sizeof length));
  if (length > max_header || length > file->size() - sizeof length)
    return cut_header(file->path(), length, file->size());
  std::string header(length, '\0');
  EPL_TRY(file->read(sizeof length, header.data(), header.size()));
  auto out = std::make_shared<Safetensors>();
  EPL_TRY(out->read_header(header, file->size(), file->path()));
  out->file_ = std::move(file);
  return std::shared_ptr<const Safetensors>(std::move(out));
}

Result<std::shared_ptr<const Safetensors>> Safetensors::parse(std::span<const std::byte> bytes,
                                                              std::shared_ptr<const void> owner,
                                                              const std::string& name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return too_short(name, bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > max_header || length > bytes.size() - sizeof length) return cut_header(name, length, bytes.size());
  auto out = std::make_shared<Safetensors>();
  EPL_TRY(out->read_header({reinterpret_cast<const char*>(bytes.data()) + sizeof length, length}, bytes.size(), name));
  out->bytes_ = bytes;
  out->owner_ = std::move(owner);
  return std::shared_ptr<const Safetensors>(std::move(out));
}

Status Safetensors::read_header(std::string_view header, uint64_t file_bytes, const std::string& name) {
  auto json = parse_json(header);
  if (!json.ok()) return damaged_safetensors(name, cat("the header is not a JSON object: ", json.status().message()));
  if (!json->is_object()) return damaged_safetensors(name, "the header is not a JSON object");
  std::vector<std::pair<ByteRange, SafetensorsEntry>> found;
  for (const auto& [key, value] : json->items()) {
    if (key == "__metadata__") {
      if (!value.is_object()) return damaged_safetensors(name, "__metadata__ is not an object");
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) return damaged_safetensors(name, "__metadata__ holds something that is not text");
        metadata_[k] = v.text();
      }
      continue;
    }
    SafetensorsEntry entry;
    ByteRange range;
    EPL_TRY(read_entry(name, key, value, entry, range));
    found.emplace_back(range, std::move(entry));
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return std::tie(a.first.begin, a.first.end, a.second.name) < std::tie(b.first.begin, b.first.end, b.second.name);
  });
  const uint64_t start = sizeof(uint64_t) + header.size(), data = file_bytes - start;
  uint64_t at = 0;
  for (auto& [range, entry] : found) {
    if (range.begin != at) {
      return damaged_safetensors(name, cat("tensor ", shown(entry.name, 200), " begins at byte ", range.begin,
                                           " of the data, ", at, " is expected: ranges overlap or leave a hole"));
    }
    if (range.end > data)
      return damaged_safetensors(name, cat("tensor ", shown(entry.name, 200), " ends at byte ", range.end, " of ", data,
                                           "; is the file truncated?"));
    at = range.end;
    entry.offset = start + range.begin;
    entries_.push_back(std::move(entry));
  }
  if (at != data) return damaged_safetensors(name, cat(data - at, " bytes after the last tensor belong to none"));
  for (size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
  return {};
}

const SafetensorsEntry* Safetensors::find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

Tensor Safetensors::tensor(const SafetensorsEntry& entry) const {
  if (file_) return file_tensor(file_, entry.type, entry.offset);
  const std::byte* data = bytes_.data() + entry.offset;
  // The format promises no alignment; what a kernel could not read in place is copied.
  if (reinterpret_cast<uintptr_t>(data) % dtype_bytes(entry.type.dtype) == 0) return Tensor(entry.type, owner_, data);
  Tensor copy(entry.type);
  std::memcpy(copy.data(), data, static_cast<size_t>(entry.type.bytes()));
  return copy;
}

Status write_safetensors(ByteWriter& writer, const NamedTensors& tensors,
                         const std::map<std::string, std::string>& metadata) {
  Json::Object members;
  if (!metadata.empty()) members.push_back({"__metadata__", metadata});
  std::set<std::string_view> names;
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) return invalid("two tensors are called ", shown(name, 200));
    // Replaced bytes would make another name of it, under which nobody finds the tensor again.
    if (!is_utf8(name))
      return invalid("the name of tensor ", shown(name, 200), " is not UTF-8, and a safetensors file holds no other");
    members.push_back({name,
                       {{"dtype", type_names[static_cast<size_t>(tensor.dtype())]},
                        {"shape", tensor.shape()},
                        {"data_offsets", Json::array({at, at + tensor.bytes()})}}});
    at += tensor.bytes();
  }
  std::string header = print_json(Json::of(std::move(members)));
  header.append((64 - (header.size() + 8) % 64) % 64, ' ');
  uint64_t length = header.size();
  std::string start(reinterpret_cast<const char*>(&length), sizeof length);
  start += header;
  EPL_TRY(writer.write(start.data(), start.size()));
  for (const auto& [name, tensor] : tensors) EPL_TRY(write_tensor(writer, tensor));
  return {};
}

Status save_safetensors(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata, const FileHook& hook) {
  return write_file_atomically(
      path, [&](FileWriter& writer) { return write_safetensors(writer, tensors, metadata); }, hook);
}

}  // namespace epl
