/* EPL: trains neural networks inside the host process. The only public header.
 *
 * A model (ONNX) and a trainer (loss, optimizer) and a strategy (how to spread the work) make a plan, where everything
 * is decided and nothing is allocated; a plan makes a session, which runs steps. samples/01_hello.c is a whole program.
 *
 * Rules, for every function:
 * - Fallible functions return an error that the caller owns, NULL for success. On failure the EPL_OUT handles are NULL.
 *   Codes, element types and kinds may grow: treat a code that you do not know as EPL_ERROR_INTERNAL.
 * - Texts are UTF-8, passed as pointer and length (EPL_STR for a literal) and never need a final zero. Texts that come
 *   back do end with a zero that is not counted, and may hold others; what was no UTF-8 has U+FFFD in its place.
 * - Option structs start with `struct_size`; zero in a field means its default; NULL means all defaults. Output structs
 *   start with `struct_size` too, set by the caller; the library writes no more than that.
 * - A handle from a `_create`, `_load`, `_open`, `_parse`, `_of_...` function or marked EPL_OWNED is given back with
 *   the `_destroy` function of its type, which takes NULL. Children keep what they were made from alive: the order of
 *   destruction is free. What is not marked EPL_OWNED is borrowed from the handle it came from, and lives as long as
 *   that.
 * - A handle that was destroyed, or is of another type, is an error (EPL_ERROR_MISUSE), and to `_destroy` nothing,
 *   wherever that can be seen; it mostly can, until its memory is used again. Do not rely on it.
 * - Engines, models, plans, tensors, stores and events may be used by any threads at once, and are destroyed when no
 *   call uses them any more. A session, trainer, strategy, dataset, evaluation, predictor and job have one caller at a
 *   time, from any thread; a second caller gets EPL_ERROR_BUSY. These may be destroyed beside such a call, by a
 *   finaliser say: the call goes on to its end, and what it had goes with it. What is EPL_ANY_THREAD may be called
 *   beside another call with the same handle, but not beside its destruction. No call may begin after a destroy.
 * - Memory that a call is given is read until the call returns and not kept, unless the function says "borrow".
 * - The library reads no environment variable, prints nothing, installs no signal handler and starts threads only for
 *   sessions, predictors, stores and prefetching datasets; they are gone when those are destroyed, but for one that is
 *   at work for an event: it ends with that. Threads are called epl-..., take no signals and have stacks of 512 KiB. A
 *   pack, opened where a strategy asks for what it gives, brings libraries with ways of their own: docs/packs.md says
 *   which.
 * - The rounding mode and the flush-to-zero flags of the host's threads neither matter nor change. Callbacks run while
 *   they are the default ones.
 * - After fork() a child may use the engines, models, plans and tensors of its parent and make sessions and datasets of
 *   its own. Calls with its parent's sessions, predictors, datasets, trainers and strategies are EPL_ERROR_MISUSE, and
 *   so is waiting for its events; destroying those or its parent's stores neither waits nor frees all they had. fork()
 *   while another thread is inside a call is as unsafe as malloc makes it.
 * - The library stays loaded until the process ends: dlclose takes nothing away, and loading it again costs nothing. So
 *   handles and threads outlive a dlclose.
 * - Files are read as they are needed, the weights of a model among them. A file that was truncated, changed in place
 *   or cannot be read is EPL_ERROR_IO, never a signal; replace a file by renaming a new one over it, which is seen by
 *   those who open it afterwards.
 *
 * Annotations are read by the generator of the bindings (cmake/interface), and say what C's types cannot:
 *   EPL_SINCE(major, minor)  the first version with the function
 *   EPL_ANY_THREAD           any threads may call it at once, with the same handles too
 *   EPL_ONE_CALLER           its first argument has one caller at a time; a second one gets EPL_ERROR_BUSY
 *   EPL_QUICK                returns at once: no lock, no memory, no callback, and a signal handler may call it where
 *                            EPL_SIGNAL_SAFE says so
 *   EPL_BLOCKING             reads, writes, computes or waits, or begins such work (its name then ends in _async), and
 *                            takes epl_call_options: a deadline and a token
 *   EPL_CHECKED              gives an error that the caller owns and must look at
 *   EPL_OUT                  the callee writes it; EPL_OWNED the caller must destroy it; EPL_NULLABLE may be NULL
 *   EPL_TEXT(n), EPL_BYTES(n), EPL_COUNT(n)  a text of n bytes, memory of n bytes, an array of n elements; n is another
 *                            argument of the call
 *   EPL_KEPT                 memory that the library goes on using after the call, until its release function is called
 */
#ifndef EPL_H
#define EPL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define EPL_API __declspec(dllimport)
#define EPL_CHECKED
#else
#define EPL_API __attribute__((visibility("default")))
#define EPL_CHECKED __attribute__((warn_unused_result))
#endif
#define EPL_ANY_THREAD
#define EPL_ONE_CALLER
#define EPL_QUICK
#define EPL_SIGNAL_SAFE
#define EPL_BLOCKING
#define EPL_TEXT(length)
#define EPL_BYTES(bytes)
#define EPL_COUNT(count)
#define EPL_KEPT
#define EPL_OUT
#define EPL_OWNED
#define EPL_NULLABLE
#define EPL_SINCE(major, minor)

/* A literal as pointer and length: two arguments. */
#define EPL_STR(literal) ("" literal), (sizeof(literal) - 1)

/* --- Versions: frozen for ever --------------------------------------------------------------------------------- */

#define EPL_VERSION_MAJOR 0
#define EPL_VERSION_MINOR 1
#define EPL_VERSION_PATCH 0
#define EPL_ABI_VERSION 1

/* Of the library in use: major * 1000000 + minor * 1000 + patch. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK uint32_t epl_version(void);
/* The ABI major: programs built for EPL_ABI_VERSION n run with every library that answers n. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK uint32_t epl_abi_version(void);
/* Handles alive in this process, errors and texts included: zero after the last destroy. For leak tests. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_live_handles(void);

/* --- Handles ---------------------------------------------------------------------------------------------------- */

typedef struct epl_error epl_error;
typedef struct epl_text epl_text;
typedef struct epl_engine epl_engine;
typedef struct epl_model epl_model;
typedef struct epl_trainer epl_trainer;
typedef struct epl_strategy epl_strategy;
typedef struct epl_plan epl_plan;
typedef struct epl_session epl_session;
typedef struct epl_dataset epl_dataset;
typedef struct epl_feed epl_feed;
typedef struct epl_evaluation epl_evaluation;
typedef struct epl_tensor epl_tensor;
typedef struct epl_cancel epl_cancel;
typedef struct epl_store epl_store;
typedef struct epl_event epl_event;
typedef struct epl_predictor epl_predictor;
typedef struct epl_folder_lock epl_folder_lock;
typedef struct epl_job epl_job;

/* --- Errors ----------------------------------------------------------------------------------------------------- */

#define EPL_OK 0
#define EPL_ERROR_INVALID_ARGUMENT 1  /* the caller passed something wrong */
#define EPL_ERROR_INVALID_MODEL 2     /* a model file is damaged or contradicts itself */
#define EPL_ERROR_UNSUPPORTED 3       /* known, but not built (yet) or not possible here */
#define EPL_ERROR_NOT_FOUND 4         /* a file, key or name that does not exist */
#define EPL_ERROR_IO 5                /* the operating system refused a read or a write */
#define EPL_ERROR_OUT_OF_MEMORY 6
#define EPL_ERROR_CANCELLED 7
#define EPL_ERROR_DEADLINE_EXCEEDED 8
#define EPL_ERROR_PEER_FAILED 9       /* another rank died or returned an error */
#define EPL_ERROR_MISUSE 10           /* calls in an order or on threads that the rules forbid */
#define EPL_ERROR_NOT_FINITE 11       /* NaN or infinity where the step had to stop */
#define EPL_ERROR_INTERNAL 12         /* a bug of ours */
#define EPL_ERROR_DATA_LOSS 13        /* a checkpoint or plan file is damaged */
#define EPL_ERROR_BUSY 14             /* another thread is in a call with this handle, or a folder has an owner */
#define EPL_ERROR_STATE_LOST 15       /* the state of this session is no longer that of one step: load a checkpoint */
#define EPL_ERROR_EXHAUSTED 16        /* no thread, descriptor or space on the disk: the host can give more */

/* EPL_OK for NULL. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_error_code(const epl_error* EPL_NULLABLE error);
/* What was wrong and what to do; empty for NULL. `length` may be NULL. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char*
epl_error_message(const epl_error* EPL_NULLABLE error, size_t* EPL_OUT EPL_NULLABLE length);
/* The node, file or handle it concerns; empty when there is none. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char*
epl_error_where(const epl_error* EPL_NULLABLE error, size_t* EPL_OUT EPL_NULLABLE length);
/* The rank it concerns, of the job; -1 when there is none. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_error_rank(const epl_error* EPL_NULLABLE error);
/* 1 if the same call may succeed later (busy, cancelled, deadline, no memory, exhausted), else 0. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_error_retryable(const epl_error* EPL_NULLABLE error);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_error_destroy(epl_error* EPL_NULLABLE error);
/* An error of the host's own, which its callbacks return. `code` is EPL_ERROR_...; another one becomes
 * EPL_ERROR_INTERNAL. Never NULL: where there is no memory for it, it is EPL_ERROR_OUT_OF_MEMORY. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD epl_error*
epl_error_create(int32_t code, const char* EPL_TEXT(message_length) message, size_t message_length);
/* "invalid argument", ...; "unknown" for values that this library does not know. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char* epl_error_code_name(int32_t code);

/* --- Texts that the library made ---------------------------------------------------------------------------------- */

/* `length` may be NULL. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char*
epl_text_data(const epl_text* text, size_t* EPL_OUT EPL_NULLABLE length);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_text_destroy(epl_text* EPL_NULLABLE text);

/* --- Engine ------------------------------------------------------------------------------------------------------ */

#define EPL_LOG_DEFAULT 0   /* warnings and errors */
#define EPL_LOG_DEBUG 1
#define EPL_LOG_INFO 2
#define EPL_LOG_WARNING 3
#define EPL_LOG_ERROR 4

/* Memory of tensors and sessions. `allocate` returns NULL when there is none. */
typedef void* (*epl_allocate_fn)(void* userdata, size_t bytes, size_t alignment);
typedef void (*epl_release_fn)(void* userdata, void* memory, size_t bytes, size_t alignment);
/* Called from any thread, never with a lock held. INFO tells what is made, loaded and saved, DEBUG every step. */
typedef void (*epl_log_fn)(void* userdata, int32_t level, const char* EPL_TEXT(length) message, size_t length);
/* Callbacks return in the ordinary way: no exception, no longjmp. */
typedef void (*epl_destroy_fn)(void* userdata);

