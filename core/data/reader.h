// Data files: a row per format. A reader gives samples by position, so that order, prefetch and resuming are the
// dataset's business alone (core/data/dataset.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/attributes.h"

namespace epl {

class Reader {
 public:
  virtual ~Reader() = default;
  // Fields of a sample with their types (without the batch dimension), for example input_ids: i64[128].
  virtual const std::vector<std::pair<std::string, TensorType>>& fields() const = 0;
  virtual int64_t samples() const = 0;
  // Writes field `field` of sample `index` to `target`. May be called from several threads.
  virtual Status read(int64_t index, int field, void* target) const = 0;
};

struct ReaderRow {
  std::string name;
  std::string doc;
  std::vector<std::pair<std::string, Attribute>> options;   // with defaults
  std::vector<std::string> suffixes;                        // of the names of its files: ".safetensors"
  Result<std::unique_ptr<Reader>> (*open)(const std::string& path, const Attributes& options) = nullptr;
};
struct ReaderTable {
  std::vector<ReaderRow> rows;
};
void fill_reader_table(ReaderTable& table);  // generated
const ReaderTable& reader_table();

#define EPL_READER(row_name)                                                                           \
  static ::epl::ReaderRow epl_reader_##row_name();                                                     \
  void EPL_READER_row_##row_name(::epl::ReaderTable& table);                                           \
  void EPL_READER_row_##row_name(::epl::ReaderTable& table) {                                          \
    table.rows.push_back(epl_reader_##row_name());                                                     \
    table.rows.back().name = #row_name;                                                                \
  }                                                                                                    \
  static ::epl::ReaderRow epl_reader_##row_name()

}  // namespace epl
