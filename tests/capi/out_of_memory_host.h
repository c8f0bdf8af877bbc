/* The calls of out_of_memory.c that the host's own functions serve: bytes that it reads and writes, samples and batches
 * that it gives, plans as files and as bytes, DLPack. A part of that file: it uses its world and its CALL. */
#ifndef TESTS_CAPI_OUT_OF_MEMORY_HOST_H
#define TESTS_CAPI_OUT_OF_MEMORY_HOST_H

/* The host's own bytes: a file that it has read, and a stream that goes nowhere. */
typedef struct host_bytes {
  char* data;
  size_t bytes;
} host_bytes;
static host_bytes read_bytes(const char* path) {
  host_bytes all = {NULL, 0};
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) exit(1);
  all.bytes = (size_t)ftell(file);
  all.data = (char*)malloc(all.bytes);
  rewind(file);
  if (fread(all.data, 1, all.bytes, file) != all.bytes) exit(1);
  fclose(file);
  return all;
}
static epl_error* read_from_bytes(void* userdata, uint64_t offset, void* target, size_t bytes) {
  memcpy(target, ((const host_bytes*)userdata)->data + offset, bytes);
  return NULL;
}
static epl_error* write_nowhere(void* userdata, const void* data, size_t bytes) {
  (void)userdata, (void)data, (void)bytes;
  return NULL;
}
static epl_error* append_bytes(void* userdata, const void* data, size_t bytes) {
  host_bytes* all = (host_bytes*)userdata;
  all->data = (char*)realloc(all->data, all->bytes + bytes);
  memcpy(all->data + all->bytes, data, bytes);
  all->bytes += bytes;
  return NULL;
}
static host_bytes model_bytes, stream_bytes, plan_bytes;
static epl_source source_of(host_bytes* bytes) {
  epl_source source = EPL_SOURCE_INIT;
  source.bytes = bytes->bytes;
  source.read = read_from_bytes;
  source.userdata = bytes;
  return source;
}
CALL(epl_session_save_to, w.session, write_nowhere, NULL, rows, NULL)
CALL(epl_session_export_to, w.session, EPL_STR("onnx"), write_nowhere, NULL, NULL)
CALL(epl_plan_save_to, w.plan, write_nowhere, NULL, NULL)
CALL(epl_session_load_bytes, w.session, stream_bytes.data, stream_bytes.bytes, NULL, NULL)
static epl_error* run_epl_model_load_from(void** out) {
  const epl_source source = source_of(&model_bytes);
  return epl_model_load_from(w.engine, &source, NULL, NULL, (epl_model**)out);
}
static epl_error* run_epl_session_load_from(void** out) {
  const epl_source source = source_of(&stream_bytes);
  (void)out;
  return epl_session_load_from(w.session, &source, NULL, NULL);
}
static epl_error* some_samples(void* userdata, int32_t field, const int64_t* samples, size_t count, void* target,
                               size_t bytes) {
  (void)userdata, (void)field, (void)samples, (void)count;
  memset(target, 0, bytes);
  return NULL;
}
static epl_tensor_info one_field(int batched) {
  epl_tensor_info field = EPL_TENSOR_INFO_INIT;
  field.name = "a field whose name is too long to be held in place";
  field.name_length = strlen(field.name);
  field.dtype = EPL_DTYPE_F32;
  field.ndim = batched ? 2 : 1;
  field.dims[0] = batched ? 8 : 4;
  field.dims[1] = 4;
  return field;
}
static epl_error* run_epl_dataset_create(void** out) {
  const epl_tensor_info field = one_field(0);
  return epl_dataset_create(w.engine, &field, 1, 64, some_samples, NULL, NULL, EPL_STR("{\"batch\":8,\"prefetch\":1}"),
                            (epl_dataset**)out);
}
static epl_error* run_epl_feed_create(void** out) {
  const epl_tensor_info field = one_field(1);
  return epl_feed_create(w.engine, &field, 1, 4, (epl_feed**)out);
}
static epl_feed *feed, *untaken;
static epl_dataset* fed;
CALL(epl_feed_push, feed, w.inputs, 1, NULL)
CALL(epl_feed_finish, untaken)
/* What was pushed is taken again, so that there is room. */
static const char* check_pushed(int32_t code) {
  const epl_tensor* batch[1];
  if (code == EPL_OK)
    return taken(epl_dataset_next(fed, NULL, batch, 1)) == EPL_OK ? NULL : "what was pushed is not there";
  epl_call_options now = EPL_CALL_OPTIONS_INIT;
  now.timeout_nanoseconds = 2000000;
  return taken(epl_dataset_next(fed, &now, batch, 1)) == EPL_ERROR_DEADLINE_EXCEEDED ? NULL
                                                                                     : "an error, and a batch is there";
}
/* Each trial has a feed of its own: a feed has one dataset. */
static epl_feed* fresh;
static epl_error* run_epl_dataset_of_feed(void** out) { return epl_dataset_of_feed(fresh, (epl_dataset**)out); }
static const char* check_fresh(int32_t code) {
  const epl_tensor_info field = one_field(1);
  if (code != EPL_OK) {
    epl_dataset* dataset = NULL;
    if (taken(epl_dataset_of_feed(fresh, &dataset)) != EPL_OK) return "it cannot be tried again";
    epl_dataset_destroy(dataset);
  }
  epl_feed_destroy(fresh);
  must(epl_feed_create(w.engine, &field, 1, 4, &fresh));
  return NULL;
}