typedef struct epl_engine_options {
  uint64_t struct_size;
  int32_t threads;    /* that a step works on, for all its ranks together, the caller's own among them; 0: one for each
                         processor that the process may use. Sessions share all but their callers' own: of several
                         that step at once, each takes what is free, with the same bits. */
  int32_t log_level;  /* EPL_LOG_...: the least that is logged */
  epl_allocate_fn allocate;  /* NULL (and `release` too): the library's own */
  epl_release_fn release;
  void* allocator_userdata;
  epl_log_fn log;  /* NULL: nothing is logged */
  void* log_userdata;
  /* NULL, or called once with its userdata when the engine and all that was made from it are gone. Where
   * epl_engine_create fails they are not called: the userdata are still the caller's. */
  epl_destroy_fn allocator_destroy;
  epl_destroy_fn log_destroy;
  const char* packs;  /* the folder of the optional packs, libepl_NAME.so; NULL: the one that libepl.so is in */
  uint64_t packs_length;
  uint64_t memory_bytes; /* that tensors, sessions and predictors may have together, however many there are; more is
                            EPL_ERROR_OUT_OF_MEMORY, of a session before it is made. 0: what the machine has */
  const char* kernel_cache;  /* a folder, made where it is not there, in which what is compiled for a GPU stays for
                                later processes, of which many may share it; they trust what is in it. NULL: nowhere */
  uint64_t kernel_cache_length;
} epl_engine_options;
#define EPL_ENGINE_OPTIONS_INIT \
  {sizeof(epl_engine_options), 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0}

EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_engine_options_init(epl_engine_options* EPL_OUT options);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_engine_create(const epl_engine_options* EPL_NULLABLE options, epl_engine** EPL_OUT engine);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_engine_destroy(epl_engine* EPL_NULLABLE engine);
/* Bytes that its tensors, sessions and predictors have now. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK uint64_t epl_engine_memory_bytes(const epl_engine* engine);
/* What this build and this machine have, as JSON: version, processor level, threads, workers started, devices, losses,
 * metrics, optimizers, schedules, readers, model families, strategy keys, packs and where they are looked for. Of a
 * device that is a pack it has the GPUs that this process sees, the libraries that are opened, and what brings those
 * that are missing. For that the pack is opened and its driver begun, as by a plan, which may take a second. An engine
 * whose option packs names no folder ("") leaves it out. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_engine_describe(const epl_engine* engine, epl_text** EPL_OUT EPL_OWNED json);

#define EPL_DEVICE_CPU 0
#define EPL_DEVICE_SIM 1  /* virtual time, no numbers */
#define EPL_DEVICE_CUDA 2 /* an NVIDIA GPU, if this machine has one */

typedef struct epl_device_info {
  uint64_t struct_size;
  const char* name; /* for epl_plan_options.device; borrowed from the engine, ends with a zero */
  uint64_t name_length;
  int32_t kind;        /* EPL_DEVICE_... */
  int32_t threads;     /* that the engine's options allow */
  int64_t memory_bytes; /* 0: not known */
} epl_device_info;
#define EPL_DEVICE_INFO_INIT {sizeof(epl_device_info), NULL, 0, 0, 0, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_device_info_init(epl_device_info* EPL_OUT info);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_engine_device_count(const epl_engine* engine);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_engine_device(const epl_engine* engine, int64_t index, epl_device_info* EPL_OUT info);

/* --- A folder for one process ------------------------------------------------------------------------------------- */

/* A folder that exists, for one owner: a service, a job. While the lock lives a second one of the same folder is
 * EPL_ERROR_BUSY, in this process and in others, with a message that names the owner: the process, and its host. It
 * goes with epl_folder_lock_destroy, or with the process however that ends; a child of fork() does not hold it. It is a
 * file `.epl.lock` in the folder, which nobody else removes while it is locked. It holds against those alone who lock
 * the folder as well: reads and writes are free, those of checkpoints too.
 * EPL_ERROR_UNSUPPORTED: the file system has no locks. NFS has them, between hosts as well, where its server does; when
 * a host is lost the server may take a minute and more to let go. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_folder_lock_create(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    epl_folder_lock** EPL_OUT lock);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_folder_lock_destroy(epl_folder_lock* EPL_NULLABLE lock);

/* --- Cancelling, and for how long a call may take ---------------------------------------------------------------- */

/* A token that any thread may trigger, once and for all; calls that were given it return EPL_ERROR_CANCELLED, before
 * they change anything or not at all. A token may go to any number of calls. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_cancel_create(const epl_engine* engine, epl_cancel** EPL_OUT cancel);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_cancel_destroy(epl_cancel* EPL_NULLABLE cancel);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK EPL_SIGNAL_SAFE void epl_cancel_trigger(epl_cancel* cancel);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK EPL_SIGNAL_SAFE int32_t
epl_cancel_triggered(const epl_cancel* EPL_NULLABLE cancel);

/* For one call of a function that is EPL_BLOCKING. NULL: it takes as long as it takes. */
typedef struct epl_call_options {
  uint64_t struct_size;
  /* 0: none. Deadline and token are looked at before a call does anything, and then between pieces of its work:
   * parts of a product in step, evaluate and predict, entries of a plan, tensors of the state that is made, hashed,
   * saved, loaded and exported and pieces of their files, rows that are checked, batches that are waited for or
   * evaluated. A call that ends so has done nothing: what it has written is removed, and what it would have replaced is
   * there. What has begun to change the state or to rename files ends. Likewise between pieces of a model's file, rows
   * and files of a dataset that is opened, and weights of a template. Processes of a session do not wait for one whose
   * call ends so: the call that they are in, or their next one, ends with EPL_ERROR_PEER_FAILED, and all can go on. */
  int64_t timeout_nanoseconds;
  epl_cancel* cancel;
  /* Where a session takes slices, in evaluate and predict: how many samples of the full batch count, its first ones;
   * 0: all. Slices have their size all the same. What is behind these samples may be anything that the model takes; the
   * result does not depend on it. */
  int64_t samples;
} epl_call_options;
#define EPL_CALL_OPTIONS_INIT {sizeof(epl_call_options), 0, NULL, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_call_options_init(epl_call_options* EPL_OUT options);

/* --- Bytes that the host writes and reads itself: an object store, a socket, an encrypted file -------------------- */

/* Takes the next bytes of a stream. The first error ends the call that writes, which returns it: code and message of
 * the host's own. Called by the thread of that call alone. */
typedef epl_error* (*epl_write_fn)(void* userdata, const void* EPL_BYTES(bytes) data, size_t bytes);
/* Fills `target` with the bytes [offset, offset + bytes) of a source; the range lies in it. Any threads may call it at
 * once, where a source is kept. */
typedef epl_error* (*epl_read_fn)(void* userdata, uint64_t offset, void* EPL_BYTES(bytes) EPL_OUT target,
    size_t bytes);
struct epl_source;
/* Fills in the source of what lies beside another one under `location`: a relative path without ".." that the tensors
 * of a model name. It is the library's from then on, which calls its destroy function. */
typedef epl_error* (*epl_open_fn)(void* userdata, const char* EPL_TEXT(location_length) location,
    size_t location_length, struct epl_source* EPL_OUT source);

/* Bytes that can be read at any position, and must not change. */
typedef struct epl_source {
  uint64_t struct_size;
  uint64_t bytes; /* how many there are */
  epl_read_fn read;
  epl_open_fn open; /* NULL: nothing lies beside it */
  void* userdata;
  /* NULL, or called once with the userdata when the library has done with them. Where the function that was given the
   * source fails it is not called: the userdata are still the caller's. */
  epl_destroy_fn destroy;
  const char* name; /* for messages; may be NULL */
  uint64_t name_length;
} epl_source;
#define EPL_SOURCE_INIT {sizeof(epl_source), 0, NULL, NULL, NULL, NULL, NULL, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_source_init(epl_source* EPL_OUT source);

/* --- Tensors ----------------------------------------------------------------------------------------------------- */

#define EPL_DTYPE_NONE 0
#define EPL_DTYPE_F32 1
#define EPL_DTYPE_F64 2
#define EPL_DTYPE_F16 3
#define EPL_DTYPE_BF16 4
#define EPL_DTYPE_I8 5
#define EPL_DTYPE_I16 6
#define EPL_DTYPE_I32 7
#define EPL_DTYPE_I64 8
#define EPL_DTYPE_U8 9
#define EPL_DTYPE_U16 10
#define EPL_DTYPE_U32 11
#define EPL_DTYPE_U64 12
#define EPL_DTYPE_BOOL 13

#define EPL_MAX_NDIM 16

/* Zeros, owned by the tensor. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_tensor_create(const epl_engine* engine, int32_t dtype, const int64_t* EPL_COUNT(ndim) EPL_NULLABLE dims,
    int32_t ndim, epl_tensor** EPL_OUT tensor);
/* A copy of `bytes` bytes at `data`, row-major; the count must be that of the type. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_tensor_create_copy(const epl_engine* engine, int32_t dtype, const int64_t* EPL_COUNT(ndim) EPL_NULLABLE dims,
    int32_t ndim, const void* EPL_BYTES(bytes) data, size_t bytes, epl_tensor** EPL_OUT tensor);
#define EPL_TENSOR_READ_ONLY 1 /* nobody writes the memory: the host may map it so */
/* The host's own memory, aliased. `release(userdata)` is called once the library no longer needs it, also when this
 * call fails; without `release` the memory must stay until the tensor is destroyed and every call that was given it has
 * returned. `flags`: EPL_TENSOR_..., or 0. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_tensor_create_borrow(const epl_engine* engine, int32_t dtype, const int64_t* EPL_COUNT(ndim) EPL_NULLABLE dims,
    int32_t ndim, void* EPL_BYTES(bytes) EPL_KEPT data, size_t bytes, int32_t flags,
    epl_destroy_fn EPL_NULLABLE release, void* EPL_NULLABLE userdata, epl_tensor** EPL_OUT tensor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_tensor_destroy(epl_tensor* EPL_NULLABLE tensor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_tensor_dtype(const epl_tensor* tensor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_tensor_ndim(const epl_tensor* tensor);
/* The size of a dimension counted from 0; -1 if there is no such dimension. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_tensor_dim(const epl_tensor* tensor, int32_t dim);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK size_t epl_tensor_bytes(const epl_tensor* tensor);
/* The bytes, row-major; NULL for memory that the host cannot read. Where epl_tensor_is_read_only says 1 they must not
 * be written. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void* epl_tensor_data(const epl_tensor* tensor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_tensor_is_read_only(const epl_tensor* tensor);
/* Where its memory is: EPL_DEVICE_...; -1 for NULL. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_tensor_device(const epl_tensor* tensor);
/* Bits of one element in memory; 0 for a value that is not an element type. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_dtype_bits(int32_t dtype);
/* "f32", ...; NULL for a value that is not an element type. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char* epl_dtype_name(int32_t dtype);

/* DLPack, as DLManagedTensorVersioned* (version 1). `from` takes the struct over, also when it fails, and accepts
 * row-major tensors of the CPU; `to` gives one that keeps the data alive and whose deleter the receiver calls. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_tensor_from_dlpack(const epl_engine* engine, void* dl_managed_tensor_versioned,
    epl_tensor** EPL_OUT EPL_OWNED tensor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_tensor_to_dlpack(const epl_tensor* tensor, void** EPL_OUT EPL_OWNED dl_managed_tensor_versioned);

/* Name and type of an input, an output or an initialiser. `name` is borrowed and ends with a zero. */
typedef struct epl_tensor_info {
  uint64_t struct_size;
  const char* name;
  uint64_t name_length;
  int32_t dtype;
  int32_t ndim;
  int64_t dims[EPL_MAX_NDIM]; /* -1: not known before a plan binds it */
} epl_tensor_info;
#define EPL_TENSOR_INFO_INIT {sizeof(epl_tensor_info), NULL, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_tensor_info_init(epl_tensor_info* EPL_OUT info);

