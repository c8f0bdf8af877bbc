package main

// #include <stdint.h>
// #include <stdlib.h>
// #include <string.h>
// #include <epl.h>
//
// extern void hookCount(uintptr_t);
// extern void hookGone(uintptr_t);
// extern void hookWait(uintptr_t);
// extern epl_error* hookAnswer(uintptr_t);
// extern int hookFails(uintptr_t);
// extern void hookCollect(uintptr_t, void*, size_t);
// extern epl_error* hookRead(uintptr_t, uint64_t, void*, size_t);
// extern uintptr_t hookOpen(uintptr_t, char*, size_t, uint64_t*);
//
// #define HOOK (uintptr_t)userdata
// static epl_error* hook_error(int32_t code, const char* message) {
//   return epl_error_create(code, message, strlen(message));
// }
// static void* on_allocate(void* userdata, size_t bytes, size_t alignment) {
//   if (hookFails(HOOK)) return NULL;
//   if (alignment < sizeof(void*)) alignment = sizeof(void*);
//   return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
// }
// static void on_release(void* userdata, void* memory, size_t bytes, size_t alignment) { free(memory); }
// static void on_log(void* userdata, int32_t level, const char* message, size_t length) { hookCount(HOOK); }
// static void on_destroy(void* userdata) { hookCount(HOOK); }
// static void on_gone(void* userdata) { hookGone(HOOK); }
// static void on_event(void* userdata) { hookCount(HOOK); }
// static epl_error* on_write(void* userdata, const void* data, size_t bytes) {
//   hookCollect(HOOK, (void*)data, bytes);
//   return hookAnswer(HOOK);
// }
// static epl_error* on_read(void* userdata, uint64_t offset, void* target, size_t bytes) {
//   return hookRead(HOOK, offset, target, bytes);
// }
// static epl_error* on_open(void* userdata, const char* location, size_t length, epl_source* source) {
//   epl_error* error = hookAnswer(HOOK);
//   if (error != NULL) return error;
//   uintptr_t made = hookOpen(HOOK, (char*)location, length, &source->bytes);
//   if (made == 0) return hook_error(EPL_ERROR_NOT_FOUND, "no such buffer");
//   source->read = on_read;
//   source->userdata = (void*)made;
//   return NULL;
// }
// static epl_error* on_op_shape(void* userdata, const char* attributes, size_t length, const epl_op_tensor* inputs,
//     size_t input_count, epl_op_tensor* outputs, size_t output_count) {
//   outputs[0].dtype = inputs[0].dtype;
//   outputs[0].ndim = inputs[0].ndim;
//   memcpy(outputs[0].dims, inputs[0].dims, sizeof(inputs[0].dims));
//   return hookAnswer(HOOK);
// }
// static void twice(const epl_op_tensor* from, const epl_op_tensor* to) {
//   for (size_t i = 0; i < to->bytes / 4; ++i) ((float*)to->data)[i] = 2 * ((const float*)from->data)[i];
// }
// static epl_error* on_op_run(void* userdata, const char* attributes, size_t length, const epl_op_tensor* inputs,
//     size_t input_count, const epl_op_tensor* outputs, size_t output_count) {
//   hookWait(HOOK);
//   twice(&inputs[0], &outputs[0]);
//   return hookAnswer(HOOK);
// }
// static epl_error* on_op_gradient(void* userdata, const char* attributes, size_t length, const epl_op_tensor* inputs,
//     size_t input_count, const epl_op_tensor* outputs, const epl_op_tensor* upstream, size_t output_count,
//     const epl_op_tensor* gradients) {
//   twice(&upstream[0], &gradients[0]);
//   return hookAnswer(HOOK);
// }
// static epl_error* on_samples(void* userdata, int32_t field, const int64_t* samples, size_t count, void* target,
//     size_t bytes) {
//   memset(target, 0, bytes);
//   for (size_t i = 0; field == 0 && i < bytes / 4; ++i) ((float*)target)[i] = (float)samples[i / (bytes / 4 / count)];
//   return hookAnswer(HOOK);
// }
// static epl_error* on_put(void* userdata, const char* key, size_t length, const void* value, size_t bytes) {
//   return hookAnswer(HOOK);
// }
// static epl_error* on_get(void* userdata, const char* key, size_t length, int64_t timeout, void* value,
//     size_t capacity, size_t* bytes) {
//   *bytes = 0;
//   epl_error* error = hookAnswer(HOOK);
//   return error != NULL ? error : hook_error(EPL_ERROR_DEADLINE_EXCEEDED, "nobody has put it");
// }
//
// typedef struct entry {
//   const char* name;
//   void* function;
// } entry;
// static const entry entries[] = {{"epl_allocate_fn", on_allocate}, {"epl_release_fn", on_release},
//     {"epl_log_fn", on_log}, {"epl_destroy_fn", on_destroy}, {"gone", on_gone}, {"epl_event_fn", on_event},
//     {"epl_write_fn", on_write}, {"epl_read_fn", on_read}, {"epl_open_fn", on_open},
//     {"epl_op_shape_fn", on_op_shape}, {"epl_op_run_fn", on_op_run}, {"epl_op_gradient_fn", on_op_gradient},
//     {"epl_samples_fn", on_samples}, {"epl_put_fn", on_put}, {"epl_get_fn", on_get}};
// static void* hook_function(const char* name) {
//   for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); ++i) {
//     if (strcmp(entries[i].name, name) == 0) return entries[i].function;
//   }
//   return NULL;
// }
import "C"

