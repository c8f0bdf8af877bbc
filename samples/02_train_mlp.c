/* Training as a service does it: inputs found by name, a deadline for each step, a step that is cancelled, evaluation,
 * a checkpoint, and a second session that goes on from it with the same bits.
 *
 * usage: 02_train_mlp [FOLDER] */
#include <epl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { batch = 16, inputs = 8, classes = 3, steps = 40 };

static void check(epl_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", epl_error_code_name(epl_error_code(error)), epl_error_message(error, NULL));
  epl_error_destroy(error);
  exit(1);
}

/* Deterministic numbers in [-1, 1). */
static float draw(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* The class is where the sum of a third of the inputs is largest. */
static void make_batch(uint32_t seed, float* x, int64_t* target) {
  uint32_t state = seed * 2654435761u + 1;
  for (int i = 0; i < batch; ++i) {
    float sums[classes] = {0, 0, 0};
    for (int j = 0; j < inputs; ++j) {
      x[i * inputs + j] = draw(&state);
      sums[j % classes] += x[i * inputs + j];
    }
    target[i] = 0;
    for (int c = 1; c < classes; ++c) {
      if (sums[c] > sums[target[i]]) target[i] = c;
    }
  }
}

/* A batch as tensors, in the order in which the plan takes them. */
struct batch_tensors {
  float x[batch * inputs];
  int64_t target[batch];
  epl_tensor* owned[2];
  const epl_tensor* ordered[2];
};

static void open_batch(const epl_engine* engine, const epl_plan* plan, struct batch_tensors* b) {
  const int64_t x_dims[2] = {batch, inputs}, target_dims[1] = {batch};
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_F32, x_dims, 2, b->x, sizeof b->x, 0, NULL, NULL, &b->owned[0]));
  check(epl_tensor_create_borrow(engine, EPL_DTYPE_I64, target_dims, 1, b->target, sizeof b->target, 0, NULL, NULL,
                                 &b->owned[1]));
  for (int64_t i = 0; i < epl_plan_port_count(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i) {
    epl_tensor_info port = EPL_TENSOR_INFO_INIT;
    check(epl_plan_port(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i, &port));
    b->ordered[i] = strcmp(port.name, "target") == 0 ? b->owned[1] : b->owned[0];
  }
}

static double train(epl_session* session, struct batch_tensors* b, int first, int last) {
  epl_metrics metrics = EPL_METRICS_INIT;
  epl_call_options options = EPL_CALL_OPTIONS_INIT;
  options.timeout_nanoseconds = INT64_C(60000000000); /* a minute for each step */
  for (int step = first; step < last; ++step) {
    make_batch((uint32_t)step, b->x, b->target);
    check(epl_session_step(session, b->ordered, 2, &options, &metrics));
  }
  return metrics.loss;
}

/* A step whose token is triggered returns EPL_ERROR_CANCELLED and changes nothing. */
static int cancelled_step_changes_nothing(const epl_engine* engine, epl_session* session, struct batch_tensors* b) {
  uint64_t before = 0, after = 0;
  epl_cancel* cancel = NULL;
  epl_call_options options = EPL_CALL_OPTIONS_INIT;
  check(epl_session_hash(session, NULL, &before));
  check(epl_cancel_create(engine, &cancel));
  epl_cancel_trigger(cancel); /* any thread may do this, at any time */
  options.cancel = cancel;
  epl_error* error = epl_session_step(session, b->ordered, 2, &options, NULL);
  int32_t code = epl_error_code(error);
  epl_error_destroy(error);
  epl_cancel_destroy(cancel);
  check(epl_session_hash(session, NULL, &after));
  return code == EPL_ERROR_CANCELLED && before == after;
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  char model_path[1024], checkpoint[1024];
  int model_length = snprintf(model_path, sizeof model_path, "%s/mlp.onnx", folder);
  int checkpoint_length = snprintf(checkpoint, sizeof checkpoint, "%s/mlp.checkpoint", folder);
  if (model_length >= (int)sizeof model_path || checkpoint_length >= (int)sizeof checkpoint) return 2;

  epl_engine_options engine_options = EPL_ENGINE_OPTIONS_INIT;
  engine_options.threads = 2;
  epl_engine* engine = NULL;
  epl_model* model = NULL;
  epl_trainer* trainer = NULL;
  epl_plan* plan = NULL;
  epl_session *session = NULL, *second = NULL;
  check(epl_engine_create(&engine_options, &engine));
  check(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[8,32,32,3],\"seed\":3}"), model_path,
                             (size_t)model_length, NULL));
  check(epl_model_load(engine, model_path, (size_t)model_length, NULL, NULL, &model));
  check(epl_trainer_create(engine, &trainer));
  check(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adam")));
  check(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.01));
  check(epl_trainer_set(trainer, EPL_STR("schedule"), EPL_STR("cosine")));
  check(epl_trainer_set_number(trainer, EPL_STR("schedule.total_steps"), steps));
  check(epl_trainer_set_number(trainer, EPL_STR("clip_norm"), 1.0));
  check(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), batch));
  check(epl_plan_create(model, trainer, NULL, NULL, NULL, &plan));

  static struct batch_tensors b;
  open_batch(engine, plan, &b);
  check(epl_session_create(plan, NULL, NULL, &session));
  make_batch(0, b.x, b.target);
  epl_metrics before = EPL_METRICS_INIT;
  check(epl_session_evaluate(session, b.ordered, 2, NULL, &before));

  train(session, &b, 0, steps / 2);
  check(epl_session_save(session, checkpoint, (size_t)checkpoint_length, NULL, NULL));
  int cancelled = cancelled_step_changes_nothing(engine, session, &b);
  double loss = train(session, &b, steps / 2, steps);

  /* Another session, from the checkpoint, arrives at the same bits. */
  check(epl_session_create(plan, NULL, NULL, &second));
  check(epl_session_load(second, checkpoint, (size_t)checkpoint_length, NULL, NULL));
  train(second, &b, steps / 2, steps);
  uint64_t one = 0, other = 0;
  check(epl_session_hash(session, NULL, &one));
  check(epl_session_hash(second, NULL, &other));
  printf("loss %.4f before, %.4f after; cancelled step %s; weights %016" PRIx64 ", resumed %016" PRIx64 "\n",
         before.loss, loss, cancelled ? "changed nothing" : "FAILED", one, other);

  epl_tensor_destroy(b.owned[0]);
  epl_tensor_destroy(b.owned[1]);
  epl_engine_destroy(engine); /* in any order */
  epl_model_destroy(model);
  epl_session_destroy(second);
  epl_trainer_destroy(trainer);
  epl_plan_destroy(plan);
  epl_session_destroy(session);
  return loss < 0.7 * before.loss && cancelled && one == other && epl_live_handles() == 0 ? 0 : 1;
}
