package epl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// world is an engine and a small job that learns which of two numbers is larger.
type world struct {
	testing.TB
	ctx     context.Context
	engine  *Engine
	model   *Model
	plan    *Plan
	session *Session
	inputs  []*Tensor
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// step makes a step that must succeed.
func (w *world) step() Metrics {
	w.Helper()
	m, err := w.session.Step(w.ctx, w.inputs...)
	w.check(err)
	return m
}

// newWorld trains sizes[0] numbers to sizes[last] classes, in batches of so many samples.
func newWorld(t testing.TB, sizes string, batch int64, strategy any, ranks int) *world {
	t.Helper()
	w := &world{TB: t, ctx: context.Background()}
	var err error
	w.engine, err = NewEngine(EngineOptions{Threads: 1})
	w.check(err)
	path := filepath.Join(t.TempDir(), "模型.onnx")
	w.check(w.engine.WriteTemplate(w.ctx, "mlp", fmt.Sprintf(`{"sizes":[%s],"seed":1}`, sizes), path))
	w.model, err = w.engine.LoadModel(w.ctx, path, ModelOptions{})
	w.check(err)
	trainer, err := w.engine.NewTrainer()
	w.check(err)
	w.check(trainer.Set("optimizer", "adam"))
	w.check(trainer.Set("optimizer.lr", 0.05))
	w.check(trainer.Set("optimizer.betas", []float64{0.9, 0.999}))
	w.check(trainer.Bind("batch", batch))
	var how *Strategy
	if strategy != nil {
		how, err = w.engine.ParseStrategy(strategy)
		w.check(err)
		defer how.Close()
	}
	w.plan, err = w.model.Plan(w.ctx, trainer, how, PlanOptions{Ranks: ranks})
	w.check(err)
	w.check(trainer.Close())
	w.session, err = w.plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	infos, err := w.plan.Inputs(Train)
	w.check(err)
	x := make([]float32, batch*infos[0].Dims[1])
	target := make([]int64, batch)
	width := infos[0].Dims[1]
	for i := range x {
		x[i] = float32((i*7+i*i*3)%5) - 2
	}
	for i := range target {
		if x[int64(i)*width] < x[int64(i)*width+1] {
			target[i] = 1
		}
	}
	xs, err := NewTensor(w.engine, x, batch, width)
	w.check(err)
	ts, err := Borrow(w.engine, target, batch)
	w.check(err)
	w.inputs = []*Tensor{xs, ts}
	t.Cleanup(func() {
		for _, one := range w.inputs {
			one.Close()
		}
		// The wrong order on purpose: what is needed stays.
		w.engine.Close()
		w.model.Close()
		w.plan.Close()
		w.session.Close()
		if alive := LiveHandles(); alive != 0 {
			t.Errorf("%d handles are alive", alive)
		}
	})
	return w
}

func TestTrains(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	var first, last Metrics
	for i := range 60 {
		m, err := w.session.Step(w.ctx, w.inputs...)
		w.check(err)
		if i == 0 {
			first = m
		}
		last = m
	}
	if !(last.Loss < first.Loss/4) || last.Step != 60 || w.session.Steps() != 60 || last.Duration <= 0 {
		t.Fatalf("first %+v, last %+v", first, last)
	}
	if peak := w.session.MemoryPeak(0); peak <= 0 || peak > w.plan.MemoryPeak(0) {
		t.Fatalf("used %d of %d bytes", peak, w.plan.MemoryPeak(0))
	}
	m, err := w.session.Evaluate(w.ctx, w.inputs...)
	w.check(err)
	if m.Loss > last.Loss {
		t.Fatalf("evaluated %v after %v", m.Loss, last.Loss)
	}
	outputs, err := w.session.Predict(w.ctx, w.inputs[0])
	w.check(err)
	logits, err := View[float32](outputs[0])
	w.check(err)
	target, err := Values[int64](w.inputs[1])
	w.check(err)
	for i, class := range target {
		if (logits[2*i] < logits[2*i+1]) != (class == 1) {
			t.Errorf("sample %d of class %d has %v", i, class, logits[2*i:2*i+2])
		}
	}
	w.check(outputs[0].Close())
	if _, err := View[float64](w.inputs[0]); !errors.Is(err, InvalidArgument) {
		t.Error(err)
	}
	if _, err := View[float32](outputs[0]); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestSameBitsUnderEveryLayout(t *testing.T) {
	var hashes []uint64
	for _, one := range []struct {
		strategy any
		ranks    int
	}{{nil, 1}, {map[string]any{"pipeline.num_micro_batch": 4}, 1}, {nil, 2}} {
		w := newWorld(t, "4,16,2", 8, one.strategy, one.ranks)
		for range 5 {
			w.step()
		}
		hash, err := w.session.Hash(w.ctx)
		w.check(err)
		hashes = append(hashes, hash)
		for _, input := range w.inputs {
			input.Close()
		}
		w.session.Close()
		w.plan.Close()
		w.model.Close()
		w.engine.Close()
	}
	if hashes[0] != hashes[1] || hashes[0] != hashes[2] {
		t.Fatal(hashes)
	}
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	_, err := w.engine.LoadModel(w.ctx, "/nowhere/😀.onnx", ModelOptions{})
	var explained *Error
	if !errors.Is(err, NotFound) || errors.Is(err, IO) || !errors.As(err, &explained) ||
		!strings.Contains(err.Error(), "😀") || explained.Rank != -1 {
		t.Error(err)
	}
	trainer, err := w.engine.NewTrainer()
	w.check(err)
	defer trainer.Close()
	if err := trainer.Set("optimiser", "adam"); err == nil || !strings.Contains(err.Error(), "optimizer") {
		t.Error(err)
	}
	if _, err := w.session.Step(w.ctx, w.inputs[0]); !errors.Is(err, InvalidArgument) {
		t.Error(err)
	}
	if _, err := w.engine.ParseStrategy("{"); !errors.Is(err, InvalidArgument) {
		t.Error(err)
	}
	if w.session.Steps() != 0 {
		t.Error("a refused step was counted")
	}
}

func TestTrainerGoesThroughJSON(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	trainer, err := w.engine.NewTrainer()
	w.check(err)
	defer trainer.Close()
	w.check(trainer.Set("optimizer", "adamw"))
	w.check(trainer.Set("clip_norm", 1.5))
	w.check(trainer.Group([]string{"*.bias"}, map[string]any{"weight_decay": 0}))
	w.check(trainer.Bind("batch", 4))
	text, err := trainer.Describe()
	w.check(err)
	again, err := w.engine.ParseTrainer(text)
	w.check(err)
	defer again.Close()
	if other, err := again.Describe(); err != nil || other != text {
		t.Error(text, other, err)
	}
	w.check(again.Unset("clip_norm"))
	if other, err := again.Describe(); err != nil || strings.Contains(other, "1.5") {
		t.Error(other, err)
	}
}

func TestContextStopsAStep(t *testing.T) {
	w := newWorld(t, "512,2048,2048,2", 256, nil, 0) // a step of many milliseconds
	m, err := w.session.Step(w.ctx, w.inputs...)
	w.check(err)
	before, err := w.session.Hash(w.ctx)
	w.check(err)
	ctx, cancel := context.WithTimeout(w.ctx, m.Duration/4)
	defer cancel()
	start := time.Now()
	_, err = w.session.Step(ctx, w.inputs...)
	isDeadline := func(err error) bool {
		return errors.Is(err, DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, Cancelled)
	}
	if !isDeadline(err) {
		t.Fatal(err)
	}
	if _, err := w.session.Step(ctx, w.inputs...); !isDeadline(err) { // it has passed before the call
		t.Fatal(err)
	}
	t.Logf("a step of %v was stopped after %v, asked for after %v", m.Duration, time.Since(start), m.Duration/4)
	after, err := w.session.Hash(w.ctx)
	w.check(err)
	if before != after || w.session.Steps() != 1 {
		t.Fatal("a step that was stopped has changed something")
	}
	reason := errors.New("the host is going down")
	why, stop := context.WithCancelCause(w.ctx)
	stop(reason)
	if _, err := w.session.Step(why, w.inputs...); !errors.Is(err, Cancelled) || !errors.Is(err, context.Canceled) ||
		errors.Is(err, DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := w.session.Step(w.ctx, w.inputs...); err != nil {
		t.Fatal(err)
	}
}

func TestSecondCallerIsTold(t *testing.T) {
	w := newWorld(t, "512,1024,1024,2", 256, nil, 0)
	var group sync.WaitGroup
	var done, busy atomic.Int64
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				switch _, err := w.session.Step(w.ctx, w.inputs...); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, Busy):
					busy.Add(1)
					time.Sleep(time.Millisecond)
				default:
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	if done.Load() != w.session.Steps() || done.Load() == 0 || busy.Load() == 0 {
		t.Errorf("%d done, %d busy, %d counted", done.Load(), busy.Load(), w.session.Steps())
	}
}

func TestCloseBesideAStep(t *testing.T) {
	w := newWorld(t, "512,1024,1024,2", 256, nil, 0)
	running := make(chan struct{})
	ended := make(chan error)
	go func() {
		close(running)
		for {
			if _, err := w.session.Step(w.ctx, w.inputs...); err != nil {
				ended <- err
				return
			}
		}
	}()
	<-running
	time.Sleep(20 * time.Millisecond)
	w.check(w.session.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := w.session.Step(w.ctx, w.inputs...); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestStateAndCheckpoints(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	w.step()
	folder := filepath.Join(t.TempDir(), "checkpoint ü")
	w.check(w.session.Save(w.ctx, folder, nil))
	saved, err := w.session.Hash(w.ctx)
	w.check(err)
	parameters, err := w.session.State(Parameters)
	w.check(err)
	if len(parameters) != 4 {
		t.Fatal(parameters)
	}
	value, err := w.session.Get(w.ctx, parameters[0].Name)
	w.check(err)
	defer value.Close()
	numbers, err := View[float32](value)
	w.check(err)
	numbers[0] += 1
	w.check(w.session.Set(w.ctx, parameters[0].Name, value))
	if hash, _ := w.session.Hash(w.ctx); hash == saved {
		t.Fatal("a parameter was set, and the hash is the same")
	}
	w.check(w.session.Load(w.ctx, folder, nil))
	if hash, _ := w.session.Hash(w.ctx); hash != saved {
		t.Fatal("the checkpoint was loaded, and the hash differs")
	}
	if text, err := w.engine.DescribeCheckpoint(w.ctx, folder); err != nil || !strings.Contains(text, `"step": 1`) {
		t.Fatal(text, err)
	}
	for name, export := range map[string]func(context.Context, string) error{
		"trained.onnx": w.session.ExportONNX, "again.onnx": w.session.ExportONNXForTraining,
		"weights.safetensors": w.session.ExportSafetensors} {
		path := filepath.Join(folder+"-out", name)
		w.check(os.MkdirAll(folder+"-out", 0o777))
		w.check(export(w.ctx, path))
		if stat, err := os.Stat(path); err != nil || stat.Size() == 0 {
			t.Fatal(err)
		}
	}
	w.check(w.engine.RemoveCheckpoint(folder))
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func TestDatasetDrivesTraining(t *testing.T) {
	w := newWorld(t, "2,16,2", 8, nil, 0)
	var table strings.Builder
	table.WriteString("a,b,target\n")
	for i := range 64 {
		a, b := (i*37)%11, (i*53)%13
		class := 0
		if a < b {
			class = 1
		}
		fmt.Fprintf(&table, "%d,%d,%d\n", a, b, class)
	}
	path := filepath.Join(t.TempDir(), "table.csv")
	w.check(os.WriteFile(path, []byte(table.String()), 0o666))
	data, err := w.engine.OpenDataset(w.ctx, path, map[string]any{"batch": 8, "order": "shuffled", "prefetch": 2})
	w.check(err)
	defer data.Close()
	w.check(data.Bind(w.plan, Train))
	if data.Samples() != 64 || data.Batches() != 8 {
		t.Fatal(data.Samples(), data.Batches())
	}
	var losses []float64
	for range w.session.Train(w.ctx, data, w.session.Steps()) {
		t.Fatal("a step beyond those that were asked for")
	}
	for m, err := range w.session.Train(w.ctx, data, 80) {
		w.check(err)
		losses = append(losses, m.Loss)
	}
	if len(losses) != 80 || data.Position() != 80 || !(losses[79] < losses[0]) {
		t.Fatal(losses)
	}
	v, err := w.plan.Evaluation("accuracy")
	w.check(err)
	defer v.Close()
	w.check(v.AddDataset(w.ctx, w.session, data, 0))
	accuracy, err := v.Result("accuracy")
	w.check(err)
	if v.Samples() != 64 || accuracy < 0.8 {
		t.Fatal(v.Samples(), accuracy)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	for m, err := range w.session.Train(ctx, data, 1000) {
		if m.Step == 90 {
			cancel()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if w.session.Steps() != 90 {
		t.Fatal(w.session.Steps())
	}
}

func TestBorrowedMemoryStaysWhereItIs(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	for round := range 200 {
		x := make([]float32, 32)
		for i := range x {
			x[i] = float32(i%5) - 2
		}
		tensor, err := Borrow(w.engine, x, 8, 4)
		w.check(err)
		if round%20 == 0 {
			runtime.GC()
		}
		outputs, err := w.session.Predict(w.ctx, tensor)
		w.check(err)
		w.check(outputs[0].Close())
		w.check(tensor.Close())
	}
	if _, err := Borrow(w.engine, []float32{1, 2, 3}, 2, 2); !errors.Is(err, InvalidArgument) {
		t.Fatal(err)
	}
}

func TestLogAndLeaks(t *testing.T) {
	var lines lockedBuilder
	engine, err := NewEngine(EngineOptions{Threads: 1,
		Logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := engine.WriteTemplate(context.Background(), "mlp", nil, path); err != nil {
		t.Fatal(err)
	}
	leaked := make(chan string, 16)
	OnLeak = func(kind string) { leaked <- kind }
	defer func() { OnLeak = nil }()
	var handle *Model
	func() {
		model, err := engine.LoadModel(context.Background(), path, ModelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// What the test gives back in its stead, so that nothing leaks for good.
		handle = &Model{}
		handle.adopt(engine, model.pointer, model.destroy)
		handle.destroy = model.destroy
		engine.leave()
	}()
	for range 100 {
		runtime.GC()
		select {
		case kind := <-leaked:
			if kind != "*epl.Model" {
				t.Error(kind)
			}
			handle.Close()
			engine.Close()
			if !strings.Contains(lines.String(), "m.onnx") {
				t.Error("the log says nothing of the model: ", lines.String())
			}
			if alive := LiveHandles(); alive != 0 {
				t.Errorf("%d handles are alive", alive)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("a model was lost, and nobody said so")
}

type lockedBuilder struct {
	lock sync.Mutex
	text strings.Builder
}

func (b *lockedBuilder) Write(bytes []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(bytes)
}

func (b *lockedBuilder) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.String()
}

func TestMetricsOfNothing(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	if _, err := w.session.Metric("gradient_norm:nothing"); err == nil {
		t.Error("a metric that is not there")
	}
	value, err := w.session.Number("learning_rate_scale")
	w.check(err)
	w.check(w.session.SetNumber("learning_rate_scale", value/2))
	if half, err := w.session.Number("learning_rate_scale"); err != nil || half != value/2 {
		t.Error(half, err)
	}
	if err := w.session.SetNumber("learning_rate_scale", math.NaN()); err == nil {
		t.Error("a scale of NaN")
	}
}

func BenchmarkStep(b *testing.B) {
	w := newWorld(b, "4,4,2", 8, nil, 0)
	b.ReportAllocs()
	for range b.N {
		if _, err := w.session.Step(w.ctx, w.inputs...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStepWithContext(b *testing.B) {
	w := newWorld(b, "4,4,2", 8, nil, 0)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	b.ReportAllocs()
	for range b.N {
		if _, err := w.session.Step(ctx, w.inputs...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSteps asks the library for a number: what a call through cgo costs.
func BenchmarkSteps(b *testing.B) {
	w := newWorld(b, "4,4,2", 8, nil, 0)
	for range b.N {
		w.session.Steps()
	}
}
