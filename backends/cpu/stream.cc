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
  last_ = posts->last();
  posts_ = std::move(posts);
}

Status CpuEvent::wait() const {
  std::shared_ptr<Posts> posts;
  uint64_t last = 0;
  {
    std::lock_guard lock(mutex_);
    posts = posts_;
    last = last_;
  }
  if (!posts) return {};
  posts->wait(last);
  return posts->failure();
}

void CpuStream::launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
                       void* const* outputs, void* workspace, const StepContext& context) {
  EPL_CHECK(row.launch != nullptr, "kernel ", row.name, " of ", row.op, " has no launch");
  posts_->wait();
  FloatEnvironment environment;
  row.launch({query, state, inputs, outputs, workspace, *this, context});
}

void CpuStream::copy(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0 || target == source) return;
  posts_->wait();
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
  posts_->wait();
  pool_.run_ranges(rows.rows, std::max<int64_t>(1, copy_grain / rows.bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(rows.target) + i * rows.target_step,
                  static_cast<const char*>(rows.source) + i * rows.source_step, static_cast<size_t>(rows.bytes));
    }
  });
}

void CpuStream::fill(void* target, int64_t bytes, uint8_t value) {
  if (bytes <= 0) return;
  posts_->wait();
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

// The thread of the file carries it out.
void CpuStream::fetch(void* target, const void* source, int64_t bytes) {
  const Files::Place from = files_ ? files_->find(source) : Files::Place();
  EPL_CHECK(from, "a fetch from no file");
  if (bytes > 0) from.file->post_read(from.offset, target, bytes, posts_);
}

void CpuStream::evict(void* target, const void* source, int64_t bytes) {
  const Files::Place to = files_ ? files_->find(target) : Files::Place();
  EPL_CHECK(to, "an evict to no file");
  if (bytes > 0) to.file->post_write(to.offset, source, bytes, posts_);
}

void CpuStream::wait(Event& event) { take(static_cast<CpuEvent&>(event).wait()); }

Status CpuStream::synchronize() {
  posts_->wait();
  Status own = posts_->take_failure(), other = std::exchange(failure_, {});
  return own.ok() ? other : own;
}

}  // namespace epl::cpu