/* --- Ops of the host's own -------------------------------------------------------------------------------------- */

/* An operand in the host's memory: dense and row-major. Of one that is absent, `dtype` is EPL_DTYPE_NONE. */
typedef struct epl_op_tensor {
  void* data; /* of inputs it must not be written; NULL where only types are asked for */
  uint64_t bytes;
  int32_t dtype;
  int32_t ndim;
  int64_t dims[EPL_MAX_NDIM];
} epl_op_tensor;

/* Functions of an op, which any threads may call at once. They get the attributes of the node as a JSON object
 * ({"axis": 1, "scale": 0.5}), and return an error of their own, which ends the call that they serve: a plan is not
 * made, a step changes nothing. The same operands must always have the same answer.
 *
 * Types of the outputs, of the full batch and of a rank's part of it: dtype, ndim and dims are filled in. */
typedef epl_error* (*epl_op_shape_fn)(void* userdata, const char* EPL_TEXT(attributes_length) attributes,
    size_t attributes_length, const epl_op_tensor* EPL_COUNT(input_count) inputs, size_t input_count,
    epl_op_tensor* EPL_COUNT(output_count) EPL_OUT outputs, size_t output_count);
/* Writes the outputs. */
typedef epl_error* (*epl_op_run_fn)(void* userdata, const char* EPL_TEXT(attributes_length) attributes,
    size_t attributes_length, const epl_op_tensor* EPL_COUNT(input_count) inputs, size_t input_count,
    const epl_op_tensor* EPL_COUNT(output_count) outputs, size_t output_count);
/* Writes the gradients of the inputs: `gradients` has as many as there are inputs, those that nobody wants are absent.
 * `upstream` are the gradients of the outputs; one through which nothing flows back is absent. */
typedef epl_error* (*epl_op_gradient_fn)(void* userdata, const char* EPL_TEXT(attributes_length) attributes,
    size_t attributes_length, const epl_op_tensor* EPL_COUNT(input_count) inputs, size_t input_count,
    const epl_op_tensor* EPL_COUNT(output_count) outputs, const epl_op_tensor* EPL_COUNT(output_count) upstream,
    size_t output_count, const epl_op_tensor* EPL_COUNT(input_count) gradients);

typedef struct epl_op_options {
  uint64_t struct_size;
  const char* domain; /* of the operator in a model's file; not the standard's */
  uint64_t domain_length;
  const char* name; /* its op type */
  uint64_t name_length;
  int64_t output_count; /* 0: one */
  epl_op_shape_fn shape;
  epl_op_run_fn run;
  epl_op_gradient_fn gradient; /* NULL: it has none, and where training needs one it is named */
  /* How dimensions of inputs and outputs correspond, a letter for each: "n k, k -> n k" says that the rows n of the
   * first input and of the output belong together, so that a batch may be cut there; "... k -> ... k" has any
   * dimensions in front. "| unshardable k" behind it says what must stay uncut, as every dimension does that not all
   * outputs have. A gradient that lacks such rows is asked for in parts and summed. NULL: nothing is cut. */
  const char* sharding;
  uint64_t sharding_length;
  void* userdata;
  epl_destroy_fn destroy; /* NULL, or called once with the userdata when the engine and all that was made from it are
                             gone; where epl_engine_add_op fails they are still the caller's */
} epl_op_options;
#define EPL_OP_OPTIONS_INIT {sizeof(epl_op_options), NULL, 0, NULL, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_op_options_init(epl_op_options* EPL_OUT options);
/* From now on models that are loaded with this engine may have the operator. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_engine_add_op(const epl_engine* engine, const epl_op_options* options);

/* --- Models ------------------------------------------------------------------------------------------------------ */

#define EPL_PORT_INPUT 0
#define EPL_PORT_OUTPUT 1
#define EPL_PORT_INITIALIZER 2

typedef struct epl_model_options {
  uint64_t struct_size;
  int32_t no_rewrites; /* 1: attention, layer norm and the like stay as the file writes them */
  int32_t reserved;
} epl_model_options;
#define EPL_MODEL_OPTIONS_INIT {sizeof(epl_model_options), 0, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_model_options_init(epl_model_options* EPL_OUT options);

/* Large weights stay in the file, which is kept open, and are read when a plan or session is made and when the model is
 * exported. The file may be replaced by renaming or removed; a change in place is EPL_ERROR_IO when it is met. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_model_load(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_model_options* EPL_NULLABLE options, const epl_call_options* EPL_NULLABLE call,
    epl_model** EPL_OUT model);
/* The bytes are copied. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_model_load_bytes(const epl_engine* engine, const void* EPL_BYTES(bytes) data, size_t bytes,
    const epl_model_options* EPL_NULLABLE options, const epl_call_options* EPL_NULLABLE call,
    epl_model** EPL_OUT model);
/* From a source of the host's. Large weights stay there and are read as those of a file are; what the model's tensors
 * name beside it is opened by the source's own function, once each. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_model_load_from(const epl_engine* engine, const epl_source* source,
    const epl_model_options* EPL_NULLABLE options, const epl_call_options* EPL_NULLABLE call,
    epl_model** EPL_OUT model);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_model_destroy(epl_model* EPL_NULLABLE model);
/* `kind` is EPL_PORT_...; 0 for a kind that is unknown. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_model_port_count(const epl_model* model, int32_t kind);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK EPL_CHECKED epl_error*
epl_model_port(const epl_model* model, int32_t kind, int64_t index, epl_tensor_info* EPL_OUT info);
/* The name of a symbolic dimension of an input or output, counted from 0; empty where it has none, is fixed or is not
 * there. A dimension of an input that the file does not name is called by its position, as "x[2]". */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char*
epl_model_dim_symbol(const epl_model* model, int32_t kind, int64_t index, int32_t dim,
    size_t* EPL_OUT EPL_NULLABLE length);
/* What its owner should know before training it, as JSON: a list of objects with level (note, warning, error), where
 * and message. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_model_findings(const epl_model* model, epl_text** EPL_OUT EPL_OWNED json);
/* All that is known about the file, as JSON: format, ports with symbols, operators with counts, whether it is ready for
 * inference, which parameters can be trained and why others cannot, and findings (what an exporter has spoilt, what is
 * missing). */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_model_describe(const epl_model* model, epl_text** EPL_OUT EPL_OWNED json);
/* Writes a model of a known family (epl_engine_describe lists them) to `path`, with weights drawn from a seed.
 * `options` is a JSON object, for example {"layers": 4, "width": 128, "seed": 1}; empty for defaults. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_x_template_write(const epl_engine* engine, const char* EPL_TEXT(family_length) family, size_t family_length,
    const char* EPL_TEXT(options_length) EPL_NULLABLE options, size_t options_length,
    const char* EPL_TEXT(path_length) path, size_t path_length, const epl_call_options* EPL_NULLABLE call);

/* --- Trainer: loss, optimizer, schedule, what is bound ------------------------------------------------------------ */

EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_trainer_create(const epl_engine* engine, epl_trainer** EPL_OUT trainer);
/* From the JSON form, which epl_trainer_describe gives: an object with the keys of epl_trainer_set, "groups"
 * ([{"match": ["*.bias"], "frozen": true, ...}]), "train_only" (patterns), "adapters" ([{"match", "rank", "alpha",
 * "dropout"}]), "symbols" ({"batch": 8}) and "inputs" ({"x": {"dtype", "dims", "batch_dim"}}). */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_trainer_parse(const epl_engine* engine, const char* EPL_TEXT(json_length) json, size_t json_length,
    epl_trainer** EPL_OUT trainer);
/* All that was set, in the form that epl_trainer_parse reads. Values of epl_trainer_bind_value are named
 * alone, and epl_trainer_parse refuses them: they are bound again. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_describe(const epl_trainer* trainer, epl_text** EPL_OUT EPL_OWNED json);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_trainer_destroy(epl_trainer* EPL_NULLABLE trainer);
/* Sets a key from text. Keys:
 *   loss             softmax_cross_entropy, mse, bce_with_logits, ..., or output:<name of a scalar output>, or none:
 *                    such a plan has the entry EPL_ENTRY_PREDICT alone
 *   loss.output      what the loss is applied to: an output of the model, or of any of its nodes; the first output if
 *                    not set
 *   loss.peel        true (default): where the loss takes scores and that output is a softmax or sigmoid of scores, it
 *                    is applied to the scores; false: to the output as it is
 *   loss.target      the input that the loss compares with, and the field of a dataset with it: "target" if not set. A
 *                    model that has an input of this name needs another one
 *   loss.<option>    as the loss declares, for example loss.ignore_index = -100
 *   optimizer        sgd, momentum, adam, adamw, ...
 *   optimizer.<option>  lr, momentum, betas ("0.9,0.999"), eps, weight_decay, state_type (f32, or bf16: half the
 *                    bytes), ...
 *   schedule         constant, linear, cosine, step, exponential, one_cycle, plateau (docs/training.md)
 *   schedule.warmup_steps  steps in which the rate rises from zero
 *   schedule.<option>  as the schedule declares, for example schedule.total_steps = 1000
 *   clip_norm        of the global gradient, 0 for none
 *   precision        f32 (default), or f64: the float32 of the model is computed and trained as float64, slowly
 *   free_batch       true: inputs may be bound to another number of samples than the file fixes, where its nodes allow
 *                    it
 *   max_trip_count   how often a Loop or a Scan of the model may run: a number (1024 if not set), or NODE=N for the
 *                    loops whose nodes match a glob, several with commas. A loop whose end depends on data runs as
 *                    often as this key says, and its values after its end are not used
 *   report.gradient_norms  true: each step reports "gradient_norm:<parameter>" (epl_session_metric)
 *   keep_gradients  true: gradients are state, as many bytes as what is trained (epl_session_gradients)
 *   freezable       true: parameters can be frozen between steps (epl_session_set_number), for one number each */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_set(epl_trainer* trainer, const char* EPL_TEXT(key_length) key, size_t key_length,
    const char* EPL_TEXT(value_length) value, size_t value_length);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_set_number(epl_trainer* trainer, const char* EPL_TEXT(key_length) key, size_t key_length, double value);
