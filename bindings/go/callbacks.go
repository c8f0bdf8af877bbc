package epl

// #include <stddef.h>
// #include <stdint.h>
//
// extern void eplGoLog(uintptr_t userdata, int32_t level, char* message, size_t length);
// extern void eplGoDrop(uintptr_t userdata);
//
// // What the library calls; userdata are integers, handles of runtime/cgo, and never point into Go's memory.
// static void epl_go_log(void* userdata, int32_t level, const char* message, size_t length) {
//   eplGoLog((uintptr_t)userdata, level, (char*)message, length);
// }
// static void epl_go_drop(void* userdata) { eplGoDrop((uintptr_t)userdata); }
//
// typedef void (*epl_go_log_fn)(void*, int32_t, const char*, size_t);
// typedef void (*epl_go_drop_fn)(void*);
// static epl_go_log_fn epl_go_log_pointer(void) { return epl_go_log; }
// static epl_go_drop_fn epl_go_drop_pointer(void) { return epl_go_drop; }
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
