#include "backends/cpu/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/stream_work.h"
#include "core/base/check.h"
#include "core/base/float_environment.h"

namespace epl::cpu {

void CpuEvent::record(std::shared_ptr<Posts> posts) {
  std::lock_guard lock(mutex_);
  latest_.last = posts->last();
  latest_.posts = std::move(posts);
}

CpuEvent::Record CpuEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

// Threads of files use memory that the caller has given the stream.
CpuStream::~CpuStream() {
  if (moves_) end_posts();
}

void CpuStream::launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
                       void* const* outputs, void* workspace, const StepContext& context) {
  EPL_CHECK(row.launch != nullptr, "kernel ", row.name, " of ", row.op, " has no launch");
  end_posts();
  FloatEnvironment environment;
  row.launch({query, state, inputs, outputs, workspace, *this, context});
}

void CpuStream::copy(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0 || target == source) return;
  end_posts();
  if (in_files(target, source)) return take(files_->copy(target, source, bytes));
  char* to = static_cast<char*>(target);
  const char* from = static_cast<const char*>(source);
  const bool overlap = to < from + bytes && from < to + bytes;
  if (overlap || bytes < 2 * copy_grain) {
    std::memmove(to, from, static_cast<size_t>(bytes));
    return;
  }
  pool_.run_ranges(bytes, copy_grain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void CpuStream::copy_rows(const RowCopy& rows) {
  if (rows.bytes <= 0 || rows.rows <= 0) return;
  end_posts();
  pool_.run_ranges(rows.rows, std::max<int64_t>(1, copy_grain / rows.bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(rows.target) + i * rows.target_step,
                  static_cast<const char*>(rows.source) + i * rows.source_step, static_cast<size_t>(rows.bytes));
    }
  });
}

void CpuStream::fill(void* target, int64_t bytes, uint8_t value) {
  if (bytes <= 0) return;
  end_posts();
  if (in_files(target, nullptr)) return take(files_->fill(files_->find(target), bytes, value));
  char* to = static_cast<char*>(target);
  pool_.run_ranges(bytes, copy_grain, [&](int64_t begin, int64_t end) {
    std::memset(to + begin, value, static_cast<size_t>(end - begin));
  });
}

bool CpuStream::in_files(const void* target, const void* source) const {
  return files_ && (files_->find(target) || files_->find(source));
}

void CpuStream::take(const Status& status) {
  if (failure_.ok()) failure_ = status;
}

// One thread keeps the order of what it does, and with it what the commands before have waited for. Another thread has
// to wait for these.
void CpuStream::begin_move(const File& file, bool writes) {
  if (moves_ && (&file != file_ || writes != writes_)) wait_for(posts_, posts_->last());
  file_ = &file;
  writes_ = writes;
  moves_ = true;
}

// A thread of the file carries it out.
void CpuStream::fetch(void* target, const void* source, int64_t bytes) {
  const Files::Place from = files_ ? files_->find(source) : Files::Place();
  EPL_CHECK(from, "a fetch from no file");
  if (bytes <= 0) return;
  begin_move(*from.file, false);
  from.file->post_read(from.offset, target, bytes, std::exchange(awaited_, {}), posts_);
}

void CpuStream::evict(void* target, const void* source, int64_t bytes) {
  const Files::Place to = files_ ? files_->find(target) : Files::Place();
  EPL_CHECK(to, "an evict to no file");
  if (bytes <= 0) return;
  begin_move(*to.file, true);
  to.file->post_write(to.offset, source, bytes, std::exchange(awaited_, {}), posts_);
}

void CpuStream::record(Event& event) {
  end_waits();
  static_cast<CpuEvent&>(event).record(posts_);
}

void CpuStream::wait(Event& event) {
  const CpuEvent::Record record = static_cast<CpuEvent&>(event).latest();
  if (record.posts) wait_for(record.posts, record.last);
  if (!moves_) end_waits();
}

// The next command does.
void CpuStream::wait_for(const std::shared_ptr<Posts>& posts, uint64_t last) {
  if (posts->has_ended(last)) return take(posts->failure());
  if (awaited_.add(posts, last)) return;
  end_waits();
  awaited_.add(posts, last);
}

void CpuStream::end_waits() {
  if (!awaited_.empty()) take(std::exchange(awaited_, {}).wait());
}

void CpuStream::end_posts() {
  end_waits();
  posts_->wait();
}

HostStream* CpuStream::host() {
  end_waits();
  return this;
}

Status CpuStream::synchronize() {
  end_posts();
  Status own = posts_->take_failure(), other = std::exchange(failure_, {});
  return own.ok() ? other : own;
}

}  // namespace epl::cpu
