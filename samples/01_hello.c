/* The shortest useful program: a model file goes in, a trained one comes out.
 *
 * usage: 01_hello [FOLDER]    writes hello.onnx and trained.onnx there (default: the current folder) */
#include <epl.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints an error and ends the program. */
static void check(epl_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", epl_error_code_name(epl_error_code(error)), epl_error_message(error, NULL));
  epl_error_destroy(error);
  exit(1);
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  char model_path[1024], trained_path[1024];
  int model_length = snprintf(model_path, sizeof model_path, "%s/hello.onnx", folder);
  int trained_length = snprintf(trained_path, sizeof trained_path, "%s/trained.onnx", folder);
  if (model_length >= (int)sizeof model_path || trained_length >= (int)sizeof trained_path) return 2;

  epl_engine* engine = NULL;
  epl_model* model = NULL;
  epl_trainer* trainer = NULL;
  epl_strategy* strategy = NULL;
  epl_plan* plan = NULL;
  epl_session* session = NULL;
  check(epl_engine_create(NULL, &engine));

  /* Any ONNX file will do; this one is written here: x f32[batch, 4] -> logits f32[batch, 2]. */
  check(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,16,2],\"seed\":1}"), model_path,
                             (size_t)model_length, NULL));
  check(epl_model_load(engine, model_path, (size_t)model_length, NULL, NULL, &model));

  check(epl_trainer_create(engine, &trainer)); /* cross-entropy is the default loss */
  check(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adamw")));
  check(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.05));
  check(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
  check(epl_strategy_parse(engine, EPL_STR("{\"pipeline.num_micro_batch\": 2}"), &strategy));

  check(epl_plan_create(model, trainer, strategy, NULL, NULL, &plan));
  printf("memory at its peak: %lld bytes\n", (long long)epl_plan_memory_bytes_peak(plan, 0));
  check(epl_session_create(plan, NULL, NULL, &session));

  /* Which is larger, the first number or the last? */
  float x[8][4];
  int64_t target[8];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) x[i][j] = (float)((i * 7 + j * j * 3) % 5) - 2.0f;
    target[i] = x[i][0] < x[i][3];
  }
  const int64_t x_dims[2] = {8, 4}, target_dims[1] = {8};
  epl_tensor *x_tensor = NULL, *target_tensor = NULL;
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_F32, x_dims, 2, x, sizeof x, 0, NULL, NULL, &x_tensor));
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_I64, target_dims, 1, target, sizeof target, 0, NULL, NULL,
                                 &target_tensor));
  const epl_tensor* inputs[2] = {x_tensor, target_tensor}; /* in the plan's order (epl_plan_port) */

  epl_metrics metrics = EPL_METRICS_INIT;
  for (int step = 0; step < 50; ++step) {
    check(epl_session_step(session, inputs, 2, NULL, &metrics));
    if (step % 10 == 0) printf("step %2d  loss %.4f\n", step, metrics.loss);
  }
  printf("step %2d  loss %.4f\n", 49, metrics.loss);
  check(epl_session_export_onnx(session, trained_path, (size_t)trained_length, NULL));

  epl_tensor_destroy(target_tensor);
  epl_tensor_destroy(x_tensor);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_strategy_destroy(strategy);
  epl_trainer_destroy(trainer);
  epl_model_destroy(model);
  epl_engine_destroy(engine);
  if (epl_live_handles() != 0) {
    fprintf(stderr, "%lld handles are still alive\n", (long long)epl_live_handles());
    return 1;
  }
  return metrics.loss < 0.1 ? 0 : 1;
}
