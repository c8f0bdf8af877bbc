// Texts that are not in UTF-8, as their first bytes tell.
#pragma once

#include <string>
#include <string_view>

#include "core/base/text.h"

namespace epl {

// What a byte order mark says a text is in; empty for UTF-8, and where there is none.
inline std::string_view marked_encoding(std::string_view head) {
  struct Mark {
    std::string_view bytes, encoding;
  };
  constexpr Mark marks[] = {{{"\xff\xfe\0\0", 4}, "UTF-32LE"},
                            {{"\0\0\xfe\xff", 4}, "UTF-32BE"},
                            {{"\xff\xfe", 2}, "UTF-16LE"},
                            {{"\xfe\xff", 2}, "UTF-16BE"}};
  for (const Mark& mark : marks) {
    if (head.starts_with(mark.bytes)) return mark.encoding;
  }
  return {};
}

inline std::string convert_from(std::string_view encoding) {
  return cat("the file is in ", encoding, "; convert it to UTF-8, as by: iconv -f ", encoding, " -t UTF-8");
}

}  // namespace epl
