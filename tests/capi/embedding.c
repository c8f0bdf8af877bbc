/* What docs/embedding.md shows, as a program that runs: the page's blocks are parts of this file (a test compares). */
#include <math.h>

#include "world.h"

static void check(epl_error* error) { must(error); }

/* A store of one object, as the host has it. */
typedef struct object {
  char* bytes;
  size_t size;
} object;

static epl_error* put(void* userdata, const void* data, size_t bytes) {
  object* to = userdata;
  char* grown = realloc(to->bytes, to->size + bytes);
  if (grown == NULL) return epl_error_create(EPL_ERROR_OUT_OF_MEMORY, EPL_STR("the store is full"));
  memcpy(grown + to->size, data, bytes);
  to->bytes = grown;
  to->size += bytes;
  return NULL;
}

static epl_error* get(void* userdata, uint64_t offset, void* target, size_t bytes) {
  const object* from = userdata;
  memcpy(target, from->bytes + offset, bytes);
  return NULL;
}

static void streams(epl_engine* engine, epl_session* session, epl_session* other) {
  object checkpoint = {NULL, 0}, exported = {NULL, 0};
  check(epl_session_save_to(session, put, &checkpoint, NULL, NULL));
  check(epl_session_load_bytes(other, checkpoint.bytes, checkpoint.size, NULL, NULL));

  check(epl_session_export_to(session, EPL_STR("onnx"), put, &exported, NULL));
  epl_source source = EPL_SOURCE_INIT;
  source.bytes = exported.size;
  source.read = get;
  source.userdata = &exported; /* it must live as long as the model: `destroy` says when that ends */
  epl_model* model = NULL;
  check(epl_model_load_from(engine, &source, NULL, NULL, &model));
  epl_model_destroy(model);
  free(checkpoint.bytes);
  free(exported.bytes);
}

/* 64 samples: four numbers and a class. */
static epl_error* read_samples(void* userdata, int32_t field, const int64_t* samples, size_t count, void* target,
                               size_t bytes) {
  (void)userdata, (void)bytes;
  for (size_t s = 0; s < count; ++s) {
    if (field == 0) {
      for (int i = 0; i < 4; ++i) ((float*)target)[s * 4 + (size_t)i] = (float)((samples[s] * 7 + i) % 5);
    } else {
      ((int64_t*)target)[s] = samples[s] % 2;
    }
  }
  return NULL;
}

