#include "core/data/dataset.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#include "core/base/shown.h"
#include "core/base/thread.h"
#include "core/data/convert.h"
#include "core/data/order.h"

namespace epl {
namespace {

struct Batch {
  std::vector<Tensor> fields;    // what is read of them; empty: nothing
  std::vector<Tensor> given;     // views of what the consumer gets
  std::vector<Tensor> rest;      // the same with as many samples as an epoch's last batch has
  std::vector<int64_t> samples;  // which ones are read, from position `first` of the full batch on
  int64_t first = 0;
  int64_t position = -1;  // which batch it holds
  Status status;
};

}  // namespace

// Slots for batches: the one that the consumer was given last is its own until it asks for the next, whatever is sought
// meanwhile; the thread fills the others with what comes next. Without prefetching there is one slot and no thread.
struct Dataset::State {
  std::unique_ptr<Reader> reader;  // of the fields in the types in which they are given
  const Reader* file = nullptr;    // the one that was opened
  DatasetOptions options;
  std::vector<std::pair<std::string, TensorType>> fields;
  std::vector<Batch> slots;
  std::vector<int> asked;          // fields to give, in order
  std::vector<SampleRange> parts;  // by field, what is given of each batch
  bool parted = false;             // not the full batch: what an epoch's last one lacks is filled up
  std::vector<Tensor> given;       // those of the batch given last
  const Batch* last = nullptr;     // that batch
  int64_t samples_given = 0;       // of the full batch
  int64_t position = 0;            // next batch to give
  Slices slices;                   // none: the samples are not sharded
  SliceOptions slice_options;
  bool slices_kept = false;  // those of a checkpoint

  std::mutex mutex;
  std::condition_variable changed;
  int64_t wanted_from = 0;      // the thread fills [wanted_from, wanted_from + prefetch)
  const Batch* held = nullptr;  // by the consumer
  bool stopping = false;
  Thread thread;

  int64_t batch_samples() const { return std::max<int64_t>(options.batch, 1); }
  int64_t full_batches() const { return epoch_samples() / batch_samples(); }
  int64_t left_over() const { return options.partial && !sliced() ? reader->samples() % batch_samples() : 0; }
  int64_t batches() const { return full_batches() + (left_over() > 0); }
  int64_t samples_at(int64_t at) const { return at % batches() < full_batches() ? batch_samples() : left_over(); }
  bool wanted(int64_t at) const { return at >= wanted_from && at - wanted_from < options.prefetch; }
  Batch* find(int64_t at) {
    const auto found = std::ranges::find(slots, at, &Batch::position);
    return found == slots.end() ? nullptr : &*found;
  }
  // A slot that may be filled: neither the consumer's nor one of those that are wanted.
  Batch* free_slot() {
    for (Batch& batch : slots) {
      if (&batch != held && !wanted(batch.position)) return &batch;
    }
    return nullptr;
  }

  bool sliced() const { return slices.count() > 1; }
  int64_t epoch_samples() const { return sliced() ? slices.fewest() * slices.count() : reader->samples(); }

  SampleRange full() const { return {0, batch_samples()}; }
  // Of a part that is given, what is read: no more, but where a sample is a batch, all of it.
  SampleRange read_of(const SampleRange& part) const { return options.batch > 0 || part.count == 0 ? part : full(); }

  Status fill(Batch& batch, int64_t at) const {
    const int64_t epoch = at / batches(), count = sliced() ? slices.count() : 1, each = samples_at(at) / count;
    const int64_t first = at % batches() * (batch_samples() / count);
    SampleRange any;
    for (const SampleRange& part : parts) any = any.with(read_of(part));
    batch.samples.clear();
    batch.first = any.first;
    for (int64_t slice = 0; slice < count; ++slice) {
      const int64_t samples = sliced() ? slices.samples(slice) : reader->samples(), begin = slice * each;
      const int64_t end = parted && slice == count - 1 ? batch_samples() : begin + each;
      const Permutation order(samples, options.seed, static_cast<uint64_t>(epoch * count + slice));
      for (int64_t row = std::max(begin, any.first); row < std::min(end, any.end()); ++row) {
        const int64_t i = first + std::min(row - begin, each - 1);
        const int64_t index = options.shuffled ? order.at(i) : i;
        batch.samples.push_back(sliced() ? slices.sample(slice, index) : index);
      }
    }
    // Of positions any.first to any.first + batch.samples.size().
    for (size_t f = 0; f < fields.size(); ++f) {
      const SampleRange range = read_of(parts[f]);
      const int64_t begin = range.first - any.first;
      const int64_t end = std::min(range.end() - any.first, static_cast<int64_t>(batch.samples.size()));
      if (range.count == 0 || end <= begin) continue;
      const auto wanted =
          std::span(batch.samples).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      EPL_TRY(reader->read_samples(wanted, static_cast<int>(f), batch.fields[f].data()));
    }
    return {};
  }

