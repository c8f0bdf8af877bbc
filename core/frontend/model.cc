#include "core/frontend/model.h"

#include <sys/stat.h>

#include <cstdlib>

#include "core/base/shown.h"
#include "core/frontend/model_source.h"

namespace epl {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where a path leads when all its links are followed; empty where nothing is there.
std::string real_path(const std::string& path) {
  char* found = realpath(path.c_str(), nullptr);
  const std::string out = found ? found : "";
  std::free(found);
  return out;
}

bool lies_in(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.starts_with(folder.ends_with('/') ? folder : folder + "/");
}

// What is named must be a plain file under the folder of the model, or under that of the file which the model is a link
// to: a cache of downloads may keep all files in one folder, and links to them in others. No link may lead elsewhere.
Result<std::shared_ptr<const FileReader>> open_beside(const std::string& model, const std::string& location) {
  const auto refuse = [](auto&&... parts) { return Status(Code::invalid_model, cat(parts...)); };
  const std::string folder = folder_of(model), path = folder + "/" + location, own = real_path(model),
                    own_folder = own.empty() ? "" : folder_of(own);
  std::string target = real_path(path);
  if (target.empty() && !own_folder.empty()) target = real_path(own_folder + "/" + location);
  if (target.empty()) return refuse("its external data ", path, " cannot be found");
  if (!lies_in(target, real_path(folder)) && !lies_in(target, own_folder)) {
    return refuse("external data at ", shown(location, 200), " leads out of the model's folder, to ", target,
                  "; put the file itself beside the model (cp -L follows links)");
  }
  struct stat info{};
  if (stat(target.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return refuse("its external data ", path, " is not a plain file");
  return FileReader::open(target);
}

}  // namespace

Result<ModelSource> ModelSource::of_file(const std::string& path) {
  ModelSource out;
  EPL_ASSIGN(out.file, FileReader::open(path));
  out.beside = [path](const std::string& location) { return open_beside(path, location); };
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
  return unsupported("no frontend recognises ", shown_path(path),
                     " by the end of its name; there are: ", join(known, ", "))
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
