#include "core/base/pack.h"

namespace epl {

EPL_PACK(parquet) {
  const std::string instead = "write the file with compression=\"gzip\"";
  return {.doc = "what pages of Parquet files are packed with: snappy and Zstandard",
          .packages = "libsnappy-dev and libzstd-dev",
          .codecs = {{.name = "snappy", .unpacks = "Parquet packed with snappy", .instead = instead},
                     {.name = "zstd", .unpacks = "Parquet packed with zstd", .instead = instead}}};
}

}  // namespace epl