static epl_error* run_epl_model_load_bytes(void** out) {
  return epl_model_load_bytes(w.engine, model_bytes.data, model_bytes.bytes, NULL, NULL, (epl_model**)out);
}
/* Made by the first call, in which nothing fails, of what trainer and strategy have become by then. */
static const char* saved_plan(void) {
  static char path[1100];
  static int saved = 0;
  snprintf(path, sizeof path, "%s.plan", w.out);
  if (saved++) return path;
  epl_plan* plan = NULL;
  must(epl_plan_create(w.model, w.trainer, w.strategy, NULL, NULL, &plan));
  must(epl_plan_save(plan, TEXT(path), NULL));
  epl_plan_destroy(plan);
  return path;
}
static epl_error* run_epl_plan_load(void** out) {
  const char* path = saved_plan();
  return epl_plan_load(w.model, w.trainer, w.strategy, NULL, TEXT(path), NULL, (epl_plan**)out);
}
static epl_error* run_epl_plan_load_bytes(void** out) {
  if (plan_bytes.data == NULL) plan_bytes = read_bytes(saved_plan());
  return epl_plan_load_bytes(w.model, w.trainer, w.strategy, NULL, plan_bytes.data, plan_bytes.bytes, NULL,
                             (epl_plan**)out);
}
static epl_error* run_epl_plan_compare(void** out) {
  const char* path = saved_plan();
  return epl_plan_compare(w.engine, TEXT(path), TEXT(path), NULL, (epl_text**)out);
}
static epl_error* run_epl_tensor_from_dlpack(void** out) {
  /* The host's struct, in the layout of DLPack 1. */
  static struct {
    uint32_t major, minor;
    void* context;
    void (*deleter)(void*);
    uint64_t flags;
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
  } managed;
  static int64_t shape[2] = {8, 4};
  managed.major = 1;
  managed.deleter = count_release;
  managed.data = borrowed;
  managed.device_type = 1;
  managed.ndim = 2;
  managed.code = 2;
  managed.bits = 32;
  managed.lanes = 1;
  managed.shape = shape;
  released = 0;
  epl_error* error = epl_tensor_from_dlpack(w.engine, &managed, (epl_tensor**)out);
  deleted = released;
  released = 0;
  return error;
}

static epl_error* no_shape(void* userdata, const char* attributes, size_t length, const epl_op_tensor* inputs,
                           size_t input_count, epl_op_tensor* outputs, size_t output_count) {
  (void)userdata, (void)attributes, (void)length, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
  return NULL;
}
static epl_error* no_run(void* userdata, const char* attributes, size_t length, const epl_op_tensor* inputs,
                         size_t input_count, const epl_op_tensor* outputs, size_t output_count) {
  (void)userdata, (void)attributes, (void)length, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
  return NULL;
}
static epl_error* run_epl_engine_add_op(void** out) {
  static int number;
  static char name[40];
  (void)out;
  epl_op_options op = EPL_OP_OPTIONS_INIT;
  op.domain = "own", op.domain_length = 3;
  op.name_length = (uint64_t)snprintf(name, sizeof name, "%d", number++); /* each name once */
  op.name = name;
  op.shape = no_shape, op.run = no_run;
  op.sharding = "n k -> n k", op.sharding_length = 10;
  return epl_engine_add_op(w.engine, &op);
}

#endif