  // Slots for the fields of `from`, and for the parts of them that are read. What exists is kept if this fails.
  void make_slots(const Reader& from, std::vector<SampleRange> wanted_parts, bool are_parted) {
    std::vector<std::pair<std::string, TensorType>> made_fields;
    for (const auto& [name, type] : from.fields()) {
      TensorType batched = type;
      if (options.batch > 0) batched.shape.insert(batched.shape.begin(), options.batch);
      made_fields.emplace_back(name, std::move(batched));
    }
    std::vector<Batch> made(static_cast<size_t>(options.prefetch) + 1);
    for (Batch& batch : made) {
      batch.samples.reserve(static_cast<size_t>(batch_samples()));
      for (size_t f = 0; f < made_fields.size(); ++f) {
        const SampleRange part = wanted_parts[f], range = read_of(part);
        const TensorType& type = made_fields[f].second;
        const Tensor read = range.count > 0 ? Tensor(options.batch > 0 ? rows_of(type, range.count) : type) : Tensor();
        const bool is_cut = are_parted && range.count > 0 && options.batch == 0;  // its rows are parted, not read apart
        batch.fields.push_back(read);
        batch.given.push_back(is_cut ? rows(read, part) : read);
        if (left_over() > 0)
          batch.rest.push_back(are_parted || range.count == 0 ? batch.given.back() : rows(read, {0, left_over()}));
      }
    }
    fields = std::move(made_fields);
    slots = std::move(made);
    parts = std::move(wanted_parts);
    parted = are_parted;
    held = last = nullptr;
  }

  static TensorType rows_of(TensorType type, int64_t count) {
    type.shape[0] = count;
    return type;
  }
  static Tensor rows(const Tensor& of, const SampleRange& range) {
    return Tensor(rows_of(of.type(), range.count), std::make_shared<const Tensor>(of),
                  static_cast<const std::byte*>(of.data()) + of.bytes() / of.shape()[0] * range.first);
  }

  Status start() {
    if (options.prefetch == 0 || thread.joinable()) return {};
    stopping = false;
    wanted_from = position;
    EPL_ASSIGN(thread, Thread::start("epl-data", [this] { run(); }));
    return {};
  }

  void stop() {
    if (!thread.joinable()) return;
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  // From now on fields have these types, and these parts of them are read. What exists is kept if this fails.
  Status give(const std::vector<TensorType>& wanted, std::vector<SampleRange> wanted_parts, bool are_parted) {
    std::vector<TensorType> samples;
    bool same_types = true;
    for (size_t f = 0; f < wanted.size(); ++f) {
      const TensorType& there = fields[f].second;
      TensorType sample = wanted[f];
      same_types = same_types && sample == there;
      const bool batched = options.batch > 0;
      const bool fits =
          can_stand_for(there, sample) && (!batched || (!sample.shape.empty() && sample.shape[0] == options.batch));
      if (!fits)
        return invalid("field ", fields[f].first, " is ", there.text(), " and cannot be given as ", sample.text());
      if (batched) sample.shape.erase(sample.shape.begin());
      samples.push_back(std::move(sample));
    }
    if (same_types && wanted_parts == parts && are_parted == parted) return {};
    stop();
    if (same_types) {
      make_slots(*reader, std::move(wanted_parts), are_parted);
    } else {
      std::unique_ptr<ConvertingReader> converted = ConvertingReader::over(*reader, std::move(samples));
      make_slots(*converted, std::move(wanted_parts), are_parted);
      converted->own(std::move(reader));
      reader = std::move(converted);
    }
    return start();
  }

  // What the thread runs: fills slots ahead of the consumer until told to stop.
  void run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      int64_t next = wanted_from;
      while (wanted(next) && find(next) != nullptr) ++next;
      Batch* batch = wanted(next) ? free_slot() : nullptr;
      if (batch == nullptr) {
        changed.wait(lock);
        continue;
      }
      batch->position = -1;
      lock.unlock();
      Status status = fill_caught(*batch, next);
      lock.lock();
      // What was wanted may have moved meanwhile; the batch is right for its position all the same.
      batch->status = std::move(status);
      batch->position = next;
      changed.notify_all();
    }
  }

  Status fill_caught(Batch& batch, int64_t at) const noexcept {
    try {
      return fill(batch, at);
    } catch (const std::bad_alloc&) {
      return Status::no_memory();
    } catch (const std::exception& e) {
      try {
        return Status(Code::internal, cat("reading ahead: ", e.what()));
      } catch (...) {
        return Status::no_memory();
      }
    }
  }
};

