/* Every allocation fails once, and from each one on for good, at every entry point: the call says
 * EPL_ERROR_OUT_OF_MEMORY, or has done without; its handle is NULL, nothing is half done, nothing is lost, and the
 * process lives.
 * usage: out_of_memory FOLDER [TRIALS]   TRIALS for each call and kind of failure, evenly spread; 0: every allocation
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "failing_allocator.h"
#include "out_of_memory_checks.h"

/* --- The calls --- */

#define CALL(function, ...)                      \
  static epl_error* run_##function(void** out) { \
    (void)out;                                   \
    return function(__VA_ARGS__);                \
  }
static const int64_t dims[2] = {8, 4};
CALL(epl_engine_create, NULL, (epl_engine**)out)
CALL(epl_engine_describe, w.engine, (epl_text**)out)
CALL(epl_engine_device, w.engine, 0, &(epl_device_info){sizeof(epl_device_info)})
CALL(epl_tensor_create, w.engine, EPL_DTYPE_F32, dims, 2, (epl_tensor**)out)
CALL(epl_tensor_create_copy, w.engine, EPL_DTYPE_F32, dims, 2, borrowed, sizeof borrowed, (epl_tensor**)out)
CALL(epl_tensor_create_borrow, w.engine, EPL_DTYPE_F32, dims, 2, borrowed, sizeof borrowed, 0, count_release, NULL,
     (epl_tensor**)out)
CALL(epl_tensor_to_dlpack, w.x, out)
CALL(epl_model_load, w.engine, TEXT(w.model_path), NULL, NULL, (epl_model**)out)
CALL(epl_model_describe, w.model, (epl_text**)out)
CALL(epl_model_findings, w.model, (epl_text**)out)
CALL(epl_x_template_write, w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,8,2]}"), TEXT(w.out), NULL)
CALL(epl_trainer_create, w.engine, (epl_trainer**)out)
CALL(epl_trainer_set, w.trainer, EPL_STR("loss.ignore_index"), EPL_STR("-123456789123456"))
CALL(epl_trainer_set_number, w.trainer, EPL_STR("clip_norm"), 1.5)
CALL(epl_trainer_unset, w.trainer, EPL_STR("clip_norm"))
CALL(epl_trainer_describe, w.trainer, (epl_text**)out)
CALL(epl_trainer_parse, w.engine,
     EPL_STR("{\"optimizer\":\"adam\",\"groups\":[{\"match\":[\"*.bias\"],\"lr\":0.5}],\"train_only\":[\"a.*\"],"
             "\"adapters\":[{\"match\":\"a\"}],\"symbols\":{\"batch\":8},\"inputs\":{\"x\":{\"dims\":[8,4]}}}"),
     (epl_trainer**)out)
CALL(epl_trainer_bind_symbol, w.trainer, EPL_STR("batch"), world_batch)
CALL(epl_trainer_bind_batch_dim, w.trainer, EPL_STR("x"), 0)
CALL(epl_trainer_bind_value, w.trainer, EPL_STR("x"), w.x)
CALL(epl_trainer_add_shape, w.trainer, EPL_STR("{\"symbols\": {\"batch\": 2}}"))
CALL(epl_trainer_bind_input, w.trainer, EPL_STR("x"), EPL_DTYPE_F32, dims, 2)
CALL(epl_strategy_create, w.engine, (epl_strategy**)out)
CALL(epl_strategy_parse, w.engine, EPL_STR("{\"zero.level\":\"v0\",\"default\":{\"split\":1}}"), (epl_strategy**)out)
CALL(epl_strategy_set, w.strategy, EPL_STR("pipeline.num_micro_batch"), EPL_STR("1"))
CALL(epl_strategy_of_model, annotated, 2, (epl_strategy**)out)
CALL(epl_strategy_add_scope, scoped, EPL_SCOPE_TOP, EPL_SCOPE_SPLIT, 2, EPL_STR("more than 15 bytes"), &scope_number)
CALL(epl_strategy_add_match, scoped, 0, EPL_STR("a pattern too long to be held in place"))
CALL(epl_strategy_pin_dim, scoped, 0, EPL_STR("a name too long to be held in place"), -1)
CALL(epl_strategy_describe, w.strategy, (epl_text**)out)
CALL(epl_plan_create, w.model, w.trainer, w.strategy, NULL, NULL, (epl_plan**)out)
CALL(epl_plan_print, w.plan, EPL_STR("explain"), NULL, (epl_text**)out)
CALL(epl_plan_describe, w.plan, EPL_STR("memory"), NULL, (epl_text**)out)
CALL(epl_plan_export_onnx, w.plan, TEXT(w.out), NULL)
CALL(epl_plan_slice, w.plan, EPL_ENTRY_TRAIN, 0, 0, 1, (int64_t[1]){0}, (int64_t[1]){0})
CALL(epl_plan_save, w.plan, TEXT(w.out), NULL)
CALL(epl_cancel_create, w.engine, (epl_cancel**)out)
CALL(epl_folder_lock_create, w.engine, TEXT(w.folder), (epl_folder_lock**)out)
CALL(epl_store_create, w.engine, NULL, (epl_store**)out)
CALL(epl_store_id, store, (epl_text**)out)
CALL(epl_dataset_open, w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"prefetch\":2,\"classes\":true}"), NULL,
     (epl_dataset**)out)
