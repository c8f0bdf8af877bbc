#include "core/data/host_data.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace epl {
namespace {

// The row of neither: a host's data has no file.
const ReaderRow& host_row() {
  static const ReaderRow row = {.name = "host", .doc = "data that the host gives"};
  return row;
}

class HostReader final : public Reader {
 public:
  HostReader(HostFields fields, int64_t samples, ReadSamples read)
      : fields_(std::move(fields)), samples_(samples), read_(std::move(read)) {}
  const HostFields& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    return read_samples(std::span(&index, 1), field, target);
  }
  Status read_samples(std::span<const int64_t> samples, int field, void* target) const override {
    const auto bytes = static_cast<size_t>(fields_[static_cast<size_t>(field)].second.bytes()) * samples.size();
    return read_(field, samples, target, bytes);
  }
  bool repeatable() const override { return false; }
  std::string_view unit() const override { return "sample"; }

 private:
  HostFields fields_;
  int64_t samples_;
  ReadSamples read_;
};

class QueueReader final : public Reader {
 public:
  explicit QueueReader(std::shared_ptr<BatchQueue> queue) : queue_(std::move(queue)) {}
  const HostFields& fields() const override { return queue_->fields(); }
  int64_t samples() const override { return endless_samples; }
  ~QueueReader() override { queue_->leave(this); }
  Status read(int64_t index, int field, void* target) const override { return queue_->read(index, field, target); }
  bool repeatable() const override { return false; }
  Status wait_for(int64_t batch, const Stop& stop) const override { return queue_->wait(batch, stop); }
  void go_to(int64_t batch) const override { queue_->go_to(batch); }

 private:
  std::shared_ptr<BatchQueue> queue_;
};

}  // namespace

Result<OpenedDataset> host_dataset(HostFields fields, int64_t samples, ReadSamples read, std::string_view options) {
  return dataset_of(std::make_unique<HostReader>(std::move(fields), samples, std::move(read)), host_row(), options);
}

Result<OpenedDataset> queue_dataset(std::shared_ptr<BatchQueue> queue) {
  return dataset_of(std::make_unique<QueueReader>(std::move(queue)), host_row(), {});
}

BatchQueue::BatchQueue(HostFields fields, int64_t capacity) : fields_(std::move(fields)), capacity_(capacity) {
  spare_.reserve(static_cast<size_t>(std::min<int64_t>(capacity, 16)));
}

Status BatchQueue::take(const Reader& reader) {
  std::lock_guard lock(mutex_);
  if (reader_ != nullptr) return error(Code::misuse, "this feed has a dataset already");
  reader_ = &reader;
  return {};
}

void BatchQueue::leave(const Reader* reader) noexcept {
  std::unique_lock lock(mutex_);
  const bool was_it = reader == reader_;
  lock.unlock();
  if (was_it) close("its dataset was destroyed");
}

bool BatchQueue::has(int64_t number) const {
  return number >= first_ && number - first_ < static_cast<int64_t>(batches_.size());
}

Status BatchQueue::why_not(int64_t number) const {
  if (closed_ != nullptr) return error(Code::misuse, "the feed has ended: ", closed_);
  if (number < first_)
    return error(Code::misuse, "batch ", number, " was taken before, and a host that pushes does not go back");
  return error(Code::not_found, "the host's data has ended: it has finished after ",
               first_ + static_cast<int64_t>(batches_.size()), " batches");
}

// A token does not wake a thread, and there is no clock here: those who may be stopped look from time to time.
template <class F> Status BatchQueue::wait_until(std::unique_lock<std::mutex>& lock, const Stop& stop, F&& ready) {
  while (!ready()) {
    EPL_TRY(stop.check());
    if (stop.can_stop()) {
      changed_.wait_for(lock, std::chrono::milliseconds(2));
    } else {
      changed_.wait(lock);
    }
  }
  return {};
}

Status BatchQueue::push(std::span<const Tensor> batch, const Stop& stop) {
  if (batch.size() != fields_.size())
    return invalid("a batch of ", batch.size(), " tensors; the dataset has ", fields_.size(), " fields");
  for (size_t f = 0; f < batch.size(); ++f) {
    const auto& [name, type] = fields_[f];
    if (batch[f].type() != type)
      return invalid("field ", name, " is ", type.text(), ", what is pushed is ", batch[f].type().text()).at(name);
  }
  std::vector<Tensor> copy;
  {
    std::unique_lock lock(mutex_);
    EPL_TRY(wait_until(lock, stop, [&] {
      return closed_ != nullptr || finished_ || static_cast<int64_t>(batches_.size()) < capacity_;
    }));
    if (closed_ != nullptr) return why_not(first_);
    if (finished_) return error(Code::misuse, "the host has said that no batch follows");
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (copy.empty()) {
    for (const auto& [name, type] : fields_) copy.emplace_back(type);
  }
  for (size_t f = 0; f < batch.size(); ++f) EPL_TRY(batch[f].read(0, batch[f].bytes(), copy[f].data()));
  std::unique_lock lock(mutex_);
  // Others may have pushed meanwhile.
  EPL_TRY(wait_until(lock, stop, [&] {
    return closed_ != nullptr || finished_ || static_cast<int64_t>(batches_.size()) < capacity_;
  }));
  if (closed_ != nullptr) return why_not(first_);
  if (finished_) return error(Code::misuse, "the host has said that no batch follows");
  batches_.push_back(std::move(copy));
  changed_.notify_all();
  return {};
}

void BatchQueue::finish() {
  std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void BatchQueue::close(const char* why) noexcept {
  std::lock_guard lock(mutex_);
  if (closed_ == nullptr) closed_ = why;
  changed_.notify_all();
}

Status BatchQueue::wait(int64_t number, const Stop& stop) {
  std::unique_lock lock(mutex_);
  EPL_TRY(wait_until(lock, stop, [&] { return closed_ != nullptr || number < first_ || has(number) || finished_; }));
  return has(number) ? Status() : why_not(number);
}

Status BatchQueue::read(int64_t number, int field, void* target) {
  const Tensor* from = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!has(number)) return why_not(number);
    // It stays where it is until the one who reads goes on: pushing behind it moves nothing of a deque.
    from = &batches_[static_cast<size_t>(number - first_)][static_cast<size_t>(field)];
  }
  if (from->bytes() > 0) std::memcpy(target, from->data(), static_cast<size_t>(from->bytes()));
  return {};
}

void BatchQueue::go_to(int64_t number) {
  std::lock_guard lock(mutex_);
  const int64_t last = first_ + static_cast<int64_t>(batches_.size());
  const bool here = number >= first_ && number <= last;
  if (!here && number != last) finished_ = false;  // the host begins anew
  for (int64_t drop = here ? number - first_ : last - first_; drop > 0; --drop) {
    if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(batches_.front()));
    batches_.pop_front();
  }
  first_ = number;
  changed_.notify_all();
}

}  // namespace epl
