/* The library loaded and let go of a thousand times, with work in each round: nothing grows. Handles and threads
 * outlive a dlclose.
 *
 * usage: reload LIBRARY FOLDER */
#include <dirent.h>
#include <dlfcn.h>

#include "world.h"

static long resident_kilobytes(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int entries(const char* folder) {
  int count = 0;
  DIR* open = opendir(folder);
  while (open != NULL && readdir(open) != NULL) ++count;
  if (open != NULL) closedir(open);
  return count;
}

/* Not by name: this program is linked with nothing of the library. */
static void* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "no %s\n", name);
    exit(1);
  }
  return found;
}

static void round_of_work(void* library, const char* path) {
  epl_error* (*engine_create)(const epl_engine_options*, epl_engine**);
  epl_error* (*template_write)(const epl_engine*, const char*, size_t, const char*, size_t, const char*, size_t,
                               const epl_call_options*);
  void (*engine_destroy)(epl_engine*);
  *(void**)&engine_create = find(library, "epl_engine_create");
  *(void**)&template_write = find(library, "epl_x_template_write");
  *(void**)&engine_destroy = find(library, "epl_engine_destroy");
  epl_engine* engine = NULL;
  if (engine_create(NULL, &engine) != NULL) exit(1);
  if (template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[2,2]}"), TEXT(path), NULL) != NULL) exit(1);
  engine_destroy(engine);
}

int main(int argc, char** argv) {
  char path[300];
  if (argc < 3) return 2;
  mkdir(argv[2], 0777);
  snprintf(path, sizeof path, "%s/reload.onnx", argv[2]);
  long after_100 = 0;
  int files = 0, threads = 0;
  epl_engine* kept = NULL;
  for (int i = 0; i < 1000; ++i) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    if (i % 50 == 0) round_of_work(library, path); /* a file that is synced takes its time */
    if (i == 0) {
      epl_error* (*engine_create)(const epl_engine_options*, epl_engine**);
      *(void**)&engine_create = find(library, "epl_engine_create");
      if (engine_create(NULL, &kept) != NULL) return 1;
    }
    dlclose(library);
    if (i == 100) {
      after_100 = resident_kilobytes();
      files = entries("/proc/self/fd");
      threads = entries("/proc/self/task");
    }
  }
  EXPECT(resident_kilobytes() - after_100 < 2000, "%ld kB after 100 rounds, %ld kB after 1,000", after_100,
         resident_kilobytes());
  EXPECT(entries("/proc/self/fd") == files, "%d files, now %d", files, entries("/proc/self/fd"));
  EXPECT(entries("/proc/self/task") == threads, "%d threads, now %d", threads, entries("/proc/self/task"));
  /* What was made before the first dlclose is alive after the last. */
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void (*engine_destroy)(epl_engine*);
  int64_t (*live_handles)(void);
  *(void**)&engine_destroy = find(library, "epl_engine_destroy");
  *(void**)&live_handles = find(library, "epl_live_handles");
  EXPECT(live_handles() == 1, "%lld handles", (long long)live_handles());
  engine_destroy(kept);
  EXPECT(live_handles() == 0, "%lld handles", (long long)live_handles());
  dlclose(library);
  return failures != 0;
}
