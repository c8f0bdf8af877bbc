// Batches of samples in an order that a position describes completely.
//
// Thread safety: one consumer at a time. A prefetching dataset has one thread of its own, gone with the dataset.
// Invariant: the batch at a position depends on the reader, the options and the position alone. A process that is given
// a part of each batch is given that of the same batches, so that a position means the same samples in every layout.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/function_ref.h"
#include "core/base/tensor.h"
#include "core/data/reader.h"
#include "core/data/slices.h"

namespace epl {

struct DatasetOptions {
  int64_t batch = 0;      // samples of a batch; 0: a sample is a batch, without a dimension added
  bool shuffled = false;  // a new permutation for each epoch
  uint64_t seed = 0;
  int64_t prefetch = 0;  // batches read ahead
  bool partial = false;  // an epoch ends with what is left over after its last full batch
};

class Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> create(std::unique_ptr<Reader> reader, const DatasetOptions& options);
  ~Dataset();

  // As batches have them.
  const std::vector<std::pair<std::string, TensorType>>& fields() const;
  // The field called `name`, or `input.NAME`, by which an input that shares its name with a target goes; -1: none.
  int find(std::string_view name) const;
  int64_t samples() const;
  bool endless() const { return samples() >= endless_samples; }  // nobody knows how many there are
  int64_t batches() const;                                       // of an epoch
  // What is asked for of the next batch: every field, until `bind` says otherwise. Values are kept until the next call
  // of `next`. Allocates nothing. The last batch of an epoch may have fewer samples, where the options say so.
  // Waiting ends where `stop` says so, and leaves everything as it was.
  Result<std::span<const Tensor>> next(const Stop& stop = {});
  int64_t position() const;  // batches given so far
  // How many samples the batch given last has, whatever part of it was given.
  int64_t samples_given() const;
  // The rows of the file, counted from 0, that the batch given last was read from; of a part that part's. Empty before
  // the first batch.
  std::vector<int64_t> rows_given() const;
  // Which sample of the file stands in row `row` of tensor `asked` of the batch given last: "row 41 of the dataset".
  // Empty where nobody knows, as of a batch that is one sample. For messages, by the consumer.
  std::string position_given(size_t asked, int64_t row) const;
  Status seek(int64_t position);
  // From now on batches have fields of these types, one for each; what differs from what the file has is converted
  // (core/data/convert.h). Batches given before are gone.
  Status retype(const std::vector<TensorType>& wanted);
  // From now on `next` gives these alone, in this order and in these types: for each the field that `find` finds. Other
  // fields are not read. `parts`, one for each where there are any: of each batch these samples alone are read and
  // given, and of a field without samples nothing (an empty tensor). What an epoch's last batch lacks is then its last
  // sample again. Where a sample is a batch, it is read as it is, and its rows are parted.
  Status bind(const std::vector<std::pair<std::string, TensorType>>& wanted,
              const std::vector<SampleRange>& parts = {});
  // Every sample that a field may have to give, as the reader counts them. Those who are given the parts of one batch
  // share them, and each visits its own.
  Status visit(int field, FunctionRef<Status(int64_t sample)> f) const;
  // From now on the files are sharded over `count` slices, of which each gives an equal part of every batch: slice 0
  // its first samples, and so on. Shuffling stays within a slice, and an epoch ends with the slice that has fewest
  // samples. Positions keep their meaning as long as the number of slices does, whoever trains on the batches: `keep`
  // holds it against later calls. An error says why the files cannot be sharded; the order is then as before.
  Status slice(int64_t count, const SliceOptions& options, bool keep = false);
  int64_t slices() const;
  // Everything that says which batch comes next, to come back to.
  struct Cursor {
    int64_t position = 0, slices = 1;
    SliceOptions slice_options;
    bool kept = false;
  };
  Cursor cursor() const;
  void go_back(const Cursor& cursor) noexcept;
  const SliceOptions& slice_options() const;
  const Reader& reader() const;  // of the file, whatever types its fields are given in
  const DatasetOptions& options() const;

 private:
  struct State;
  explicit Dataset(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace epl
