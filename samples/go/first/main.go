// The shortest useful program in Go: an ONNX file goes in, a trained one comes out.
package main

import (
	"context"
	"fmt"
	"log"

	epl "epl.ai/go"
)

func main() {
	ctx := context.Background()
	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()
	settings := map[string]any{"sizes": []int{4, 16, 2}, "seed": 1}
	check(engine.WriteTemplate(ctx, "mlp", settings, "first.onnx")) // or any model of yours
	model, err := engine.LoadModel(ctx, "first.onnx", epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{ // cross-entropy is the default loss
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
	for range 50 {
		metrics, err := session.Step(ctx, x, target) // in the order of plan.Inputs(epl.Train)
		check(err)
		fmt.Printf("step %d  loss %.4f\n", metrics.Step, metrics.Loss)
	}
	check(session.ExportONNX(ctx, "trained.onnx"))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
