#include "core/data/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "core/base/json.h"

namespace epl {
namespace {

using Header = nlohmann::json;   // with its objects sorted, because a header has a name for each of many tensors

constexpr size_t longest_header = 100'000'000;   // the format's own limit
constexpr std::string_view type_names[dtype_count] = {"F32", "F64", "F16", "BF16", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"};

Status damaged(const std::string& file, std::string message) { return Status(Code::data_loss, cat("not a safetensors file: ", message), file); }

// The range [begin, end) that the header gives, relative to the data, or -1s.
struct Range {
  uint64_t begin = 0, end = 0;
};

Status read_entry(const std::string& file, const std::string& name, const Header& json, SafetensorsEntry& entry, Range& range) {
  auto bad = [&](auto&&... what) { return damaged(file, cat("tensor \"", name.substr(0, 200), "\" ", what...)); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets") || json.size() != 3) {
    return bad("needs dtype, shape and data_offsets, and nothing else");
  }
  const Header &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2) return bad("has a field of the wrong type");
  const auto* known = std::find(type_names, type_names + dtype_count, dtype.get_ref<const std::string&>());
  if (known == type_names + dtype_count) return bad("has dtype ", dtype.dump(), ", which is not supported");
  entry.name = name;
  entry.type.dtype = static_cast<DType>(known - type_names);
  uint64_t count = 1, limit = uint64_t{1} << 60;
  for (const Header& size : shape) {
    if (!size.is_number_unsigned()) return bad("has a size that is no whole number, ", size.dump());
    uint64_t value = size.get<uint64_t>();
    if (value > limit || (value > 0 && count > limit / value)) return bad("has impossible sizes");
    count *= value;
    entry.type.shape.push_back(static_cast<int64_t>(value));
  }
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) return bad("has offsets that are no whole numbers");
  range = {offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  if (range.begin > range.end || range.end - range.begin != count * dtype_bytes(entry.type.dtype)) {
    return bad("has ", range.begin, " to ", range.end, " for its bytes, but ", entry.type.text(), " needs ", count * dtype_bytes(entry.type.dtype));
  }
  return {};
}

// Parses the header; a name that comes twice is an error (a parser would keep the last silently).
Status parse_header(const std::string& file, std::string_view text, Header& json) {
  std::set<std::string> names;
  std::string twice;
  auto watch = [&](int depth, Header::parse_event_t event, Header& parsed) {
    if (event == Header::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) twice = parsed.get<std::string>();
    return depth < 8;
  };
  json = Header::parse(text.begin(), text.end(), watch, false);
  if (json.is_discarded() || !json.is_object()) return damaged(file, "the header is no JSON object");
  if (!twice.empty()) return damaged(file, cat("tensor \"", twice.substr(0, 200), "\" comes twice"));
  return {};
}

// Whether the text is UTF-8, which is all that JSON can hold: else what is ignored differs from what is replaced.
bool is_utf8(const std::string& text) {
  const Header json(text);
  return json.dump(-1, ' ', false, Header::error_handler_t::ignore) == json.dump(-1, ' ', false, Header::error_handler_t::replace);
}

}  // namespace

Result<std::shared_ptr<const Safetensors>> Safetensors::open(const std::string& path) {
  EPL_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  std::span<const std::byte> bytes = file->bytes();
  return parse(bytes, std::move(file), path);
}

Result<std::shared_ptr<const Safetensors>> Safetensors::parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                                              const std::string& name) {
  uint64_t header = 0;
  if (bytes.size() < sizeof header) return damaged(name, cat("it has ", bytes.size(), " bytes, the length of the header alone takes 8"));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header > longest_header || header > bytes.size() - sizeof header) {
    return damaged(name, cat("a header of ", header, " bytes in a file of ", bytes.size(), "; is it truncated?"));
  }
  Header json;
  EPL_TRY(parse_header(name, {reinterpret_cast<const char*>(bytes.data()) + sizeof header, header}, json));
  auto out = std::make_shared<Safetensors>();
  std::vector<std::pair<Range, SafetensorsEntry>> found;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      if (!value.is_object()) return damaged(name, "__metadata__ is no object");
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) return damaged(name, "__metadata__ holds something that is no text");
        out->metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    SafetensorsEntry entry;
    Range range;
    EPL_TRY(read_entry(name, key, value, entry, range));
    found.emplace_back(range, std::move(entry));
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return std::tie(a.first.begin, a.first.end, a.second.name) < std::tie(b.first.begin, b.first.end, b.second.name);
  });
  uint64_t data = bytes.size() - sizeof header - header, at = 0;
  for (auto& [range, entry] : found) {
    if (range.begin != at) {
      return damaged(name, cat("tensor \"", entry.name.substr(0, 200), "\" begins at byte ", range.begin, " of the data, ", at,
                               " is expected: ranges overlap or leave a hole"));
    }
    if (range.end > data) return damaged(name, cat("tensor \"", entry.name.substr(0, 200), "\" ends at byte ", range.end, " of ", data, "; is the file truncated?"));
    at = range.end;
    entry.offset = sizeof header + header + range.begin;
    out->entries_.push_back(std::move(entry));
  }
  if (at != data) return damaged(name, cat(data - at, " bytes after the last tensor belong to none"));
  out->bytes_ = bytes;
  out->owner_ = std::move(owner);
  return std::shared_ptr<const Safetensors>(std::move(out));
}

const SafetensorsEntry* Safetensors::find(std::string_view name) const {
  auto it = std::ranges::find(entries_, name, &SafetensorsEntry::name);
  return it == entries_.end() ? nullptr : &*it;
}

Tensor Safetensors::tensor(const SafetensorsEntry& entry) const {
  const std::byte* data = bytes_.data() + entry.offset;
  // The format promises no alignment; what a kernel could not read in place is copied.
  if (reinterpret_cast<uintptr_t>(data) % dtype_bytes(entry.type.dtype) == 0) return Tensor(entry.type, owner_, data);
  Tensor copy(entry.type);
  std::memcpy(copy.data(), data, static_cast<size_t>(entry.type.bytes()));
  return copy;
}

Status write_safetensors(FileWriter& writer, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    if (json.contains(name)) return invalid("two tensors are called \"", name, "\"");
    // Replaced bytes would make another name of it, under which nobody finds the tensor again.
    if (!is_utf8(name)) return invalid("the name of tensor \"", name, "\" is not UTF-8, and a safetensors file holds no other");
    json[name] = {{"dtype", type_names[static_cast<size_t>(tensor.dtype())]}, {"shape", tensor.shape()}, {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string header = print_json(json);
  header.append((64 - (header.size() + 8) % 64) % 64, ' ');
  uint64_t length = header.size();
  std::string start(reinterpret_cast<const char*>(&length), sizeof length);
  start += header;
  EPL_TRY(writer.write(start.data(), start.size()));
  for (const auto& [name, tensor] : tensors) EPL_TRY(writer.write(tensor.data(), static_cast<size_t>(tensor.bytes())));
  return {};
}

Status save_safetensors(const std::string& path, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                        const FileHook& hook) {
  return write_file_atomically(path, [&](FileWriter& writer) { return write_safetensors(writer, tensors, metadata); }, hook);
}

}  // namespace epl