/* Takes back what a key was set to: it has its default again. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_unset(epl_trainer* trainer, const char* EPL_TEXT(key_length) key, size_t key_length);
/* Parameters whose names match `pattern` (a glob) get their own options; the first group that matches has the
 * parameter. Set the group's options by epl_trainer_group_set: frozen = true, lr, weight_decay, ... A file does not say
 * which of its float initialisers are parameters: one that looks like a constant (a single number, a table without a
 * dot in its name) is trained where a group that is not frozen has its very name, or matches it and has constants =
 * true. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_add_group(epl_trainer* trainer, const char* EPL_TEXT(pattern_length) pattern, size_t pattern_length,
    int64_t* EPL_OUT group);
/* One more pattern for a group. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_group_add(epl_trainer* trainer, int64_t group, const char* EPL_TEXT(pattern_length) pattern,
    size_t pattern_length);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_group_set(epl_trainer* trainer, int64_t group, const char* EPL_TEXT(key_length) key, size_t key_length,
    const char* EPL_TEXT(value_length) value, size_t value_length);
/* Trains parameters whose names match the pattern, or one of those of further calls, and freezes all others. A pattern
 * that matches nothing is an error of the plan. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_train_only(epl_trainer* trainer, const char* EPL_TEXT(pattern_length) pattern, size_t pattern_length);

/* Low-rank adapters: beside a layer's product or convolution W x stands (alpha / rank) B A x with small A and B. */
typedef struct epl_adapter_options {
  uint64_t struct_size;
  int64_t rank;    /* 0: 8 */
  double alpha;    /* 0: 16 */
  double dropout;  /* of what A is applied to, in training */
} epl_adapter_options;
#define EPL_ADAPTER_OPTIONS_INIT {sizeof(epl_adapter_options), 0, 0, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_adapter_options_init(epl_adapter_options* EPL_OUT options);
/* Puts adapters beside every MatMul, Gemm and Conv whose module ("encoder.layer.0.query") or weight matches the glob; a
 * name without wildcards also means modules that end in it; of several calls the first that matches a module has it.
 * Adapters are trained, and every other parameter is frozen unless epl_trainer_train_only names it. They begin at the
 * plan's seed, as no change; their names are those of Hugging Face PEFT, "base_model.model.<module>.lora_A.weight".
 * Exported models have them in their weights. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_add_adapter(epl_trainer* trainer, const char* EPL_TEXT(pattern_length) pattern, size_t pattern_length,
    const epl_adapter_options* EPL_NULLABLE options);
/* Binds a symbolic dimension of the model, for example "batch", or "x[2]" for dimension 2 of input x where the file
 * gives it no name. Here and in the calls that follow, a name that the model does not have is an error of
 * epl_plan_create. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_bind_symbol(epl_trainer* trainer, const char* EPL_TEXT(symbol_length) symbol, size_t symbol_length,
    int64_t size);
/* Binds the shape of an input, or, by the name "target", type and shape of the target of the loss. `dtype` may be
 * EPL_DTYPE_NONE for inputs; another one must be that of the model. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_bind_input(epl_trainer* trainer, const char* EPL_TEXT(input_length) input, size_t input_length,
    int32_t dtype, const int64_t* EPL_COUNT(ndim) EPL_NULLABLE dims, int32_t ndim);
/* Binds the inputs of a model, and the "target" where it is a class, as batches of a dataset have them: each takes the
 * field of its name, or input.<name>, and dimensions of 1 are added or left out as the model wants. What has a value
 * (epl_trainer_bind_value) is left alone. EPL_ERROR_NOT_FOUND names an input without a field. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_bind_dataset(epl_trainer* trainer, const epl_model* model, const epl_dataset* dataset);
/* Which dimension of an input, or of the "target", counts samples, -1 for none. Those that are named must agree about
 * the number of samples. The others count them in dimension 0 where they agree, else they count none. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_bind_batch_dim(epl_trainer* trainer, const char* EPL_TEXT(input_length) input, size_t input_length,
    int32_t dim);
/* Makes an input a constant, for example a sampling rate that an If asks for: no call takes it any more. One number is
 * the value of every element; else there are as many as the input has. The numbers are copied. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_bind_value(epl_trainer* trainer, const char* EPL_TEXT(input_length) input, size_t input_length,
    const epl_tensor* value);
/* One more shape that batches may have, beside the one that the calls above bind: the last, partial batch of an epoch,
 * or texts of other lengths. `json` says what differs, as a trainer's own document does: {"symbols": {"length": 64}} or
 * {"inputs": {"x": {"dims": [3, 4]}, "target": {"dims": [3]}}}. The plan has entries for every shape and one arena, as
 * large as the largest needs; a call runs the shape that its inputs have, over the same weights and the same state, and
 * other shapes are refused. 64 at most. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_trainer_add_shape(epl_trainer* trainer, const char* EPL_TEXT(json_length) json, size_t json_length);

/* --- Strategy: how to spread the work ------------------------------------------------------------------------------
 */

EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_strategy_create(const epl_engine* engine, epl_strategy** EPL_OUT strategy);
/* From the JSON form: config keys, `scopes` and `default` in one object. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_strategy_parse(const epl_engine* engine, const char* EPL_TEXT(json_length) json, size_t json_length,
    epl_strategy** EPL_OUT strategy);
/* What the model's file itself asks for on that many ranks: a device configuration with pipeline stages and shards
 * (ONNX IR 11), or metadata "epl.strategy" of the model and "epl.scope" of its nodes. EPL_ERROR_NOT_FOUND where it asks
 * for nothing. A plan whose strategy has neither scopes nor a default takes it by itself. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_strategy_of_model(const epl_model* model, int64_t ranks, epl_strategy** EPL_OUT EPL_OWNED strategy);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_strategy_destroy(epl_strategy* EPL_NULLABLE strategy);
/* One config key, for example "pipeline.num_micro_batch" = "4". */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_strategy_set(epl_strategy* strategy, const char* EPL_TEXT(key_length) key, size_t key_length,
    const char* EPL_TEXT(value_length) value, size_t value_length);

#define EPL_SCOPE_REPLICATE 0 /* a copy of these nodes takes device_count devices, which share its batch */
#define EPL_SCOPE_SPLIT 1     /* their weights are cut over device_count devices */
#define EPL_SCOPE_EXPERT 2    /* their experts are */
#define EPL_SCOPE_TOP (-1)     /* as outer scope: none; siblings are stages of a pipeline, in the order of the calls */
#define EPL_SCOPE_DEFAULT (-2) /* as outer scope: none; it is that of every node that no other scope matches */
/* Adds a scope behind those that are there. `outer`: the number of a scope, or one of the two above. Without a pattern
 * it matches every node. `scope`: its number, for the calls below. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_strategy_add_scope(epl_strategy* strategy, int64_t outer, int32_t kind, int64_t device_count,
    const char* EPL_TEXT(name_length) EPL_NULLABLE name, size_t name_length, int64_t* EPL_OUT scope);
/* A glob over names of nodes, "node:NAME" for one node of the model, "op:MatMul", or "param:embed*". */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_strategy_add_match(epl_strategy* strategy, int64_t scope, const char* EPL_TEXT(pattern_length) pattern,
    size_t pattern_length);
/* The dimension in which a value of the scope's nodes is cut over its devices: a weight, or the result of a node of the
 * forward pass. `value`: the name of the weight or of the node, or a glob; of several calls that name a value the first
 * counts. `dim`: from 0, or from -1 back from the end. epl_plan_create refuses, by name, what is not there, what no
 * rule of its node can cut so, and what two pins ask of one node. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_strategy_pin_dim(epl_strategy* strategy, int64_t scope, const char* EPL_TEXT(value_length) value,
    size_t value_length, int32_t dim);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_strategy_describe(const epl_strategy* strategy, epl_text** EPL_OUT EPL_OWNED json);

/* --- Plan: everything decided, nothing allocated --------------------------------------------------------------------
 */

#define EPL_ENTRY_TRAIN 0
#define EPL_ENTRY_EVALUATE 1
#define EPL_ENTRY_PREDICT 2
/* Of the n-th shape that epl_trainer_add_shape has added, counted from 1, an entry is EPL_ENTRY_... + n times this. */
#define EPL_ENTRY_SHAPE 16

typedef struct epl_plan_options {
  uint64_t struct_size;
  int64_t ranks;   /* of the job, in this and other processes; 0: 1 */
  uint64_t seed;   /* of dropout and of new adapters */
  /* By its name, as epl_engine_describe lists them: "cpu", or "sim" with virtual time and no numbers. NULL: "cpu".
   * "cuda": GPUs, rank r on number r of them, counted around; "cuda:1" and "cuda:0,2" are some of them.
   * "cuda:h100" or "cuda:FILE.json" is a sheet of a GPU that need not be there: plans are made for it, and a session is
   * an error. Behind any of these "@FILE" names a table of `epl calibrate`, by whose numbers plans are decided:
   * "cpu@machine.json". */
  const char* device;
  uint64_t device_length;
  int64_t local_ranks; /* of this process, which share its threads; 0: all of them */
} epl_plan_options;
#define EPL_PLAN_OPTIONS_INIT {sizeof(epl_plan_options), 0, 0, NULL, 0, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_plan_options_init(epl_plan_options* EPL_OUT options);

/* `strategy` NULL: all defaults. `trainer` NULL: a plan to predict with, of a model whose dimensions are all fixed;
 * where some are open, a trainer with loss = none binds them. The handles may be changed or destroyed afterwards. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_create(const epl_model* model, const epl_trainer* EPL_NULLABLE trainer,
    const epl_strategy* EPL_NULLABLE strategy, const epl_plan_options* EPL_NULLABLE options,
    const epl_call_options* EPL_NULLABLE call, epl_plan** EPL_OUT plan);
/* Writes the decisions of a plan, by the names of the model: a text, no program. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_save(const epl_plan* plan, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call);
/* As epl_plan_create, with the decisions of a file. They are refused where what they rest on differs: model, graph
 * (batch, loss, optimizer, what is trained), version, numerics, and strategy and ranks where these are given.
 * `strategy` NULL and `ranks` 0 take the file's. A damaged file is EPL_ERROR_DATA_LOSS. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_load(const epl_model* model, const epl_trainer* EPL_NULLABLE trainer,
    const epl_strategy* EPL_NULLABLE strategy, const epl_plan_options* EPL_NULLABLE options,
    const char* EPL_TEXT(path_length) path, size_t path_length, const epl_call_options* EPL_NULLABLE call,
    epl_plan** EPL_OUT plan);
/* The same bytes to the host, and from its memory. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_save_to(const epl_plan* plan, epl_write_fn write, void* EPL_NULLABLE userdata,
    const epl_call_options* EPL_NULLABLE call);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_load_bytes(const epl_model* model, const epl_trainer* EPL_NULLABLE trainer,
    const epl_strategy* EPL_NULLABLE strategy, const epl_plan_options* EPL_NULLABLE options,
    const void* EPL_BYTES(bytes) data, size_t bytes, const epl_call_options* EPL_NULLABLE call,
    epl_plan** EPL_OUT plan);
/* What two plan files decide differently, a sentence a line; nothing where they decide the same. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_compare(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    const char* EPL_TEXT(other_length) other, size_t other_length, const epl_call_options* EPL_NULLABLE call,
    epl_text** EPL_OUT EPL_OWNED text);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_plan_destroy(epl_plan* EPL_NULLABLE plan);
/* Inputs in the order in which steps take them, and outputs, of an entry (EPL_ENTRY_...). 0 for an unknown entry. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_plan_port_count(const epl_plan* plan, int32_t entry, int32_t kind);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK EPL_CHECKED epl_error*
epl_plan_port(const epl_plan* plan, int32_t entry, int32_t kind, int64_t index, epl_tensor_info* EPL_OUT info);
/* The index of the input or output of that name; -1 where there is none. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_plan_find_port(const epl_plan* plan, int32_t entry, int32_t kind, const char* EPL_TEXT(name_length) name,
    size_t name_length);
/* The samples of an input that any of `ranks` ranks from `first_rank` on reads, [first, first + samples) of the batch:
 * what a process with these ranks passes with epl_session_options.slices, in a tensor of so many samples. 0 samples:
 * none of them reads it. All of the batch where the input counts no samples, or they do not lie in one run. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK EPL_CHECKED epl_error*
epl_plan_slice(const epl_plan* plan, int32_t entry, int64_t input, int64_t first_rank, int64_t ranks,
    int64_t* EPL_OUT first, int64_t* EPL_OUT samples);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_plan_ranks(const epl_plan* plan);
/* Bytes that a rank will have at its peak, exact; -1 for a rank that is not there. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_plan_memory_bytes_peak(const epl_plan* plan, int64_t rank);
/* As a text for people, which may change with every version: "explain"; the stages of the train step: "graph", "plan",
 * "local", "program", "kernels" (those chosen and why better ones were not), "texts" (what these are compiled from, for
 * a GPU that need not be there, as lines of JSON), or of another entry: "evaluate.graph", "predict.program", of another
 * shape "train@1.graph". "explain" goes through a step in virtual time, on a simulated
 * device. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_print(const epl_plan* plan, const char* EPL_TEXT(stage_length) stage, size_t stage_length,
    const epl_call_options* EPL_NULLABLE call, epl_text** EPL_OUT EPL_OWNED text);
/* As JSON, for programs: "overview" (what runs where, how tensors lie and why, the calls of a step, what moves, over
 * which links and how much longer than these need, a roofline of each virtual device, memory over time by what holds
 * it, predicted seconds; goes through a step in virtual time), "memory" (what needs how many bytes, what holds the
 * peak, what was tried for a budget, and every range of the arena with the instructions during which it is alive),
 * "parameters" (trained and not, with reasons) and "notes" (sentences on how inputs and loss were taken where nobody
 * has said it). */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_describe(const epl_plan* plan, const char* EPL_TEXT(document_length) document, size_t document_length,
    const epl_call_options* EPL_NULLABLE call, epl_text** EPL_OUT EPL_OWNED json);
