/* What a pack and libepl.so say to each other, in plain C: a pack is built with whatever C++ library it likes, and
 * neither side sees the other's. core/base/pack.h opens packs; docs/packs.md says what they are for.
 *
 * A pack is a shared object libepl_NAME.so that exports one function, epl_pack_entry. Everything it offers hangs off
 * the table that the function returns, which lives as long as the process. Structs grow at their end alone, and say
 * their size; what cannot be said by growing raises EPL_PACK_ABI, and packs of another number are refused.
 *
 * A pack that is a device of its own gives the verbs of one, and kernels for it; one that serves a device that
 * libepl.so has gives kernels alone, one that unpacks data for readers gives codecs, one that moves bytes between
 * processes gives a carrier. */
#ifndef EPL_CORE_BASE_PACK_ABI_H
#define EPL_CORE_BASE_PACK_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EPL_PACK_ABI 3
#define EPL_PACK_ENTRY "epl_pack_entry"

/* Element types, numbered as in include/epl.h. */
#define EPL_PACK_F32 1
#define EPL_PACK_F64 2
#define EPL_PACK_F16 3
#define EPL_PACK_BF16 4
#define EPL_PACK_I64 8

/* The type of an operand. `dtype` 0: the operand is absent. */
typedef struct epl_pack_type {
  int32_t dtype;
  int32_t ndim;
  const int64_t* dims;
} epl_pack_type;

/* What an attribute is. The numbers of what has integers are in `values`, of what has numbers in `numbers`. */
#define EPL_PACK_FLAG 1     /* values[0] is 0 or 1 */
#define EPL_PACK_INTEGER 2  /* values[0] */
#define EPL_PACK_NUMBER 3   /* numbers[0] */
#define EPL_PACK_TEXT 4     /* text; "expression" is the body of a fused node: core/ir/scalar.h says how it reads */
#define EPL_PACK_DTYPE 5    /* values[0] is an element type */
#define EPL_PACK_INTEGERS 6 /* `count` values */
#define EPL_PACK_NUMBERS 7  /* `count` numbers */
#define EPL_PACK_TENSOR 8   /* `type`, its elements in `numbers` where they are floats, else in `values` */
typedef struct epl_pack_attribute {
  const char* name;
  const int64_t* values;
  int64_t count;
  int32_t kind;
  int32_t reserved;
  const double* numbers;
  const char* text;
  epl_pack_type type;
} epl_pack_attribute;

/* The bits of every kind of device; those that follow from a unit of the batch alone, on one kind of device with one
 * version of its libraries; those that are equal from run to run. */
#define EPL_PACK_BITS_EXACT 0
#define EPL_PACK_BITS_DATA 1
#define EPL_PACK_BITS_RUN 2

/* One node with local shapes, operands and results dense and row-major. Valid during the call it is passed to. */
typedef struct epl_pack_query {
  uint64_t struct_size;
  const char* op;
  const epl_pack_type* inputs;
  const epl_pack_type* outputs;
  const epl_pack_attribute* attributes;
  int32_t input_count, output_count, attribute_count;
  int32_t threads;          /* that the kernel will run on */
  int64_t units;            /* a sum over the batch may add so many equal runs one after another, or ignore that */
  const char* node;         /* its name, for messages */
  const char* key;          /* of its random numbers, besides the seed and the step */
  int64_t units_outer;      /* so often the runs of all units follow one another (core/base/units.h) */
  int32_t splits_keep_bits; /* 1: no bit may depend on how a split has cut any dimension */
  int32_t level;            /* which bits the kernel may give: one of EPL_PACK_BITS_ */
  void* device; /* that it is prepared for, of a pack that is one; NULL where a table is asked without one */
} epl_pack_query;

/* Output `output` may be written over input `input`. */
typedef struct epl_pack_alias {
  int32_t input, output;
} epl_pack_alias;

/* What a prepared kernel needs. The aliases live as long as it. */
typedef struct epl_pack_needs {
  uint64_t struct_size;
  int64_t workspace_bytes;
  const epl_pack_alias* aliases;
  int64_t alias_count;
} epl_pack_needs;

/* Where a refusal is written, cut to fit and ended by a zero. */
typedef struct epl_pack_reason {
  char* text;
  uint64_t size;
} epl_pack_reason;

/* The threads a kernel runs on, the caller among them: `run` calls task(context, i) for every i below `count`, each
 * once, on any of them, and returns when all are done. */
typedef struct epl_pack_threads {
  uint64_t struct_size;
  void (*run)(const struct epl_pack_threads* threads, int64_t count, void (*task)(void* context, int64_t index),
              void* context);
} epl_pack_threads;

