package epl

// #include <stddef.h>
// #include <stdint.h>
//
// extern void eplGoLog(uintptr_t userdata, int32_t level, char* message, size_t length);
// extern void eplGoDrop(uintptr_t userdata);
// extern void* eplGoWrite(uintptr_t userdata, void* data, size_t bytes);
// extern void* eplGoRead(uintptr_t userdata, uint64_t offset, void* target, size_t bytes);
// extern void* eplGoOpen(uintptr_t userdata, char* location, size_t length, void* source);
// extern void* eplGoSamples(uintptr_t userdata, int32_t field, int64_t* samples, size_t count, void* target,
//                           size_t bytes);
// extern void* eplGoShape(uintptr_t userdata, char* attributes, size_t length, void* inputs, size_t input_count,
//                         void* outputs, size_t output_count);
// extern void* eplGoRun(uintptr_t userdata, char* attributes, size_t length, void* inputs, size_t input_count,
//                       void* outputs, size_t output_count);
// extern void* eplGoGradient(uintptr_t userdata, char* attributes, size_t length, void* inputs, size_t input_count,
//                            void* outputs, void* upstream, size_t output_count, void* gradients);
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
// static void* epl_go_open(void* userdata, const char* location, size_t length, void* source) {
//   return eplGoOpen((uintptr_t)userdata, (char*)location, length, source);
// }
//
// typedef void (*epl_go_log_fn)(void*, int32_t, const char*, size_t);
// typedef void (*epl_go_drop_fn)(void*);
// static epl_go_log_fn epl_go_log_pointer(void) { return epl_go_log; }
// static epl_go_drop_fn epl_go_drop_pointer(void) { return epl_go_drop; }
// typedef void* (*epl_go_write_fn)(void*, const void*, size_t);
// typedef void* (*epl_go_read_fn)(void*, uint64_t, void*, size_t);
// typedef void* (*epl_go_open_fn)(void*, const char*, size_t, void*);
// static epl_go_write_fn epl_go_write_pointer(void) { return epl_go_write; }
// static epl_go_read_fn epl_go_read_pointer(void) { return epl_go_read; }
// static epl_go_open_fn epl_go_open_pointer(void) { return epl_go_open; }
//
// static void* epl_go_samples(void* userdata, int32_t field, const int64_t* samples, size_t count, void* target,
//                             size_t bytes) {
//   return eplGoSamples((uintptr_t)userdata, field, (int64_t*)samples, count, target, bytes);
// }
// static void* epl_go_shape(void* userdata, const char* attributes, size_t length, const void* inputs,
//                           size_t input_count, void* outputs, size_t output_count) {
//   return eplGoShape((uintptr_t)userdata, (char*)attributes, length, (void*)inputs, input_count, outputs,
//                     output_count);
// }
// static void* epl_go_run(void* userdata, const char* attributes, size_t length, const void* inputs,
//                         size_t input_count, const void* outputs, size_t output_count) {
//   return eplGoRun((uintptr_t)userdata, (char*)attributes, length, (void*)inputs, input_count, (void*)outputs,
//                   output_count);
// }
// static void* epl_go_gradient(void* userdata, const char* attributes, size_t length, const void* inputs,
//                              size_t input_count, const void* outputs, const void* upstream, size_t output_count,
//                              const void* gradients) {
//   return eplGoGradient((uintptr_t)userdata, (char*)attributes, length, (void*)inputs, input_count, (void*)outputs,
//                        (void*)upstream, output_count, (void*)gradients);
// }
// typedef void* (*epl_go_samples_fn)(void*, int32_t, const int64_t*, size_t, void*, size_t);
// typedef void* (*epl_go_shape_fn)(void*, const char*, size_t, const void*, size_t, void*, size_t);
// typedef void* (*epl_go_run_fn)(void*, const char*, size_t, const void*, size_t, const void*, size_t);
// typedef void* (*epl_go_gradient_fn)(void*, const char*, size_t, const void*, size_t, const void*, const void*, size_t,
//                                     const void*);
// static epl_go_samples_fn epl_go_samples_pointer(void) { return epl_go_samples; }
// static epl_go_shape_fn epl_go_shape_pointer(void) { return epl_go_shape; }
// static epl_go_run_fn epl_go_run_pointer(void) { return epl_go_run; }
// static epl_go_gradient_fn epl_go_gradient_pointer(void) { return epl_go_gradient; }
import "C"

import (
	"context"
	"errors"
	"fmt"
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

func openFunction() raw.OpenFn { return raw.OpenFn(C.epl_go_open_pointer()) }

func samplesFunction() raw.SamplesFn { return raw.SamplesFn(C.epl_go_samples_pointer()) }

func shapeFunction() raw.OpShapeFn { return raw.OpShapeFn(C.epl_go_shape_pointer()) }

func runFunction() raw.OpRunFn { return raw.OpRunFn(C.epl_go_run_pointer()) }

func gradientFunction() raw.OpGradientFn { return raw.OpGradientFn(C.epl_go_gradient_pointer()) }

// guarded runs code of the host's within a call of the library. A panic becomes an error: it must not unwind through
// C.
func guarded(f func() error) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			cause, _ := caught.(error)
			err = &Error{Code: Internal, Message: fmt.Sprintf("the host's code panicked: %v", caught), Rank: -1,
				cause: cause}
		}
	}()
	return f()
}