Dataset::Dataset(std::unique_ptr<State> state) : state_(std::move(state)) {}

Dataset::~Dataset() { state_->stop(); }

Result<std::unique_ptr<Dataset>> Dataset::create(std::unique_ptr<Reader> reader, const DatasetOptions& options) {
  if (options.batch < 0)
    return invalid("batch is ", options.batch, "; it is a number of samples, 1 or more, or 0 for 1");
  if (options.prefetch < 0 || options.prefetch > 1024)
    return invalid("prefetch is ", options.prefetch, "; 0 to 1024 are possible");
  auto state = std::make_unique<State>();
  state->reader = std::move(reader);
  state->file = state->reader.get();
  state->options = options;
  if (state->batches() == 0)
    return invalid("a batch takes ", state->batch_samples(), " samples, there are ", state->reader->samples());
  std::unique_ptr<Dataset> dataset(new Dataset(std::move(state)));  // from here on its destructor ends the thread
  State& made = *dataset->state_;
  made.make_slots(*made.reader, std::vector<SampleRange>(made.reader->fields().size(), made.full()), false);
  for (size_t f = 0; f < made.fields.size(); ++f) made.asked.push_back(static_cast<int>(f));
  made.given = made.slots[0].given;
  EPL_TRY(dataset->state_->start());
  return dataset;
}

const std::vector<std::pair<std::string, TensorType>>& Dataset::fields() const { return state_->fields; }
int Dataset::find(std::string_view name) const {
  const std::string other = cat("input.", name);
  for (const std::string_view wanted : {name, std::string_view(other)}) {
    const auto found = std::ranges::find(fields(), wanted, &std::pair<std::string, TensorType>::first);
    if (found != fields().end()) return static_cast<int>(found - fields().begin());
  }
  return -1;
}

int64_t Dataset::samples() const { return state_->reader->samples(); }
int64_t Dataset::batches() const { return state_->batches(); }
const DatasetOptions& Dataset::options() const { return state_->options; }
int64_t Dataset::position() const { return state_->position; }
int64_t Dataset::samples_given() const { return state_->samples_given; }
std::vector<int64_t> Dataset::rows_given() const {
  std::lock_guard lock(state_->mutex);
  std::vector<int64_t> rows;
  if (state_->held == nullptr) return rows;
  for (int64_t sample : state_->held->samples) rows.push_back(state_->file->row(sample));
  return rows;
}

Result<std::span<const Tensor>> Dataset::next(const Stop& stop) {
  State& s = *state_;
  const int64_t at = s.position;
  EPL_TRY(s.file->wait_for(at, stop));
  EPL_TRY(s.start());  // where there was no memory for the thread before
  Batch* batch = &s.slots[0];
  if (s.options.prefetch == 0) {
    EPL_TRY(s.fill(*batch, at));
  } else {
    std::unique_lock lock(s.mutex);
    // The batch given last is done with, so its slot may be filled again.
    s.held = nullptr;
    s.wanted_from = at;
    s.changed.notify_all();
    while ((batch = s.find(at)) == nullptr) {
      EPL_TRY(stop.check());
      // A token does not wake a thread.
      stop.can_stop() ? static_cast<void>(s.changed.wait_for(lock, std::chrono::milliseconds(2)))
                      : s.changed.wait(lock);
    }
    if (!batch->status.ok()) {
      batch->position = -1;  // the next call reads it again
      return batch->status;
    }
    s.held = batch;
    batch->position = -1;  // it is the consumer's now: sought again, it is read again
    s.wanted_from = at + 1;
    s.changed.notify_all();
  }
  s.last = batch;
  ++s.position;
  s.file->go_to(s.position);
  s.samples_given = s.samples_at(at);
  const std::vector<Tensor>& fields = s.samples_given == s.batch_samples() ? batch->given : batch->rest;
  for (size_t i = 0; i < s.asked.size(); ++i) s.given[i] = fields[static_cast<size_t>(s.asked[i])];
  return std::span<const Tensor>(s.given);
}

std::string Dataset::position_given(size_t asked, int64_t row) const {
  const State& s = *state_;
  if (s.last == nullptr || s.options.batch == 0 || asked >= s.asked.size()) return {};
  const int64_t at = s.parts[static_cast<size_t>(s.asked[asked])].first + row - s.last->first;
  if (at < 0 || at >= static_cast<int64_t>(s.last->samples.size())) return {};
  const int64_t sample = s.last->samples[static_cast<size_t>(at)];
  return cat(position_of(*s.file, sample, ""), s.file->file(sample).empty() ? " of the dataset" : "");
}

