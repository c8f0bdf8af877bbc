// NumPy's arrays: one in a file (npy) or several under their names (npz).
#include "core/formats/npy.h"

#include <algorithm>
#include <cstring>

#include "core/base/shown.h"
#include "core/data/array_reader.h"
#include "core/formats/zip.h"

namespace epl {
namespace {

// An array as a reader takes it, from `file` at `offset` or from `memory`, which holds all of the npy. What is
// column-major is brought into order in memory.
Result<SampleArray> npy_array(const std::string& name, const NpyHeader& header, std::shared_ptr<const FileReader> file,
                              uint64_t offset, std::shared_ptr<const std::vector<std::byte>> memory) {
  SampleArray out;
  out.name = name;
  out.type = header.type;
  out.swapped = header.swapped;
  out.offset = offset + header.data;
  out.file = std::move(file);
  out.memory = std::move(memory);
  const Shape& shape = header.type.shape;
  if (!header.column_major || shape.size() < 2 || header.type.elements() == 0) return out;
  // Element (i, j, ...) lies at i + j * shape[0] + ...: walked in the order of the rows.
  const auto bytes = static_cast<size_t>(header.type.bytes());
  const size_t width = dtype_bytes(header.type.dtype);
  std::vector<std::byte> unpacked;
  const std::byte* from = nullptr;
  if (out.memory) {
    from = out.memory->data() + out.offset;
  } else {
    unpacked.resize(bytes);
    EPL_TRY(out.file->read(out.offset, unpacked.data(), bytes));
    from = unpacked.data();
  }
  auto ordered = std::make_shared<std::vector<std::byte>>(bytes);
  Shape at(shape.size(), 0), strides(shape.size(), 1);
  for (size_t d = 1; d < shape.size(); ++d) strides[d] = strides[d - 1] * shape[d - 1];
  size_t source = 0;
  for (size_t i = 0; i < bytes; i += width) {
    std::memcpy(ordered->data() + i, from + source * width, width);
    for (size_t d = shape.size(); d-- > 0;) {
      source += static_cast<size_t>(strides[d]);
      if (++at[d] < shape[d]) break;
      source -= static_cast<size_t>(strides[d] * shape[d]);
      at[d] = 0;
    }
  }
  out.memory = std::move(ordered);
  out.file.reset();
  out.offset = 0;
  return out;
}

Result<SampleArray> open_array(const std::string& name, const std::string& path) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(path));
  EPL_ASSIGN(const NpyHeader header, read_npy_header(path, file->size(), [&](uint64_t offset, void* to, size_t bytes) {
               return file->read(offset, to, bytes);
             }));
  return npy_array(name, header, std::move(file), 0, nullptr);
}

// Cuts a column off an array of two dimensions: what is left, and the column as a sample of one element.
Result<SampleArray> cut_column(const std::string& path, const std::string& name, int64_t column, SampleArray& array) {
  const Shape shape = array.type.shape;
  if (shape.size() != 2 || shape[1] < 2)
    return Status(
        Code::invalid_argument,
        cat("option target_column: the array is ", array.type.text(), "; two dimensions and two columns are needed"),
        path);
  const int64_t at = column < 0 ? column + shape[1] : column;
  if (at < 0 || at >= shape[1])
    return Status(Code::invalid_argument, cat("option target_column is ", column, "; the array is ", array.type.text()),
                  path);
  const auto width = static_cast<uint64_t>(dtype_bytes(array.type.dtype)),
             row = width * static_cast<uint64_t>(shape[1]), before = width * static_cast<uint64_t>(at);
  array.row_bytes = row;
  SampleArray target = array;
  target.name = name;
  target.type.shape = {shape[0], 1};
  target.spans = {{before, width}};
  array.type.shape = {shape[0], shape[1] - 1};
  array.spans = {{0, before}, {before + width, row - before - width}};
  return target;
}

Result<std::unique_ptr<Reader>> open_npy(const ReaderRequest& request) {
  const std::string& target = request.options.text("target");
  const std::string& column = request.options.text("target_column");
  if (!target.empty() && !column.empty())
    return invalid("options target and target_column of reader npy: give one of them");
  std::vector<SampleArray> arrays(1);
  EPL_ASSIGN(arrays[0], open_array(request.options.text("input"), request.path));
  if (!column.empty()) {
    int64_t at = 0;
    const auto [stop, failure] = std::from_chars(column.data(), column.data() + column.size(), at);
    if (failure != std::errc() || stop != column.data() + column.size())
      return invalid("option target_column of reader npy is ", column.substr(0, 40), "; an integer is expected");
    EPL_ASSIGN(SampleArray cut, cut_column(request.path, request.target_name, at, arrays[0]));
    arrays.push_back(std::move(cut));
  }
  if (!target.empty()) {
    EPL_ASSIGN(SampleArray second, open_array(request.target_name, target));
    arrays.push_back(std::move(second));
  }
  return read_arrays(request.path, std::move(arrays), "");
}

Result<std::unique_ptr<Reader>> open_npz(const ReaderRequest& request) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(request.path));
  EPL_ASSIGN(const std::vector<ZipEntry> entries, read_zip(*file));
  std::vector<SampleArray> arrays;
  for (const ZipEntry& entry : entries) {
    std::string name = entry.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const std::string where = cat(shown_path(request.path), ", array ", shown_plain(name, 200));
    if (std::ranges::any_of(arrays, [&](const SampleArray& array) { return array.name == name; }))
      return Status(Code::invalid_argument, cat("array ", shown(name, 200), " comes twice"), request.path);
    std::shared_ptr<const std::vector<std::byte>> memory;
    if (entry.deflated) {  // rows cannot be read from the middle
      EPL_ASSIGN(std::vector<std::byte> bytes, read_zip_entry(*file, entry));
      memory = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    }
    const auto read = [&](uint64_t offset, void* to, size_t bytes) -> Status {
      if (!memory) return file->read(entry.offset + offset, to, bytes);
      std::copy_n(memory->data() + offset, bytes, static_cast<std::byte*>(to));
      return {};
    };
    EPL_ASSIGN(const NpyHeader header, read_npy_header(where, entry.size, read));
    EPL_ASSIGN(SampleArray array, npy_array(name, header, memory ? nullptr : file, memory ? 0 : entry.offset, memory));
    arrays.push_back(std::move(array));
  }
  return read_arrays(request.path, std::move(arrays), request.options.text("fields"));
}

}  // namespace

EPL_READER(npy) {
  return {
      .doc =
          "One array of NumPy, whose first dimension counts samples. It is the field named by `input`; the target "
          "is one of its columns or a second file.",
      .options =
          {{.name = "input", .value = std::string("x"), .doc = "the field's name"},
           {.name = "target", .value = std::string(), .doc = "another .npy file in the same folder, with the targets"},
           {.name = "target_column",
            .value = std::string(),
            .doc = "the column of a two-dimensional array that is the target, counted from 0, or -1 for the last",
            .json = true}},
      .suffixes = {".npy"},
      .recognises = [](std::string_view head) { return head.starts_with("\x93NUMPY"); },
      .files = {"target"},
      .open = open_npy};
}

EPL_READER(npz) {
  return {.doc =
              "Arrays of NumPy under their names, from `numpy.savez` or `savez_compressed`; the first dimension of "
              "each counts samples. Compressed ones are unpacked "
              "into memory.",
          .options = {fields_option()},
          .suffixes = {".npz"},
          .recognises =
              [](std::string_view head) {
                return head.starts_with("PK\x03\x04") && head.find(".npy") != std::string_view::npos;
              },
          .open = open_npz};
}

}  // namespace epl
