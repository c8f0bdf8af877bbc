package epl

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPredictorsRunBesideSteps(t *testing.T) {
	w := newWorld(t, "4,64,64,2", 8, nil, 0)
	if m := w.session.Progress(); m.Step != 0 {
		t.Errorf("%+v", m)
	}
	w.step()
	p, err := w.session.Predictor(w.ctx, nil)
	w.check(err)
	defer p.Close()
	if p.Steps() != 1 || p.MemoryBytes() <= 0 {
		t.Errorf("%d steps, %d bytes", p.Steps(), p.MemoryBytes())
	}
	predict := func() []float32 {
		outputs, err := p.Predict(w.ctx, w.inputs[0])
		w.check(err)
		defer outputs[0].Close()
		values, err := Values[float32](outputs[0])
		w.check(err)
		return values
	}
	before := predict()
	ended := make(chan struct{})
	var last Metrics
	go func() {
		defer close(ended)
		for range 200 {
			m, err := w.session.Step(w.ctx, w.inputs...)
			if err != nil {
				t.Error(err)
			}
			last = m
		}
	}()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		if !slices.Equal(predict(), before) {
			t.Fatal("the weights of a predictor change by themselves")
		}
	}
	if m := w.session.Progress(); m != last || m.Step != 201 {
		t.Errorf("%+v, the last step was %+v", m, last)
	}
	w.check(p.Refresh(w.ctx))
	after, want := predict(), []float32(nil)
	outputs, err := w.session.Predict(w.ctx, w.inputs[0])
	w.check(err)
	defer outputs[0].Close()
	want, err = Values[float32](outputs[0])
	w.check(err)
	if p.Steps() != 201 || !slices.Equal(after, want) || slices.Equal(after, before) {
		t.Errorf("after %d steps %v, the session says %v", p.Steps(), after, want)
	}
	w.check(w.session.Close())
	if !slices.Equal(predict(), after) {
		t.Error("a predictor does not outlive its session")
	}
	if err := p.Refresh(w.ctx); !errors.Is(err, Misuse) {
		t.Error(err)
	}
}

// broken is a writer and a reader that fail.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error)         { return 0, b.err }
func (b broken) ReadAt([]byte, int64) (int, error) { return 0, b.err }

func TestStreams(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	w.step()
	var checkpoint, model bytes.Buffer
	w.check(w.session.SaveTo(w.ctx, &checkpoint, nil))
	saved, err := w.session.Hash(w.ctx)
	w.check(err)
	w.step()
	w.check(w.session.LoadFrom(w.ctx, bytes.NewReader(checkpoint.Bytes()), int64(checkpoint.Len()), nil))
	if hash, _ := w.session.Hash(w.ctx); hash != saved || w.session.Steps() != 1 {
		t.Error("the stream was loaded, and the hash differs")
	}
	w.check(w.session.ExportTo(w.ctx, &model, ONNX))
	again, err := w.engine.LoadModelBytes(w.ctx, model.Bytes(), ModelOptions{})
	w.check(err)
	w.check(again.Close())
	full := errors.New("the store is full")
	err = w.session.SaveTo(w.ctx, broken{full}, nil)
	if !errors.Is(err, full) || !errors.Is(err, IO) || !strings.Contains(err.Error(), "the store is full") {
		t.Error(err)
	}
	err = w.session.LoadFrom(w.ctx, broken{full}, int64(checkpoint.Len()), nil)
	if !errors.Is(err, full) {
		t.Error(err)
	}
	if hash, _ := w.session.Hash(w.ctx); hash != saved {
		t.Error("a load that failed has changed the weights")
	}
}
