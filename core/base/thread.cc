#include "core/base/thread.h"

#include <signal.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <system_error>
#include <utility>

#include "core/base/float_environment.h"

namespace epl {
namespace {

#if defined(EPL_DEV) || defined(__SANITIZE_THREAD__)  // sanitizers put much more on a stack
constexpr size_t stack_bytes = size_t{8} << 20;
#else
// What kernels need, and room for the thread-local data of the host's libraries, which the C library takes from the
// stack.
constexpr size_t stack_bytes = size_t{512} << 10;
#endif

using Body = std::function<void()>;

void* run(void* argument) {
  const std::unique_ptr<Body> work(static_cast<Body*>(argument));
  FloatEnvironment environment;
  (*work)();
  return nullptr;
}

}  // namespace

Result<Thread> Thread::start(const std::string& name, std::function<void()> work) {
  auto begin = std::make_unique<Body>(std::move(work));
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return Status::no_memory();
  ::pthread_attr_setstacksize(&attributes, std::max<size_t>(stack_bytes, static_cast<size_t>(PTHREAD_STACK_MIN)));
  // A thread begins with the signal mask of the one that makes it.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Thread out;
  const int failed = ::pthread_create(&out.thread_, &attributes, run, begin.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (failed != 0)
    return error(Code::exhausted, "the operating system gives no thread (", std::generic_category().message(failed),
                 ")");
  static_cast<void>(begin.release());
  ::pthread_setname_np(out.thread_, name.c_str());
  out.joinable_ = true;
  return out;
}

void Thread::detach() {
  if (std::exchange(joinable_, false)) ::pthread_detach(thread_);
}

void Thread::join() {
  if (std::exchange(joinable_, false)) ::pthread_join(thread_, nullptr);
}

}  // namespace epl
