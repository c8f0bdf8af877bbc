// Data files: a row per format. A reader gives samples by position, so that order, prefetch and resuming are the
// dataset's business alone (core/data/dataset.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/options.h"
#include "core/base/stop.h"
#include "core/base/table.h"

namespace epl {

// The names that stand for the integers of a field: number i is names[i].
struct ClassNames {
  std::string field, column;  // `column` is empty where the field has no columns
  std::vector<std::string> names;
};

class Reader;
// "row 41 (counted from 0)", "row 3 (counted from 0) of b.csv": of sample `index`, for messages.
std::string position_of(const Reader& reader, int64_t index, std::string_view behind_number = " (counted from 0)");

// As many samples as nobody will ever come to the end of: their number is not known.
inline constexpr int64_t endless_samples = int64_t{1} << 52;

class Reader {
 public:
  virtual ~Reader() = default;
  // Fields of a sample with their types (without the batch dimension), for example input_ids: i64[128].
  virtual const std::vector<std::pair<std::string, TensorType>>& fields() const = 0;
  virtual int64_t samples() const = 0;
  // Writes field `field` of sample `index` to `target`. May be called from several threads.
  virtual Status read(int64_t index, int field, void* target) const = 0;
  // The same of several samples, one behind the other.
  virtual Status read_samples(std::span<const int64_t> samples, int field, void* target) const {
    const int64_t bytes = fields()[static_cast<size_t>(field)].second.bytes();
    for (size_t i = 0; i < samples.size(); ++i)
      EPL_TRY(read(samples[i], field, static_cast<std::byte*>(target) + static_cast<int64_t>(i) * bytes));
    return {};
  }
  // Whether a sample is the same whenever it is read, so that a few of them tell which data this is.
  virtual bool repeatable() const { return true; }
  // Returns when batch `batch` can be read without waiting for others: an error if it never can, or the call should
  // end.
  virtual Status wait_for([[maybe_unused]] int64_t batch, [[maybe_unused]] const Stop& stop) const { return {}; }
  // Batch `batch`, the samples of which are asked for next, follows: those before it are done with.
  virtual void go_to([[maybe_unused]] int64_t batch) const {}
  // How many samples each of its files has, in their order, where it reads several; what a file is sharded by. A reader
  // that mixes the samples of its files has none.
  virtual std::vector<int64_t> file_samples() const { return {samples()}; }
  // Which sample of the file this is, where the reader gives a part of it; and which file, where it reads several.
  virtual int64_t row(int64_t index) const { return index; }
  virtual std::string file(int64_t /*index*/) const { return {}; }
  // What people call one: a row of a file, or a sample where there is none.
  virtual std::string_view unit() const { return "row"; }
  // What texts of the file became integers.
  virtual std::vector<ClassNames> classes() const { return {}; }
  // What a field is put together from, in order: names of columns. Empty where the file has no columns.
  virtual std::vector<std::string> columns([[maybe_unused]] int field) const { return {}; }
  // Options, a JSON object as text, under which another file is read to the same meaning: the classes and means that
  // were found in this one, spelt out. Empty: those that this one was opened with.
  virtual std::string options_alike() const { return {}; }
  // The samples that are trained on, once a part is drawn: what is computed from the data, such as the mean that stands
  // for a missing value, comes from sample(0) to sample(count - 1) alone. Until then it comes from all.
  virtual Status learn_from([[maybe_unused]] int64_t count,
                            [[maybe_unused]] const std::function<int64_t(int64_t)>& sample) {
    return {};
  }
};

struct ReaderRequest {
  std::string path;
  Attributes options;                  // all that the row declares; what names a file is the file's path
  std::string packs;                   // the folder of optional packs; empty: there is none
  Stop stop;                           // while it is opened; not kept
  std::string target_name = "target";  // of the field that a reader makes for what the loss compares with
};

struct ReaderRow {
  std::string name;
  std::string doc;
  std::vector<Option> options;
  std::vector<std::string> suffixes;  // of the names of its files, in small letters: ".safetensors"
  // Whether a file that begins like this (up to 64 bytes of it) can only be one of the row's, whatever its name is.
  bool (*recognises)(std::string_view head) = nullptr;
  bool folder = false;  // reads a folder of files
  // Its options that name a file beside the data.
  std::vector<std::string> files = {};
  Result<std::unique_ptr<Reader>> (*open)(const ReaderRequest& request) = nullptr;
};
using ReaderTable = TableOf<ReaderRow>;
const ReaderTable& reader_table();  // generated

// The row of that name; where the name is empty, the one that the file at `path` asks for by its content or its name.
Result<const ReaderRow*> find_reader(std::string_view name, const std::string& path);
// A reader of `request.path`. Options may come from strangers: a file that one of them names lies in `root`, or in the
// folder of the data where that is empty. "/": the options are the host's own, and it may lie anywhere.
Result<std::unique_ptr<Reader>> open_reader(const ReaderRow& row, ReaderRequest request, const std::string& root);
// "csv (.csv), tsv (.tsv, .tab), ...": for messages.
std::string readable_formats();

#define EPL_READER(row_name) EPL_ROW(EPL_READER, row_name, ::epl::ReaderTable, ::epl::ReaderRow)

}  // namespace epl