CALL(epl_dataset_open_within, w.engine, TEXT(w.csv_path), EPL_STR("/"), EPL_STR("{\"batch\":8,\"classes\":true}"), NULL,
     (epl_dataset**)out)
CALL(epl_dataset_describe, rows, (epl_text**)out)
CALL(epl_dataset_bind, rows, w.plan, EPL_ENTRY_TRAIN)
CALL(epl_dataset_bind_slice, rows, w.plan, EPL_ENTRY_TRAIN, 0, 1)
CALL(epl_dataset_seek, rows, 0)
CALL(epl_dataset_check, bound, w.plan, EPL_ENTRY_TRAIN, NULL)
CALL(epl_session_create, w.plan, NULL, NULL, (epl_session**)out)
CALL(epl_session_predict, w.session, w.inputs, 1, NULL, (epl_tensor**)out, 1)
CALL(epl_session_output, w.session, EPL_ENTRY_TRAIN, EPL_STR("loss"), (epl_tensor**)out)
CALL(epl_session_give_up, w.session, EPL_STR("a reason too long to be held in place"), NULL)
CALL(epl_session_agree, w.session, EPL_STR("{\"steps\": 100}"), rows, NULL)
CALL(epl_session_set_number, w.session, EPL_STR("learning_rate_scale"), 1)
CALL(epl_session_observe, watcher, 1, 0)
CALL(epl_session_record, w.session, 1)
CALL(epl_session_trace, w.session, (epl_text**)out)
CALL(epl_session_predict_into, w.session, w.inputs, 1, NULL, &room, 1)
CALL(epl_event_fd, done, &(int32_t){0})
CALL(epl_event_wait, done, NULL, NULL)
CALL(epl_event_on_ready, done, ignore, NULL, NULL)
CALL(epl_predictor_create, w.session, shapes, NULL, (epl_predictor**)out)
CALL(epl_predictor_refresh, predictor, NULL)
CALL(epl_predictor_predict, predictor, w.inputs, 1, NULL, (epl_tensor**)out, 1)
CALL(epl_predictor_predict_into, predictor, w.inputs, 1, NULL, &room, 1)
CALL(epl_evaluation_create, w.plan, EPL_STR("accuracy, top_k(k=2)"), (epl_evaluation**)out)
CALL(epl_evaluation_add, evaluation, w.session, w.inputs, 2, NULL)
CALL(epl_evaluation_add_dataset, evaluation, w.session, bound, 0, NULL)
CALL(epl_evaluation_merge, evaluation, other)
CALL(epl_evaluation_reset, evaluation)
CALL(epl_evaluation_describe, evaluation, (epl_text**)out)
CALL(epl_session_get, w.session, EPL_STR("net.0.bias"), NULL, (epl_tensor**)out)
CALL(epl_session_save, w.session, TEXT(w.checkpoint), rows, NULL)
CALL(epl_session_load, w.session, TEXT(w.checkpoint), NULL, NULL)
CALL(epl_checkpoint_describe, w.engine, TEXT(w.checkpoint), NULL, (epl_text**)out)
CALL(epl_session_compare, w.session, TEXT(w.checkpoint), rows, NULL, (epl_text**)out)
CALL(epl_checkpoint_remove, w.engine, TEXT(w.checkpoint))
CALL(epl_session_export_onnx, w.session, TEXT(w.out), NULL)
CALL(epl_session_export_onnx_for_training, w.session, TEXT(w.out), NULL)
CALL(epl_session_export_safetensors, adapted, TEXT(w.out), NULL)
CALL(epl_session_export_adapters, adapted, TEXT(w.out), NULL)
CALL(epl_trainer_train_only, w.trainer, EPL_STR("net.*"))
CALL(epl_trainer_add_adapter, w.trainer, EPL_STR("net.2"), NULL)

