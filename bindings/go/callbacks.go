package epl

// #include <stddef.h>
// #include <stdint.h>
//
// extern void eplGoLog(uintptr_t userdata, int32_t level, char* message, size_t length);
// extern void eplGoDrop(uintptr_t userdata);
// extern void* eplGoWrite(uintptr_t userdata, void* data, size_t bytes);
// extern void* eplGoRead(uintptr_t userdata, uint64_t offset, void* target, size_t bytes);
//
// // What the library calls; userdata are integers, handles of runtime/cgo, and never point into Go's memory.
// static void epl_go_log(void* userdata, int32_t level, const char* message, size_t length) {
//   eplGoLog((uintptr_t)userdata, level, (char*)message, length);
// }
// static void epl_go_drop(void* userdata) { eplGoDrop((uintptr_t)userdata); }
//
// // Errors are the library's own type to it, and pointers here.
// static void* epl_go_write(void* userdata, const void* data, size_t bytes) {
//   return eplGoWrite((uintptr_t)userdata, (void*)data, bytes);
// }
// static void* epl_go_read(void* userdata, uint64_t offset, void* target, size_t bytes) {
//   return eplGoRead((uintptr_t)userdata, offset, target, bytes);
// }
//
// typedef void (*epl_go_log_fn)(void*, int32_t, const char*, size_t);
// typedef void (*epl_go_drop_fn)(void*);
// static epl_go_log_fn epl_go_log_pointer(void) { return epl_go_log; }
// static epl_go_drop_fn epl_go_drop_pointer(void) { return epl_go_drop; }
// typedef void* (*epl_go_write_fn)(void*, const void*, size_t);
// typedef void* (*epl_go_read_fn)(void*, uint64_t, void*, size_t);
// static epl_go_write_fn epl_go_write_pointer(void) { return epl_go_write; }
// static epl_go_read_fn epl_go_read_pointer(void) { return epl_go_read; }
import "C"

import (
	"context"
	"log/slog"
	"runtime/cgo"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// dropper is what lives behind a userdata and wants to know when the library is done with it.
type dropper interface{ drop() }

// dropFunction is eplGoDrop for the library: it ends the handle behind a userdata.
func dropFunction() raw.DestroyFn { return raw.DestroyFn(C.epl_go_drop_pointer()) }

func writeFunction() raw.WriteFn { return raw.WriteFn(C.epl_go_write_pointer()) }

func readFunction() raw.ReadFn { return raw.ReadFn(C.epl_go_read_pointer()) }

//export eplGoWrite
func eplGoWrite(userdata C.uintptr_t, data unsafe.Pointer, bytes C.size_t) unsafe.Pointer {
	s := cgo.Handle(userdata).Value().(*stream)
	if _, err := s.writer.Write(unsafe.Slice((*byte)(data), int(bytes))); err != nil {
		return unsafe.Pointer(s.failed(err))
	}
	return nil
}

//export eplGoRead
func eplGoRead(userdata C.uintptr_t, offset C.uint64_t, target unsafe.Pointer, bytes C.size_t) unsafe.Pointer {
	s := cgo.Handle(userdata).Value().(*stream)
	if n, err := s.reader.ReadAt(unsafe.Slice((*byte)(target), int(bytes)), int64(offset)); n < int(bytes) {
		return unsafe.Pointer(s.failed(err))
	}
	return nil
}

func setLogger(o *raw.EngineOptions, handle cgo.Handle, logger *slog.Logger) {
	o.Log = raw.LogFn(C.epl_go_log_pointer())
	o.LogUserdata = uintptr(handle)
	o.LogDestroy = dropFunction()
	o.LogLevel = raw.EPL_LOG_ERROR
	for level := int32(raw.EPL_LOG_ERROR); level >= raw.EPL_LOG_DEBUG; level-- {
		if logger.Enabled(context.Background(), levelOf(level)) {
			o.LogLevel = level
		}
	}
}

func levelOf(level int32) slog.Level {
	switch level {
	case raw.EPL_LOG_DEBUG:
		return slog.LevelDebug
	case raw.EPL_LOG_INFO:
		return slog.LevelInfo
	case raw.EPL_LOG_WARNING:
		return slog.LevelWarn
	}
	return slog.LevelError
}

//export eplGoLog
func eplGoLog(userdata C.uintptr_t, level C.int32_t, message *C.char, length C.size_t) {
	logger := cgo.Handle(userdata).Value().(*slog.Logger)
	logger.Log(context.Background(), levelOf(int32(level)), string(unsafe.Slice((*byte)(unsafe.Pointer(message)), int(length))))
}

//export eplGoDrop
func eplGoDrop(userdata C.uintptr_t) {
	handle := cgo.Handle(userdata)
	if value, ok := handle.Value().(dropper); ok {
		value.drop()
	}
	handle.Delete()
}
