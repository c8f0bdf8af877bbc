// Where the file of a model is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/file.h"

namespace epl {

// The file of a model, wherever it is, and what its tensors name beside it.
struct ModelSource {
  std::shared_ptr<const FileReader> file;
  // A file that a tensor names, by a relative path that does not leave the model's folder. Null: there is none. An
  // error of Code::invalid_model is about the path.
  std::function<Result<std::shared_ptr<const FileReader>>(const std::string& location)> beside;

  // What lies beside it must be a plain file under its folder, reached without a link that leaves it.
  static Result<ModelSource> of_file(const std::string& path);
};

}  // namespace epl
