/* A program that is not linked with libepl.so: it loads it privately, and trains through the table of epl_dl.h.
 *
 *   capi_dl_user libepl.so FOLDER */
#include <dlfcn.h>
#include <epl_dl.h>
#include <stdio.h>
#include <stdlib.h>

static epl_table epl;

static void check(epl_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s\n", epl.error_message(error, NULL));
  exit(1);
}

/* A library that lacks a function. */
static void* without_session_step(void* library, const char* name) {
  return strcmp(name, "epl_session_step") == 0 ? NULL : dlsym(library, name);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (dlsym(RTLD_DEFAULT, "epl_version") != NULL) return 3; /* it would not be private */
  const char* missing = epl_table_load(&epl, library, without_session_step);
  if (missing == NULL || strcmp(missing, "epl_session_step") != 0) return 4;
  if (epl.session_step != NULL || epl.session_evaluate == NULL) return 5;
  missing = epl_table_load(&epl, library, dlsym);
  if (missing != NULL) {
    fprintf(stderr, "the library lacks %s\n", missing);
    return 6;
  }

  char path[1024];
  const int length = snprintf(path, sizeof path, "%s/dl_user.onnx", argv[2]);
  if (length < 0 || length >= (int)sizeof path) return 2;
  epl_engine* engine = NULL;
  epl_model* model = NULL;
  epl_trainer* trainer = NULL;
  epl_plan* plan = NULL;
  epl_session* session = NULL;
  check(epl.engine_create(NULL, &engine));
  check(epl.x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,8,2],\"seed\":1}"), path, (size_t)length,
                             NULL));
  check(epl.model_load(engine, path, (size_t)length, NULL, NULL, &model));
  check(epl.trainer_create(engine, &trainer));
  check(epl.trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.5));
  check(epl.trainer_bind_symbol(trainer, EPL_STR("batch"), 2));
  check(epl.plan_create(model, trainer, NULL, NULL, NULL, &plan));
  check(epl.session_create(plan, NULL, NULL, &session));
  const float x[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}};
  const int64_t target[2] = {0, 1}, dims[2] = {2, 4};
  epl_tensor *x_tensor = NULL, *target_tensor = NULL;
  check(epl.tensor_create_copy(engine, EPL_DTYPE_F32, dims, 2, x, sizeof x, &x_tensor));
  check(epl.tensor_create_copy(engine, EPL_DTYPE_I64, dims, 1, target, sizeof target, &target_tensor));
  const epl_tensor* inputs[2] = {x_tensor, target_tensor};
  epl_metrics metrics = EPL_METRICS_INIT;
  for (int step = 0; step < 10; ++step) check(epl.session_step(session, inputs, 2, NULL, &metrics));
  epl.tensor_destroy(target_tensor);
  epl.tensor_destroy(x_tensor);
  epl.session_destroy(session);
  epl.plan_destroy(plan);
  epl.trainer_destroy(trainer);
  epl.model_destroy(model);
  epl.engine_destroy(engine);
  printf("loss %.4f, %lld handles\n", metrics.loss, (long long)epl.live_handles());
  return metrics.loss < 0.5 && epl.live_handles() == 0 && metrics.step == 10 ? 0 : 7;
}
