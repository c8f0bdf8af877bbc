// The .program text form: what one rank runs, with every address. program_print.cc writes it and program_text.cc reads
// it, with nothing lost but the data of constants and initial values.
#pragma once

#include <string_view>
#include <utility>

#include "core/program/program.h"

namespace epl {

// What stands before an offset.
inline constexpr std::pair<Location::Space, std::string_view> space_names[] = {{Location::Space::arena, "@"},
                                                                               {Location::Space::state, "state@"},
                                                                               {Location::Space::constant, "const@"},
                                                                               {Location::Space::scalar, "scalar@"}};

}  // namespace epl
