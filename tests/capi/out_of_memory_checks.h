/* What out_of_memory.c calls with, and what must be true after a call that failed. */
#ifndef TESTS_CAPI_OUT_OF_MEMORY_CHECKS_H
#define TESTS_CAPI_OUT_OF_MEMORY_CHECKS_H
#include "world.h"

static world w;
/* Without and with reading ahead; bound to the plan, all its fields classes and features. */
static epl_dataset *rows, *ahead, *bound;
static epl_session *adapted, *watcher, *keeper; /* with adapters; with the schedule plateau; that keeps gradients */
static epl_store* store;
static char adapted_checkpoint[256];
static epl_evaluation *evaluation, *other;
static epl_tensor *bias, *room;
static epl_event* done;
static epl_plan* shapes;
static epl_predictor* predictor;
static void ignore(void* userdata) { (void)userdata; }
static int released, deleted;
static float borrowed[32];
static void count_release(void* userdata) { (void)userdata, ++released; }

typedef struct call {
  const char* name;
  epl_error* (*run)(void** out);
  void (*destroy)(void* out);    /* NULL: it gives no handle */
  const char* (*check)(int32_t); /* NULL, or what is wrong after the call; gets its code */
} call;

static int64_t steps_before;
static const char* check_step(int32_t code) {
  int64_t steps = epl_session_steps(w.session);
  const char* wrong = steps != steps_before + (code == EPL_OK) ? "the steps are not counted right" : NULL;
  steps_before = steps;
  return wrong;
}
/* An update takes gradients once. Those of a call that failed are there for the next one. */
static const char* check_apply(int32_t code) {
  if (code == EPL_OK) must(epl_session_gradients(keeper, w.inputs, 2, NULL, NULL));
  return NULL;
}
static const char* check_checkpoint(int32_t code) {
  epl_text* text = NULL;
  (void)code;
  int32_t now = taken(epl_checkpoint_describe(w.engine, TEXT(w.checkpoint), NULL, &text));
  epl_text_destroy(text);
  return now == EPL_OK ? NULL : "the checkpoint is gone";
}
static const char* check_out(int32_t code) {
  char part[300];
  snprintf(part, sizeof part, "%s.part", w.out);
  int there = access(w.out, F_OK) == 0, rest = access(part, F_OK) == 0;
  unlink(w.out), unlink(part);
  if (there != (code == EPL_OK)) return there ? "an error, and the file is there" : "success, and there is no file";
  return rest ? "something is left beside the file" : NULL;
}
static const char* check_adapters(int32_t code) {
  static const char* const files[] = {"adapter_model.safetensors", "adapter_config.json"};
  int there = 0, rest = 0;
  for (int i = 0; i < 2; ++i) {
    char path[320], part[330];
    snprintf(path, sizeof path, "%s/%s", w.out, files[i]);
    snprintf(part, sizeof part, "%s.part", path);
    there += unlink(path) == 0;
    rest += unlink(part) == 0;
  }
  rmdir(w.out);
  if (code == EPL_OK && there != 2) return "success, and a file is missing";
  return rest ? "something is left beside the files" : NULL;
}
static const char* check_released(int32_t code) {
  int was = released;
  (void)code;
  released = 0;
  return was == 1 ? NULL : "`release` is not called once";
}
static const char* check_deleted(int32_t code) {
  int was = deleted;
  deleted = 0;
  return was == (code != EPL_OK) ? NULL : "the deleter is not called once";
}
static const char* check_removed(int32_t code) {
  epl_text* text = NULL;
  int there = taken(epl_checkpoint_describe(w.engine, TEXT(w.checkpoint), NULL, &text)) == EPL_OK;
  epl_text_destroy(text);
  must(epl_session_save(w.session, TEXT(w.checkpoint), rows,
                        NULL)); /* what a failed removal left is the checkpoint's own */
  return code == EPL_OK && there ? "success, and the checkpoint is there" : NULL;
}
static int64_t samples_before;
/* An evaluation that has lost count says so until it is reset; otherwise a batch counts whole or not at all. */
static const char* check_count(int32_t code, int64_t added_by_success, int epoch) {
  double value;
  const int lost = taken(epl_evaluation_result(evaluation, EPL_STR("loss"), &value)) == EPL_ERROR_MISUSE;
  const int64_t added = epl_evaluation_samples(evaluation) - samples_before;
  const char* wrong = NULL;
  if (lost) {
    if (code == EPL_OK) wrong = "success, and the count is lost";
    if (taken(epl_evaluation_merge(evaluation, other)) != EPL_ERROR_MISUSE) wrong = "a lost count is added to";
    must(epl_evaluation_reset(evaluation));
  } else if (code == EPL_OK ? added != added_by_success : added % world_batch != 0 || (added != 0 && !epoch)) {
    wrong = "the samples are not counted right";
  }
  samples_before = epl_evaluation_samples(evaluation);
  return wrong;
}
static const char* check_samples(int32_t code) { return check_count(code, world_batch, 0); }
static const char* check_batches(int32_t code) { return check_count(code, 64, 1); }
static const char* check_reset(int32_t code) {
  const char* wrong = check_count(code, -samples_before, 0);
  if (samples_before == 0)
    must(epl_evaluation_add(evaluation, w.session, w.inputs, 2, NULL)); /* for the calls that ask for results */
  samples_before = epl_evaluation_samples(evaluation);
  return wrong;
}
static const char* check_load(int32_t code) {
  if (code != EPL_OK) must(epl_session_load(w.session, TEXT(w.checkpoint), NULL, NULL)); /* and it can be put right */
  steps_before = epl_session_steps(w.session);
  return NULL;
}

static epl_strategy* scoped;
static epl_model* annotated;
static int64_t scope_number, scopes_before;
/* A scope is there with its number, or not at all. */
static const char* check_scopes(int32_t code) {
  epl_text* json = NULL;
  must(epl_strategy_describe(scoped, &json));
  int64_t scopes = 0;
  for (const char* at = epl_text_data(json, NULL); (at = strstr(at, "\"split\"")) != NULL; ++at) ++scopes;
  epl_text_destroy(json);
  const char* wrong = scopes != scopes_before + (code == EPL_OK) ? "the scopes are not counted right" : NULL;
  scopes_before = scopes;
  return wrong;
}
#endif
