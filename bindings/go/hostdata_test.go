package epl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	sampleFields = []Info{{"x", F32, []int64{4}}, {"target", I64, nil}}
	batchFields  = []Info{{"x", F32, []int64{8, 4}}, {"target", I64, []int64{8}}}
)

// reader gives the world's batch again and again.
func (w *world) reader() SampleFunc {
	x, err := Values[float32](w.inputs[0])
	w.check(err)
	classes, err := Values[int64](w.inputs[1])
	w.check(err)
	return func(field int, samples []int64, target []byte) error {
		for i, sample := range samples {
			if n := sample % 8; field == 0 {
				copy(Elements[float32](target)[4*i:], x[4*n:4*n+4])
			} else {
				Elements[int64](target)[i] = classes[n]
			}
		}
		return nil
	}
}

func TestSamplesOfTheHostTrainAsTensorsDo(t *testing.T) {
	for _, options := range []string{`{"batch": 8}`, `{"batch": 8, "prefetch": 2}`} {
		w := newWorld(t, "4,16,2", 8, nil, 0)
		same, err := w.plan.Session(w.ctx, SessionOptions{})
		w.check(err)
		data, err := w.engine.NewDataset(sampleFields, 16, w.reader(), options)
		w.check(err)
		w.check(data.Bind(w.plan, Train))
		steps := 0
		for range 2 {
			for batch, err := range data.Epoch(w.ctx) {
				w.check(err)
				_, err = same.Step(w.ctx, batch...)
				w.check(err)
				w.step()
				steps++
			}
		}
		hash, err := w.session.Hash(w.ctx)
		w.check(err)
		other, err := same.Hash(w.ctx)
		w.check(err)
		if steps != 4 || data.Position() != 4 || data.Samples() != 16 || hash != other {
			t.Error(steps, data.Position(), data.Samples(), hash, other)
		}
		same.Close()
		data.Close()
		for _, one := range w.inputs {
			one.Close()
		}
		w.session.Close()
		w.plan.Close()
		w.model.Close()
		w.engine.Close()
	}
}

func TestWhatAReaderFailsWithIsTheErrorOfTheBatch(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	cause := errors.New("the row is gone 😀")
	for _, options := range []string{`{"batch": 4}`, `{"batch": 4, "prefetch": 1}`} {
		var state atomic.Int32
		good := w.reader()
		data, err := w.engine.NewDataset(sampleFields, 16, SampleFunc(func(f int, samples []int64, target []byte) error {
			switch state.Load() {
			case 0:
				return fmt.Errorf("row %d: %w", samples[0], errors.Join(DataLoss, cause))
			case 1:
				return cause
			case 2:
				var nothing []int
				_ = nothing[samples[0]+5]
			}
			return good(f, samples, target)
		}), options)
		w.check(err)
		if _, err := data.Next(w.ctx); !errors.Is(err, DataLoss) || !errors.Is(err, cause) ||
			!strings.Contains(err.Error(), "row 0") {
			t.Error(err)
		}
		state.Store(1)
		if _, err := data.Next(w.ctx); !errors.Is(err, cause) {
			t.Error(err)
		}
		state.Store(2)
		if options == `{"batch": 4}` { // ahead, the error of before may wait
			if _, err := data.Next(w.ctx); !errors.Is(err, Internal) || !strings.Contains(err.Error(), "out of range") {
				t.Error(err)
			}
			state.Store(3)
			_, err := data.Next(w.ctx)
			w.check(err)
		}
		w.check(data.Close())
	}
	many := []Info{{"x", F32, make([]int64, 17)}}
	if _, err := w.engine.NewDataset(many, 1, w.reader(), nil); !errors.Is(err, InvalidArgument) {
		t.Error(err)
	}
	if _, err := w.engine.NewDataset(nil, 1, w.reader(), nil); !errors.Is(err, InvalidArgument) {
		t.Error(err)
	}
}

func TestWhereNobodyKnowsHowManyThereAreTheEndIsFound(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	good := w.reader()
	data, err := w.engine.NewDataset(sampleFields, -1, SampleFunc(func(f int, samples []int64, target []byte) error {
		if samples[len(samples)-1] >= 24 {
			return io.EOF
		}
		return good(f, samples, target)
	}), `{"batch": 8}`)
	w.check(err)
	defer data.Close()
	batches := 0
	for _, err := range data.Epoch(w.ctx) {
		w.check(err)
		batches++
	}
	if batches != 3 {
		t.Error(batches)
	}
}

