#include "core/data/dataset.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/base/check.h"
#include "core/data/order.h"

namespace epl {
namespace {

struct Batch {
  std::vector<Tensor> fields;
  std::vector<Tensor> rest;   // views of the same memory with as many samples as an epoch's last batch has
  int64_t position = -1;   // which batch it holds
  Status status;
};

}  // namespace

// The ring: batch p lives in slot p mod size. The consumer owns the slot it was given last; the thread fills the others
// as far ahead as there are slots. Without prefetching there is one slot and no thread.
struct Dataset::State {
  std::unique_ptr<Reader> reader;
  DatasetOptions options;
  std::vector<std::pair<std::string, TensorType>> fields;
  std::vector<Batch> ring;
  int64_t position = 0;   // next batch to give

  std::mutex mutex;
  std::condition_variable changed;
  int64_t wanted_from = 0;    // the thread fills [wanted_from, wanted_from + prefetch)
  int64_t generation = 0;     // raised by seek
  bool stopping = false;
  std::thread thread;

  int64_t batch_samples() const { return std::max<int64_t>(options.batch, 1); }
  int64_t whole_batches() const { return reader->samples() / batch_samples(); }
  int64_t left_over() const { return options.partial ? reader->samples() % batch_samples() : 0; }
  int64_t batches() const { return whole_batches() + (left_over() > 0); }
  int64_t samples_at(int64_t at) const { return at % batches() < whole_batches() ? batch_samples() : left_over(); }
  Batch& slot(int64_t at) { return ring[static_cast<size_t>(at % static_cast<int64_t>(ring.size()))]; }

  Status fill(Batch& batch, int64_t at) const {
    const int64_t epoch = at / batches(), first = at % batches() * batch_samples();
    const Permutation order(reader->samples(), options.seed, static_cast<uint64_t>(epoch));
    for (int64_t i = 0; i < samples_at(at); ++i) {
      const int64_t sample = options.shuffled ? order.at(first + i) : first + i;
      for (size_t f = 0; f < fields.size(); ++f) {
        auto* target = static_cast<std::byte*>(batch.fields[f].data());
        const int64_t bytes = batch.fields[f].bytes() / batch_samples();
        EPL_TRY(reader->read(sample, static_cast<int>(f), target + i * bytes));
      }
    }
    return {};
  }

  // What the thread runs: fills slots ahead of the consumer until told to stop.
  void run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      int64_t next = -1;
      for (int64_t at = wanted_from; at < wanted_from + options.prefetch && next < 0; ++at) {
        if (slot(at).position != at) next = at;
      }
      if (next < 0) {
        changed.wait(lock);
        continue;
      }
      const int64_t started = generation;
      Batch& batch = slot(next);
      batch.position = -1;
      lock.unlock();
      Status status;
      try {
        status = fill(batch, next);
      } catch (const std::exception& e) {
        status = Status(Code::internal, cat("reading ahead: ", e.what()));
      }
      lock.lock();
      if (started != generation) continue;   // what was wanted has moved
      batch.status = status;
      batch.position = next;
      changed.notify_all();
    }
  }
};

Dataset::Dataset(std::unique_ptr<State> state) : state_(std::move(state)) {}

Dataset::~Dataset() {
  if (!state_->thread.joinable()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Result<std::unique_ptr<Dataset>> Dataset::create(std::unique_ptr<Reader> reader, const DatasetOptions& options) {
  if (options.batch < 0) return invalid("batch is ", options.batch);
  if (options.prefetch < 0 || options.prefetch > 1024) return invalid("prefetch is ", options.prefetch, "; 0 to 1024 are possible");
  auto state = std::make_unique<State>();
  state->reader = std::move(reader);
  state->options = options;
  if (state->batches() == 0) return invalid("a batch takes ", state->batch_samples(), " samples, there are ", state->reader->samples());
  for (const auto& [name, type] : state->reader->fields()) {
    TensorType batched = type;
    if (options.batch > 0) batched.shape.insert(batched.shape.begin(), options.batch);
    state->fields.emplace_back(name, std::move(batched));
  }
  state->ring.resize(static_cast<size_t>(options.prefetch) + 1);
  for (Batch& batch : state->ring) {
    for (const auto& [name, type] : state->fields) {
      batch.fields.emplace_back(type);
      if (state->left_over() == 0) continue;
      TensorType rest = type;
      rest.shape[0] = state->left_over();
      batch.rest.emplace_back(std::move(rest), std::make_shared<const Tensor>(batch.fields.back()), batch.fields.back().data());
    }
  }
  if (options.prefetch > 0) state->thread = std::thread([s = state.get()] { s->run(); });
  return std::unique_ptr<Dataset>(new Dataset(std::move(state)));
}

const std::vector<std::pair<std::string, TensorType>>& Dataset::fields() const { return state_->fields; }
int64_t Dataset::samples() const { return state_->reader->samples(); }
int64_t Dataset::batches() const { return state_->batches(); }
const Reader& Dataset::reader() const { return *state_->reader; }
const DatasetOptions& Dataset::options() const { return state_->options; }
int64_t Dataset::position() const { return state_->position; }

Result<std::span<const Tensor>> Dataset::next() {
  State& s = *state_;
  const int64_t at = s.position;
  Batch& batch = s.slot(at);
  if (s.options.prefetch == 0) {
    EPL_TRY(s.fill(batch, at));
  } else {
    std::unique_lock lock(s.mutex);
    // The batch given last is done with; its slot is the last of the new range.
    s.wanted_from = at;
    s.changed.notify_all();
    s.changed.wait(lock, [&] { return batch.position == at; });
    if (!batch.status.ok()) {
      batch.position = -1;   // the next call reads it again
      return batch.status;
    }
    s.wanted_from = at + 1;   // all slots but this one
    s.changed.notify_all();
  }
  ++s.position;
  return std::span<const Tensor>(s.samples_at(at) == s.batch_samples() ? batch.fields : batch.rest);
}

Status Dataset::seek(int64_t position) {
  if (position < 0) return invalid("position ", position, " in a dataset");
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.position = position;
  s.wanted_from = position;
  ++s.generation;
  s.changed.notify_all();
  return {};
}

Result<const ReaderRow*> find_reader(std::string_view name, const std::string& path) {
  std::vector<std::string> known;
  for (const ReaderRow& row : reader_table().rows) {
    known.push_back(row.name);
    const auto fits = [&](const std::string& suffix) { return path.ends_with(suffix); };
    if (name.empty() ? std::ranges::any_of(row.suffixes, fits) : row.name == name) return &row;
  }
  if (name.empty()) return error(Code::invalid_argument, "no reader knows ", path, " by its name; name one of: ", join(known, ", "));
  std::string near = nearest(name, known);
  return error(Code::not_found, "no reader \"", name, "\"", near.empty() ? "" : cat("; did you mean ", near, "?"), " There are: ", join(known, ", "));
}

}  // namespace epl
