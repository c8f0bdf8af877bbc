/* A small world for the C programs of this folder: an engine, a multilayer perceptron, its plan, a session and a batch.
 */
#ifndef TESTS_CAPI_WORLD_H
#define TESTS_CAPI_WORLD_H
#include <epl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A program says what failed and counts it; a test of GoogleTest fails by it besides. */
#ifdef ADD_FAILURE
#define EPL_ADD_FAILURE() ADD_FAILURE()
#else
#define EPL_ADD_FAILURE() (void)0
#endif
static int failures;
#define EXPECT(condition, ...)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "" __VA_ARGS__);                                \
      fputc('\n', stderr);                                            \
      ++failures;                                                     \
      EPL_ADD_FAILURE();                                              \
    }                                                                 \
  } while (0)

static inline int32_t taken(epl_error* error) {
  int32_t code = epl_error_code(error);
  epl_error_destroy(error);
  return code;
}
static inline void must(epl_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", epl_error_code_name(epl_error_code(error)), epl_error_message(error, NULL));
  exit(1);
}

enum { world_batch = 8 };
typedef struct world {
  char folder[200], model_path[256], csv_path[256], text_path[256], checkpoint[256], out[256];
  epl_engine* engine;
  epl_model* model;
  epl_trainer* trainer;
  epl_strategy* strategy;
  epl_plan* plan;
  epl_session* session;
  epl_tensor *x, *target;
  const epl_tensor* inputs[2];
} world;

#define TEXT(pointer) (pointer), strlen(pointer)

static inline void world_write(const char* path, const char* text, size_t bytes) {
  FILE* file = fopen(path, "wb");
  if (file == NULL || fwrite(text, 1, bytes, file) != bytes || fclose(file) != 0) exit(1);
}

/* `sizes` of the perceptron: "[4,8,2]", or larger where weights are to stay in their file. */
static inline void world_make(world* w, const char* folder, int32_t threads, int width) {
  char options[100];
  memset(w, 0, sizeof *w);
  snprintf(w->folder, sizeof w->folder, "%s", folder);
  mkdir(folder, 0777);
  snprintf(w->model_path, sizeof w->model_path, "%s/model.onnx", folder);
  snprintf(w->csv_path, sizeof w->csv_path, "%s/rows.csv", folder);
  snprintf(w->text_path, sizeof w->text_path, "%s/book.txt", folder);
  snprintf(w->checkpoint, sizeof w->checkpoint, "%s/checkpoint", folder);
  snprintf(w->out, sizeof w->out, "%s/out", folder);
  char rows[4000] = "a,b,c,d,y\n";
  for (int i = 0; i < 64; ++i)
    snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%d,%d,%d,%d,%d\n", i, i % 5, i % 7, i % 3, i % 2);
  world_write(w->csv_path, rows, strlen(rows));
  char* book = (char*)malloc(65536);
  for (int i = 0; i < 65536; ++i) book[i] = (char)('a' + i % 23);
  world_write(w->text_path, book, 65536);
  free(book);
  epl_engine_options engine_options = EPL_ENGINE_OPTIONS_INIT;
  engine_options.threads = threads;
  engine_options.packs = ""; /* none: what they allocate when they are loaded is not the engine's */
  must(epl_engine_create(&engine_options, &w->engine));
  snprintf(options, sizeof options, "{\"sizes\":[4,%d,2],\"seed\":3}", width);
  must(epl_x_template_write(w->engine, EPL_STR("mlp"), TEXT(options), TEXT(w->model_path), NULL));
  must(epl_model_load(w->engine, TEXT(w->model_path), NULL, NULL, &w->model));
  must(epl_trainer_create(w->engine, &w->trainer));
  must(epl_trainer_set(w->trainer, EPL_STR("optimizer"), EPL_STR("adam")));
  must(epl_trainer_bind_symbol(w->trainer, EPL_STR("batch"), world_batch));
  must(epl_strategy_create(w->engine, &w->strategy));
  must(epl_plan_create(w->model, w->trainer, w->strategy, NULL, NULL, &w->plan));
  must(epl_session_create(w->plan, NULL, NULL, &w->session));
  float x[world_batch * 4];
  int64_t target[world_batch];
  for (int i = 0; i < world_batch * 4; ++i) x[i] = (float)(i % 7) - 3;
  for (int i = 0; i < world_batch; ++i) target[i] = i % 2;
  const int64_t x_dims[2] = {world_batch, 4}, target_dims[1] = {world_batch};
  must(epl_tensor_create_copy(w->engine, EPL_DTYPE_F32, x_dims, 2, x, sizeof x, &w->x));
  must(epl_tensor_create_copy(w->engine, EPL_DTYPE_I64, target_dims, 1, target, sizeof target, &w->target));
  w->inputs[0] = w->x;
  w->inputs[1] = w->target;
}

static inline void world_destroy(world* w) {
  epl_session_destroy(w->session);
  epl_plan_destroy(w->plan);
  epl_strategy_destroy(w->strategy);
  epl_trainer_destroy(w->trainer);
  epl_model_destroy(w->model);
  epl_tensor_destroy(w->x);
  epl_tensor_destroy(w->target);
  epl_engine_destroy(w->engine);
}

/* The last one of a program. */
static inline void world_end(world* w) {
  world_destroy(w);
  EXPECT(epl_live_handles() == 0, "%lld handles are alive", (long long)epl_live_handles());
}
#endif