/* One launch. Absent operands are NULL. `workspace` is aligned to 64 bytes. */
typedef struct epl_pack_call {
  uint64_t struct_size;
  const void* const* inputs;
  void* const* outputs;
  void* workspace;
  const epl_pack_threads* threads; /* of a device whose memory is the host's, else NULL */
  void* stream;                    /* of a pack that is a device: one that it made; else NULL */
  uint64_t seed;                   /* of the job; random numbers come from it, the step and the node */
  int64_t step;
  int64_t first_unit, units;      /* the current run of units, in the global batch */
  int64_t runs, run_stride;       /* so many such runs, each so many units behind the one before */
  const epl_pack_reason* failure; /* where a launch that fails says why */
  /* Where the seed and the step lie in memory of the device, one behind the other; NULL: nowhere. A launch that is
   * recorded reads them there. */
  const void* numbers;
} epl_pack_call;

/* A row of kernels, as KernelRow in core/backend/kernel.h. All calls may run together, also with one kernel. No
 * function lets an exception out. */
typedef struct epl_pack_kernel {
  uint64_t struct_size;
  const char* op;
  const char* name;
  const int32_t* dtypes; /* of the first operand */
  uint64_t dtype_count;
  /* A kernel of this row for the query and what it needs, or NULL and the reason of the refusal. */
  void* (*prepare)(const struct epl_pack_kernel* row, const epl_pack_query* query, epl_pack_needs* needs,
                   const epl_pack_reason* refusal);
  void (*destroy)(void* kernel);
  /* 0, or a number that the pack's documentation knows. */
  int32_t (*launch)(const void* kernel, const epl_pack_call* call);
  const void* context; /* of the row, for the pack itself */
} epl_pack_kernel;

/* Something that unpacks bytes: a compression, or a format of images. All calls may run together. What they are given
 * may be anything, also made to do harm: what does not fit is -1 and the reason. */
typedef struct epl_pack_codec {
  uint64_t struct_size;
  const char* name; /* "snappy", "zstd", "jpeg", "png" */
  /* Of an image: height, width and channels (1: grey, 3: red, green, blue). NULL for a compression. */
  int32_t (*measure)(const void* packed, uint64_t packed_size, int64_t dims[3], const epl_pack_reason* failure);
  /* Unpacks all of it to exactly `target_size` bytes; an image to rows from the top, a byte for each channel of a
   * pixel. */
  int32_t (*unpack)(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                    const epl_pack_reason* failure);
} epl_pack_codec;

/* Where the ranks of a job tell each other how they are reached. Every rank puts under keys of its own, and gets those
 * of the others. */
typedef struct epl_pack_rendezvous {
  uint64_t struct_size;
  int32_t rank, size;
  const char* address; /* of this host, under which the others reach it */
  double seconds;      /* to wait for the others */
  void* context;
  /* 0, or -1 and the reason. */
  int32_t (*put)(void* context, const char* key, const void* value, uint64_t size, const epl_pack_reason* failure);
  /* Waits; the size of the value, of which what fits is copied, or -1 and the reason. */
  int64_t (*get)(void* context, const char* key, void* value, uint64_t capacity, const epl_pack_reason* failure);
} epl_pack_rendezvous;

/* What moves bytes between the ranks of several processes. It knows nothing of calls: who is in a group, what it calls
 * and who is missing libepl.so finds out over connections of its own, and it adds up in its own order. So a carrier
 * changes no bit of a result. An end is one rank's; its functions are called by one thread at a time. No function lets
 * an exception out. */
typedef struct epl_pack_carrier {
  uint64_t struct_size;
  /* All ranks at the same time. NULL and the reason where they cannot be connected. */
  void* (*join)(const epl_pack_rendezvous* rendezvous, const epl_pack_reason* failure);
  /* Waits at most so long until the others have taken what was sent to them. Receipts have been dropped. */
  void (*leave)(void* end, int32_t milliseconds);
  /* Never waits for the peer. The bytes are free when it returns. `number` tells the receiver which ones they are: a
   * sender gives none twice. 0, or -1 and the reason. */
  int32_t (*send)(void* end, int32_t peer, const void* bytes, uint64_t size, uint64_t* number,
                  const epl_pack_reason* failure);
  /* Begins to receive what the peer has sent as `number`: a receipt, or NULL and the reason. */
  void* (*receive)(void* end, int32_t peer, uint64_t number, void* bytes, uint64_t size,
                   const epl_pack_reason* failure);
  /* 1: the bytes are there. 0: not within so long. -1: they will not come, and the reason. */
  int32_t (*wait)(void* end, void* receipt, int32_t milliseconds, const epl_pack_reason* failure);
  /* Of every receipt, once. Afterwards nothing is written to its bytes. */
  void (*drop)(void* end, void* receipt);
} epl_pack_carrier;

