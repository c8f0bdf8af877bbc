package epl_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