#include "out_of_memory_host.h"
#include "out_of_memory_jobs.h"
static epl_error* run_epl_trainer_add_group(void** out) {
  int64_t group;
  (void)out;
  epl_trainer* trainer = w.trainer;
  return epl_trainer_add_group(trainer, EPL_STR("*.bias"), &group);
}
static epl_error* run_epl_trainer_group_add(void** out) {
  (void)out;
  return epl_trainer_group_add(w.trainer, 0, EPL_STR("net.*.weight"));
}
static epl_error* run_epl_trainer_group_set(void** out) {
  (void)out;
  return epl_trainer_group_set(w.trainer, 0, EPL_STR("frozen"), EPL_STR("false"));
}
static epl_error* run_port(epl_error* (*get)(epl_tensor_info*)) {
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  return get(&port);
}
static epl_error* model_port(epl_tensor_info* port) { return epl_model_port(w.model, EPL_PORT_INPUT, 0, port); }
static epl_error* plan_port(epl_tensor_info* port) {
  return epl_plan_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 0, port);
}
static epl_error* field_port(epl_tensor_info* port) { return epl_dataset_field(rows, 0, port); }
static epl_error* state_port(epl_tensor_info* port) {
  return epl_session_state_port(w.session, EPL_STATE_PARAMETER, 0, port);
}
static epl_error* run_epl_model_port(void** out) {
  (void)out;
  return run_port(model_port);
}
static epl_error* run_epl_plan_port(void** out) {
  (void)out;
  return run_port(plan_port);
}
static epl_error* run_epl_dataset_field(void** out) {
  (void)out;
  return run_port(field_port);
}
static epl_error* run_epl_session_state_port(void** out) {
  (void)out;
  return run_port(state_port);
}
static epl_error* run_epl_dataset_next(void** out) {
  const epl_tensor* batch[2];
  (void)out;
  epl_error* error = epl_dataset_next(ahead, NULL, batch, 2);
  return error ? error : epl_dataset_next(rows, NULL, batch, 2);
}
/* What the call begins is part of it here. */
static epl_error* ended(epl_error* error, epl_event* event) {
  if (error == NULL) error = epl_event_wait(event, NULL, NULL);
  epl_event_destroy(event);
  return error;
}
static epl_error* run_epl_session_step_async(void** out) {
  epl_event* event = NULL;
  (void)out;
  epl_error* error = epl_session_step_async(w.session, w.inputs, 2, NULL, &event);
  return ended(error, event);
}
static epl_error* run_epl_session_evaluate_async(void** out) {
  epl_event* event = NULL;
  (void)out;
  epl_error* error = epl_session_evaluate_async(w.session, w.inputs, 2, NULL, &event);
  return ended(error, event);
}
static epl_error* run_epl_session_predict_async(void** out) {
  epl_event* event = NULL;
  (void)out;
  epl_error* error = epl_session_predict_async(w.session, w.inputs, 1, NULL, &room, 1, &event);
  return ended(error, event);
}
static epl_error* run_predictor_as_session(void** out) {
  return epl_predictor_create(w.session, NULL, NULL, (epl_predictor**)out);
}
static epl_error* run_epl_session_step(void** out) {
  epl_metrics metrics = EPL_METRICS_INIT;
  (void)out;
  return epl_session_step(w.session, w.inputs, 2, NULL, &metrics);
}
static epl_error* run_epl_session_gradients(void** out) {
  epl_metrics metrics = EPL_METRICS_INIT;
  (void)out;
  return epl_session_gradients(keeper, w.inputs, 2, NULL, &metrics);
}
static epl_error* run_epl_session_apply(void** out) {
  epl_metrics metrics = EPL_METRICS_INIT;
  (void)out;
  return epl_session_apply(keeper, NULL, &metrics);
}
static epl_error* run_frozen(void** out) {
  (void)out;
  return epl_session_set_number(keeper, EPL_STR("frozen:net.0.*"), 1);
}
static epl_error* run_rate(void** out) {
  (void)out;
  return epl_session_set_number(keeper, EPL_STR("learning_rate"), 0.5);
}
static epl_error* run_epl_session_evaluate(void** out) {
  epl_metrics metrics = EPL_METRICS_INIT;
  (void)out;
  return epl_session_evaluate(w.session, w.inputs, 2, NULL, &metrics);
}
static epl_error* run_epl_session_metric(void** out) {
  double value;
  (void)out;
  return epl_session_metric(w.session, EPL_STR("loss"), &value);
}
static epl_error* run_epl_session_get_number(void** out) {
  double value;
  (void)out;
  return epl_session_get_number(w.session, EPL_STR("learning_rate_scale"), &value);
}
static epl_error* run_epl_evaluation_result(void** out) {
  double value;
  (void)out;
  return epl_evaluation_result(evaluation, EPL_STR("accuracy"), &value);
}
static epl_error* run_epl_session_hash(void** out) {
  uint64_t hash;
  (void)out;
  return epl_session_hash(w.session, NULL, &hash);
}
/* Frozen weights beside adapters are left to the model's file. */
static epl_error* run_adapted_save(void** out) {
  (void)out;
  return epl_session_save(adapted, TEXT(adapted_checkpoint), NULL, NULL);
}
static epl_error* run_adapted_load(void** out) {
  (void)out;
  return epl_session_load(adapted, TEXT(adapted_checkpoint), NULL, NULL);
}
static epl_error* run_epl_session_set(void** out) {
  (void)out;
  return epl_session_set(w.session, EPL_STR("net.0.bias"), bias, NULL);
}

