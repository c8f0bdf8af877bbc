package epl

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// rows is a table of two kinds of rows, which a number tells apart.
func rows(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "rows.csv")
	var text strings.Builder
	text.WriteString("a,b,c,d,y\n")
	for i := range 64 {
		kind := i % 2
		text.WriteString(strings.Join([]string{[]string{"1", "-1"}[kind], []string{"0", "1", "2"}[i%3], "0.5",
			[]string{"0", "1", "2", "3", "4"}[i%5], []string{"0", "1"}[kind]}, ",") + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type fitting struct {
	*world
	session       *Session
	data, heldOut *Dataset
}

func newFitting(w *world, path string) *fitting {
	f := &fitting{world: w}
	var err error
	open := func(options map[string]any) *Dataset {
		options["batch"], options["classes"], options["held_out"] = 4, true, 0.25
		data, err := w.engine.OpenDataset(w.ctx, path, options)
		w.check(err)
		w.Cleanup(func() { data.Close() })
		return data
	}
	f.data = open(map[string]any{"order": "shuffled", "split": "train"})
	f.heldOut = open(map[string]any{"split": "held_out", "partial": true})
	f.session, err = w.plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	w.Cleanup(func() { f.session.Close() })
	return f
}

func (f *fitting) hash() uint64 {
	hash, err := f.session.Hash(f.ctx)
	f.check(err)
	return hash
}

func TestFit(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	path, folder := rows(t), filepath.Join(t.TempDir(), "run")
	f := newFitting(w, path)
	var steps, measured int
	last, err := Fit(w.ctx, f.session, f.data, FitOptions{
		HeldOut:  f.heldOut,
		Settings: map[string]any{"epochs": 3, "metrics": "accuracy", "folder": folder},
		Progress: func(e JobEvent) bool {
			switch e.Kind {
			case StepDone:
				steps++
			case Measured:
				measured++
				if v, there := e.Metrics["accuracy"]; !there || math.IsNaN(v) || e.HeldOutLoss != e.Metrics["loss"] {
					t.Errorf("measured %v, held-out loss %v", e.Metrics, e.HeldOutLoss)
				}
			}
			return true
		},
	})
	w.check(err)
	if last.Ended != EndedSteps || int64(steps) != last.Steps || measured != 3 {
		t.Fatalf("%v after %d of %d steps, %d measurements", last.Ended, steps, last.Steps, measured)
	}
	found, err := w.engine.FindCheckpoint(folder)
	w.check(err)
	if found != filepath.Join(folder, "checkpoint") {
		t.Fatalf("the newest checkpoint is %s", found)
	}
}

// A context that ends leaves a checkpoint, and the run that goes on has the bits of one that was never ended.
func TestFitGoesOn(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	path := rows(t)
	whole := newFitting(w, path)
	_, err := Fit(w.ctx, whole.session, whole.data, FitOptions{Settings: map[string]any{"steps": 20}})
	w.check(err)

	settings := map[string]any{"steps": 20, "folder": filepath.Join(t.TempDir(), "run"), "resume": "auto"}
	first := newFitting(w, path)
	ctx, cancel := context.WithCancel(w.ctx)
	_, err = Fit(ctx, first.session, first.data, FitOptions{Settings: settings, Progress: func(e JobEvent) bool {
		if e.Step == 7 {
			cancel()
		}
		return true
	}})
	if !errors.Is(err, Cancelled) || !errors.Is(err, context.Canceled) {
		t.Fatalf("a context that was cancelled gives %v", err)
	}
	second := newFitting(w, path)
	last, err := Fit(w.ctx, second.session, second.data, FitOptions{Settings: settings,
		Progress: func(e JobEvent) bool { return e.Step < 12 }})
	w.check(err)
	if last.Ended != EndedStopped || last.Step != 12 {
		t.Fatalf("%v at step %d", last.Ended, last.Step)
	}
	third := newFitting(w, path)
	last, err = Fit(w.ctx, third.session, third.data, FitOptions{Settings: settings})
	w.check(err)
	if last.Ended != EndedSteps || third.hash() != whole.hash() {
		t.Fatalf("%v, hash %x, not %x", last.Ended, third.hash(), whole.hash())
	}
}

// Model.Fit has the bits of a trainer, a plan and a session made by hand.
func TestFitOfAModel(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	path := rows(t)
	f := newFitting(w, path)
	trainer, err := w.engine.ParseTrainer(`{"optimizer": "adamw", "schedule": "linear", "schedule.total_steps": 12}`)
	w.check(err)
	defer trainer.Close()
	w.check(trainer.BindDataset(w.model, f.data))
	plan, err := w.model.Plan(w.ctx, trainer, nil, PlanOptions{Seed: 3})
	w.check(err)
	defer plan.Close()
	want, err := plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	defer want.Close()
	_, err = Fit(w.ctx, want, f.data, FitOptions{Settings: JobSettings{Steps: 12}})
	w.check(err)
	hash, err := want.Hash(w.ctx)
	w.check(err)

	for _, how := range []FitOptions{
		{Trainer: TrainerSettings{Optimizer: AdamW{}, Schedule: LinearSchedule{}}, Settings: JobSettings{Epochs: 1}},
		{Trainer: map[string]any{"optimizer": "adamw", "schedule": "linear"}, Settings: `{"steps": 12}`, Strategy: "{}"},
		{Trainer: trainer, Settings: map[string]int{"steps": 12}},
	} {
		other := newFitting(w, path)
		how.HeldOut, how.Plan = other.heldOut, PlanOptions{Seed: 3}
		session, last, err := w.model.Fit(w.ctx, other.data, how)
		w.check(err)
		if found, _ := session.Hash(w.ctx); last.Ended != EndedSteps || last.Step != 12 || found != hash {
			t.Errorf("%+v: %v after %d steps, hash %x, not %x", how, last.Ended, last.Step, found, hash)
		}
		session.Close()
	}

	other := newFitting(w, path)
	ctx, cancel := context.WithCancel(w.ctx)
	session, _, err := w.model.Fit(ctx, other.data, FitOptions{Settings: JobSettings{Steps: 50},
		Progress: func(e JobEvent) bool {
			if e.Step == 7 {
				cancel()
			}
			return true
		}})
	if !errors.Is(err, Cancelled) || session == nil || session.Steps() != 7 {
		t.Fatalf("a context that ends gives %v and %v", session, err)
	}
	defer session.Close()
	if _, err := Fit(w.ctx, session, other.data, FitOptions{Trainer: trainer}); !errors.Is(err, InvalidArgument) {
		t.Errorf("a trainer for a session gives %v", err)
	}
	wrong := FitOptions{Trainer: `{"optimiser": "adamw"}`, Settings: JobSettings{Steps: 1}}
	if session, _, err := w.model.Fit(w.ctx, other.data, wrong); session != nil || err == nil ||
		!strings.Contains(err.Error(), "did you mean optimizer") {
		t.Errorf("a wrong key gives %v", err)
	}
}

func TestALastSaveThatFailsLosesNothing(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	path, folder := rows(t), filepath.Join(t.TempDir(), "run")
	whole, f := newFitting(w, path), newFitting(w, path)
	_, err := Fit(w.ctx, whole.session, whole.data, FitOptions{Settings: map[string]any{"steps": 4}})
	w.check(err)
	full := func(e JobEvent) bool {
		if e.Step == 4 {
			checkpoints := filepath.Join(folder, "checkpoints")
			w.check(os.RemoveAll(checkpoints))
			w.check(os.WriteFile(checkpoints, nil, 0o600))
		}
		return true
	}
	settings := map[string]any{"steps": 4, "folder": folder}
	if _, err := Fit(w.ctx, f.session, f.data, FitOptions{Settings: settings, Progress: full}); err == nil {
		t.Fatal("a checkpoint was saved into a file")
	}
	if f.session.Steps() != 4 || f.hash() != whole.hash() {
		t.Fatalf("%d steps, hash %x, not %x", f.session.Steps(), f.hash(), whole.hash())
	}
	w.check(f.session.Save(w.ctx, filepath.Join(t.TempDir(), "elsewhere"), nil))
}

// Breaking out of the loop saves as well; a job says why it cannot be.
func TestJobEvents(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	f := newFitting(w, rows(t))
	folder := filepath.Join(t.TempDir(), "run")
	if _, err := w.engine.NewJob(map[string]any{"stps": 3}); err == nil || !strings.Contains(err.Error(), "steps") {
		t.Fatalf("an unknown setting gives %v", err)
	}
	job, err := w.engine.NewJob(map[string]any{"steps": 50, "folder": folder})
	w.check(err)
	defer job.Close()
	w.check(job.Set("keep", 1))
	w.check(job.TakeFolder())
	second, err := w.engine.NewJob(map[string]any{"steps": 50, "folder": folder})
	w.check(err)
	defer second.Close()
	if err := second.TakeFolder(); !errors.Is(err, Busy) {
		t.Fatalf("a second job in a folder gives %v", err)
	}
	w.check(job.Start(w.ctx, f.session, f.data, nil))
	for event, err := range job.Events(w.ctx) {
		w.check(err)
		if event.Step == 5 {
			break
		}
	}
	text, err := job.Describe()
	w.check(err)
	if !strings.Contains(text, `"ended": "stopped"`) {
		t.Fatal(text)
	}
	if _, err := os.Stat(filepath.Join(folder, "checkpoints", "step-00000005")); err != nil {
		t.Fatal(err)
	}
}

func TestInputsByName(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	infos, err := w.model.Inputs()
	w.check(err)
	x := infos[0].Name
	symbols, err := w.model.Symbols(x)
	w.check(err)
	if len(infos) != 1 || len(symbols) != 2 || symbols[0] != "batch" || symbols[1] != "" {
		t.Fatalf("the inputs are %+v, their symbols %q", infos, symbols)
	}
	other, err := w.plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	defer other.Close()
	one := w.step()
	two, err := other.StepNamed(w.ctx, Named{"target": w.inputs[1], x: w.inputs[0]})
	w.check(err)
	if one.Loss != two.Loss {
		t.Fatalf("by name the loss is %v, by position %v", two.Loss, one.Loss)
	}
	evaluated, err := other.EvaluateNamed(w.ctx, Named{"target": w.inputs[1], x: w.inputs[0]})
	w.check(err)
	if !(evaluated.Loss < two.Loss) {
		t.Fatalf("evaluated %v", evaluated.Loss)
	}
	outputs, err := other.PredictNamed(w.ctx, Named{x: w.inputs[0]})
	w.check(err)
	defer outputs.Close()
	if len(outputs) != 1 {
		t.Fatalf("%d outputs", len(outputs))
	}
	namesInEveryCall(w, other, Named{"target": w.inputs[1], x: w.inputs[0]}, Named{x: w.inputs[0]}, outputs)
	if _, err := other.StepNamed(w.ctx, Named{x: w.inputs[0]}); err == nil || !strings.Contains(err.Error(), "target") {
		t.Fatalf("without a target: %v", err)
	}
	if _, err := other.PredictNamed(w.ctx, Named{"y": w.inputs[0]}); !errors.Is(err, InvalidArgument) {
		t.Fatalf("an unknown input: %v", err)
	}
}

// namesInEveryCall compares what is given by name with the same tensors in their order.
func namesInEveryCall(w *world, s *Session, all, inputs, want Named) {
	w.Helper()
	ordered, err := w.plan.Ordered(Train, all)
	w.check(err)
	if !slices.Equal(ordered, w.inputs) {
		w.Error("the plan has another order")
	}
	if _, err := w.plan.Ordered(Predict, all); !errors.Is(err, InvalidArgument) {
		w.Errorf("a target to predict with gives %v", err)
	}
	predictor, err := s.Predictor(w.ctx, nil)
	w.check(err)
	defer predictor.Close()
	found, err := predictor.PredictNamed(w.ctx, inputs)
	w.check(err)
	defer found.Close()
	for name, one := range want {
		expected, _ := Values[float32](one)
		if values, err := Values[float32](found[name]); err != nil || !slices.Equal(values, expected) {
			w.Errorf("%s is %v, %v", name, values, err)
		}
	}
	if none, err := predictor.PredictNamed(w.ctx, all); err == nil || len(none) != 0 {
		w.Errorf("a target to predict with gives %v", none)
	}
	evaluation, err := w.plan.Evaluation("none")
	w.check(err)
	defer evaluation.Close()
	w.check(evaluation.AddNamed(w.ctx, s, all))
	evaluated, err := s.Evaluate(w.ctx, w.inputs...)
	w.check(err)
	if loss, err := evaluation.Result("loss"); err != nil || math.Abs(loss-evaluated.Loss) > 1e-6 {
		w.Errorf("evaluated %v, not %v: %v", loss, evaluated.Loss, err)
	}
	// Refused for want of keep_gradients, after the names were looked at.
	if _, err := s.GradientsNamed(w.ctx, all); err == nil || strings.Contains(err.Error(), "nothing is given") {
		w.Errorf("gradients by name: %v", err)
	}
	if _, err := s.GradientsNamed(w.ctx, inputs); err == nil || !strings.Contains(err.Error(), "nothing is given") {
		w.Errorf("gradients without a target: %v", err)
	}
	fields, err := w.plan.Inputs(Train)
	w.check(err)
	feed, err := w.engine.NewFeed(fields, 1)
	w.check(err)
	defer feed.Close()
	data, err := feed.Dataset()
	w.check(err)
	defer data.Close()
	w.check(feed.PushNamed(w.ctx, all))
	batch, err := data.Next(w.ctx)
	w.check(err)
	first, _ := Values[float32](batch[0])
	if values, err := Values[float32](w.inputs[0]); err != nil || !slices.Equal(values, first) {
		w.Errorf("pushed %v, %v", first, err)
	}
	if err := feed.PushNamed(w.ctx, inputs); !errors.Is(err, InvalidArgument) {
		w.Errorf("a batch without its target: %v", err)
	}
}

func TestSettings(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	trainer, err := w.engine.ParseTrainer(TrainerSettings{
		Optimizer:           AdamW{LR: To(0.05), Betas: []float64{0.8, 0.99}, WeightDecay: To(0.0)},
		Loss:                SoftmaxCrossEntropyLoss{IgnoreIndex: To(int64(-1)), LabelSmoothing: 0.1},
		Schedule:            StepSchedule{StepSize: 5},
		ScheduleWarmupSteps: 3,
		ClipNorm:            1,
		ReportGradientNorms: true,
		Symbols:             map[string]int64{"batch": 4},
	})
	w.check(err)
	defer trainer.Close()
	text, err := trainer.Describe()
	w.check(err)
	for _, want := range []string{`"optimizer": "adamw"`, `"optimizer.lr": 0.05`, `"optimizer.weight_decay": 0`, `"loss.ignore_index": -1`,
		`"schedule.step_size": 5`, `"schedule.warmup_steps": 3`, `"clip_norm": 1`, `"report.gradient_norms": true`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	plan, err := w.model.Plan(w.ctx, trainer, nil, PlanOptions{})
	w.check(err)
	defer plan.Close()
	job, err := w.engine.NewJob(JobSettings{Epochs: 2, Keep: To(int64(3)), Check: To(false)})
	w.check(err)
	defer job.Close()
	text, err = job.Describe()
	w.check(err)
	for _, want := range []string{`"epochs": 2.0`, `"keep": 3`, `"check": false`, `"monitor": "loss"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}

// Each field of settings, whatever its type, is in what the library reads.
func TestEverySettingIsTold(t *testing.T) {
	for _, settings := range []any{&TrainerSettings{}, &JobSettings{}} {
		value := reflect.ValueOf(settings).Elem()
		for i := range value.NumField() {
			fillField(t, value.Field(i), value.Type().Field(i).Name)
		}
		text, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		var told map[string]any
		if err := json.Unmarshal(text, &told); err != nil {
			t.Fatal(err)
		}
		if rows := 2; len(told) < value.NumField() || len(told) > value.NumField()+rows {
			t.Errorf("%d fields are told as %s", value.NumField(), text)
		}
		for i := range value.NumField() { // none hides another
			field := value.Field(i)
			kept := reflect.New(field.Type()).Elem()
			kept.Set(field)
			field.SetZero()
			if less, _ := json.Marshal(settings); len(less) >= len(text) {
				t.Errorf("%s is not told", value.Type().Field(i).Name)
			}
			field.Set(kept)
		}
	}
}

func fillField(t *testing.T, field reflect.Value, name string) {
	rows := map[string]any{"Loss": MSELoss{}, "Optimizer": SGD{}, "Schedule": StepSchedule{StepSize: 1}}
	switch row, isRow := rows[name]; {
	case isRow:
		field.Set(reflect.ValueOf(row))
	case field.Kind() == reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case field.Kind() == reflect.Bool:
		field.SetBool(true)
	case field.Kind() == reflect.Int64:
		field.SetInt(1)
	case field.Kind() == reflect.Float64:
		field.SetFloat(1)
	case field.Kind() == reflect.String:
		field.SetString("a")
	case field.Kind() == reflect.Map:
		field.Set(reflect.MakeMap(field.Type()))
	case field.Kind() == reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	case field.Kind() == reflect.Interface:
		field.Set(reflect.ValueOf(map[string]any{}))
	default:
		t.Fatalf("%s is of type %s", name, field.Type())
	}
}

// A host that panics in its loop has lost nothing.
func TestAPanicOfTheLoopSavesTheJob(t *testing.T) {
	w := newWorld(t, "4,16,2", 4, nil, 1)
	f, folder := newFitting(w, rows(t)), filepath.Join(t.TempDir(), "run")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = Fit(w.ctx, f.session, f.data, FitOptions{
			Settings: map[string]any{"steps": 9, "folder": folder},
			Progress: func(event JobEvent) bool {
				if event.Step == 3 {
					panic("a bug of the host")
				}
				return true
			},
		})
	}()
	if _, err := os.Stat(filepath.Join(folder, "checkpoints", "step-00000003")); err != nil {
		t.Error(err)
	}
}
