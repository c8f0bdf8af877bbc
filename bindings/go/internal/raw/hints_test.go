//go:build go1.24

package raw

import (
	"path/filepath"
	"testing"
)

// What a quick call is given stays on the stack.
func TestQuickCallsAllocateNothing(t *testing.T) {
	engine, failure := EngineCreate(nil)
	check(t, failure)
	defer EngineDestroy(engine)
	path := filepath.Join(t.TempDir(), "mlp.onnx")
	check(t, XTemplateWrite(engine, "mlp", "", path, nil))
	model, failure := ModelLoad(engine, path, nil, nil)
	check(t, failure)
	defer ModelDestroy(model)
	allocations := testing.AllocsPerRun(100, func() {
		info := NewTensorInfo()
		if failure := ModelPort(model, EPL_PORT_INPUT, 0, &info); failure != nil || info.Ndim != 2 {
			t.Fatal("the input has two dimensions")
		}
	})
	if allocations != 0 {
		t.Fatalf("%g allocations", allocations)
	}
}

func BenchmarkQuick(b *testing.B) {
	for i := 0; i < b.N; i++ {
		LiveHandles()
	}
}