#define GIVES(type) \
  static void destroy_##type(void* out) { epl_##type##_destroy(out); }
GIVES(engine)
GIVES(text)
GIVES(tensor)
GIVES(model)
GIVES(trainer)
GIVES(strategy)
GIVES(plan)
GIVES(feed)
GIVES(store)
GIVES(cancel)
GIVES(folder_lock)
GIVES(dataset)
GIVES(session)
GIVES(evaluation)
GIVES(predictor)
GIVES(job)
static void destroy_dlpack(void* out) {
  epl_tensor* tensor = NULL;
  must(epl_tensor_from_dlpack(w.engine, out, &tensor));
  epl_tensor_destroy(tensor);
}

#define ROW(function, type, check) {#function, run_##function, type, check}
static const call calls[] = {ROW(epl_engine_create, destroy_engine, NULL),
                             ROW(epl_engine_device, NULL, NULL),
                             ROW(epl_engine_describe, destroy_text, NULL),
                             ROW(epl_tensor_create, destroy_tensor, NULL),
                             ROW(epl_tensor_create_copy, destroy_tensor, NULL),
                             ROW(epl_tensor_create_borrow, destroy_tensor, check_released),
                             ROW(epl_tensor_from_dlpack, destroy_tensor, check_deleted),
                             ROW(epl_tensor_to_dlpack, destroy_dlpack, NULL),
                             ROW(epl_model_load, destroy_model, NULL),
                             ROW(epl_model_load_bytes, destroy_model, NULL),
                             ROW(epl_model_load_from, destroy_model, NULL),
                             ROW(epl_model_describe, destroy_text, NULL),
                             ROW(epl_model_findings, destroy_text, NULL),
                             ROW(epl_model_port, NULL, NULL),
                             ROW(epl_x_template_write, NULL, check_out),
                             ROW(epl_trainer_create, destroy_trainer, NULL),
                             ROW(epl_trainer_set, NULL, NULL),
                             ROW(epl_trainer_set_number, NULL, NULL),
                             ROW(epl_trainer_unset, NULL, NULL),
                             ROW(epl_trainer_describe, destroy_text, NULL),
                             ROW(epl_trainer_parse, destroy_trainer, NULL),
                             ROW(epl_trainer_bind_symbol, NULL, NULL),
                             ROW(epl_trainer_bind_input, NULL, NULL),
                             ROW(epl_trainer_bind_value, NULL, NULL),
                             ROW(epl_trainer_bind_batch_dim, NULL, NULL),
                             ROW(epl_strategy_create, destroy_strategy, NULL),
                             ROW(epl_strategy_parse, destroy_strategy, NULL),
                             ROW(epl_strategy_set, NULL, NULL),
                             ROW(epl_strategy_of_model, destroy_strategy, NULL),
                             ROW(epl_strategy_add_scope, NULL, check_scopes),
                             ROW(epl_strategy_add_match, NULL, NULL),
                             ROW(epl_strategy_pin_dim, NULL, NULL),
                             ROW(epl_strategy_describe, destroy_text, NULL),
                             ROW(epl_plan_create, destroy_plan, NULL),
                             ROW(epl_plan_port, NULL, NULL),
                             ROW(epl_plan_slice, NULL, NULL),
                             ROW(epl_plan_print, destroy_text, NULL),
                             ROW(epl_plan_describe, destroy_text, NULL),
                             ROW(epl_plan_export_onnx, NULL, check_out),
                             ROW(epl_plan_save, NULL, check_out),
                             {"epl_plan_load", run_epl_plan_load, destroy_plan, NULL},
                             {"epl_plan_load_bytes", run_epl_plan_load_bytes, destroy_plan, NULL},
                             ROW(epl_plan_save_to, NULL, NULL),
                             {"epl_plan_compare", run_epl_plan_compare, destroy_text, NULL},
                             ROW(epl_cancel_create, destroy_cancel, NULL),
                             ROW(epl_folder_lock_create, destroy_folder_lock, NULL),
                             ROW(epl_store_create, destroy_store, NULL),
                             ROW(epl_store_id, destroy_text, NULL),
                             ROW(epl_dataset_open, destroy_dataset, NULL),
                             ROW(epl_dataset_open_within, destroy_dataset, NULL),
                             ROW(epl_dataset_create, destroy_dataset, NULL),
                             ROW(epl_dataset_of_feed, destroy_dataset, check_fresh),
                             ROW(epl_feed_create, destroy_feed, NULL),
                             ROW(epl_feed_push, NULL, check_pushed),
                             ROW(epl_feed_finish, NULL, NULL),
                             ROW(epl_engine_add_op, NULL, NULL),
                             ROW(epl_dataset_field, NULL, NULL),
                             ROW(epl_dataset_next, NULL, NULL),
                             ROW(epl_dataset_describe, destroy_text, NULL),
                             ROW(epl_dataset_bind, NULL, NULL),
                             ROW(epl_dataset_bind_slice, NULL, NULL),
                             ROW(epl_dataset_seek, NULL, NULL),
                             ROW(epl_dataset_check, NULL, NULL),
                             ROW(epl_session_create, destroy_session, NULL),
                             ROW(epl_session_step, NULL, check_step),
                             ROW(epl_session_gradients, NULL, NULL),
                             ROW(epl_session_apply, NULL, check_apply),
                             ROW(epl_session_evaluate, NULL, NULL),
                             ROW(epl_session_predict, destroy_tensor, NULL),
                             ROW(epl_session_predict_into, NULL, NULL),
                             ROW(epl_session_step_async, NULL, check_step),
                             ROW(epl_session_evaluate_async, NULL, NULL),
                             ROW(epl_session_predict_async, NULL, NULL),
                             ROW(epl_event_fd, NULL, NULL),
                             ROW(epl_event_wait, NULL, NULL),
                             ROW(epl_event_on_ready, NULL, NULL),
                             ROW(epl_predictor_create, destroy_predictor, NULL),
                             {"epl_predictor_create as its session", run_predictor_as_session, destroy_predictor, NULL},
                             ROW(epl_predictor_refresh, NULL, NULL),
                             ROW(epl_predictor_predict, destroy_tensor, NULL),
                             ROW(epl_predictor_predict_into, NULL, NULL),
                             ROW(epl_session_output, destroy_tensor, NULL),
                             ROW(epl_session_give_up, NULL, NULL),
                             ROW(epl_session_agree, NULL, NULL),
                             ROW(epl_session_metric, NULL, NULL),
                             ROW(epl_session_hash, NULL, NULL),
                             ROW(epl_session_state_port, NULL, NULL),
                             ROW(epl_session_get, destroy_tensor, NULL),
                             ROW(epl_session_set, NULL, NULL),
                             ROW(epl_session_save, NULL, check_checkpoint),
                             ROW(epl_session_load, NULL, check_load),
                             ROW(epl_session_save_to, NULL, NULL),
                             ROW(epl_session_load_from, NULL, check_load),
                             ROW(epl_session_load_bytes, NULL, check_load),
                             ROW(epl_session_export_to, NULL, NULL),
                             ROW(epl_session_compare, destroy_text, NULL),
                             ROW(epl_checkpoint_remove, NULL, check_removed),
                             ROW(epl_checkpoint_describe, destroy_text, NULL),
                             ROW(epl_session_export_onnx, NULL, check_out),
                             ROW(epl_session_export_onnx_for_training, NULL, check_out),
                             ROW(epl_session_export_safetensors, NULL, check_out),
                             ROW(epl_session_export_adapters, NULL, check_adapters),
                             {"epl_session_save of adapters", run_adapted_save, NULL, NULL},
                             {"epl_session_load of adapters", run_adapted_load, NULL, NULL},
                             {"epl_session_set_number of what is frozen", run_frozen, NULL, NULL},
                             {"epl_session_set_number of a rate", run_rate, NULL, NULL},
                             ROW(epl_session_set_number, NULL, NULL),
                             ROW(epl_session_get_number, NULL, NULL),
                             ROW(epl_session_observe, NULL, NULL),
                             ROW(epl_session_record, NULL, NULL),
                             ROW(epl_session_trace, destroy_text, NULL),
                             ROW(epl_evaluation_create, destroy_evaluation, NULL),
                             ROW(epl_evaluation_add, NULL, check_samples),
                             ROW(epl_evaluation_add_dataset, NULL, check_batches),
                             ROW(epl_evaluation_merge, NULL, check_samples),
                             ROW(epl_evaluation_result, NULL, NULL),
                             ROW(epl_evaluation_describe, destroy_text, NULL),
                             ROW(epl_evaluation_reset, NULL, check_reset),
                             ROW(epl_job_create, destroy_job, NULL),
                             ROW(epl_job_set, NULL, NULL),
                             ROW(epl_job_take_folder, NULL, NULL),
                             ROW(epl_job_start, NULL, NULL),
                             ROW(epl_job_next, NULL, check_job_position),
                             ROW(epl_job_describe, destroy_text, NULL),
                             ROW(epl_job_end, NULL, NULL),
                             ROW(epl_checkpoint_find, destroy_text, NULL),
                             ROW(epl_trainer_bind_dataset, NULL, NULL),
                             /* These change the trainer for the calls above, so they come last. */
                             ROW(epl_trainer_train_only, NULL, NULL),
                             ROW(epl_trainer_add_adapter, NULL, NULL),
                             ROW(epl_trainer_add_group, NULL, NULL),
                             ROW(epl_trainer_add_shape, NULL, NULL),
                             ROW(epl_trainer_group_add, NULL, NULL),
                             ROW(epl_trainer_group_set, NULL, NULL)};