Status Dataset::seek(int64_t position) {
  // Far beyond any training, and far enough from the largest number for all that is counted from here.
  constexpr int64_t last_position = int64_t{1} << 62;
  if (position < 0 || position > last_position)
    return invalid("position ", position, " in a dataset; it is a count of batches, 0 to 2^62");
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.position = position;
  s.file->go_to(position);
  s.wanted_from = position;
  s.changed.notify_all();
  return {};
}

Status Dataset::slice(int64_t count, const SliceOptions& options, bool keep) {
  State& s = *state_;
  if (s.slices_kept && !keep) return {};
  const bool same =
      options.unbalanced == s.slice_options.unbalanced && options.drop_last_files == s.slice_options.drop_last_files;
  if (count == slices() && (count == 1 || same)) {
    s.slices_kept = keep;
    return {};
  }
  Slices sharded;
  if (count > 1) {
    const std::vector<int64_t> files = s.file->file_samples();
    if (files.empty()) return unsupported("a share of the samples is held out, which leaves no full files to shard");
    if (s.options.batch == 0 || s.options.batch % count != 0)
      return invalid("a batch of ", s.options.batch, " samples does not divide over ", count, " replicas");
    sharded = Slices(files, count, options);
    if (!sharded.refused().empty()) return invalid(sharded.refused());
    if (sharded.fewest() < s.options.batch / count)
      return invalid("a replica gets ", sharded.fewest(), " samples, and its part of a batch takes ",
                     s.options.batch / count);
  }
  s.stop();
  s.slices = std::move(sharded);
  s.slice_options = options;
  s.slices_kept = keep;
  s.make_slots(*s.reader, s.parts, s.parted);
  return s.start();
}
int64_t Dataset::slices() const { return state_->sliced() ? state_->slices.count() : 1; }
const SliceOptions& Dataset::slice_options() const { return state_->slice_options; }

Dataset::Cursor Dataset::cursor() const { return {position(), slices(), slice_options(), state_->slices_kept}; }

// There was room for that order once.
void Dataset::go_back(const Cursor& cursor) noexcept {
  try {
    static_cast<void>(slice(cursor.slices, cursor.slice_options, true));
  } catch (const std::bad_alloc&) {
  }
  state_->slices_kept = cursor.kept;
  static_cast<void>(seek(cursor.position));
}

const Reader& Dataset::reader() const { return *state_->file; }

Status Dataset::retype(const std::vector<TensorType>& wanted) {
  return state_->give(wanted, state_->parts, state_->parted);
}

Status Dataset::bind(const std::vector<std::pair<std::string, TensorType>>& wanted,
                     const std::vector<SampleRange>& parts) {
  std::vector<int> asked;
  std::vector<Tensor> given;
  std::vector<TensorType> types;
  std::vector<SampleRange> read(fields().size());
  std::string there;
  for (const auto& [name, type] : fields()) {
    types.push_back(type);
    there += cat(there.empty() ? "" : ", ", name, ": ", type.text());
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, type] = wanted[i];
    const int field = find(name);
    if (field < 0)
      return error(Code::not_found, "no field of the dataset is called ", shown_plain(name, 200), " or input.",
                   shown_plain(name, 200), "; there are ", there)
          .at(name);
    TensorType& now = types[static_cast<size_t>(field)];
    if (!can_stand_for(now, type)) {
      return invalid("input ", name, " is ", type.text(), " in the plan, the dataset's field is ", now.text()).at(name);
    }
    now = type;
    SampleRange& range = read[static_cast<size_t>(field)];
    range = range.with(parts.empty() ? state_->full() : parts[i]);
    asked.push_back(field);
    given.emplace_back(type, nullptr, nullptr);
  }
  EPL_TRY(state_->give(types, std::move(read), !parts.empty()));
  state_->asked = std::move(asked);
  state_->given = std::move(given);
  return {};
}

Status Dataset::visit(int field, FunctionRef<Status(int64_t sample)> f) const {
  const State& s = *state_;
  const int64_t all = s.file->samples(), batch = s.batch_samples();
  const SampleRange part = s.parted && s.options.batch > 0 ? s.parts[static_cast<size_t>(field)] : s.full();
  const auto visit_range = [&](int64_t begin, int64_t end) -> Status {
    for (int64_t sample = begin; sample < end; ++sample) EPL_TRY(f(sample));
    return {};
  };
  if (!s.sliced()) return visit_range(all * part.first / batch, all * part.end() / batch);
  const int64_t each = batch / s.slices.count();
  for (int64_t slice = 0; slice < s.slices.count(); ++slice) {
    const bool is_own = slice * each < part.end() && (slice + 1) * each > part.first;
    for (const SampleRange& range : is_own ? s.slices.ranges(slice) : std::vector<SampleRange>())
      EPL_TRY(visit_range(range.first, range.end()));
  }
  return {};
}

}  // namespace epl
