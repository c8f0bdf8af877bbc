/* What the dispatchers of C and C++ (cmake/interface writes them) have of the interpreter in tester.c. Arguments are
 * taken in the order of a line, results are given in the order of the function's arguments. */
#ifndef EPL_CONFORMANCE_TESTER_H
#define EPL_CONFORMANCE_TESTER_H

#include <epl.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct value {
  char kind; /* word, text, list or struct, by its first letter */
  char* text;
  size_t size; /* of the text */
  struct value* items;
  size_t count;
} value;

typedef struct call {
  const value* arguments;
  size_t count, next;
  const value* targets; /* names of variables that get handles */
  size_t target_count, target;
  int quiet; /* of values, whether there is one */
} call;

typedef struct span {
  void* data;
  size_t size;
} span;

/* What stands behind a userdata: @KIND:PARAMETER of a script. */
typedef struct hook {
  char kind[16];
  char parameter[48];
} hook;

typedef struct field_info {
  const char* name;
  char kind; /* i, I (32 and 64 bits), u, d, t (text), h (handle), g (a group of callbacks) */
  size_t offset;
  size_t length_offset; /* of a text's length; of a group's destructor, 0 for none */
  size_t array;         /* how many; 0 for one */
  int hidden;           /* nobody can know it beforehand: time, memory of the machine */
} field_info;

typedef struct callback_info {
  const char* group;
  size_t offset;
  void (*function)(void);
} callback_info;

typedef struct struct_info {
  size_t size;
  int sized;
  const field_info* fields;
  const callback_info* callbacks;
} struct_info;

typedef struct constant_info {
  const char* name;
  int64_t value;
} constant_info;

typedef struct function_info {
  const char* name;
  void (*run)(call*);
} function_info;

/* Generated, each ends with an entry of zeros. */
extern const constant_info constants[];
extern const function_info functions[];

void* take_handle(call* c);
span take_handles(call* c);
span take_bytes(call* c);
span take_integers(call* c);
int64_t take_integer(call* c);
double take_number(call* c);
hook* take_hook(call* c);
void* take_struct(call* c, const struct_info* info);
span take_structs(call* c, const struct_info* info);
size_t targets_left(const call* c);

int give_error(call* c, epl_error* error); /* 1: it was one */
void give_failure(call* c, int32_t code, span message, span where, int64_t rank, int retryable);
void give_handle(call* c, const void* handle);
void give_owned_text(call* c, epl_text* text);
void give_text(call* c, const char* data, size_t size);
void give_integer(call* c, int64_t number);
void give_unsigned(call* c, uint64_t number);
void give_number(call* c, double number);
void give_struct(call* c, const void* memory, const struct_info* info);
void give_memory(call* c, const void* data, const void* tensor);

/* What the interpreter has for callbacks, from any thread. */
void* kept(size_t bytes); /* zeros, until the end */
void count_call(const char* name);
long await_count(const char* name, long wanted); /* what it is then, after ten seconds at most */
void append(const char* buffer, const void* data, size_t size);
span buffer_of(const char* name);

/* What the library calls; the userdata are a hook. */
void* on_allocate(void* userdata, size_t bytes, size_t alignment);
void on_release(void* userdata, void* memory, size_t bytes, size_t alignment);
void on_log(void* userdata, int32_t level, const char* message, size_t length);
void on_destroy(void* userdata);
void on_gone(void* userdata); /* the destructor of a userdata, counted apart */
epl_error* on_write(void* userdata, const void* data, size_t bytes);
epl_error* on_read(void* userdata, uint64_t offset, void* target, size_t bytes);
epl_error* on_open(void* userdata, const char* location, size_t location_length, epl_source* source);
epl_error* on_op_shape(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                       size_t input_count, epl_op_tensor* outputs, size_t output_count);
epl_error* on_op_run(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                     size_t input_count, const epl_op_tensor* outputs, size_t output_count);
epl_error* on_op_gradient(void* userdata, const char* attributes, size_t attributes_length, const epl_op_tensor* inputs,
                          size_t input_count, const epl_op_tensor* outputs, const epl_op_tensor* upstream,
                          size_t output_count, const epl_op_tensor* gradients);
epl_error* on_samples(void* userdata, int32_t field, const int64_t* samples, size_t count, void* target, size_t bytes);
epl_error* on_put(void* userdata, const char* key, size_t key_length, const void* data, size_t bytes);
epl_error* on_get(void* userdata, const char* key, size_t key_length, int64_t timeout_nanoseconds, void* data,
                  size_t capacity, size_t* bytes);
void on_event(void* userdata);

#ifdef __cplusplus
}
#endif

#endif