enum { call_count = sizeof calls / sizeof *calls };

/* --- The trials --- */

static const char* current = "";
static long current_n;
static void die(int signal_number) {
  char line[200];
  int length = snprintf(line, sizeof line, "signal %d in %s, allocation %ld failing %s\n", signal_number, current,
                        current_n, for_good ? "for good" : "once");
  atomic_store(&fail_from, 0);
  if (write(2, line, (size_t)length) < 0) _exit(2);
  _exit(1);
}

/* Whether a message begins with the call "epl_plan_create", as users of all languages know it: "plan.create: ". */
static int names_call(const char* message, const char* call) {
  const char* name = call + (strncmp(call, "epl_x_", 6) == 0 ? 6 : 4);
  const size_t length = strcspn(name, " ");
  size_t dots = 0;
  for (size_t i = 0; i < length; ++i) {
    dots += message[i] == '.';
    if (message[i] != name[i] && !(message[i] == '.' && name[i] == '_')) return 0;
  }
  return dots <= 1 && message[length] == ':';
}

/* One call with the n-th allocation failing; returns how many were asked for. */
static long try_call(const call* c, long n) {
  void* out = c->destroy ? (void*)0xdead : NULL;
  const int64_t alive = epl_live_handles();
  current_n = n;
  atomic_store(&count, 0);
  atomic_store(&fail_from, n);
  epl_error* error = c->run(&out);
  atomic_store(&fail_from, 0);
  const long asked = atomic_load(&count);
  const int32_t code = epl_error_code(error);
  EXPECT(code == EPL_OK || code == EPL_ERROR_OUT_OF_MEMORY || code == EPL_ERROR_EXHAUSTED, "%s, allocation %ld: %s",
         c->name, n, epl_error_message(error, NULL));
  EXPECT(code == EPL_OK || asked >= n, "%s: %s without a failed allocation", c->name, epl_error_message(error, NULL));
  if (code == EPL_ERROR_OUT_OF_MEMORY && strcmp(epl_error_message(error, NULL), "out of memory") != 0) {
    EXPECT(names_call(epl_error_message(error, NULL), c->name), "%s, allocation %ld: %s", c->name, n,
           epl_error_message(error, NULL));
  }
  epl_error_destroy(error);
  if (c->destroy) {
    EXPECT((out != NULL) == (code == EPL_OK), "%s, allocation %ld: code %d, handle %p", c->name, n, code, out);
    if (code == EPL_OK && out != NULL) c->destroy(out);
  }
  EXPECT(epl_live_handles() == alive, "%s, allocation %ld", c->name, n);
  const char* wrong = c->check ? c->check(code) : NULL;
  EXPECT(wrong == NULL, "%s, allocation %ld: %s", c->name, n, wrong);
  return asked;
}