static epl_dataset* asked(epl_engine* engine, epl_plan* plan) {
  epl_tensor_info fields[2] = {EPL_TENSOR_INFO_INIT, EPL_TENSOR_INFO_INIT};
  fields[0].name = "x", fields[0].name_length = 1;
  fields[0].dtype = EPL_DTYPE_F32, fields[0].ndim = 1, fields[0].dims[0] = 4;
  fields[1].name = "target", fields[1].name_length = 6;
  fields[1].dtype = EPL_DTYPE_I64;
  epl_dataset* dataset = NULL;
  check(epl_dataset_create(engine, fields, 2, 64, read_samples, NULL, NULL,
                           EPL_STR("{\"batch\": 8, \"order\": \"shuffled\", \"prefetch\": 2}"), &dataset));
  check(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  return dataset;
}

static epl_dataset* strangers(epl_engine* engine, const char* path, const char* options, const char* own_options) {
  epl_dataset* dataset = NULL;
  /* {"target": "/data/others.npy"} of a client */
  epl_error* refused = epl_dataset_open(engine, path, strlen(path), options, strlen(options), NULL, &dataset);
  EXPECT(taken(refused) == EPL_ERROR_INVALID_ARGUMENT, "a client reads any file of the server");
  /* the same of the host */
  check(epl_dataset_open_within(engine, path, strlen(path), EPL_STR("/"), own_options, strlen(own_options), NULL,
                                &dataset));
  return dataset;
}

static void write_array(const char* path) {
  char head[128];
  memset(head, ' ', sizeof head);
  memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
  const char* text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  memcpy(head + 10, text, strlen(text));
  head[sizeof head - 1] = '\n';
  const float values[4] = {1, 2, 3, 4};
  FILE* file = fopen(path, "wb");
  if (file == NULL || fwrite(head, sizeof head, 1, file) != 1 || fwrite(values, sizeof values, 1, file) != 1 ||
      fclose(file) != 0)
    exit(1);
}

static void client_options(epl_engine* engine, const char* folder) {
  char inside[300], outside[300], options[400];
  snprintf(inside, sizeof inside, "%s/inside", folder);
  mkdir(inside, 0777);
  snprintf(inside, sizeof inside, "%s/inside/table.npy", folder);
  snprintf(outside, sizeof outside, "%s/others.npy", folder);
  write_array(inside);
  write_array(outside);
  snprintf(options, sizeof options, "{\"target\": \"%s\"}", outside);
  epl_dataset_destroy(strangers(engine, inside, options, options));
}

static void once(epl_engine* engine, const char* folder) {
  epl_folder_lock *lock = NULL, *second = NULL;
  check(epl_folder_lock_create(engine, folder, strlen(folder), &lock));
  EXPECT(taken(epl_folder_lock_create(engine, folder, strlen(folder), &second)) == EPL_ERROR_BUSY, "two owners");
  epl_folder_lock_destroy(lock); /* when the service ends */
}

static void pushed(epl_engine* engine, epl_plan* plan, epl_session* session, epl_tensor* x, epl_tensor* target) {
  epl_tensor_info fields[2] = {EPL_TENSOR_INFO_INIT, EPL_TENSOR_INFO_INIT};
  fields[0].name = "x", fields[0].name_length = 1;
  fields[0].dtype = EPL_DTYPE_F32, fields[0].ndim = 2, fields[0].dims[0] = 8, fields[0].dims[1] = 4;
  fields[1].name = "target", fields[1].name_length = 6;
  fields[1].dtype = EPL_DTYPE_I64, fields[1].ndim = 1, fields[1].dims[0] = 8;
  epl_feed* feed = NULL;
  epl_dataset* dataset = NULL;
  check(epl_feed_create(engine, fields, 2, 4, &feed)); /* four batches wait at most */
  check(epl_dataset_of_feed(feed, &dataset));
  check(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  const epl_tensor* batch[2] = {x, target};
  check(epl_feed_push(feed, batch, 2, NULL)); /* from any thread; it waits while there is no room */
  check(epl_feed_finish(feed));
  const epl_tensor* inputs[2];
  check(epl_dataset_next(dataset, NULL, inputs, 2));
  check(epl_session_step(session, inputs, 2, NULL, NULL));
  EXPECT(taken(epl_dataset_next(dataset, NULL, inputs, 2)) == EPL_ERROR_NOT_FOUND, "the feed has ended");
  epl_dataset_destroy(dataset);
  epl_feed_destroy(feed);
}

/* y = x * |x|, elementwise. */
static epl_error* square_shape(void* userdata, const char* attributes, size_t attributes_length,
                               const epl_op_tensor* inputs, size_t input_count, epl_op_tensor* outputs,
                               size_t output_count) {
  (void)userdata, (void)attributes, (void)attributes_length, (void)output_count;
  if (input_count != 1 || inputs[0].dtype != EPL_DTYPE_F32)
    return epl_error_create(EPL_ERROR_UNSUPPORTED, EPL_STR("a signed square takes one f32"));
  outputs[0] = inputs[0];
  return NULL;
}

static epl_error* square_run(void* userdata, const char* attributes, size_t attributes_length,
                             const epl_op_tensor* inputs, size_t input_count, const epl_op_tensor* outputs,
                             size_t output_count) {
  (void)userdata, (void)attributes, (void)attributes_length, (void)input_count, (void)output_count;
  const float* x = inputs[0].data;
  float* y = outputs[0].data;
  for (size_t i = 0; i < inputs[0].bytes / sizeof *x; ++i) y[i] = x[i] * fabsf(x[i]);
  return NULL;
}

static epl_error* square_gradient(void* userdata, const char* attributes, size_t attributes_length,
                                  const epl_op_tensor* inputs, size_t input_count, const epl_op_tensor* outputs,
                                  const epl_op_tensor* upstream, size_t output_count, const epl_op_tensor* gradients) {
  (void)userdata, (void)attributes, (void)attributes_length, (void)input_count, (void)outputs, (void)output_count;
  const float *x = inputs[0].data, *dy = upstream[0].data;
  float* dx = gradients[0].data;
  for (size_t i = 0; i < inputs[0].bytes / sizeof *x; ++i) dx[i] = dy[i] * 2 * fabsf(x[i]);
  return NULL;
}

static void add_op(epl_engine* engine) {
  epl_op_options op = EPL_OP_OPTIONS_INIT;
  op.domain = "acme", op.domain_length = 4;
  op.name = "SignedSquare", op.name_length = 12;
  op.shape = square_shape;
  op.run = square_run;
  op.gradient = square_gradient;
  op.sharding = "... k -> ... k", op.sharding_length = 14; /* any dimension may be cut */
  check(epl_engine_add_op(engine, &op));
}

int main(int argc, char** argv) {
  world w;
  epl_session* other = NULL;
  if (argc < 2) return 2;
  world_make(&w, argv[1], 1, 8);
  must(epl_session_create(w.plan, NULL, NULL, &other));
  streams(w.engine, w.session, other);
  epl_dataset* dataset = asked(w.engine, w.plan);
  const epl_tensor* inputs[2];
  for (int i = 0; i < 10; ++i) {
    must(epl_dataset_next(dataset, NULL, inputs, 2));
    must(epl_session_step(other, inputs, 2, NULL, NULL));
  }
  epl_dataset_destroy(dataset);
  pushed(w.engine, w.plan, other, w.x, w.target);
  client_options(w.engine, argv[1]);
  once(w.engine, argv[1]);
  add_op(w.engine);
  epl_session_destroy(other);
  world_end(&w);
  return failures != 0;
}
