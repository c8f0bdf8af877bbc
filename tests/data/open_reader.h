// Readers as the C API opens them, over files that a test wrote.
#pragma once

#include <unistd.h>

#include <filesystem>

#include "core/data/dataset.h"
#include "tests/temporary_folder.h"

namespace epl {

inline std::string temporary(const std::string& name) { return program_folder() / name; }

// A file that another library wrote.
inline std::string given(const std::string& name) { return std::string(EPL_SOURCE_DIR) + "/tests/data/files/" + name; }

inline Attributes with_defaults(const ReaderRow& row, std::initializer_list<Attributes::Entry> set) {
  Attributes out;
  for (const Option& option : row.options) out.set(option.name, option.value);
  for (const auto& entry : set) out.set(entry.name, entry.value);
  return out;
}

inline Result<std::unique_ptr<Reader>> open_reader(std::string_view name, const std::string& path,
                                                   std::initializer_list<Attributes::Entry> set = {},
                                                   const std::string& packs = {}) {
  EPL_ASSIGN(const ReaderRow* row, find_reader(name, path));
  return open_reader(*row, {path, with_defaults(*row, set), packs, {}}, "");
}

}  // namespace epl