/* The model's file again, with the plan in it as other tools read it: a device configuration "epl", the pipeline stage
 * of each node and the shards of its weights (ONNX IR 11), and in metadata "epl.strategy" what these cannot say. A plan
 * of that file for as many ranks is this one. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_plan_export_onnx(const epl_plan* plan, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call);

/* --- Data -----------------------------------------------------------------------------------------------------------
 */

/* A file (or a folder of files) of a known format, or several files, by * and ? in the last part of the path: in the
 * order of their names, their samples one after another. `options` is a JSON object, empty for defaults:
 *   batch     samples of a batch; 0 (default): a sample is a batch already, no dimension is added
 *   order     "sequential" (default) or "shuffled", a new permutation for each epoch
 *   seed      of the shuffling
 *   prefetch  batches read ahead by a thread, 0 (default) for none
 *   partial   true: an epoch ends with what is left over after its last full batch, as a batch of fewer samples, which
 *             a step takes where the trainer has that shape too (epl_trainer_add_shape)
 *   split     "train" or "held_out": the part of the samples that is trained on, or the share `held_out` (0.2) that is
 *             not, drawn by `split_seed` (0); "all" (default). The reader text cuts the file instead: its end is held
 *             out.
 *   reader    the reader's name; found by the file itself if not set
 *   target_name  of the field that a reader makes for the target, "target" (default): for a model with such an input
 *   and what the reader declares (epl_engine_describe and docs/readers.md list it), for example {"context": 128}.
 * The options may be a stranger's: a file that one of them names lies in the folder of the data. An absolute name,
 * `..`, or a link that leads out of that folder is an error. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_dataset_open(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    const char* EPL_TEXT(options_length) EPL_NULLABLE options, size_t options_length,
    const epl_call_options* EPL_NULLABLE call, epl_dataset** EPL_OUT dataset);
/* The same where files that the options name may lie anywhere in `folder`. "/" is for options that are the host's own.
 * A relative name still begins at the folder of the data. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_dataset_open_within(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    const char* EPL_TEXT(folder_length) folder, size_t folder_length,
    const char* EPL_TEXT(options_length) EPL_NULLABLE options, size_t options_length,
    const epl_call_options* EPL_NULLABLE call, epl_dataset** EPL_OUT dataset);
/* Samples that the host gives, by a function that is asked for them: writes field `field` of these samples to `target`,
 * one behind the other. It is called by the thread of the call that takes a batch, or where batches are read ahead by
 * one of the dataset's own, one call at a time. */
typedef epl_error* (*epl_samples_fn)(void* userdata, int32_t field, const int64_t* EPL_COUNT(count) samples,
    size_t count, void* EPL_BYTES(bytes) EPL_OUT target, size_t bytes);
/* `fields` are those of a sample, without the batch; or of a full batch, where the option "batch" is 0 and a sample
 * is a batch. `samples`: how many there are; -1: nobody knows, and the function itself gives an error for one that
 * is not there, EPL_ERROR_NOT_FOUND for example. Options are those of epl_dataset_open that no reader declares:
 * batches, order, reading ahead, parts, positions in checkpoints and the samples of each process are as those of
 * files. `destroy` is called once with the userdata when the dataset is gone; where this function fails they are
 * still the caller's. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_dataset_create(const epl_engine* engine, const epl_tensor_info* EPL_COUNT(field_count) fields, size_t field_count,
    int64_t samples, epl_samples_fn read, void* EPL_NULLABLE userdata, epl_destroy_fn EPL_NULLABLE destroy,
    const char* EPL_TEXT(options_length) EPL_NULLABLE options, size_t options_length,
    epl_dataset** EPL_OUT dataset);
/* Batches that the host pushes when it has them: a feed is the end that they are pushed into, and a dataset the one
 * that they come out of. `fields` are those of a batch, and `capacity` batches wait at most. A feed that is
 * destroyed before it was finished is an error to who waits for a batch. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_feed_create(const epl_engine* engine, const epl_tensor_info* EPL_COUNT(field_count) fields, size_t field_count,
    int64_t capacity, epl_feed** EPL_OUT feed);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_feed_destroy(epl_feed* EPL_NULLABLE feed);
/* Copies a batch, a tensor for each field, and waits while there is no room: that is the back-pressure. A deadline or a
 * token ends the wait, and nothing was pushed. Any threads may push; EPL_ERROR_MISUSE once the dataset is gone. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_feed_push(epl_feed* feed, const epl_tensor* const* EPL_COUNT(count) tensors, size_t count,
    const epl_call_options* EPL_NULLABLE call);
/* No batch follows: when those that wait have been taken, epl_dataset_next is EPL_ERROR_NOT_FOUND. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_feed_finish(epl_feed* feed);
/* The dataset of a feed, which has one. Its position counts batches as others do: when a checkpoint is loaded with
 * it, or epl_dataset_seek moves it, batches that wait are dropped where they are not those wanted, and the host
 * pushes from that position on. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_dataset_of_feed(const epl_feed* feed, epl_dataset** EPL_OUT dataset);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_dataset_destroy(epl_dataset* EPL_NULLABLE dataset);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_QUICK int64_t epl_dataset_field_count(const epl_dataset* dataset);
/* Name and type of a field as batches have it. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_dataset_field(const epl_dataset* dataset, int64_t index, epl_tensor_info* EPL_OUT info);
/* -1 where nobody knows, as of a feed. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_QUICK int64_t epl_dataset_samples(const epl_dataset* dataset);
/* Batches of an epoch; what is left over after the last full batch is one where the option "partial" is set, else left
 * out. -1 where nobody knows. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_QUICK int64_t epl_dataset_batches(const epl_dataset* dataset);
/* What was read and how, as JSON: path, reader, samples, fields with their columns and the names of their classes, and
 * `options`, under which another file is read to the same meaning. Once there was a batch, `rows_given` are the rows of
 * the file, counted from 0, that the last one was read from. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_dataset_describe(const epl_dataset* dataset, epl_text** EPL_OUT EPL_OWNED json);
/* From now on batches have the fields that an entry of the plan takes, in its order; each input takes the field of its
 * name, or input.<name>. Element types are converted; a value that the plan's type cannot hold is an error of the batch
 * that has it. Shapes that do not fit are an error. The
 * handles that epl_dataset_next gave before are gone. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_dataset_bind(epl_dataset* dataset, const epl_plan* plan, int32_t entry);
/* The same for a session that takes slices: of each batch the samples alone that the ranks [first_rank, first_rank +
 * ranks) read are read from the file and given, as epl_plan_slice names them. Of an input that none of them reads
 * nothing is, and epl_dataset_next gives NULL. Positions are those of full batches, so that a run goes on with the
 * same samples in another number of processes. What the last batch of an epoch lacks ("partial": true) is filled up
 * with its last sample; epl_evaluation_add_dataset leaves that out again. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_dataset_bind_slice(epl_dataset* dataset, const epl_plan* plan, int32_t entry, int64_t first_rank, int64_t ranks);
/* Reads every sample once and looks for integers that the model cannot take, class indices and rows of tables out of
 * range: an error names field, row and value. The dataset need not be bound. One that gives slices reads its share: all
 * processes together read every sample. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_dataset_check(epl_dataset* dataset, const epl_plan* plan, int32_t entry,
    const epl_call_options* EPL_NULLABLE call);
/* The next batch: the handles of the dataset's own tensors, filled anew by each call of this function and left alone by
 * every other. After the last batch of an epoch the next begins. `count` must be that of the fields, or of the inputs
 * once bound. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_dataset_next(epl_dataset* dataset, const epl_call_options* EPL_NULLABLE call,
    const epl_tensor** EPL_COUNT(count) EPL_OUT tensors, size_t count);
/* Batches given so far, which is where a checkpoint resumes. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_QUICK int64_t epl_dataset_position(const epl_dataset* dataset);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_dataset_seek(epl_dataset* dataset, int64_t position);

/* --- Several processes: where they find each other -------------------------------------------------------------------
 */

typedef struct epl_store_options {
  uint64_t struct_size;
  const char* address; /* "HOST:PORT" of this process, as the others reach it; port 0: any that is free. NULL:
                          "127.0.0.1:0", for processes of this host */
  uint64_t address_length;
  const char* secret; /* which others must know to be answered. NULL: one is drawn, which the id has in it. Of no bytes:
                         whoever reaches the address is answered */
  uint64_t secret_length;
} epl_store_options;
#define EPL_STORE_OPTIONS_INIT {sizeof(epl_store_options), NULL, 0, NULL, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_store_options_init(epl_store_options* EPL_OUT options);
/* Serves a store for the processes of one job, by a thread of its own, until it is destroyed: when the sessions that
 * use it are gone. One process makes it, any one that lives long enough; what it keeps is small. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_store_create(const epl_engine* engine, const epl_store_options* EPL_NULLABLE options, epl_store** EPL_OUT store);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_store_destroy(epl_store* EPL_NULLABLE store);
/* "HOST:PORT" with the port that it has; empty for NULL. `length` may be NULL. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK const char*
epl_store_address(const epl_store* EPL_NULLABLE store, size_t* EPL_OUT EPL_NULLABLE length);
/* Address and secret as one text without spaces, for epl_session_options.rendezvous. The host hands it to the other
 * processes by its own means, which nobody else must see. Shorter than 256 bytes for a secret of up to 64. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_store_id(const epl_store* store, epl_text** EPL_OUT EPL_OWNED id);

/* --- Sessions -------------------------------------------------------------------------------------------------------
 */