// refused is an error of the host's for the library: with a code that it has, as an *Error or a Code, or otherwise.
func refused(err error, otherwise Code) unsafe.Pointer {
	var explained *Error
	if errors.As(err, &explained) {
		otherwise = explained.Code
	} else {
		errors.As(err, &otherwise)
	}
	return unsafe.Pointer(raw.ErrorCreate(int32(otherwise), err.Error()))
}

//export eplGoWrite
func eplGoWrite(userdata C.uintptr_t, data unsafe.Pointer, bytes C.size_t) unsafe.Pointer {
	s := cgo.Handle(userdata).Value().(*stream)
	s.err = guarded(func() error {
		_, err := s.writer.Write(unsafe.Slice((*byte)(data), int(bytes)))
		return err
	})
	if s.err != nil {
		return refused(s.err, IO)
	}
	return nil
}

//export eplGoRead
func eplGoRead(userdata C.uintptr_t, offset C.uint64_t, target unsafe.Pointer, bytes C.size_t) unsafe.Pointer {
	source := cgo.Handle(userdata).Value().(byteSource)
	err := guarded(func() error { return source.read(unsafe.Slice((*byte)(target), int(bytes)), int64(offset)) })
	if err != nil {
		return refused(err, IO)
	}
	return nil
}

//export eplGoOpen
func eplGoOpen(userdata C.uintptr_t, location *C.char, length C.size_t, source unsafe.Pointer) unsafe.Pointer {
	beside := cgo.Handle(userdata).Value().(*fileOfFS)
	err := guarded(func() error { return beside.open(textAt(location, length), (*raw.Source)(source)) })
	if err != nil {
		return refused(err, IO)
	}
	return nil
}

//export eplGoSamples
func eplGoSamples(userdata C.uintptr_t, field C.int32_t, samples *C.int64_t, count C.size_t, target unsafe.Pointer,
	bytes C.size_t) unsafe.Pointer {
	return cgo.Handle(userdata).Value().(*samplesOfHost).read(int(field),
		unsafe.Slice((*int64)(unsafe.Pointer(samples)), int(count)), unsafe.Slice((*byte)(target), int(bytes)))
}

// textAt copies a text of the library.
func textAt(data *C.char, length C.size_t) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(length)))
}

//export eplGoShape
func eplGoShape(userdata C.uintptr_t, attributes *C.char, length C.size_t, inputs unsafe.Pointer,
	inputCount C.size_t, outputs unsafe.Pointer, outputCount C.size_t) unsafe.Pointer {
	op := cgo.Handle(userdata).Value().(Op)
	err := guarded(func() error {
		types, err := op.Shape(textAt(attributes, length), operands(inputs, int(inputCount)))
		if err != nil {
			return err
		}
		return fill(types, unsafe.Slice((*raw.OpTensor)(outputs), int(outputCount)))
	})
	if err != nil {
		return refused(err, Internal)
	}
	return nil
}

//export eplGoRun
func eplGoRun(userdata C.uintptr_t, attributes *C.char, length C.size_t, inputs unsafe.Pointer, inputCount C.size_t,
	outputs unsafe.Pointer, outputCount C.size_t) unsafe.Pointer {
	op := cgo.Handle(userdata).Value().(Op)
	err := guarded(func() error {
		return op.Run(textAt(attributes, length), operands(inputs, int(inputCount)), operands(outputs, int(outputCount)))
	})
	if err != nil {
		return refused(err, Internal)
	}
	return nil
}

//export eplGoGradient
func eplGoGradient(userdata C.uintptr_t, attributes *C.char, length C.size_t, inputs unsafe.Pointer,
	inputCount C.size_t, outputs, upstream unsafe.Pointer, outputCount C.size_t, gradients unsafe.Pointer) unsafe.Pointer {
	op := cgo.Handle(userdata).Value().(GradientOp)
	err := guarded(func() error {
		return op.Gradient(textAt(attributes, length), operands(inputs, int(inputCount)),
			operands(outputs, int(outputCount)), operands(upstream, int(outputCount)), operands(gradients, int(inputCount)))
	})
	if err != nil {
		return refused(err, Internal)
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
	_ = guarded(func() error { // a handler that panics loses its line; the training goes on
		logger.Log(context.Background(), levelOf(int32(level)), textAt(message, length))
		return nil
	})
}

//export eplGoDrop
func eplGoDrop(userdata C.uintptr_t) {
	handle := cgo.Handle(userdata)
	if value, ok := handle.Value().(dropper); ok {
		value.drop()
	}
	handle.Delete()
}
