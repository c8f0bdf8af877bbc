// Trains the MLP and cancels a step, from Go through cgo.
package main

/*
#include <epl.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// text gives a Go string as pointer and length, of the empty one too; nothing keeps it after the call.
func text(s string) (*C.char, C.size_t) {
	bytes := append([]byte(s), 0) // never empty, so that there is an address
	return (*C.char)(unsafe.Pointer(&bytes[0])), C.size_t(len(s))
}

// Error is an error of the library as a Go value, so that callers can look at its code.
type Error struct {
	Code    int32
	Message string
}

func (e *Error) Error() string { return e.Message }

// taken makes a Go error of one of the library's, which is given back.
func taken(err *C.epl_error) error {
	if err == nil {
		return nil
	}
	defer C.epl_error_destroy(err)
	var length C.size_t
	message := C.epl_error_message(err, &length)
	return &Error{int32(C.epl_error_code(err)), C.GoStringN(message, C.int(length))}
}

func set(trainer *C.epl_trainer, key, value string) error {
	k, kn := text(key)
	v, vn := text(value)
	return taken(C.epl_trainer_set(trainer, k, kn, v, vn))
}

func tensor[T any](engine *C.epl_engine, dtype C.int32_t, dims []C.int64_t, values []T) (*C.epl_tensor, error) {
	var t *C.epl_tensor
	bytes := C.size_t(len(values)) * C.size_t(unsafe.Sizeof(values[0])) // both slices have elements here
	err := C.epl_tensor_create_copy(engine, dtype, &dims[0], C.int32_t(len(dims)), unsafe.Pointer(&values[0]), bytes, &t)
	return t, taken(err)
}

// newSession plans the training of the model at path. What a session was made from may go at once: it keeps what it needs.
func newSession(engine *C.epl_engine, path string) (*C.epl_session, error) {
	var model *C.epl_model
	var trainer *C.epl_trainer
	var plan *C.epl_plan
	var session *C.epl_session
	file, fileLen := text(path)
	if err := taken(C.epl_model_load(engine, file, fileLen, nil, nil, &model)); err != nil {
		return nil, err
	}
	defer C.epl_model_destroy(model)
	if err := taken(C.epl_trainer_create(engine, &trainer)); err != nil {
		return nil, err
	}
	defer C.epl_trainer_destroy(trainer)
	for _, option := range [][2]string{{"optimizer", "adam"}, {"optimizer.lr", "0.05"}, {"loss.output", ""}} {
		if err := set(trainer, option[0], option[1]); err != nil {
			return nil, err
		}
	}
	symbol, symbolLen := text("batch")
	if err := taken(C.epl_trainer_bind_symbol(trainer, symbol, symbolLen, 4)); err != nil {
		return nil, err
	}
	if err := taken(C.epl_plan_create(model, trainer, nil, nil, nil, &plan)); err != nil {
		return nil, err
	}
	defer C.epl_plan_destroy(plan)
	err := taken(C.epl_session_create(plan, nil, nil, &session))
	return session, err
}

func train(folder string) error {
	path := folder + "/go.onnx"
	var engine *C.epl_engine
	var cancel *C.epl_cancel
	if err := taken(C.epl_engine_create(nil, &engine)); err != nil {
		return err
	}
	defer C.epl_engine_destroy(engine)
	family, familyLen := text("mlp")
	options, optionsLen := text(`{"sizes":[4,16,2],"seed":1}`)
	file, fileLen := text(path)
	if err := taken(C.epl_x_template_write(engine, family, familyLen, options, optionsLen, file, fileLen, nil)); err != nil {
		return err
	}
	session, err := newSession(engine, path)
	if err != nil {
		return err
	}
	defer C.epl_session_destroy(session)

	x, err := tensor(engine, C.EPL_DTYPE_F32, []C.int64_t{4, 4}, []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1})
	if err != nil {
		return err
	}
	defer C.epl_tensor_destroy(x)
	target, err := tensor(engine, C.EPL_DTYPE_I64, []C.int64_t{4}, []int64{0, 1, 0, 1})
	if err != nil {
		return err
	}
	defer C.epl_tensor_destroy(target)
	inputs := []*C.epl_tensor{x, target} // C pointers in Go memory, which cgo allows
	metrics := C.epl_metrics{struct_size: C.uint64_t(unsafe.Sizeof(C.epl_metrics{}))}
	for i := 0; i < 40; i++ {
		if err := taken(C.epl_session_step(session, &inputs[0], 2, nil, &metrics)); err != nil {
			return err
		}
	}
	fmt.Printf("go: loss %.4f after %d steps\n", float64(metrics.loss), int64(metrics.step))
	if float64(metrics.loss) > 0.1 {
		return fmt.Errorf("did not learn: loss %v", float64(metrics.loss))
	}

	if err := taken(C.epl_cancel_create(engine, &cancel)); err != nil {
		return err
	}
	defer C.epl_cancel_destroy(cancel)
	C.epl_cancel_trigger(cancel)
	call := C.epl_call_options{struct_size: C.uint64_t(unsafe.Sizeof(C.epl_call_options{})), cancel: cancel}
	var failure *Error
	if err := taken(C.epl_session_step(session, &inputs[0], 2, &call, nil)); !errors.As(err, &failure) || failure.Code != C.EPL_ERROR_CANCELLED {
		return fmt.Errorf("was not cancelled: %v", err)
	}
	return nil
}

func main() {
	if err := train(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
	if alive := C.epl_live_handles(); alive != 0 {
		fmt.Fprintln(os.Stderr, "go: handles are still alive:", alive)
		os.Exit(1)
	}
}