static const char* const fallible[] = {
#define EPL_FALLIBLE(name) #name,
#define EPL_OTHER(name)
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
};

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const long trials = argc > 2 ? atol(argv[2]) : 40;
  real_pthread_create =
      (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  real_mmap = (void* (*)(void*, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  char remove_all[300];
  snprintf(remove_all, sizeof remove_all, "rm -rf '%s'", argv[1]);
  if (system(remove_all) != 0) return 2;
  world_make(&w, argv[1], 2, 8);
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true}"), NULL, &rows));
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true,\"prefetch\":1}"), NULL,
                        &ahead));
  const int64_t eight[1] = {8};
  /* Beside the world's: a trainer and a plan with adapters, whose handles may go once the session is there. */
  epl_trainer* trainer = NULL;
  epl_plan* plan = NULL;
  must(epl_trainer_create(w.engine, &trainer));
  must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), world_batch));
  must(epl_trainer_set(trainer, EPL_STR("keep_gradients"), EPL_STR("true")));
  must(epl_trainer_set(trainer, EPL_STR("freezable"), EPL_STR("true")));
  must(epl_plan_create(w.model, trainer, NULL, NULL, NULL, &plan));
  must(epl_session_create(plan, NULL, NULL, &keeper));
  epl_plan_destroy(plan);
  must(epl_trainer_add_adapter(trainer, EPL_STR("net.*"), NULL));
  must(epl_plan_create(w.model, trainer, NULL, NULL, NULL, &plan));
  must(epl_session_create(plan, NULL, NULL, &adapted));
  must(epl_store_create(w.engine, NULL, &store));
  snprintf(adapted_checkpoint, sizeof adapted_checkpoint, "%s/adapted", w.folder);
  epl_plan_destroy(plan);
  epl_trainer_destroy(trainer);
  must(epl_tensor_create(w.engine, EPL_DTYPE_F32, eight, 1, &bias));
  must(epl_session_step(w.session, w.inputs, 2, NULL, NULL));
  must(epl_tensor_create(w.engine, EPL_DTYPE_F32, (int64_t[2]){world_batch, 2}, 2, &room));
  must(epl_session_step_async(w.session, w.inputs, 2, NULL, &done));
  must(epl_event_wait(done, NULL, NULL));
  must(epl_trainer_set(w.trainer, EPL_STR("loss"), EPL_STR("none")));
  must(epl_plan_create(w.model, w.trainer, NULL, NULL, NULL, &shapes));
  must(epl_trainer_unset(w.trainer, EPL_STR("loss")));
  must(epl_predictor_create(w.session, NULL, NULL, &predictor));
  must(epl_session_save(w.session, TEXT(w.checkpoint), rows, NULL));
  must(epl_session_save_to(w.session, append_bytes, &stream_bytes, rows, NULL));
  model_bytes = read_bytes(w.model_path);
  epl_tensor_info pushed = one_field(1), to_take = one_field(1);
  must(epl_feed_create(w.engine, &pushed, 1, 1, &feed));
  must(epl_dataset_of_feed(feed, &fed));
  must(epl_feed_create(w.engine, &to_take, 1, 1, &untaken));
  must(epl_feed_create(w.engine, &to_take, 1, 1, &fresh));
  steps_before = epl_session_steps(w.session);
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true}"), NULL, &bound));
  must(epl_dataset_bind(bound, w.plan, EPL_ENTRY_TRAIN));
  must(epl_evaluation_create(w.plan, EPL_STR("accuracy, top_k(k=2), auc"),
                             &evaluation)); /* auc keeps what it has seen */
  must(epl_evaluation_create(w.plan, EPL_STR("accuracy, top_k(k=2), auc"), &other));
  must(epl_evaluation_add(other, w.session, w.inputs, 2, NULL));
  make_jobs();
  epl_plan* plateau = NULL;
  must(epl_trainer_set(w.trainer, EPL_STR("schedule"), EPL_STR("plateau")));
  must(epl_plan_create(w.model, w.trainer, w.strategy, NULL, NULL, &plateau));
  must(epl_session_create(plateau, NULL, NULL, &watcher));
  must(epl_trainer_set(w.trainer, EPL_STR("schedule"), EPL_STR("constant")));
  epl_plan_destroy(plateau);
  char annotated_path[320];
  snprintf(annotated_path, sizeof annotated_path, "%s/annotated.onnx", w.folder);
  must(epl_plan_export_onnx(w.plan, TEXT(annotated_path), NULL));
  must(epl_model_load(w.engine, TEXT(annotated_path), NULL, NULL, &annotated));
  must(epl_strategy_create(w.engine, &scoped));
  must(epl_strategy_add_scope(scoped, EPL_SCOPE_TOP, EPL_SCOPE_SPLIT, 2, NULL, 0, &scope_number));
  scopes_before = 1;
  signal(SIGSEGV, die);
  signal(SIGABRT, die);
  signal(SIGBUS, die);
  for (size_t i = 0; i < sizeof fallible / sizeof *fallible; ++i) {
    int found = 0;
    for (int c = 0; c < call_count; ++c) found |= strcmp(calls[c].name, fallible[i]) == 0;
    EXPECT(found, "%s is not tried here; add a row", fallible[i]);
  }
  long tried = 0;
  for (int c = 0; c < call_count; ++c) {
    current = calls[c].name;
    try_call(&calls[c], 1L << 40); /* what is made at the first call is there now */
    const long all = try_call(&calls[c], 1L << 40);
    for (int good = 0; good < 2; ++good) {
      atomic_store(&for_good, good);
      const long stride = trials > 0 && all > trials ? all / trials : 1;
      for (long n = 1; n <= all; n += n < 10 ? 1 : stride) { /* the first few are those of errors, handles and texts */
        try_call(&calls[c], n);
        ++tried;
      }
    }
    atomic_store(&for_good, 0);
  }
  epl_feed_destroy(feed), epl_feed_destroy(untaken), epl_feed_destroy(fresh);
  epl_dataset_destroy(fed);
  free(model_bytes.data), free(stream_bytes.data), free(plan_bytes.data);
  epl_predictor_destroy(predictor);
  epl_plan_destroy(shapes);
  epl_event_destroy(done);
  epl_tensor_destroy(room);
  epl_session_destroy(adapted);
  epl_session_destroy(keeper);
  epl_dataset_destroy(rows);
  epl_dataset_destroy(ahead);
  epl_dataset_destroy(bound);
  epl_evaluation_destroy(evaluation);
  epl_evaluation_destroy(other);
  destroy_jobs();
  epl_session_destroy(watcher);
  epl_strategy_destroy(scoped);
  epl_model_destroy(annotated);
  printf("%ld failed allocations in %d calls, %d failures\n", tried, call_count, failures);
  return failures != 0;
}