/* A store of bytes under names that the host brings, over which the processes of a job find each other. Both may be
 * called by several threads at once. A `put` is seen by all processes; a second one of the same key changes nothing and
 * gives EPL_ERROR_MISUSE. A `get` waits until somebody has put the key, at most so long, and then gives
 * EPL_ERROR_DEADLINE_EXCEEDED. It sets `bytes` to the size of the value, and copies that where it fits into `capacity`;
 * it is called again where it did not. Both return NULL or an error of epl_error_create. */
typedef epl_error* (*epl_put_fn)(void* userdata, const char* EPL_TEXT(key_length) key, size_t key_length,
    const void* EPL_BYTES(bytes) value, size_t bytes);
typedef epl_error* (*epl_get_fn)(void* userdata, const char* EPL_TEXT(key_length) key, size_t key_length,
    int64_t timeout_nanoseconds, void* EPL_BYTES(capacity) EPL_OUT value, size_t capacity, size_t* EPL_OUT bytes);

/* All zero: the ranks of the plan are threads of this process. A job may have several processes instead, each with some
 * of the ranks. All make the same plan and the same calls at the same time; steps take the full batch in each, or with
 * `slices` a part of it. They find each other through one door: `rendezvous`, or `put` and `get`. A process of another
 * version, plan or number of ranks, a rank that comes twice and one with another secret is an error that names it. */
