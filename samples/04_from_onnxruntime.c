/* A training as programs have it that come from ONNX Runtime's training C API, call by call: comments name what
 * stood there. docs/migrating-from-onnxruntime.md explains it.
 *
 * usage: 04_from_onnxruntime [FOLDER]    writes model.onnx, checkpoint and inference.onnx there */
#include <epl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { batch = 16, inputs = 4, classes = 2, steps = 60 };

/* OrtApi::GetErrorCode, GetErrorMessage, ReleaseStatus */
static void check(epl_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", epl_error_code_name(epl_error_code(error)), epl_error_message(error, NULL));
  epl_error_destroy(error);
  exit(1);
}

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "this does not hold: %s\n", what);
  exit(1);
}

/* FOLDER/NAME, and its length. */
static size_t join(char* path, size_t room, const char* folder, const char* name) {
  const int length = snprintf(path, room, "%s/%s", folder, name);
  require(length > 0 && (size_t)length < room, "the folder's name is short enough");
  return (size_t)length;
}

/* Is the first number larger than the last? */
static void make_batch(int number, float* x, int64_t* target) {
  for (int i = 0; i < batch; ++i) {
    for (int j = 0; j < inputs; ++j) x[i * inputs + j] = (float)(((i + number) * 7 + j * j * 3) % 5) - 2.0f;
    target[i] = x[i * inputs] > x[i * inputs + inputs - 1];
  }
}

/* GetParametersSize with trainable_only */
static int64_t parameters_size(const epl_session* session) {
  int64_t size = 0;
  for (int64_t i = 0; i < epl_session_state_count(session, EPL_STATE_PARAMETER); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    check(epl_session_state_port(session, EPL_STATE_PARAMETER, i, &info));
    int64_t elements = 1;
    for (int32_t d = 0; d < info.ndim; ++d) elements *= info.dims[d];
    size += elements;
  }
  return size;
}

/* CopyParametersToBuffer: one after another, in the order of their names. */
static void copy_parameters_to_buffer(epl_session* session, float* buffer) {
  for (int64_t i = 0; i < epl_session_state_count(session, EPL_STATE_PARAMETER); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    epl_tensor* tensor = NULL;
    check(epl_session_state_port(session, EPL_STATE_PARAMETER, i, &info));
    check(epl_session_get(session, info.name, info.name_length, NULL, &tensor)); /* GetParameter */
    memcpy(buffer, epl_tensor_data(tensor), epl_tensor_bytes(tensor));
    buffer += epl_tensor_bytes(tensor) / sizeof *buffer;
    epl_tensor_destroy(tensor);
  }
}

