/* The jobs that out_of_memory.c calls with, and what must be true of them after a call that failed. */
#ifndef TESTS_CAPI_OUT_OF_MEMORY_JOBS_H
#define TESTS_CAPI_OUT_OF_MEMORY_JOBS_H

static epl_dataset *job_data, *job_held_out;
static epl_job *job, *ended_job, *held_job; /* that runs; that is told to end; whose folder is taken */
static epl_trainer* data_trainer;
static char job_folder[256];

/* A job that runs out of memory goes on where it was. */
static const char* check_job(int32_t code) {
  static int64_t last = -1;
  const int64_t steps = epl_session_steps(w.session);
  if (last < 0) last = steps;
  const char* wrong = steps < last ? "a step was taken back" : steps > last + 1 ? "a step was made twice" : NULL;
  (void)code;
  last = steps_before = steps;
  return wrong;
}
static const char* check_job_position(int32_t code) {
  static int64_t begun = -1;
  const int64_t ahead_of = epl_dataset_position(job_data) - epl_session_steps(w.session);
  const char* wrong = check_job(code);
  if (begun < 0) begun = ahead_of;
  return begun != ahead_of ? "a batch was lost" : wrong;
}

CALL(epl_trainer_bind_dataset, data_trainer, w.model, job_data)
CALL(epl_job_create, w.engine, EPL_STR("{\"steps\": 1000000, \"metrics\": \"accuracy, top_k(k=2)\"}"), (epl_job**)out)
CALL(epl_job_describe, job, (epl_text**)out)
CALL(epl_job_end, ended_job, EPL_JOB_ENDED_STOPPED, EPL_STR("a reason that is too long to be held in place"))
CALL(epl_checkpoint_find, w.engine, TEXT(w.checkpoint), (epl_text**)out)
static epl_error* run_epl_job_next(void** out) {
  epl_job_event event = EPL_JOB_EVENT_INIT;
  (void)out;
  return epl_job_next(job, NULL, &event);
}
/* Each starts, or takes, a job of its own. */
static epl_error* with_new_job(epl_error* (*f)(epl_job*), const char* settings) {
  const long failing = atomic_exchange(&fail_from, 0);
  epl_job* made = NULL;
  must(epl_job_create(w.engine, TEXT(settings), &made));
  atomic_store(&count, 0);
  atomic_store(&fail_from, failing);
  epl_error* error = f(made);
  const long asked = atomic_load(&count);
  atomic_store(&fail_from, 0);
  epl_job_destroy(made);
  atomic_store(&count, asked);
  return error;
}
static epl_error* start_it(epl_job* made) { return epl_job_start(made, w.session, job_data, job_held_out, NULL); }
static epl_error* run_epl_job_start(void** out) {
  (void)out;
  return with_new_job(start_it, "{\"steps\": 1000000}");
}
static epl_error* run_epl_job_take_folder(void** out) {
  char settings[400];
  (void)out;
  snprintf(settings, sizeof settings, "{\"steps\": 10, \"folder\": \"%s\"}", job_folder);
  return with_new_job(epl_job_take_folder, settings);
}
static epl_error* run_epl_job_set(void** out) {
  (void)out;
  return epl_job_set(held_job, EPL_STR("metrics"), EPL_STR("accuracy, top_k(k=2), a long list"));
}
static void make_jobs(void) {
  const char* classes = "{\"batch\":8,\"classes\":true}";
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), TEXT(classes), NULL, &job_data));
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), TEXT(classes), NULL, &job_held_out));
  snprintf(job_folder, sizeof job_folder, "%s/job", w.folder);
  must(epl_job_create(w.engine, EPL_STR("{\"steps\": 1000000, \"evaluate_every\": 2}"), &job));
  must(epl_job_start(job, w.session, job_data, job_held_out, NULL));
  must(epl_job_create(w.engine, NULL, 0, &ended_job));
  must(epl_trainer_create(w.engine, &data_trainer));
  must(epl_job_create(w.engine, NULL, 0, &held_job));
}
static void destroy_jobs(void) {
  epl_job_destroy(job), epl_job_destroy(ended_job), epl_job_destroy(held_job);
  epl_trainer_destroy(data_trainer);
  epl_dataset_destroy(job_data), epl_dataset_destroy(job_held_out);
}
#endif
