#include "core/frontend/model.h"

#include <sys/stat.h>

#include <cstdlib>

#include "core/frontend/model_source.h"

namespace epl {
namespace {

// What is named must be a plain file under the folder. Symbolic links may not lead out of it.
Result<std::shared_ptr<const FileReader>> open_beside(const std::string& folder, const std::string& location) {
  const auto refuse = [](auto&&... parts) { return Status(Code::invalid_model, cat(parts...)); };
  const std::string path = folder + "/" + location;
  char* real_folder = realpath(folder.c_str(), nullptr);
  char* real_path = realpath(path.c_str(), nullptr);
  const std::string inside = real_folder ? std::string(real_folder) + "/" : "", target = real_path ? real_path : "";
  std::free(real_folder);
  std::free(real_path);
  if (target.empty()) return refuse("its external data ", path, " cannot be found");
  if (!target.starts_with(inside)) return refuse("external data at \"", location, "\" leads out of the model's folder");
  struct stat info{};
  if (stat(target.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return refuse("its external data ", path, " is not a plain file");
  return FileReader::open(target);
}

}  // namespace

Result<ModelSource> ModelSource::of_file(const std::string& path) {
  ModelSource out;
  EPL_ASSIGN(out.file, FileReader::open(path));
  const size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  out.beside = [folder = std::move(folder)](const std::string& location) { return open_beside(folder, location); };
  return out;
}

Result<std::shared_ptr<const Model>> load_model(const std::string& path) { return load_model(path, nullptr, {}); }

Result<std::shared_ptr<const Model>> load_model(const std::string& path, std::shared_ptr<const HostOps> ops,
                                                const Stop& stop) {
  std::vector<std::string> known;
  for (const Frontend& row : frontend_table().rows) {
    if (row.recognizes(path)) {
      EPL_ASSIGN(ModelSource source, ModelSource::of_file(path));
      source.ops = std::move(ops);
      source.stop = stop;
      return row.load(source);
    }
    known.push_back(cat(row.name, " (", row.doc, ")"));
  }
  // A path that is not a file is reported as that first.
  if (auto file = FileReader::open(path); !file.ok()) return file.status();
  return unsupported("no frontend recognises ", path, " by the end of its name; there are: ", join(known, ", "))
      .at(path);
}

Result<std::shared_ptr<const Model>> load_model(const ModelSource& source) {
  const std::vector<Frontend>& rows = frontend_table().rows;
  for (const Frontend& row : rows) {
    if (row.recognizes(source.file->path())) return row.load(source);
  }
  if (rows.empty()) return unsupported("this build has no frontend");
  return rows.front().load(source);
}

}  // namespace epl
