package epl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestStrategyByCalls(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	made, err := w.engine.NewStrategy()
	w.check(err)
	defer made.Close()
	top, err := made.AddScope(Replicate, 4, "all")
	w.check(err)
	inner, err := top.AddScope(Split, 2, "")
	w.check(err)
	w.check(inner.Match("param:net.0.*", "op:MatMul"))
	w.check(inner.PinDim("net.0.weight", -1))
	_, err = made.SetDefault(Replicate, 2)
	w.check(err)
	told, err := made.Describe()
	w.check(err)
	again, err := w.engine.ParseStrategy(told)
	w.check(err)
	defer again.Close()
	for _, want := range []string{`"all"`, `"split"`, `"param:net.0.*"`, `"op:MatMul"`, `"net.0.weight"`, `"default"`} {
		if same, err := again.Describe(); err != nil || same != told || !strings.Contains(told, want) {
			t.Errorf("%s is not in %s, or that is read as %s, %v", want, told, same, err)
		}
	}
}

func TestDLPack(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	managed, err := w.inputs[0].DLPack()
	w.check(err)
	shared, err := FromDLPack(w.engine, managed)
	w.check(err)
	defer shared.Close()
	one, _ := Values[float32](w.inputs[0])
	if other, err := Values[float32](shared); err != nil || !slices.Equal(one, other) || Version() == 0 {
		t.Errorf("by DLPack %v comes as %v, %v", one, other, err)
	}
}

func TestTensorsOfAGpuAreForSessionsThere(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	managed, err := w.inputs[0].DLPack()
	w.check(err)
	*(*int32)(unsafe.Add(managed, 40)) = 2 // its device, of CUDA's kind
	there, err := FromDLPack(w.engine, managed)
	w.check(err)
	defer there.Close()
	if values, err := Values[float32](there); !errors.Is(err, Unsupported) {
		t.Errorf("the host reads %v, %v", values, err)
	}
	ctx := WithStream(context.Background(), NoStream)
	_, err = w.session.Step(ctx, there, w.inputs[1])
	if err == nil || !strings.Contains(err.Error(), "lies on cuda:0, and the session is on cpu") {
		t.Errorf("a session of the CPU takes it: %v", err)
	}
	if _, err = w.session.Step(WithStream(ctx, -2), w.inputs...); !errors.Is(err, InvalidArgument) {
		t.Errorf("a stream of this number: %v", err)
	}
	_, err = w.session.Step(ctx, w.inputs...)
	w.check(err)
}
