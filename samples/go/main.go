// Trains the MLP and cancels a step, from Go through cgo.
package main

/*
#include <epl.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// text gives a Go string as pointer and length; nothing keeps it after the call.
func text(s string) (*C.char, C.size_t) {
	bytes := []byte(s)
	return (*C.char)(unsafe.Pointer(&bytes[0])), C.size_t(len(bytes))
}

func check(err *C.epl_error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, C.GoString(C.epl_error_message(err, nil)))
	C.epl_error_destroy(err)
	os.Exit(1)
}

func set(trainer *C.epl_trainer, key, value string) {
	k, kn := text(key)
	v, vn := text(value)
	check(C.epl_trainer_set(trainer, k, kn, v, vn))
}

func tensor[T any](engine *C.epl_engine, dtype C.int32_t, dims []C.int64_t, values []T) *C.epl_tensor {
	var t *C.epl_tensor
	bytes := C.size_t(len(values)) * C.size_t(unsafe.Sizeof(values[0]))
	check(C.epl_tensor_create_copy(engine, dtype, &dims[0], C.int32_t(len(dims)), unsafe.Pointer(&values[0]), bytes, &t))
	return t
}

func main() {
	path := os.Args[1] + "/go.onnx"
	var engine *C.epl_engine
	var model *C.epl_model
	var trainer *C.epl_trainer
	var plan *C.epl_plan
	var session *C.epl_session
	var cancel *C.epl_cancel
	check(C.epl_engine_create(nil, &engine))
	family, familyLen := text("mlp")
	options, optionsLen := text(`{"sizes":[4,16,2],"seed":1}`)
	file, fileLen := text(path)
	check(C.epl_template_write(engine, family, familyLen, options, optionsLen, file, fileLen))
	check(C.epl_model_load(engine, file, fileLen, nil, &model))
	check(C.epl_trainer_create(engine, &trainer))
	set(trainer, "optimizer", "adam")
	set(trainer, "optimizer.lr", "0.05")
	symbol, symbolLen := text("batch")
	check(C.epl_trainer_bind_symbol(trainer, symbol, symbolLen, 4))
	check(C.epl_plan_create(model, trainer, nil, nil, &plan))
	check(C.epl_session_create(plan, nil, &session))

	x := tensor(engine, C.EPL_DTYPE_F32, []C.int64_t{4, 4}, []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1})
	target := tensor(engine, C.EPL_DTYPE_I64, []C.int64_t{4}, []int64{0, 1, 0, 1})
	inputs := []*C.epl_tensor{x, target} // C pointers in Go memory, which cgo allows
	metrics := C.epl_metrics{struct_size: C.uint64_t(unsafe.Sizeof(C.epl_metrics{}))}
	for i := 0; i < 40; i++ {
		check(C.epl_session_step(session, &inputs[0], 2, nil, &metrics))
	}
	fmt.Printf("go: loss %.4f after %d steps\n", float64(metrics.loss), int64(metrics.step))

	check(C.epl_cancel_create(engine, &cancel))
	C.epl_cancel_trigger(cancel)
	call := C.epl_call_options{struct_size: C.uint64_t(unsafe.Sizeof(C.epl_call_options{})), cancel: cancel}
	err := C.epl_session_step(session, &inputs[0], 2, &call, nil)
	cancelled := C.epl_error_code(err) == C.EPL_ERROR_CANCELLED
	C.epl_error_destroy(err)

	C.epl_tensor_destroy(x)
	C.epl_tensor_destroy(target)
	C.epl_cancel_destroy(cancel)
	C.epl_session_destroy(session)
	C.epl_plan_destroy(plan)
	C.epl_trainer_destroy(trainer)
	C.epl_model_destroy(model)
	C.epl_engine_destroy(engine)
	if float64(metrics.loss) > 0.1 || !cancelled || C.epl_live_handles() != 0 {
		fmt.Fprintln(os.Stderr, "go: did not learn, did not cancel, or left handles", cancelled, C.epl_live_handles())
		os.Exit(1)
	}
}
