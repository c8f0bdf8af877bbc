/* What the library calls; the userdata are a hook. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tester.h"

static epl_error* answer(void* userdata) {
  const hook* of = (const hook*)userdata;
  if (strcmp(of->kind, "fail") == 0) return epl_error_create(atoi(of->parameter), EPL_STR("the host fails"));
  if (strcmp(of->kind, "count") == 0) count_call(of->parameter);
  return NULL;
}

void* on_allocate(void* userdata, size_t bytes_wanted, size_t alignment) {
  if (strcmp(((hook*)userdata)->kind, "fail") == 0) return NULL;
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  return aligned_alloc(alignment, (bytes_wanted + alignment - 1) / alignment * alignment);
}

void on_release(void* userdata, void* memory, size_t bytes_given, size_t alignment) {
  (void)userdata, (void)bytes_given, (void)alignment;
  free(memory);
}

void on_log(void* userdata, int32_t level, const char* message, size_t length) {
  (void)level, (void)message, (void)length;
  count_call(((hook*)userdata)->parameter);
}

void on_destroy(void* userdata) { count_call(((hook*)userdata)->parameter); }

void on_gone(void* userdata) {
  char name[64];
  snprintf(name, sizeof(name), "%s.gone", ((hook*)userdata)->parameter);
  count_call(name);
}

void on_event(void* userdata) { count_call(((hook*)userdata)->parameter); }

epl_error* on_write(void* userdata, const void* data, size_t size) {
  const hook* of = (const hook*)userdata;
  if (strcmp(of->kind, "collect") == 0) append(of->parameter, data, size);
  return answer(userdata);
}

epl_error* on_read(void* userdata, uint64_t offset, void* target, size_t size) {
  const hook* of = (const hook*)userdata;
  if (strcmp(of->kind, "bytes") == 0) {
    span from = buffer_of(of->parameter);
    if (offset + size > from.size) return epl_error_create(EPL_ERROR_IO, EPL_STR("the buffer ends before"));
    memcpy(target, (const char*)from.data + offset, size);
  }
  return answer(userdata);
}

epl_error* on_open(void* userdata, const char* location, size_t location_length, epl_source* source) {
  epl_error* error = answer(userdata);
  if (error != NULL) return error;
  hook* made = (hook*)kept(sizeof(hook));
  snprintf(made->kind, sizeof(made->kind), "bytes");
  snprintf(made->parameter, sizeof(made->parameter), "%.*s", (int)location_length, location);
  span of = buffer_of(made->parameter);
  if (of.data == NULL) return epl_error_create(EPL_ERROR_NOT_FOUND, EPL_STR("no such buffer"));
  source->bytes = of.size;
  source->read = on_read;
  source->userdata = made;
  return NULL;
}

epl_error* on_op_shape(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                       size_t input_count, epl_op_tensor* outputs, size_t output_count) {
  (void)attributes, (void)attributes_length, (void)input_count, (void)output_count;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].ndim = inputs[0].ndim;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(inputs[0].dims));
  return answer(userdata);
}

static void twice(const epl_op_tensor* from, const epl_op_tensor* to) {
  for (size_t i = 0; i < to->bytes / 4; ++i) ((float*)to->data)[i] = 2 * ((const float*)from->data)[i];
}

epl_error* on_op_run(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                     size_t input_count, const epl_op_tensor* outputs, size_t output_count) {
  (void)attributes, (void)attributes_length, (void)input_count, (void)output_count;
  const hook* of = (const hook*)userdata;
  if (strcmp(of->kind, "wait") == 0) await_count(of->parameter, 1);
  twice(&inputs[0], &outputs[0]);
  return answer(userdata);
}

epl_error* on_op_gradient(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                          size_t input_count, const epl_op_tensor* outputs, const epl_op_tensor* upstream,
                          size_t output_count, const epl_op_tensor* gradients) {
  (void)attributes, (void)attributes_length, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
  twice(&upstream[0], &gradients[0]);
  return answer(userdata);
}

/* Field 0 has floats, the number of the sample in each; others have zeros. */
epl_error* on_samples(void* userdata, int32_t field, const int64_t* samples, size_t sample_count, void* target,
                      size_t size) {
  memset(target, 0, size);
  for (size_t i = 0; field == 0 && i < size / 4; ++i) {
    ((float*)target)[i] = (float)samples[i / (size / 4 / sample_count)];
  }
  return answer(userdata);
}

epl_error* on_put(void* userdata, const char* key, size_t key_length, const void* data, size_t size) {
  (void)key, (void)key_length, (void)data, (void)size;
  return answer(userdata);
}

epl_error* on_get(void* userdata, const char* key, size_t key_length, int64_t timeout_nanoseconds, void* data,
                  size_t capacity, size_t* size) {
  (void)key, (void)key_length, (void)timeout_nanoseconds, (void)data, (void)capacity;
  *size = 0;
  epl_error* error = answer(userdata);
  return error != NULL ? error : epl_error_create(EPL_ERROR_DEADLINE_EXCEEDED, EPL_STR("nobody has put it"));
}