/* What a verb of a device gives: 0 where all is well, else one of these with the reason. */
#define EPL_PACK_FAILED (-1)
#define EPL_PACK_NO_MEMORY (-2)
#define EPL_PACK_MISSING (-3) /* a library or a device that is not there */
#define EPL_PACK_LOST (-4)    /* the device does nothing any more */
#define EPL_PACK_BUSY 1       /* of a question: not yet */

/* What the host gives the pack of a device. */
typedef struct epl_pack_home {
  uint64_t struct_size;
  const char* libraries; /* where it looks for the libraries that it opens before it asks the loader, or NULL */
  const char* kernels;   /* the folder in which what it compiles stays for later processes; NULL or empty: nowhere */
} epl_pack_home;

typedef struct epl_pack_device_facts {
  uint64_t struct_size;
  char name[128];
  uint64_t memory_bytes;
  int32_t capability;   /* of an NVIDIA GPU, as 90 for 9.0 */
  int32_t processors;   /* that each run blocks of a kernel */
  char address[32];     /* on its bus */
  int32_t driver;       /* the version that it says of itself, as 13000 */
  int32_t links;        /* to other devices that it has in use, as NVLinks; -1: not known */
  uint64_t free_bytes;  /* of memory_bytes; 0: not known */
  char driver_name[32]; /* as its maker numbers it, "580.65.06"; empty: not known */
} epl_pack_device_facts;

/* A library that the pack opens at run time. Texts live as long as the process, but for those of the struct. */
typedef struct epl_pack_library {
  uint64_t struct_size;
  const char* file; /* "libcuda.so.1" */
  const char* what; /* "the NVIDIA driver" */
  int32_t state;    /* 0: it serves; EPL_PACK_MISSING; EPL_PACK_FAILED: what is there does not serve */
  int32_t version;  /* of what was found, as 13000; 0: not known */
  int32_t wanted;   /* the oldest that serves; 0: any */
  int32_t needed;   /* 1: without it there is no device */
  const char *debian, *wheel, *repository; /* what brings it */
  char path[512];                          /* of what was found */
  char looked[512];                        /* where it was looked for */
  char reason[1024];                       /* why it does not serve */
} epl_pack_library;

/* What a kernel is compiled from. Texts live as long as the device and the kernel. */
typedef struct epl_pack_text {
  uint64_t struct_size;
  const char* entry; /* the function that is launched */
  const char* source;
  const char* options;  /* of the compiler, a line each */
  int64_t threads;      /* of a block */
  int64_t shared_bytes; /* that a launch gives a block, besides those that the text names */
} epl_pack_text;

/* Rows of `bytes` bytes whose beginnings are a step apart. */
typedef struct epl_pack_rows {
  void* target;
  int64_t target_step;
  const void* source;
  int64_t source_step;
  int64_t bytes, rows;
} epl_pack_rows;

/* Element by element the reduction of `ranks` sources as core/backend/communicator.h says, to each of the targets. A
 * target may be a source. */
typedef struct epl_pack_reduction {
  uint64_t struct_size;
  const void* const* sources;
  void* const* targets;
  int32_t ranks, target_count;
  int64_t count;
  int32_t dtype;
  int32_t reduction; /* 0: sum, 1: max, 2: min */
} epl_pack_reduction;

/* A call of a circle of devices, one rank each. By place: streams, sources and targets, as
 * core/backend/communicator.h says them. Sums are in an order of the library's. What is only moved may have any dtype;
 * 0: `count` is in bytes. In a circle over processes there is the place of the caller's device alone. */
#define EPL_PACK_ALL_REDUCE 0
#define EPL_PACK_REDUCE_SCATTER 1
#define EPL_PACK_ALL_GATHER 2
#define EPL_PACK_BROADCAST 3
#define EPL_PACK_ID_BYTES 128 /* of what a circle over processes is found by */
typedef struct epl_pack_collective {
  uint64_t struct_size;
  int32_t kind, dtype;
  int64_t count;
  void* const* streams;
  const void* const* sources;
  void* const* targets;
  int32_t root; /* of a broadcast */
  int32_t reserved;
} epl_pack_collective;

