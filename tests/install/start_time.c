/* The library's size, and the time to load it and to make an engine, in processes of their own.
 *
 * usage: start_time LIBRARY    the file as it is shipped, without symbols */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <epl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES 10000000
#define MOST_MILLISECONDS 20.0
#define PROCESSES 9

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* -1 where it does not work. */
static double start(const char* path) {
  const double begin = milliseconds();
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return -1;
  }
  void* symbol = dlsym(library, "epl_engine_create");
  epl_error* (*engine_create)(const epl_engine_options*, epl_engine**);
  memcpy(&engine_create, &symbol, sizeof symbol);
  epl_engine* engine = NULL;
  if (symbol == NULL || engine_create(NULL, &engine) != NULL) return -1;
  return milliseconds() - begin;
}

int main(int argc, char** argv) {
  struct stat file;
  if (argc < 2) return 2;
  if (stat(argv[1], &file) != 0) {
    printf("SKIP: no %s, which the Debian packages have\n", argv[1]);
    return 0;
  }
  /* Of several the best: that of a process that others did not hold up. */
  double best = 1e9;
  for (int i = 0; i < PROCESSES; ++i) {
    int ends[2];
    double taken = -1;
    if (pipe(ends) != 0) return 2;
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
      taken = start(argv[1]);
      _exit(write(ends[1], &taken, sizeof taken) == (ssize_t)sizeof taken ? 0 : 1);
    }
    close(ends[1]);
    const int told = read(ends[0], &taken, sizeof taken) == (ssize_t)sizeof taken;
    close(ends[0]);
    waitpid(child, NULL, 0);
    if (!told || taken < 0) return 1;
    if (taken < best) best = taken;
  }
  printf("%lld bytes; loaded, and an engine made, in %.2f ms\n", (long long)file.st_size, best);
  return file.st_size < MOST_BYTES && best < MOST_MILLISECONDS ? 0 : 1;
}
