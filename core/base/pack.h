// Packs: shared objects beside libepl.so that add kernels or codecs. They are opened when they are needed. A pack that
// is absent, damaged or of another version is an error that says so.
//
// An opened pack stays loaded until the process ends, because what it wraps may keep threads. Thread safety: all calls
// may run together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/table.h"

struct epl_pack;

namespace epl {

// What libepl.so knows of a pack that may not be there. The row stands in row.cc, in the folder of the pack's own code.
struct PackCodec {
  std::string name;     // as the pack calls it: "snappy"
  std::string unpacks;  // what needs it: "Parquet packed with snappy"
  std::string instead;  // what helps where the pack is missing
};
struct PackRow {
  std::string name;        // of libepl_NAME.so
  std::string doc;         // what it gives
  std::string packages;    // of Debian, which it is built with
  std::string device;      // whose table its kernels go to; empty: it has none
  bool any_order = false;  // they sum in whatever order is fastest: opened where a strategy allows that
  std::vector<PackCodec> codecs;
  bool carries = false;  // it moves bytes between processes
};
using PackTable = TableOf<PackRow>;
const PackTable& pack_table();  // generated

#define EPL_PACK(row_name) EPL_ROW(EPL_PACK, row_name, ::epl::PackTable, ::epl::PackRow)

// The file of a pack: libepl_NAME.so in the folder that the host names for packs.
std::string pack_path(std::string_view folder, std::string_view name);

// Opens pack `name` in `folder`; the error says which file was meant and what is wrong with it: not_found where there
// is none, unsupported for another version of the interface, invalid_argument for what is not a pack.
Result<const epl_pack*> open_pack(std::string_view folder, std::string_view name);

// "oneDNN 2.6.3": what the pack wraps.
std::string pack_version(const epl_pack& pack);

}  // namespace epl
