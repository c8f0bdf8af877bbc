// Apache Parquet (https://parquet.apache.org/docs/file-format): tables in columns, cut into groups of rows and into
// pages. Columns of numbers, truths and texts are read, with every encoding that writers of today use for them; nested
// ones are not.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/formats/codecs.h"

namespace epl {

enum class ParquetType : int32_t { boolean = 0, i32 = 1, i64 = 2, i96 = 3, f32 = 4, f64 = 5, bytes = 6, fixed = 7 };

struct ParquetColumn {
  std::string name;
  ParquetType type = ParquetType::i32;
  bool optional = false;
  bool is_unsigned = false;
  double unit = 1;         // of a decimal: a value is so many of these
  std::string unreadable;  // why the column cannot be read; empty if it can
  bool text() const { return type == ParquetType::bytes; }
};

// The pages of one column in one group of rows.
struct ParquetChunk {
  int32_t codec = 0;
  uint64_t offset = 0, bytes = 0;  // in the file
  int64_t values = 0;
};

struct ParquetFile {
  int64_t rows = 0;
  std::vector<ParquetColumn> columns;
  struct Group {
    int64_t rows = 0;
    std::vector<ParquetChunk> chunks;  // one for each column
  };
  std::vector<Group> groups;
};

// What takes the values of a column, in the order of the rows.
struct ParquetSink {
  std::function<Status()> missing;
  std::function<Status(int64_t)> integer;
  std::function<Status(double)> real;
  std::function<Status(std::string_view)> text;
};

Result<ParquetFile> read_parquet(const FileReader& file);
// The values of a column in one group: so many as the group has rows.
Status read_parquet_chunk(const FileReader& file, const ParquetColumn& column, const ParquetChunk& chunk, int64_t rows,
                          Codecs& codecs, const ParquetSink& sink);

}  // namespace epl