func TestAFeedHoldsBackWhoPushes(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	feed, err := w.engine.NewFeed(batchFields, 2)
	w.check(err)
	defer feed.Close()
	data, err := feed.Dataset()
	w.check(err)
	defer data.Close()
	w.check(feed.Push(w.ctx, w.inputs...))
	w.check(feed.Push(w.ctx, w.inputs...))
	short, stop := context.WithTimeout(w.ctx, 20*time.Millisecond)
	defer stop()
	err = feed.Push(short, w.inputs...)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, DeadlineExceeded) {
		t.Error(err)
	}
	third := make(chan error)
	go func() { third <- feed.Push(w.ctx, w.inputs...) }()
	_, err = data.Next(w.ctx)
	w.check(err)
	w.check(<-third)
	w.check(feed.Finish())
	left := 0
	for _, err := range data.Epoch(w.ctx) {
		w.check(err)
		left++
	}
	if left != 2 || data.Batches() != -1 {
		t.Error(left, data.Batches())
	}
}

func TestAnIteratorIsPushedAndItsErrorIsSeen(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	for _, failure := range []error{nil, errors.New("the source is gone")} {
		feed, err := w.engine.NewFeed(batchFields, 1)
		w.check(err)
		data, err := feed.Dataset()
		w.check(err)
		w.check(data.Bind(w.plan, Train))
		pushed := make(chan error)
		go func() {
			pushed <- feed.PushAll(w.ctx, func(yield func([]*Tensor, error) bool) {
				for range 40 {
					if !yield(w.inputs, nil) {
						return
					}
				}
				if failure != nil {
					yield(nil, failure)
				}
			})
		}()
		steps := 0
		var last error
		for batch, err := range data.Epoch(w.ctx) {
			if last = err; err != nil {
				break
			}
			_, err = w.session.Step(w.ctx, batch...)
			w.check(err)
			steps++
		}
		if err := <-pushed; err != failure || steps != 40 || (last != nil) != (failure != nil) {
			t.Error(err, steps, last)
		}
		w.check(data.Close())
		w.check(feed.Close())
		if err := feed.Finish(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func TestOutputsPlansAndStrategiesWithoutFiles(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	m := w.step()
	loss, err := w.session.Output(Train, "loss")
	w.check(err)
	if values, err := Values[float32](loss); err != nil || len(values) != 1 || math.Abs(float64(values[0])-m.Loss) > 1e-6 {
		t.Error(values, m.Loss, err)
	}
	loss.Close()
	made, err := w.session.Predict(w.ctx, w.inputs[0])
	w.check(err)
	want, err := Values[float32](made[0])
	w.check(err)
	made[0].Close()
	predictor, err := w.session.Predictor(w.ctx, nil)
	w.check(err)
	defer predictor.Close()
	for _, predict := range []func(context.Context, []*Tensor, []*Tensor) error{w.session.PredictInto,
		predictor.PredictInto} {
		memory := make([]float32, len(want))
		into, err := Borrow(w.engine, memory, 8, 2)
		w.check(err)
		w.check(predict(w.ctx, w.inputs[:1], []*Tensor{into}))
		w.check(predict(w.ctx, w.inputs[:1], []*Tensor{nil}))
		if fmt.Sprint(memory) != fmt.Sprint(want) {
			t.Error(memory, want)
		}
		w.check(into.Close())
		if err := predict(w.ctx, w.inputs[:1], []*Tensor{into}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}

	if _, err := w.model.Strategy(2); !errors.Is(err, NotFound) {
		t.Error(err)
	}
	trainer, err := w.engine.ParseTrainer(`{"symbols": {"batch": 8}}`)
	w.check(err)
	defer trainer.Close()
	two, err := w.engine.ParseStrategy(`{"default": {"replicate": 2}}`)
	w.check(err)
	defer two.Close()
	plan, err := w.model.Plan(w.ctx, trainer, two, PlanOptions{Ranks: 2})
	w.check(err)
	defer plan.Close()
	var saved strings.Builder
	w.check(plan.SaveTo(w.ctx, &saved))
	again, err := w.model.LoadPlanBytes(w.ctx, trainer, two, PlanOptions{Ranks: 2}, []byte(saved.String()))
	w.check(err)
	defer again.Close()
	if again.Ranks() != 2 {
		t.Error(again.Ranks())
	}
	path := filepath.Join(t.TempDir(), "planned.onnx")
	w.check(plan.ExportONNX(w.ctx, path))
	planned, err := w.engine.LoadModel(w.ctx, path, ModelOptions{})
	w.check(err)
	defer planned.Close()
	strategy, err := planned.Strategy(2)
	w.check(err)
	defer strategy.Close()
	if text, err := strategy.Describe(); err != nil || !strings.Contains(text, "replicate") {
		t.Error(text, err)
	}
}

// A writer that panics is an error of the call.
func TestAWriterThatPanicsIsAnError(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	if err := w.session.ExportTo(w.ctx, panics{}, ONNX); !errors.Is(err, Internal) || !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	w.step()
}

type panics struct{}

func (panics) Write([]byte) (int, error) { panic(io.ErrClosedPipe) }

// onnx writes messages of a model's file by hand.
type onnx []byte

func (o onnx) number(field, value uint64) onnx {
	return binary.AppendUvarint(binary.AppendUvarint(o, field<<3), value)
}

func (o onnx) text(field uint64, value string) onnx {
	return append(binary.AppendUvarint(binary.AppendUvarint(o, field<<3|2), uint64(len(value))), value...)
}

func port(name string, dims ...uint64) string {
	var shape onnx
	for _, dim := range dims {
		shape = shape.text(1, string(onnx(nil).number(1, dim)))
	}
	kind := onnx(nil).number(1, 1).text(2, string(shape))
	return string(onnx(nil).text(1, name).text(2, string(onnx(nil).text(1, string(kind)))))
}

func weights(name string, values []float32, dims ...uint64) string {
	var tensor onnx
	for _, dim := range dims {
		tensor = tensor.number(1, dim)
	}
	bytes, _ := binary.Append(nil, binary.LittleEndian, values)
	return string(tensor.number(2, 1).text(8, name).text(9, string(bytes)))
}

// gateModel is x [8, 4] times w [4, 2], through "Gate" of "test.epl" with a weight for each column and a scale.
func gateModel() []byte {
	product := onnx(nil).text(1, "x").text(1, "w").text(2, "y").text(4, "MatMul")
	scale := binary.LittleEndian.AppendUint32(append(onnx(nil).text(1, "scale"), 2<<3|5), math.Float32bits(0.5))
	scale = onnx(scale).number(20, 1)
	gate := onnx(nil).text(1, "y").text(1, "gate.weight").text(2, "scores").text(3, "gate").text(4, "Gate").
		text(5, string(scale)).text(7, "test.epl")
	graph := onnx(nil).text(1, string(product)).text(1, string(gate)).
		text(5, weights("w", []float32{0.1, -0.2, 0.3, 0.1, -0.1, 0.2, 0.05, -0.3}, 4, 2)).
		text(5, weights("gate.weight", []float32{1, 1.5}, 2)).
		text(11, port("x", 8, 4)).text(12, port("scores", 8, 2)).text(2, "graph")
	return onnx(nil).number(1, 8).text(7, string(graph)).text(8, string(onnx(nil).text(1, "").number(2, 17))).
		text(8, string(onnx(nil).text(1, "test.epl").number(2, 1)))
}

// gate is y = x * w * 0.5, w being a row: the gradient of w is a sum over samples.
type gate struct {
	runs, gradients atomic.Int64
	failure         atomic.Pointer[error]
	shapes          int
}

func (g *gate) Shape(attributes string, inputs []Operand) ([]Operand, error) {
	if attributes != `{"scale":0.5}` {
		return nil, fmt.Errorf("attributes %s", attributes)
	}
	return inputs[:g.shapes], nil
}

func (g *gate) Run(attributes string, inputs, outputs []Operand) error {
	g.runs.Add(1)
	if failure := g.failure.Load(); failure != nil {
		if *failure == io.ErrClosedPipe {
			panic(*failure)
		}
		return *failure
	}
	x, w, y := Elements[float32](inputs[0].Data), Elements[float32](inputs[1].Data), Elements[float32](outputs[0].Data)
	for i := range y {
		y[i] = x[i] * w[i%len(w)] * 0.5
	}
	return nil
}

func (g *gate) Gradient(attributes string, inputs, outputs, upstream, gradients []Operand) error {
	g.gradients.Add(1)
	x, w := Elements[float32](inputs[0].Data), Elements[float32](inputs[1].Data)
	d := Elements[float32](upstream[0].Data)
	if !gradients[0].Absent() {
		for i, dx := 0, Elements[float32](gradients[0].Data); i < len(dx); i++ {
			dx[i] = d[i] * w[i%len(w)] * 0.5
		}
	}
	if !gradients[1].Absent() {
		dw := Elements[float32](gradients[1].Data)
		for k := range dw {
			dw[k] = 0
			for i := k; i < len(x); i += len(dw) {
				dw[k] += d[i] * x[i] * 0.5
			}
		}
	}
	return nil
}

func (w *world) gatePlan(ranks int) (*Plan, error) {
	model, err := w.engine.LoadModelBytes(w.ctx, gateModel(), ModelOptions{})
	w.check(err)
	defer model.Close()
	trainer, err := w.engine.ParseTrainer(`{"loss": "softmax_cross_entropy", "optimizer": "sgd", "optimizer.lr": 0.5}`)
	w.check(err)
	defer trainer.Close()
	return model.Plan(w.ctx, trainer, nil, PlanOptions{Ranks: ranks})
}

func TestAnOperatorOfTheHostIsTrainedThrough(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	op := &gate{shapes: 1}
	options := OpOptions{Domain: "test.epl", Name: "Gate", Sharding: "n k, k -> n k"}
	w.check(w.engine.AddOp(op, options))
	if err := w.engine.AddOp(op, options); err == nil {
		t.Error("there is one of that name")
	}
	var results [][]float32
	for ranks := 1; ranks <= 2; ranks++ {
		plan, err := w.gatePlan(ranks)
		w.check(err)
		session, err := plan.Session(w.ctx, SessionOptions{})
		w.check(err)
		first, err := session.Step(w.ctx, w.inputs...)
		w.check(err)
		for range 100 {
			_, err := session.Step(w.ctx, w.inputs...)
			w.check(err)
		}
		if last := session.Progress(); !(last.Loss < first.Loss/2) {
			t.Error(first, last)
		}
		weight, err := session.Get(w.ctx, "gate.weight")
		w.check(err)
		values, err := Values[float32](weight)
		w.check(err)
		results = append(results, values)
		weight.Close()
		session.Close()
		plan.Close()
	}
	if results[0][0] == 1 || math.Abs(float64(results[0][0]-results[1][0])) > 1e-5 {
		t.Error(results)
	}
	if op.runs.Load() < 202 || op.gradients.Load() < 202 {
		t.Error(op.runs.Load(), op.gradients.Load())
	}

	plan, err := w.gatePlan(1)
	w.check(err)
	defer plan.Close()
	session, err := plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	defer session.Close()
	before, err := session.Hash(w.ctx)
	w.check(err)
	for _, one := range []struct{ failure, code error }{
		{fmt.Errorf("the gate is stuck 😀: %w", NotFinite), NotFinite}, {errors.New("any other"), Internal},
		{io.ErrClosedPipe, Internal}} { // the last one panics
		op.failure.Store(&one.failure)
		if _, err := session.Step(w.ctx, w.inputs...); !errors.Is(err, one.code) ||
			!strings.Contains(err.Error(), one.failure.Error()) {
			t.Error(err)
		}
		if hash, err := session.Hash(w.ctx); err != nil || hash != before {
			t.Error(hash, before, err)
		}
	}
	op.failure.Store(nil)
	m, err := session.Step(w.ctx, w.inputs...)
	if err != nil || m.Step != 1 {
		t.Error(m, err)
	}
}

func TestAnOperatorMayHaveNoGradientAndWrongShapesAreTold(t *testing.T) {
	for _, one := range []struct {
		op   Op
		told string
	}{{struct{ Op }{&gate{shapes: 1}}, "gradient"}, {&gate{}, "0 outputs"}} {
		w := newWorld(t, "4,16,2", 8, nil, 0)
		w.check(w.engine.AddOp(one.op, OpOptions{Domain: "test.epl", Name: "Gate"}))
		if plan, err := w.gatePlan(1); err == nil || !strings.Contains(err.Error(), one.told) {
			t.Error(plan, err)
		}
		for _, input := range w.inputs {
			input.Close()
		}
		w.session.Close()
		w.plan.Close()
		w.model.Close()
		w.engine.Close()
	}
}
