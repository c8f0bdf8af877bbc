package raw

import (
	"math"
	"path/filepath"
	"testing"
	"unsafe"
)

func check(t *testing.T, failure *Error) {
	t.Helper()
	if failure != nil {
		message := ErrorMessage(failure)
		ErrorDestroy(failure)
		t.Fatal(message)
	}
}

func bytesOf[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(values[0])))
}

func TestTraining(t *testing.T) {
	options := NewEngineOptions()
	options.Threads = 1
	engine, failure := EngineCreate(&options)
	check(t, failure)
	path := filepath.Join(t.TempDir(), "mlp.onnx")
	check(t, XTemplateWrite(engine, "mlp", `{"sizes":[4,8,2],"seed":1}`, path, nil))
	model, failure := ModelLoad(engine, path, nil, nil)
	check(t, failure)
	trainer, failure := TrainerCreate(engine)
	check(t, failure)
	check(t, TrainerSet(trainer, "optimizer", "sgd"))
	check(t, TrainerSetNumber(trainer, "optimizer.lr", 0.5))
	check(t, TrainerBindSymbol(trainer, "batch", 2))
	plan, failure := PlanCreate(model, trainer, nil, nil, nil)
	check(t, failure)
	info := NewTensorInfo()
	check(t, PlanPort(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 0, &info))
	if info.Ndim != 2 || info.Dims[0] != 2 || info.Dims[1] != 4 || CopyText(info.Name, info.NameLength) == "" {
		t.Fatal(info)
	}
	session, failure := SessionCreate(plan, nil, nil)
	check(t, failure)
	x, failure := TensorCreateCopy(engine, EPL_DTYPE_F32, []int64{2, 4}, bytesOf([]float32{1, 2, 3, 4, 4, 3, 2, 1}))
	check(t, failure)
	target, failure := TensorCreateCopy(engine, EPL_DTYPE_I64, []int64{2}, bytesOf([]int64{0, 1}))
	check(t, failure)
	first, metrics, call := math.Inf(1), NewMetrics(), NewCallOptions()
	call.TimeoutNanoseconds = 60_000_000_000
	for step := int64(1); step <= 10; step++ {
		check(t, SessionStep(session, []*Tensor{x, target}, &call, &metrics))
		if metrics.Step != step {
			t.Fatalf("step %d is step %d", step, metrics.Step)
		}
		first = math.Min(first, metrics.Loss)
	}
	if metrics.Loss > first || metrics.Loss > 0.5 {
		t.Fatalf("the loss is %g", metrics.Loss)
	}
	outputs := make([]*Tensor, PlanPortCount(plan, EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT))
	check(t, SessionPredict(session, []*Tensor{x}, nil, outputs))
	if TensorDim(outputs[0], 0) != 2 || TensorBytes(outputs[0]) != 16 {
		t.Fatal("the scores are not f32[2,2]")
	}
	for _, tensor := range append(outputs, x, target) {
		TensorDestroy(tensor)
	}
	SessionDestroy(session)
	PlanDestroy(plan)
	TrainerDestroy(trainer)
	ModelDestroy(model)
	EngineDestroy(engine)
	if LiveHandles() != 0 {
		t.Fatalf("%d handles are alive", LiveHandles())
	}
}

func TestErrors(t *testing.T) {
	engine, failure := EngineCreate(nil)
	check(t, failure)
	defer EngineDestroy(engine)
	model, failure := ModelLoad(engine, "/no/such/model.onnx", nil, nil)
	if model != nil || ErrorCode(failure) != EPL_ERROR_NOT_FOUND || ErrorMessage(failure) == "" {
		t.Fatal(ErrorMessage(failure))
	}
	ErrorDestroy(failure)
}
