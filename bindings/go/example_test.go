package epl_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	epl "epl.ai/go"
)

// A model file goes in, a trained one comes out.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "epl")
	check(err)
	defer os.RemoveAll(folder)

	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()
	file := filepath.Join(folder, "model.onnx") // any ONNX file will do; this one is written here
	check(engine.WriteTemplate(ctx, "mlp", map[string]any{"sizes": []int{4, 16, 2}, "seed": 1}, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{
		"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": map[string]int{"batch": 4}})
	check(err)
	defer trainer.Close()
	plan, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{})
	check(err)
	defer plan.Close()
	session, err := plan.Session(ctx, epl.SessionOptions{})
	check(err)
	defer session.Close()

	x, err := epl.NewTensor(engine, []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, 4, 4)
	check(err)
	defer x.Close()
	target, err := epl.NewTensor(engine, []int64{0, 1, 0, 1}, 4)
	check(err)
	defer target.Close()
	var metrics epl.Metrics
	for range 50 {
		metrics, err = session.Step(ctx, x, target)
		check(err)
	}
	fmt.Println(metrics.Step, "steps, learnt:", metrics.Loss < 0.1)
	check(session.ExportONNX(ctx, filepath.Join(folder, "trained.onnx")))
	// Output: 50 steps, learnt: true
}

// Data to measure on, metrics, early stopping, checkpoints, and going on after an interruption.
func ExampleModel_Fit() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "epl")
	check(err)
	defer os.RemoveAll(folder)
	table, run := filepath.Join(folder, "table.csv"), filepath.Join(folder, "run")
	check(os.WriteFile(table, []byte("a,b,target\n"+strings.Repeat("1,2,0\n3,1,1\n", 20)), 0o666))
	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()
	file := filepath.Join(folder, "model.onnx")
	check(engine.WriteTemplate(ctx, "mlp", `{"sizes": [2, 8, 2]}`, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	data, err := engine.OpenDataset(ctx, table, map[string]any{"batch": 8, "split": "train", "order": "shuffled"})
	check(err)
	defer data.Close()
	heldOut, err := engine.OpenDataset(ctx, table, map[string]any{"batch": 8, "split": "held_out", "partial": true})
	check(err)
	defer heldOut.Close()
	session, last, err := model.Fit(ctx, data, epl.FitOptions{
		HeldOut:  heldOut,
		Trainer:  epl.TrainerSettings{Optimizer: epl.AdamW{LR: epl.To(0.05)}, Schedule: epl.CosineSchedule{}},
		Settings: epl.JobSettings{Epochs: 10, Folder: run, Resume: "auto", Patience: 3, Metrics: "accuracy"},
		Progress: func(e epl.JobEvent) bool { log.Println(e.Step, e.Loss, e.Metrics); return true }, // false ends it
	})
	check(err)
	defer session.Close()
	fmt.Println("ended by", last.Ended, "after", last.Step, "steps")
	// Output:
	// ended by steps after 40 steps
}

// An epoch of 10 samples in batches of 4 ends with one of 2.
func ExampleEntry_Shape() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "epl")
	check(err)
	defer os.RemoveAll(folder)
	table := filepath.Join(folder, "table.csv")
	check(os.WriteFile(table, []byte("a,b,target\n"+strings.Repeat("1,2,0\n3,1,1\n", 5)), 0o666))
	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()
	file := filepath.Join(folder, "model.onnx")
	check(engine.WriteTemplate(ctx, "mlp", `{"sizes": [2, 16, 2]}`, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()

	trainer, err := engine.ParseTrainer(map[string]any{"symbols": map[string]int{"batch": 4}})
	check(err)
	defer trainer.Close()
	check(trainer.AddShape(map[string]any{"symbols": map[string]int{"batch": 2}}))
	plan, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{})
	check(err)
	defer plan.Close()
	for shape := range 2 {
		inputs, err := plan.Inputs(epl.Train.Shape(shape))
		check(err)
		fmt.Println("shape", shape, "has", inputs[0].Dims)
	}
	session, err := plan.Session(ctx, epl.SessionOptions{})
	check(err)
	defer session.Close()
	data, err := engine.OpenDataset(ctx, table, map[string]any{"batch": 4, "partial": true})
	check(err)
	defer data.Close()
	check(data.Bind(plan, epl.Train)) // names and types, which all shapes share
	for metrics, err := range session.Train(ctx, data, 3) {
		check(err)
		fmt.Println("step", metrics.Step)
	}
	// Output:
	// shape 0 has [4 2]
	// shape 1 has [2 2]
	// step 1
	// step 2
	// step 3
}

// Samples come out of a program's own memory, a database say.
func ExampleEngine_NewDataset() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "epl")
	check(err)
	defer os.RemoveAll(folder)
	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()
	file := filepath.Join(folder, "model.onnx")
	check(engine.WriteTemplate(ctx, "mlp", `{"sizes": [2, 16, 2]}`, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{"symbols": map[string]int{"batch": 4}})
	check(err)
	defer trainer.Close()
	plan, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{})
	check(err)
	defer plan.Close()
	session, err := plan.Session(ctx, epl.SessionOptions{})
	check(err)
	defer session.Close()

	fields := []epl.Info{{Name: "x", DType: epl.F32, Dims: []int64{2}}, {Name: "target", DType: epl.I64}}
	rows := epl.SampleFunc(func(field int, samples []int64, target []byte) error {
		for i, sample := range samples { // field by field, one sample behind the other
			if field == 0 {
				copy(epl.Elements[float32](target)[2*i:], []float32{float32(sample % 3), 1})
			} else {
				epl.Elements[int64](target)[i] = sample % 2
			}
		}
		return nil
	})
	data, err := engine.NewDataset(fields, 12, rows, `{"batch": 4, "order": "shuffled", "prefetch": 2}`)
	check(err)
	defer data.Close()
	check(data.Bind(plan, epl.Train))
	for batch, err := range data.Epoch(ctx) {
		check(err)
		metrics, err := session.Step(ctx, batch...)
		check(err)
		fmt.Println("step", metrics.Step)
	}
	// Output:
	// step 1
	// step 2
	// step 3
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
