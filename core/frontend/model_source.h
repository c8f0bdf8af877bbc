// Where the file of a model is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/file.h"
#include "core/base/stop.h"

namespace epl {

class HostOps;  // core/ir/host_op.h
class Model;

// The file of a model, wherever it is, and what its tensors name beside it.
struct ModelSource {
  std::shared_ptr<const FileReader> file;
  // A file that a tensor names, by a relative path that does not leave the model's folder. Null: there is none. An
  // error of Code::invalid_model is about the path.
  std::function<Result<std::shared_ptr<const FileReader>>(const std::string& location)> beside;
  std::shared_ptr<const HostOps> ops;  // that the host brings, for operators that no frontend knows; null: none
  Stop stop;                           // while the model is loaded; not kept

  // What lies beside it must be a plain file under its folder, or under that of the file which it is a link to, reached
  // without a link that leaves both.
  static Result<ModelSource> of_file(const std::string& path);
};

// By the frontend that recognises the path, with these ops.
Result<std::shared_ptr<const Model>> load_model(const std::string& path, std::shared_ptr<const HostOps> ops,
                                                const Stop& stop);

}  // namespace epl