typedef struct epl_session_options {
  uint64_t struct_size;
  int64_t first_rank; /* this process has the ranks from this one on */
  int64_t ranks;      /* so many; 0, where first_rank is 0 too: all of them */
  /* "tcp://HOST:PORT": a store that epl_store_create serves there; what epl_store_id gave; or "file:///FOLDER": a
   * folder that all processes see, new for each run, to be removed by who started the job. */
  const char* rendezvous;
  uint64_t rendezvous_length;
  epl_put_fn put;
  epl_get_fn get;
  void* userdata;
  epl_destroy_fn destroy; /* NULL, or called with the userdata when the session is gone; not where epl_session_create
                             fails */
  /* What all processes know and nobody else. It is never sent, and at every connection both ends show that they know
   * it. Without one whoever reaches the rendezvous may join. An id brings its own. */
  const char* secret;
  uint64_t secret_length;
  /* Of this host, under which the other processes reach it. NULL: the one on the way to the store, else 127.0.0.1. */
  const char* address;
  uint64_t address_length;
  int64_t join_timeout_nanoseconds;    /* for all processes to come; 0: a minute */
  int64_t silence_timeout_nanoseconds; /* for a process that says nothing within a call; 0: ten minutes */
  /* What moves data between the processes, the same in all: "sockets", "gloo" or "mpi" (packs, see docs/packs.md), each
   * also behind "shared,": then ranks of one host share memory. NULL: "shared,sockets". Bits are the same. */
  const char* transport;
  uint64_t transport_length;
  /* 1: calls take the samples of this process's ranks alone, which epl_plan_slice names, of full batches; inputs that
   * none of its ranks reads may be NULL. epl_dataset_bind_slice gives them from files. */
  int64_t slices;
  /* Weights that differ between the model files of the processes: 0: an error that names the first one and the rank;
   * 1: all take those of rank 0. */
  int64_t take_weights;
  /* Ranks that hold the same values of the state compare them, by hashes, with each checkpoint that is saved or loaded,
   * and before the next step after so many; 0: 100 steps; -1: only with checkpoints. Values that differ are
   * EPL_ERROR_STATE_LOST, which names the first one and the rank. */
  int64_t compare_every;
  /* "hmac": what goes over connections between processes is signed by a key that follows from the secret, which must
   * be there: what was changed, repeated or left out on its way is an error that names the rank. Memory that ranks of
   * one host share is no connection. NULL or "none": it is not signed. */
  const char* integrity;
  uint64_t integrity_length;
} epl_session_options;
#define EPL_SESSION_OPTIONS_INIT                                                                                       \
  {sizeof(epl_session_options), 0, 0, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, NULL, 0, 0, 0, 0,       \
   NULL, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_session_options_init(epl_session_options* EPL_OUT options);

typedef struct epl_metrics {
  uint64_t struct_size;
  int64_t step;   /* steps done, this one included */
  double loss;    /* before the update; NaN where it is a mean over nothing */
  double gradient_norm; /* global, before clipping; -1 when it is not computed */
  double learning_rate; /* of the ungrouped parameters at this step; 0 for evaluate */
  int64_t nanoseconds;  /* of this call */
} epl_metrics;
#define EPL_METRICS_INIT {sizeof(epl_metrics), 0, 0, 0, 0, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_metrics_init(epl_metrics* EPL_OUT metrics);

EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_create(const epl_plan* plan, const epl_session_options* EPL_NULLABLE options,
    const epl_call_options* EPL_NULLABLE call, epl_session** EPL_OUT session);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_session_destroy(epl_session* EPL_NULLABLE session);
/* One optimizer step over the global batch: inputs in the plan's order. A step happens or does not: after an error
 * nothing has changed, and the same call may be made again. EPL_ERROR_STATE_LOST: something failed within an update,
 * and every call says so until a checkpoint is loaded. A class index or table row out of range is found before anything
 * runs (EPL_ERROR_INVALID_ARGUMENT, which names input, row and value). Where nothing in the batch counts, because every
 * target is ignored or its class has weight 0, the step is no error: it counts and changes nothing else, its loss is
 * NaN, and a warning is logged. Where gradients overflow at the dynamic loss scale of amp.level, it is no error either:
 * it does not count and changes nothing, the scale is halved, and the same batch may be given again. The number
 * "skipped_steps" (epl_session_get_number) counts these. `epl_dataset_describe` says which rows the batch is. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_step(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_metrics* EPL_OUT EPL_NULLABLE metrics);
/* The two halves of a step, for a trainer with keep_gradients = true: the gradients of a batch without an update, and
 * an update by the gradients that the session has. One behind the other they are a step, bit by bit. Between them
 * gradients are read by epl_session_get and changed by epl_session_set (clipped, summed over other sessions, ...),
 * under "<parameter>.gradient": full tensors in every layout, before clip_norm, which the update applies. A step
 * leaves its gradients there too. epl_session_gradients takes the dropout of the next step, updates running statistics,
 * and does not count as a step; epl_session_apply does. Its metrics have the loss of the last batch. An update takes
 * each gradient once. EPL_ERROR_MISUSE: one was neither computed nor set since the last update, or since weights or
 * buffers were loaded or set. EPL_ERROR_NOT_FINITE of epl_session_gradients: they are not finite. The dynamic loss
 * scale of amp.level is halved then, and the same call may be made again. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_gradients(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_metrics* EPL_OUT EPL_NULLABLE metrics);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_apply(epl_session* session, const epl_call_options* EPL_NULLABLE call,
    epl_metrics* EPL_OUT EPL_NULLABLE metrics);
/* The loss without an update, dropout off, running statistics used. Of fewer samples than the plan's batch it is the
 * mean of theirs; a model that computes its loss itself takes full batches alone. NaN where nothing counts; the means
 * of an `epl_evaluation` leave such a batch out. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_evaluate(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_metrics* EPL_OUT EPL_NULLABLE metrics);
/* The outputs of the model, in the order of the plan's outputs of EPL_ENTRY_PREDICT, into `output_count` new tensors.
 * With fewer samples than the plan's batch the outputs have as many. Outputs that the strategy merges ("outputs.
 * global_mean" and its other keys) are given merged. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_predict(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_tensor** EPL_COUNT(output_count) EPL_OUT EPL_OWNED outputs,
    size_t output_count);
/* The same into tensors of the host, of the types and sizes of the outputs of so many samples (epl_tensor_create_borrow
 * makes them of its own memory); NULL for one that is not wanted. They share no memory with the inputs. Of full
 * batches it copies nothing, unless the strategy merges an output. After an error they hold anything. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_predict_into(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_tensor* const* EPL_COUNT(output_count) outputs,
    size_t output_count);
/* An output of the last step (EPL_ENTRY_TRAIN) or of the last epl_session_evaluate (EPL_ENTRY_EVALUATE), by its name:
 * what a key of the strategy merges ("outputs.global_mean" and so on), as it asks; of a step also its own, for example
 * "loss". A new tensor. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_output(epl_session* session, int32_t entry, const char* EPL_TEXT(name_length) name, size_t name_length,
    epl_tensor** EPL_OUT EPL_OWNED output);
/* For a process of several that cannot make a call that the others make, because its data cannot be read, say: the call
 * that they are in, or their next one, ends with EPL_ERROR_PEER_FAILED and this reason. All can go on afterwards, and
 * make the same call again. In one process it does nothing. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_give_up(epl_session* session, const char* EPL_TEXT(reason_length) EPL_NULLABLE reason,
    size_t reason_length, const epl_call_options* EPL_NULLABLE call);
/* For processes that must have more in common than the session knows: each passes its `facts`, a JSON object of texts,
 * numbers and booleans, and its dataset, of which fields, samples, batches, order, seed and a hash of some samples
 * count. Where two processes differ, all get EPL_ERROR_INVALID_ARGUMENT, which names what differs and the ranks. In
 * one process nothing is compared. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_agree(epl_session* session, const char* EPL_TEXT(facts_length) EPL_NULLABLE facts, size_t facts_length,
    const epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call);
/* A scalar output of the last step by name, for example "gradient_norm:<parameter>". */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_metric(epl_session* session, const char* EPL_TEXT(name_length) name, size_t name_length,
    double* EPL_OUT value);
/* Steps done. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_session_steps(const epl_session* session);
/* What the last step that was done gave its caller, all numbers of one step, while others run. Before a session has
 * made a step, and after a checkpoint was loaded, `step` is what epl_session_steps says and `loss` is NaN. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void
epl_session_progress(const epl_session* session, epl_metrics* EPL_OUT metrics);
/* A number that decides how training goes on, changed between steps and kept in checkpoints:
 *   learning_rate        optimizer.lr, of the parameters outside any group; "learning_rate:0" of group 0, and so on
 *   learning_rate_scale  what all rates are multiplied with besides their schedule, 1 at first
 *   frozen:PATTERN       1: the trained parameters that match are left alone, with their optimizer state, and do not
 *                        count in the norm that clips; 0: they are trained again. For a trainer with freezable = true.
 *                        Read, it is 1 where all that match are frozen.
 * Two follow from the steps and can only be read, under a strategy with amp.level:
 *   loss_scale           what gradients are multiplied with on their way, 1 where they are not
 *   skipped_steps        how many steps have overflowed and changed nothing
 * Over processes all set the same. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_set_number(epl_session* session, const char* EPL_TEXT(name_length) name, size_t name_length,
    double value);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_get_number(epl_session* session, const char* EPL_TEXT(name_length) name, size_t name_length,
    double* EPL_OUT value);
/* Tells the schedule plateau what was measured, which it may lower the scale above for. Other schedules watch nothing:
 * an error. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_observe(epl_session* session, double value, int32_t higher_is_better);
/* XXH64 (seed 0) over the bytes of all trained parameters in the order of their names, every NaN as
   one with all bits set: equal weights, equal hash. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_hash(epl_session* session, const epl_call_options* EPL_NULLABLE call, uint64_t* EPL_OUT hash);
/* What the ranks do in the next `steps` steps of the plan's first shape is recorded, and what was recorded before is
 * forgotten; 0: nothing is. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_record(epl_session* session, int64_t steps);
/* What was recorded, in the format of trace files of Chrome and Perfetto: ranks are processes, streams are threads, and
 * a call of a block encloses its instructions, which have the plan's names. Waiting for other ranks is apart from
 * moving. On the device "sim" times are virtual. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_session_trace(epl_session* session, epl_text** EPL_OUT EPL_OWNED json);
/* Bytes that a rank has used at its fullest so far, seen from the instructions that ran; never above the plan's. -1 for
 * a rank that is not there, or of another process. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_session_memory_bytes_peak(const epl_session* session, int64_t rank);

/* Parameters, buffers and optimizer state by name: "<parameter>", "<parameter>.<state>". Gradients are no part of
 * checkpoints. */
#define EPL_STATE_PARAMETER 0  /* trained */
#define EPL_STATE_FROZEN 1     /* a parameter that is not trained */
#define EPL_STATE_BUFFER 2     /* running statistics */
#define EPL_STATE_OPTIMIZER 3
#define EPL_STATE_GRADIENT 4   /* "<parameter>.gradient" of each that is trained, where the trainer keeps them */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_session_state_count(const epl_session* session, int32_t kind);
/* In the order of their names. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_session_state_port(const epl_session* session, int32_t kind, int64_t index, epl_tensor_info* EPL_OUT info);
/* A copy. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_get(epl_session* session, const char* EPL_TEXT(name_length) name, size_t name_length,
    const epl_call_options* EPL_NULLABLE call, epl_tensor** EPL_OUT EPL_OWNED tensor);
/* The tensor is copied. It has the type of the state; optimizer state may come in another floating type, and is
 * converted. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_set(epl_session* session, const char* EPL_TEXT(name_length) name, size_t name_length,
    const epl_tensor* tensor, const epl_call_options* EPL_NULLABLE call);

/* A checkpoint: everything that decides how training goes on, and where `dataset` (may be NULL) stands. Beside low-rank
 * adapters, frozen weights that are as the model's file has them are left to that file, and only their hash is kept.
 * `path` becomes a folder, or is one that is empty or a checkpoint's; the new state is written beside the old and takes
 * its place by one renaming, so that whatever happens, the last complete one can be loaded. A state with a NaN or an
 * infinite weight is refused (EPL_ERROR_NOT_FINITE): it never takes the place of a good one. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_save(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call);
/* Names and types must fit. What else differs from the run that saved it (epl_session_compare) is logged as a warning:
 * all of it where a dataset is given, because training then goes on; model and optimizer otherwise. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_load(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call);
/* A checkpoint as one stream, written from its first byte to its last: a zip archive of what the folder holds,
 * stored as it is, with their hashes. Unpacked it is that folder, and as a file epl_session_load and all that take
 * the path of a checkpoint read it. Over processes that of rank 0 writes, and the others pass NULL for `write`;
 * tensors that are sharded are put together one at a time. After an error the session is as it was, and what was
 * written is no checkpoint. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_save_to(epl_session* session, epl_write_fn EPL_NULLABLE write, void* EPL_NULLABLE userdata,
    const epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call);
/* Loads such a stream. It is read twice: to check its hashes before anything changes, and to take its values. An error
 * on the first way leaves the session as it was, one on the second means EPL_ERROR_STATE_LOST from then on, until a
 * checkpoint is loaded. Over processes each has a source of the same bytes. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_load_from(epl_session* session, const epl_source* source, epl_dataset* EPL_NULLABLE dataset,
    const epl_call_options* EPL_NULLABLE call);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_load_bytes(epl_session* session, const void* EPL_BYTES(bytes) data, size_t bytes,
    epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call);
/* In what this session, with `dataset` (may be NULL), differs from the run that saved a checkpoint. A JSON array of
 * objects: "key" ("optimizer.lr"), "checkpoint" and "session" (both values as text), "topic" (model, data, batch,
 * order, loss, optimizer or options) and "breaks": whether going on is not a continuation of that run (another model,
 * other data), or a choice that may change (a rate). */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_compare(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_dataset* EPL_NULLABLE dataset, const epl_call_options* EPL_NULLABLE call,
    epl_text** EPL_OUT EPL_OWNED json);
/* Removes a checkpoint: the files that it consists of, and the folder if nothing else lies there. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_checkpoint_remove(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length);
/* What a checkpoint holds, as JSON: the step, the tensors, and under "facts" what the run was (optimizer, loss, data,
 * ...). */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_checkpoint_describe(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call, epl_text** EPL_OUT EPL_OWNED json);
/* The model's file again with the trained weights and running statistics, ready for inference: batch norm and dropout
 * in inference mode, outputs that only training needs cut (running statistics, and a loss that is an output of the
 * graph, unless it is the only one) with all that only they read. Everything else keeps its bytes. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_export_onnx(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call);
/* The same, but to train on: only the weights and running statistics have changed. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_export_onnx_for_training(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call);
/* The low-rank adapters, and modules that are trained beside them, as Hugging Face PEFT loads them:
 * adapter_model.safetensors and adapter_config.json in `folder`, which is made where it is missing. What PEFT has no
 * place for is logged as a warning. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_export_adapters(epl_session* session, const char* EPL_TEXT(folder_length) folder, size_t folder_length,
    const epl_call_options* EPL_NULLABLE call);
/* Parameters and buffers under their names, adapters merged into their weights. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_export_safetensors(epl_session* session, const char* EPL_TEXT(path_length) path, size_t path_length,
    const epl_call_options* EPL_NULLABLE call);
/* An export as one stream, by the name of its format: "onnx" (as epl_session_export_onnx), "onnx_for_training" or
 * "safetensors". What lies beside the model's file becomes part of it, so that an ONNX file must stay below 2 GiB.
 * Weights are written from where they lie. Over processes that of rank 0 writes, and the others pass NULL for
 * `write`. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_export_to(epl_session* session, const char* EPL_TEXT(format_length) format, size_t format_length,
    epl_write_fn EPL_NULLABLE write, void* EPL_NULLABLE userdata, const epl_call_options* EPL_NULLABLE call);

/* --- Events: work that goes on after its call ----------------------------------------------------------------------
 *
 * A thread of the session's own, made when the first such call needs it, does what the call of the same name without
 * _async does. Until the event is ready the session is in use: other calls with it get EPL_ERROR_BUSY, but for those
 * that any thread may make, and destroying it lets the work go on to its end. Inputs and outputs must stay as they are
 * until then; the tensors' handles may be destroyed at once. A call that is refused (a NULL, a session in use, no
 * thread, in one process a token that was triggered before) has no event; everything else is the event's error. The
 * deadline of `call` counts from the call, and deadline and token stop the work as they stop the other call. */

EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_step_async(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_event** EPL_OUT EPL_OWNED event);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_evaluate_async(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_event** EPL_OUT EPL_OWNED event);
/* As epl_session_predict_into. Of its metrics, `step` and `nanoseconds` say something. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_session_predict_async(epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_tensor* const* EPL_COUNT(output_count) outputs,
    size_t output_count, epl_event** EPL_OUT EPL_OWNED event);
/* The work goes on where it is not ready; callbacks are called all the same. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_event_destroy(epl_event* EPL_NULLABLE event);
/* 1: the work is done or has failed, and the session is free; 0: not yet. In a child of fork() it stays as it was. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int32_t epl_event_ready(const epl_event* event);
/* Waits, and gives the error and the metrics of the work, as often as it is asked. EPL_ERROR_DEADLINE_EXCEEDED and
 * EPL_ERROR_CANCELLED of an event that is not ready are those of the waiting alone. A callback of an event cannot wait
 * for another one of its session, whose thread it runs on: EPL_ERROR_MISUSE. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_event_wait(epl_event* event, const epl_call_options* EPL_NULLABLE call,
    epl_metrics* EPL_OUT EPL_NULLABLE metrics);
/* For poll, epoll and event loops: a descriptor that becomes readable when the event is ready, and stays so. It is the
 * event's own: neither read nor close it; it is closed with the event. Where there is none (EPL_ERROR_EXHAUSTED, or
 * EPL_ERROR_UNSUPPORTED on systems other than Linux) it is -1. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error* epl_event_fd(epl_event* event, int32_t* EPL_OUT fd);
typedef void (*epl_event_fn)(void* userdata);
/* `fn` is called once, and `destroy`, which may be NULL, behind it: by the session's thread when the event is ready, or
 * by this call where it is already. The session is free by then; it may be used, destroyed, and given its next step.
 * Several functions are called in the order in which they came. On an error neither is called. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_event_on_ready(epl_event* event, epl_event_fn fn, void* EPL_NULLABLE userdata,
    epl_destroy_fn EPL_NULLABLE destroy);

/* --- Predictors: predictions beside the steps of a session -----------------------------------------------------------
 *
 * A predictor has as many threads as a session, working memory, and a copy of what a prediction reads of the session's
 * state: parameters and buffers, nothing of the optimizer's. Its weights are those of one step, the last that was done
 * when it was made or refreshed, and never a mixture: they change when it is refreshed, and then all at once. A session
 * may have several.
 * Making and refreshing one is possible beside any call with the session, a step for example, from any thread; it waits
 * for the update of a step, which is its last part, and an update waits for a copy that has begun. A predictor outlives
 * its session, and predicts on with what it has. */

/* `shapes` is another plan of the same model, with the same trainer and other sizes (its loss may be "none"); NULL: the
 * session's own. A plan that reads other weights, or weights of another type, is EPL_ERROR_INVALID_ARGUMENT. Where
 * the session is one of several processes, `shapes` is needed, and all weights must be in this one
 * (EPL_ERROR_UNSUPPORTED). */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_BLOCKING EPL_CHECKED epl_error*
epl_predictor_create(const epl_session* session, const epl_plan* EPL_NULLABLE shapes,
    const epl_call_options* EPL_NULLABLE call, epl_predictor** EPL_OUT predictor);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_predictor_destroy(epl_predictor* EPL_NULLABLE predictor);
/* Takes the weights of the session's last step. The deadline and the token of `call` are looked at until it copies.
 * EPL_ERROR_MISUSE: the session was destroyed; EPL_ERROR_STATE_LOST: the session's state is of no step. Both leave the
 * predictor as it was. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_predictor_refresh(epl_predictor* predictor, const epl_call_options* EPL_NULLABLE call);
/* Steps that the session had done when these were its weights. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t epl_predictor_steps(const epl_predictor* predictor);
/* What it has allocated for weights and work, of all its ranks: the plan knows it. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK int64_t
epl_predictor_memory_bytes(const epl_predictor* predictor);
/* As epl_session_predict and epl_session_predict_into. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_predictor_predict(epl_predictor* predictor, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_tensor** EPL_COUNT(output_count) EPL_OUT EPL_OWNED outputs,
    size_t output_count);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_predictor_predict_into(epl_predictor* predictor, const epl_tensor* const* EPL_COUNT(count) inputs, size_t count,
    const epl_call_options* EPL_NULLABLE call, epl_tensor* const* EPL_COUNT(output_count) outputs,
    size_t output_count);

/* --- Evaluation: loss and metrics over any number of batches ---------------------------------------------------------
 */

/* Metrics of sessions of `plan`, which must have been made with a trainer. `metrics` names them, with options:
 * "accuracy, top_k(k=5)"; empty: those of the loss; "none": the loss alone. epl_engine_describe lists metrics and their
 * options; those that every metric has are output and target, names of an output of the model and an input of the plan
 * that are compared instead of the loss's, and ignore_index, a class that does not count.
 * Numbers are those of all samples together: they depend neither on the batches nor on their order. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_evaluation_create(const epl_plan* plan, const char* EPL_TEXT(metrics_length) EPL_NULLABLE metrics,
    size_t metrics_length, epl_evaluation** EPL_OUT evaluation);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_evaluation_destroy(epl_evaluation* EPL_NULLABLE evaluation);
/* One forward pass over a batch, inputs in the order of EPL_ENTRY_EVALUATE, or over fewer samples. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_evaluation_add(epl_evaluation* evaluation, epl_session* session, const epl_tensor* const* EPL_COUNT(count) inputs,
    size_t count, const epl_call_options* EPL_NULLABLE call);
/* The next `batches` batches of a dataset that is bound to EPL_ENTRY_EVALUATE (or EPL_ENTRY_TRAIN, which has the same
 * inputs); 0: an epoch from its start, after which it stands at its start. The last batch counts in full where the
 * dataset gives it ("partial": true). The deadline of `call` is that of all of them. After an error the batches
 * before it have been added. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_evaluation_add_dataset(epl_evaluation* evaluation, epl_session* session, epl_dataset* dataset, int64_t batches,
    const epl_call_options* EPL_NULLABLE call);
/* What `other`, of an equal plan with the same metrics, has seen: of another part of the data, say. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_evaluation_merge(epl_evaluation* evaluation, epl_evaluation* other);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_evaluation_reset(epl_evaluation* evaluation);
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_QUICK int64_t epl_evaluation_samples(const epl_evaluation* evaluation);
/* "loss", or a metric by the name it was given: "top_k(k=5)", or "top_k" where that is clear. NaN where nothing
 * counted. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_evaluation_result(epl_evaluation* evaluation, const char* EPL_TEXT(name_length) name, size_t name_length,
    double* EPL_OUT value);
/* All of it as JSON, the loss first: {"samples": n, "batch": of the plan, "takes_partial": whether fewer samples can be
 * added, "metrics": [{"name", "value", "higher_is_better"}, ...]}. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_evaluation_describe(epl_evaluation* evaluation, epl_text** EPL_OUT EPL_OWNED json);

/* --- Jobs: the loop around steps ------------------------------------------------------------------------------------
 *
 * A job trains a session on a dataset, measures it on data that it does not train on, saves checkpoints, keeps the best
 * weights, ends early, and goes on with an earlier run to the bit. It is what `epl train` does.
 * A job is asked for one event after the other (epl_job_next), and works until there is one. There are no callbacks:
 * between two events the host shows progress, predicts with the session, or ends the job (epl_job_end).
 *
 *   epl_job_create(engine, EPL_STR("{\"epochs\": 10, \"folder\": \"run\", \"patience\": 3}"), &job);
 *   epl_job_start(job, session, data, held_out, NULL);
 *   do epl_job_next(job, NULL, &event); while (event.kind != EPL_JOB_DONE);
 *
 * Over processes all make the same calls; each has the session and the datasets of its own ranks. The process with rank
 * 0 looks after the folder, which all must see. Settings that decide when something is done are the same in all, else
 * the start is refused. */

/* Kinds of events. */
#define EPL_JOB_STEP 1     /* a step was done */
#define EPL_JOB_MEASURED 2 /* the held-out data was measured; `text` has the numbers as JSON: {"loss": 0.5, ...} */
#define EPL_JOB_SAVED 3    /* a checkpoint was written, to the path `text` */
#define EPL_JOB_WARNING 4  /* `text` is a sentence, for example that a disk is full; training goes on */
#define EPL_JOB_DONE 5     /* nothing follows. `ended` says why, and `text` in words, where there is more to say */
/* Why a job has ended. */
#define EPL_JOB_RUNNING 0
#define EPL_JOB_ENDED_STEPS 1     /* all steps were done */
#define EPL_JOB_ENDED_STOPPED 2   /* by epl_job_end */
#define EPL_JOB_ENDED_PATIENCE 3  /* so many measurements in a row were no better */
#define EPL_JOB_ENDED_CANCELLED 4 /* by epl_job_end, as the next */
#define EPL_JOB_ENDED_FAILED 5
#define EPL_JOB_ENDED_DATA 6      /* a feed was finished, or a host's function has no more samples */

/* Numbers as they stand after the event. NaN where there is none yet. */
typedef struct epl_job_event {
  uint64_t struct_size;
  int32_t kind;  /* EPL_JOB_... */
  int32_t ended; /* of EPL_JOB_DONE: EPL_JOB_ENDED_... */
  int64_t step;  /* steps done, those of earlier runs included */
  int64_t steps; /* that are wanted in all; 0: until the data ends */
  double epoch;  /* times through the data */
  int64_t samples; /* seen, those of earlier runs included; of EPL_JOB_MEASURED those that were measured */
  double loss;     /* of the last step, as are the next two */
  double learning_rate;
  double gradient_norm; /* global, before clipping; -1 when it is not computed */
  double held_out_loss; /* as measured last */
  double monitored;     /* the number that says which weights are best, as measured last */
  double best_value;    /* the best of it so far */
  int64_t best_step;    /* of which step those weights are; -1 where there are none */
  int32_t best; /* 1: of EPL_JOB_MEASURED, better than all before; of EPL_JOB_SAVED, the best weights so far */
  int32_t reserved;
  double seconds;      /* of training, those of earlier runs included */
  double seconds_left; /* about */
  double samples_per_second; /* of this run */
  int64_t memory_bytes; /* that a rank has used at its fullest */
  const char* text;     /* borrowed until the next call with the job; ends with a zero */
  uint64_t text_length;
} epl_job_event;
#define EPL_JOB_EVENT_INIT                                                                                             \
  {sizeof(epl_job_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0}
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_QUICK void epl_job_event_init(epl_job_event* EPL_OUT event);

/* `settings` is a JSON object with the keys of epl_job_set, empty for none. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_job_create(const epl_engine* engine, const char* EPL_TEXT(settings_length) EPL_NULLABLE settings,
    size_t settings_length, epl_job** EPL_OUT job);
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD void epl_job_destroy(epl_job* EPL_NULLABLE job);
/* Sets a key from text, before the job starts. epl_engine_describe lists them under "job", with types and defaults:
 *   steps, epochs       how long, one of them; of a dataset that nobody knows the end of neither is needed
 *   folder              where checkpoints and the history are written; without one nothing is
 *   resume              a checkpoint to go on from, or the folder of a run; "auto": the newest of the folder, if any
 *   resume_anyway       go on although these differ from that run: model, data, batch, order, loss, optimizer, ...
 *   overwrite           replace the run that the folder holds; else that is refused
 *   checkpoint_every, checkpoint_seconds, keep   when to save on the way, and how many of the newest stay
 *   evaluate_every, evaluate_epochs, evaluate_batches   when to measure, and on how much
 *   metrics, monitor    what is measured beside the loss, and which number says what is best
 *   patience            end after so many measurements in a row without a better one
 *   restore_best        the session has the best weights in the end
 *   check               look through all data for wrong labels and indices before the first step
 *   measured_on         what the held-out data is, for the history */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_job_set(epl_job* job, const char* EPL_TEXT(key_length) key, size_t key_length,
    const char* EPL_TEXT(value_length) value, size_t value_length);
/* Takes the folder now, which epl_job_start does otherwise: what is in its way is known before a model is loaded.
 * EPL_ERROR_BUSY: another job, in any process, writes to it. EPL_ERROR_INVALID_ARGUMENT: it holds an earlier run, which
 * is neither replaced nor gone on with. It is held until the job is destroyed. Of several processes the one with rank
 * 0 may do this. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_job_take_folder(epl_job* job);
/* Refuses what would fail later, and loads the checkpoint to go on from; its position becomes `data`'s. What
 * makes another run of it is refused by name. Datasets that are not bound to the session's plan are bound to it.
 * `held_out` may be NULL. The job uses all three in its calls and leaves them alone in between; where one of them was
 * destroyed, EPL_ERROR_MISUSE. After an error it has not started. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_job_start(epl_job* job, epl_session* session, epl_dataset* data, epl_dataset* EPL_NULLABLE held_out,
    const epl_call_options* EPL_NULLABLE call);
/* Works until there is an event. After an error, of a token for example, nothing has changed: the same call again does
 * the same work, no sample is left out. A host that does not go on ends the job (epl_job_end), and asks on for events,
 * without that token: so the last checkpoint is written. After EPL_JOB_DONE it gives that event again. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_BLOCKING EPL_CHECKED epl_error*
epl_job_next(epl_job* job, const epl_call_options* EPL_NULLABLE call, epl_job_event* EPL_OUT event);
/* No step follows the one that runs. What is left to do is done by epl_job_next as at any end: a last measurement, but
 * for EPL_JOB_ENDED_CANCELLED and EPL_JOB_ENDED_FAILED, a last checkpoint, EPL_JOB_DONE. `ended` is one of these two or
 * EPL_JOB_ENDED_STOPPED; `reason` is in words, for the event. The first call counts. Over processes one of them is
 * enough: all end after the same step, for the same reason. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_job_end(epl_job* job, int32_t ended, const char* EPL_TEXT(reason_length) EPL_NULLABLE reason, size_t reason_length);
/* As JSON: settings, folder, checkpoint and best_checkpoint (paths, or null), resumed_from, first_step, step, steps,
 * seconds, monitor, best_step, best_value, held_out (what is measured on), ended and reason, and "history": what was
 * measured in this run and in those that it goes on with, the objects of FOLDER/history.jsonl. */
EPL_API EPL_SINCE(0, 1) EPL_ONE_CALLER EPL_CHECKED epl_error*
epl_job_describe(epl_job* job, epl_text** EPL_OUT EPL_OWNED json);
/* The checkpoint that a path means: it, or the newest of the folder of a job. A path that is neither stays as it is. */
EPL_API EPL_SINCE(0, 1) EPL_ANY_THREAD EPL_CHECKED epl_error*
epl_checkpoint_find(const epl_engine* engine, const char* EPL_TEXT(path_length) path, size_t path_length,
    epl_text** EPL_OUT EPL_OWNED found);

#ifdef __cplusplus
}
#endif

#endif /* EPL_H */