import (
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// hook is what stands behind a userdata, which is its number.
type hook struct{ kind, parameter string }

// names are what callbacks change, from any thread.
var names = struct {
	sync.Mutex
	hooks    []hook
	buffers  map[string][]byte
	counters map[string]int64
}{buffers: map[string][]byte{}, counters: map[string]int64{}}

func newHook(word string) uintptr {
	kind, parameter, _ := strings.Cut(strings.TrimPrefix(word, "@"), ":")
	names.Lock()
	defer names.Unlock()
	names.hooks = append(names.hooks, hook{kind, parameter})
	return uintptr(len(names.hooks))
}

func hookOf(number C.uintptr_t) hook {
	names.Lock()
	defer names.Unlock()
	return names.hooks[number-1]
}

// hookFunction is the function of a type of callbacks.
func hookFunction(name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.hook_function(text)
}

func buffer(name string) ([]byte, bool) {
	names.Lock()
	defer names.Unlock()
	found, ok := names.buffers[name]
	return found, ok
}

func setBuffer(name string, data []byte) {
	names.Lock()
	defer names.Unlock()
	names.buffers[name] = data
}

func counter(name string) int64 {
	names.Lock()
	defer names.Unlock()
	return names.counters[name]
}

func countName(name string) {
	names.Lock()
	defer names.Unlock()
	names.counters[name]++
}

// awaitCount is what a counter is when it has come to that, or after ten seconds.
func awaitCount(name string, wanted int64) int64 {
	for i := 0; i < 10000 && counter(name) < wanted; i++ {
		time.Sleep(time.Millisecond)
	}
	return counter(name)
}

//export hookWait
func hookWait(number C.uintptr_t) {
	if h := hookOf(number); h.kind == "wait" {
		awaitCount(h.parameter, 1)
	}
}

//export hookCount
func hookCount(number C.uintptr_t) {
	countName(hookOf(number).parameter)
}

//export hookGone
func hookGone(number C.uintptr_t) {
	countName(hookOf(number).parameter + ".gone")
}

//export hookFails
func hookFails(number C.uintptr_t) C.int {
	if hookOf(number).kind == "fail" {
		return 1
	}
	return 0
}

//export hookAnswer
func hookAnswer(number C.uintptr_t) *C.epl_error {
	switch h := hookOf(number); h.kind {
	case "fail":
		code, _ := strconv.Atoi(h.parameter)
		return failure(C.int32_t(code), "the host fails")
	case "count":
		hookCount(number)
	}
	return nil
}

func failure(code C.int32_t, message string) *C.epl_error {
	text := C.CString(message)
	defer C.free(unsafe.Pointer(text))
	return C.epl_error_create(code, text, C.size_t(len(message)))
}

//export hookCollect
func hookCollect(number C.uintptr_t, data unsafe.Pointer, bytes C.size_t) {
	if h := hookOf(number); h.kind == "collect" {
		names.Lock()
		defer names.Unlock()
		names.buffers[h.parameter] = append(names.buffers[h.parameter], C.GoBytes(data, C.int(bytes))...)
	}
}

//export hookRead
func hookRead(number C.uintptr_t, offset C.uint64_t, target unsafe.Pointer, bytes C.size_t) *C.epl_error {
	if h := hookOf(number); h.kind == "bytes" {
		from, _ := buffer(h.parameter)
		if uint64(offset)+uint64(bytes) > uint64(len(from)) {
			return failure(C.EPL_ERROR_IO, "the buffer ends before")
		}
		copy(unsafe.Slice((*byte)(target), int(bytes)), from[offset:])
	}
	return hookAnswer(number)
}

//export hookOpen
func hookOpen(number C.uintptr_t, location *C.char, length C.size_t, bytes *C.uint64_t) C.uintptr_t {
	name := C.GoStringN(location, C.int(length))
	data, ok := buffer(name)
	if !ok {
		return 0
	}
	*bytes = C.uint64_t(len(data))
	return C.uintptr_t(newHook("@bytes:" + name))
}

// memory is a copy in C's memory, which is kept until the end.
func memory(data []byte) unsafe.Pointer {
	made := C.calloc(1, C.size_t(len(data)+1))
	copy(unsafe.Slice((*byte)(made), len(data)), data)
	return made
}
