// Names of files that somebody else gives, and that must lie in a folder.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace epl {

// The path of the file that `name` means in `folder`. It must lie in `root`, or in `folder` where `root` is empty: an
// absolute name, `..` and links may lead out of it, and are then an error, the same whether there is such a file or
// not. `what` is whose name it is, for the message: "option target of reader npy". The path has no links left that
// could be changed later to lead out, unless nothing is there.
Result<std::string> path_inside(const std::string& root, const std::string& folder, std::string_view name,
                                std::string_view what);

}  // namespace epl