/* CopyBufferToParameters */
static void copy_buffer_to_parameters(const epl_engine* engine, epl_session* session, const float* buffer) {
  for (int64_t i = 0; i < epl_session_state_count(session, EPL_STATE_PARAMETER); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    epl_tensor* tensor = NULL;
    check(epl_session_state_port(session, EPL_STATE_PARAMETER, i, &info));
    size_t elements = 1;
    for (int32_t d = 0; d < info.ndim; ++d) elements *= (size_t)info.dims[d];
    check(epl_tensor_create_copy(engine, info.dtype, info.dims, info.ndim, buffer, elements * sizeof *buffer, &tensor));
    check(epl_session_set(session, info.name, info.name_length, tensor, NULL)); /* UpdateParameter */
    buffer += elements;
    epl_tensor_destroy(tensor);
  }
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  char path[1024], checkpoint_path[1024], inference_path[1024];
  const size_t length = join(path, sizeof path, folder, "model.onnx");
  const size_t checkpoint_length = join(checkpoint_path, sizeof checkpoint_path, folder, "checkpoint");
  const size_t inference_length = join(inference_path, sizeof inference_path, folder, "inference.onnx");

  /* CreateEnv, CreateSessionOptions, SetIntraOpNumThreads */
  epl_engine_options engine_options = EPL_ENGINE_OPTIONS_INIT;
  engine_options.threads = 2;
  epl_engine* engine = NULL;
  check(epl_engine_create(&engine_options, &engine));

  /* The forward model, which was given to generate_artifacts. This one is written here. */
  check(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,16,2],\"seed\":1}"), path, length, NULL));
  epl_model* model = NULL;
  check(epl_model_load(engine, path, length, NULL, NULL, &model));

  /* generate_artifacts(model, requires_grad, frozen_params, LossType.CrossEntropyLoss, OptimType.AdamW) */
  epl_trainer* trainer = NULL;
  check(epl_trainer_create(engine, &trainer));
  check(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("softmax_cross_entropy")));
  check(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adamw")));
  check(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.05));
  check(epl_trainer_set_number(trainer, EPL_STR("optimizer.eps"), 1e-6)); /* the values of their AdamW */
  check(epl_trainer_set_number(trainer, EPL_STR("optimizer.weight_decay"), 0));
  /* RegisterLinearLRScheduler(session, 5, steps, 0.05) */
  check(epl_trainer_set(trainer, EPL_STR("schedule"), EPL_STR("linear")));
  check(epl_trainer_set_number(trainer, EPL_STR("schedule.warmup_steps"), 5));
  check(epl_trainer_set_number(trainer, EPL_STR("schedule.total_steps"), steps));
  check(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), batch));

  /* Two calls of TrainStep for one of OptimizerStep were: */
  epl_strategy* strategy = NULL;
  check(epl_strategy_parse(engine, EPL_STR("{\"pipeline.num_micro_batch\": 2}"), &strategy));

  /* CreateTrainingSession; SetSeed */
  epl_plan_options plan_options = EPL_PLAN_OPTIONS_INIT;
  plan_options.seed = 7;
  epl_plan* plan = NULL;
  epl_session* session = NULL;
  check(epl_plan_create(model, trainer, strategy, &plan_options, NULL, &plan));
  check(epl_session_create(plan, NULL, NULL, &session));

  /* TrainingSessionGetTrainingModelInputCount, ...InputName */
  for (int64_t i = 0; i < epl_plan_port_count(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    check(epl_plan_port(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i, &info));
    printf("input %d: %.*s\n", (int)i, (int)info.name_length, info.name);
  }

  /* CreateTensorWithDataAsOrtValue: the same memory for every batch */
  float x[batch * inputs];
  int64_t target[batch];
  const int64_t x_dims[2] = {batch, inputs}, target_dims[1] = {batch};
  epl_tensor* tensors[2] = {NULL, NULL};
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_F32, x_dims, 2, x, sizeof x, 0, NULL, NULL, &tensors[0]));
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_I64, target_dims, 1, target, sizeof target, 0, NULL, NULL,
                                 &tensors[1]));
  const epl_tensor* step_inputs[2] = {tensors[0], tensors[1]};

  epl_metrics metrics = EPL_METRICS_INIT;
  double first_loss = 0;
  for (int step = 0; step < steps / 2; ++step) {
    make_batch(step, x, target);
    check(epl_session_step(session, step_inputs, 2, NULL, &metrics)); /* TrainStep, OptimizerStep, LazyResetGrad */
    if (step == 0) first_loss = metrics.loss;
    if (step % 10 == 0)
      printf("step %lld  loss %.4f  rate %.4f\n", (long long)metrics.step, metrics.loss,
             metrics.learning_rate); /* GetLearningRate; SchedulerStep is part of the step */
  }

  /* SaveCheckpoint with include_optimizer_state, then LoadCheckpoint in a second session, as after a restart */
  check(epl_session_save(session, checkpoint_path, checkpoint_length, NULL, NULL));
  epl_session* second = NULL;
  check(epl_session_create(plan, NULL, NULL, &second));
  check(epl_session_load(second, checkpoint_path, checkpoint_length, NULL, NULL));
  require(epl_session_steps(second) == steps / 2, "the second session goes on at the step of the first");
  epl_session_destroy(session);

  check(epl_session_set_number(second, EPL_STR("learning_rate_scale"), 0.5)); /* SetLearningRate, besides a schedule */
  for (int step = steps / 2; step < steps; ++step) {
    make_batch(step, x, target);
    check(epl_session_step(second, step_inputs, 2, NULL, &metrics));
  }
  require(metrics.loss < 0.5 * first_loss, "the loss has come down");

  /* EvalStep: its first output is the loss, the others are the model's. */
  epl_metrics evaluated = EPL_METRICS_INIT;
  check(epl_session_evaluate(second, step_inputs, 2, NULL, &evaluated));
  epl_tensor* scores = NULL;
  check(epl_session_predict(second, step_inputs, 1, NULL, &scores, 1));
  int right = 0;
  for (int i = 0; i < batch; ++i) {
    const float* row = (const float*)epl_tensor_data(scores) + i * classes;
    right += (row[1] > row[0]) == target[i];
  }
  printf("evaluated: loss %.4f, %d of %d are right\n", evaluated.loss, right, batch);
  epl_tensor_destroy(scores);

  /* Federated learning: parameters out, an average of several clients in. Here it is the same ones. */
  const int64_t size = parameters_size(second);
  float* buffer = (float*)malloc((size_t)size * sizeof *buffer);
  require(buffer != NULL, "there is memory");
  uint64_t before = 0, after = 0;
  check(epl_session_hash(second, NULL, &before));
  copy_parameters_to_buffer(second, buffer);
  copy_buffer_to_parameters(engine, second, buffer);
  check(epl_session_hash(second, NULL, &after));
  require(before == after, "parameters that went out and in again are the same");
  free(buffer);

  check(epl_session_export_onnx(second, inference_path, inference_length, NULL)); /* ExportModelForInferencing */

  /* ReleaseTrainingSession, ReleaseCheckpointState, ReleaseSessionOptions, ReleaseEnv: in any order */
  epl_engine_destroy(engine);
  epl_session_destroy(second);
  epl_plan_destroy(plan);
  epl_strategy_destroy(strategy);
  epl_trainer_destroy(trainer);
  epl_model_destroy(model);
  for (int i = 0; i < 2; ++i) epl_tensor_destroy(tensors[i]);
  require(epl_live_handles() == 0, "all handles are destroyed");
  return 0;
}