/* The verbs of core/backend/device.h. Handles are the pack's. Commands of one stream come from one thread at a time,
 * and are carried out in their order; memory of the host that they name stays until `synchronize`. Verbs without a
 * reason cannot fail in a way that matters. No function lets an exception out, and none leaves the calling thread with
 * another current device than it had. */
typedef struct epl_pack_device {
  uint64_t struct_size;
  /* How many there are, or an error. */
  int32_t (*count)(const epl_pack_home* home, const epl_pack_reason* failure);
  int32_t (*describe)(const epl_pack_home* home, int32_t ordinal, epl_pack_device_facts* facts,
                      const epl_pack_reason* failure);
  int32_t (*open)(const epl_pack_home* home, int32_t ordinal, void** device, const epl_pack_reason* failure);
  void (*close)(void* device); /* after all that it gave */
  int32_t (*allocate)(void* device, uint64_t bytes, void** memory, const epl_pack_reason* failure);
  void (*release)(void* device, void* memory);
  int32_t (*create_stream)(void* device, void** stream, const epl_pack_reason* failure);
  void (*destroy_stream)(void* stream);
  int32_t (*create_event)(void* device, void** event, const epl_pack_reason* failure);
  void (*destroy_event)(void* event);
  int32_t (*copy)(void* stream, void* target, const void* source, uint64_t bytes, const epl_pack_reason* failure);
  int32_t (*copy_rows)(void* stream, const epl_pack_rows* rows, const epl_pack_reason* failure);
  int32_t (*fill)(void* stream, void* target, uint64_t bytes, int32_t value, const epl_pack_reason* failure);
  int32_t (*upload)(void* stream, void* target, const void* source, uint64_t bytes, const epl_pack_reason* failure);
  int32_t (*download)(void* stream, void* target, const void* source, uint64_t bytes, const epl_pack_reason* failure);
  int32_t (*reduce)(void* stream, const epl_pack_reduction* reduction, const epl_pack_reason* failure);
  int32_t (*record)(void* stream, void* event, const epl_pack_reason* failure);
  int32_t (*wait)(void* stream, void* event, const epl_pack_reason* failure);
  int32_t (*synchronize)(void* stream, const epl_pack_reason* failure);
  /* The time at which the stream comes here, in seconds of a clock that the device's streams share. It is written when
   * `synchronize` has waited for it. */
  int32_t (*stamp)(void* stream, double* seconds, const epl_pack_reason* failure);
  /* A device with the capability and the processors of `facts`, which need not be there: kernels are prepared for it,
   * and say what memory they take, but none is launched. It is closed as any other; no other verb takes it. */
  int32_t (*plan)(const epl_pack_device_facts* facts, void** device, const epl_pack_reason* failure);
  /* Of the libraries that it opens, the one with this number, counted from 0. EPL_PACK_MISSING and no struct behind the
   * last one. */
  int32_t (*library)(const epl_pack_home* home, int32_t index, epl_pack_library* library,
                     const epl_pack_reason* failure);
  /* Writes to `joined` how two devices are joined. */
  int32_t (*between)(const epl_pack_home* home, int32_t ordinal, int32_t other, const epl_pack_reason* joined,
                     const epl_pack_reason* failure);
  /* Writes a sentence about what the pack keeps for later processes, where there is one to say. EPL_PACK_FAILED where
   * something that costs time has happened since the last call, as a full disk. */
  int32_t (*note)(void* device, const epl_pack_reason* text);
  /* On a device that was made by `plan`: of a kernel that was prepared for it, the text with this number, counted from
   * 0; of NULL, those of the verbs themselves. EPL_PACK_MISSING and no struct behind the last one. */
  int32_t (*text)(void* device, const void* kernel, int32_t index, epl_pack_text* text, const epl_pack_reason* failure);
  /* What is prepared for `device` from now on is launched on streams of `other` too. An error where the two are not of
   * one kind. */
  int32_t (*add_alike)(void* device, void* other, const epl_pack_reason* failure);
  /* Lets copies from `other` to `device`, and the other way, go without the memory of the host. EPL_PACK_MISSING where
   * they cannot: they go all the same. */
  int32_t (*reach)(void* device, void* other, const epl_pack_reason* failure);
  /* From memory of one device to that of another one. The stream is of one of them. */
  int32_t (*copy_between)(void* stream, void* target_device, void* target, void* source_device, const void* source,
                          uint64_t bytes, const epl_pack_reason* failure);
  /* Whether a library is there that knows collectives of several devices, and writes which: 0, or why not. */
  int32_t (*collects)(const epl_pack_home* home, const epl_pack_reason* library, const epl_pack_reason* failure);
  /* Brings open devices together, each once. Verbs of a circle, and of those split from it, come one at a time. */
  int32_t (*join_circle)(void* const* devices, int32_t count, void** circle, const epl_pack_reason* failure);
  /* Of some of its devices, by their places, ascending. All that it was given is done. */
  int32_t (*split_circle)(void* circle, const int32_t* places, int32_t count, void** made,
                          const epl_pack_reason* failure);
  int32_t (*collect)(void* circle, const epl_pack_collective* call, const epl_pack_reason* failure);
  /* Whatever waits in it ends, done or not; afterwards it is left and no more. */
  void (*abort_circle)(void* circle);
  void (*leave_circle)(void* circle); /* after what was issued */
  /* Memory of the host for commands that are recorded: they read and write it each time they are carried out. */
  int32_t (*allocate_host)(void* device, uint64_t bytes, void** memory, const epl_pack_reason* failure);
  void (*release_host)(void* device, void* memory);
  /* What the stream is given from now on is kept and not carried out, and so is what other streams are given behind an
   * event that it has recorded since. The four verbs that follow are NULL where nothing can be kept. */
  int32_t (*begin_recording)(void* stream, const epl_pack_reason* failure);
  /* By then the stream waits for all others that took part. It ends the recording in every case. */
  int32_t (*end_recording)(void* stream, void** recording, const epl_pack_reason* failure);
  /* Carries out what was kept, as one command of the stream. It names memory as it lay when it was recorded. */
  int32_t (*replay)(void* stream, void* recording, const epl_pack_reason* failure);
  void (*destroy_recording)(void* recording); /* before the stream that it was recorded on */
  /* Devices of several processes. The verbs from here on are NULL, or behind `struct_size`, where there is none of it:
   * what ranks send each other then goes through the memory of the host.
   * Writes a card of two lines: the library that would bring devices together, and which device of all hosts this one
   * is. Those with one library join a circle, where no two of them are one device. An error where it can join none. */
  int32_t (*meets)(void* device, const epl_pack_reason* card, const epl_pack_reason* failure);
  /* Of a circle that nobody has joined yet, EPL_PACK_ID_BYTES bytes. Whoever makes it tells it to the others. */
  int32_t (*new_id)(void* device, void* id, const epl_pack_reason* failure);
  /* Begins to join it as one of `ranks` ranks, and waits for nobody. It is not split; it may be aborted or left at any
   * time, and either way ends what waits in it. */
  int32_t (*join_ranks)(void* device, const void* id, int32_t ranks, int32_t rank, void** circle,
                        const epl_pack_reason* failure);
  /* Whether all ranks have joined it and, where there is a stream, that has done what it was given: 0 or EPL_PACK_BUSY,
   * or why it never will. Before it is 0 the circle is given nothing more. */
  int32_t (*circle_done)(void* circle, void* stream, const epl_pack_reason* failure);
  /* What the program of the host has on the device itself. The verbs from here on are NULL, or behind `struct_size`,
   * where there is none of it: its tensors in memory of the device are then refused.
   * Records an event behind what the program has given to its stream: 1: the legacy default stream; 2: the default
   * stream of the calling thread; else the handle that the driver knows. */
  int32_t (*record_foreign)(void* device, int64_t stream, void* event, const epl_pack_reason* failure);
  /* From memory whose address lies at `place`, in memory of the device, when the command is carried out, `offset`
   * bytes behind that; with `to_place` the other way. Where the address is 0 nothing is copied. Of 0 bytes it makes the
   * command ready, so that it can be recorded from then on. */
  int32_t (*copy_placed)(void* stream, void* memory, const void* place, int64_t offset, uint64_t bytes,
                         int32_t to_place, const epl_pack_reason* failure);
} epl_pack_device;

typedef struct epl_pack {
  uint64_t struct_size;
  int32_t abi; /* EPL_PACK_ABI */
  int32_t reserved;
  const char* name;                      /* NAME of libepl_NAME.so */
  const char* version;                   /* of what it wraps, for people */
  const char* device;                    /* whose table the kernels go to, "cpu" */
  const epl_pack_kernel* const* kernels; /* best first within an op */
  uint64_t kernel_count;
  const epl_pack_codec* const* codecs;
  uint64_t codec_count;
  const epl_pack_carrier* carrier; /* or NULL */
  const epl_pack_device* verbs;    /* of the device that the pack is, or NULL */
} epl_pack;

typedef const epl_pack* (*epl_pack_entry_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
