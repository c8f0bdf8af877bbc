// Packs: shared objects beside libepl.so that add kernels or codecs, opened when something is asked for that they give.
// A pack that is absent, damaged or of another version is a sentence that says so.
//
// Once opened a pack stays loaded as long as the process: what it wraps may keep threads. Thread safety: all calls may
// run together.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

struct epl_pack;

namespace epl {

// The file of a pack: libepl_NAME.so in the folder that the host names for packs.
std::string pack_path(std::string_view folder, std::string_view name);

// Opens pack `name` in `folder`; the error says which file was meant and what is wrong with it: not_found where there
// is none, unsupported for another version of the interface, invalid_argument for what is no pack.
Result<const epl_pack*> open_pack(std::string_view folder, std::string_view name);

// "oneDNN 2.6.3": what the pack wraps.
std::string pack_version(const epl_pack& pack);

}  // namespace epl
