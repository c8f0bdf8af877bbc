#include "core/data/reader.h"

#include <sys/stat.h>

#include <algorithm>

#include "core/base/file.h"
#include "core/base/inside.h"
#include "core/base/shown.h"

namespace epl {
namespace {

// Formats that are not read, and how their content gets into one that is.
struct Foreign {
  std::vector<std::string_view> suffixes;
  std::string_view what, advice;
};

const std::vector<Foreign>& foreign_formats() {
  static const std::vector<Foreign> formats = {
      {{".h5", ".hdf5", ".keras"},
       "HDF5",
       "in Python: f = h5py.File(FILE); numpy.savez(\"data.npz\", x=f[\"x\"][:], target=f[\"y\"][:])"},
      {{".pkl", ".pickle", ".joblib"},
       "a Python pickle",
       "load it in Python and numpy.savez(\"data.npz\", x=..., target=...), or table.to_csv(\"data.csv\", "
       "index=False)"},
      {{".pt", ".pth", ".ckpt"},
       "a PyTorch file",
       "in Python: safetensors.torch.save_file({\"x\": ..., \"target\": ...}, \"data.safetensors\")"},
      {{".mat"},
       "a MATLAB file",
       "in Python: m = scipy.io.loadmat(FILE); numpy.savez(\"data.npz\", x=m[\"x\"], target=m[\"y\"])"},
      {{".json", ".jsonl", ".ndjson"},
       "JSON",
       "in Python: pandas.read_json(FILE, lines=True).to_csv(\"data.csv\", index=False)"},
      {{".xls", ".xlsx", ".ods"}, "a spreadsheet", "save it as CSV"},
      {{".arrow", ".feather", ".ipc", ".orc", ".avro"},
       "a table of another format",
       "in Python: pyarrow.parquet.write_table(table, \"data.parquet\")"},
      {{".tfrecord", ".tfrecords"},
       "TensorFlow records",
       "write the decoded arrays with numpy.savez(\"data.npz\", x=..., target=...)"},
      {{".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"},
       "one image",
       "give the folder that holds the images, with a folder for each class"},
      {{".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z"}, "a packed file", "unpack it first"},
      {{".onnx"}, "a model", "data are its inputs and targets"},
  };
  return formats;
}

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

template <class Suffixes> bool ends_in(const std::string& small, const Suffixes& suffixes) {
  return std::ranges::any_of(suffixes, [&](const auto& suffix) { return small.ends_with(suffix); });
}

// A row of the name, whatever its case.
Result<const ReaderRow*> by_name(std::string_view name) {
  return find_named(reader_table(), small_letters(name), "reader");
}

// The start of a file, or an error; a pipe is not waited for.
Result<std::string> head_of(const std::string& path) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(path));
  std::string head(std::min<uint64_t>(64, file->size()), '\0');
  EPL_TRY(file->read(0, head.data(), head.size()));
  return head;
}

Status unknown(const std::string& path) {
  const std::string small = small_letters(path);
  std::string advice =
      "convert it to one of these; if it is one of them under another name, name it: {\"reader\": \"csv\"}";
  std::string what;
  for (const Foreign& format : foreign_formats()) {
    if (!ends_in(small, format.suffixes)) continue;
    what = cat(", which is ", format.what);
    advice = format.advice;
  }
  return Status(
      Code::invalid_argument,
      cat("no reader knows ", shown_path(path), what, ". EPL reads ", readable_formats(), ". What to do: ", advice),
      path);
}

}  // namespace

std::string readable_formats() {
  std::vector<std::string> all;
  for (const ReaderRow& row : reader_table().rows) {
    all.push_back(row.folder ? cat(row.name, " (a folder)") : cat(row.name, " (", join(row.suffixes, ", "), ")"));
  }
  return join(all, ", ");
}

Result<std::unique_ptr<Reader>> open_reader(const ReaderRow& row, ReaderRequest request, const std::string& root) {
  const size_t slash = request.path.rfind('/');
  const std::string folder = row.folder                   ? request.path
                             : slash == std::string::npos ? ""
                                                          : request.path.substr(0, slash + 1);
  for (const std::string& name : row.files) {
    const std::string& given = request.options.text(name);
    if (given.empty()) continue;
    EPL_ASSIGN(std::string path, path_inside(root, folder, given, cat("option ", name, " of reader ", row.name)));
    request.options.set(name, std::move(path));
  }
  Result<std::unique_ptr<Reader>> opened = row.open(request);
  // What is lost is a checkpoint or a plan. A damaged file of data, or one of another kind, is the caller's to change.
  if (opened.ok() || opened.status().code() != Code::data_loss) return opened;
  return Status(Code::invalid_argument, opened.status().message(), opened.status().where());
}

Result<const ReaderRow*> find_reader(std::string_view name, const std::string& path) {
  if (!name.empty()) return by_name(name);
  struct stat info{};
  const bool folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (folder) {
    for (const ReaderRow& row : reader_table().rows) {
      if (row.folder) return &row;
    }
  }
  // A file that cannot be opened is its reader's to refuse, if its name has one: options are looked at first.
  const auto head = head_of(path);
  for (const ReaderRow& row : reader_table().rows) {
    if (head.ok() && row.recognises && row.recognises(*head)) return &row;
  }
  for (const ReaderRow& row : reader_table().rows) {
    if (!row.folder && ends_in(small_letters(path), row.suffixes)) return &row;
  }
  EPL_TRY(head.status());
  return unknown(path);
}

std::string position_of(const Reader& reader, int64_t index, std::string_view behind_number) {
  const std::string file = reader.file(index);
  return cat(reader.unit(), " ", reader.row(index), behind_number, file.empty() ? "" : cat(" of ", file));
}

}  // namespace epl
