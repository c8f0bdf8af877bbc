/* An allocator that fails on demand: the library calls malloc by its name, and the program's comes first. */
#ifndef TESTS_CAPI_FAILING_ALLOCATOR_H
#define TESTS_CAPI_FAILING_ALLOCATOR_H
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long count, fail_from; /* fail_from 0: none fails */
static atomic_int for_good;
static int fails(void) {
  long from = atomic_load(&fail_from);
  if (from == 0) return 0;
  long n = atomic_fetch_add(&count, 1) + 1;
  if (n != from && !(n > from && atomic_load(&for_good))) return 0;
  errno = ENOMEM;
  return 1;
}
void* malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void* calloc(size_t n, size_t bytes) { return fails() ? NULL : __libc_calloc(n, bytes); }
void* realloc(void* p, size_t bytes) { return fails() ? NULL : __libc_realloc(p, bytes); }
void* memalign(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (fails() || (*out = __libc_memalign(alignment, bytes)) == NULL) return ENOMEM;
  return 0;
}
/* Threads and pages are memory too. */
static int (*real_pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) {
  return fails() ? EAGAIN : real_pthread_create(thread, attributes, work, argument);
}
static void* (*real_mmap)(void*, size_t, int, int, int, off_t);
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails()) return MAP_FAILED;
  return real_mmap ? real_mmap(at, bytes, protection, flags, file, offset) : MAP_FAILED;
}
#endif
