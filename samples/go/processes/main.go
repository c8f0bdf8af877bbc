// A training in several processes, started by `epl launch -n 2 -- ./processes`. Each gets the full batch, and works on
// its part.
package main

import (
	"context"
	"fmt"
	"log"

	epl "epl.ai/go"
)

func main() {
	ctx := context.Background()
	launch, err := epl.FromLaunch() // what epl launch says; another launcher has other means
	check(err)
	engine, err := epl.NewEngine(epl.EngineOptions{Threads: 1})
	check(err)
	defer engine.Close()
	file := fmt.Sprintf("model-%d.onnx", launch.Rank)
	check(engine.WriteTemplate(ctx, "mlp", map[string]any{"sizes": []int{4, 16, 2}, "seed": 1}, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{
		"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": map[string]int{"batch": 8}})
	check(err)
	defer trainer.Close()

	plan, err := model.Plan(ctx, trainer, nil, launch.PlanOptions())
	check(err)
	defer plan.Close()
	session, err := plan.Session(ctx, launch.SessionOptions())
	check(err)
	defer session.Close()

	values, classes := make([]float32, 32), make([]int64, 8)
	for i := range classes {
		for j := range 4 {
			values[4*i+j] = float32((i*7+j*j*3)%5) - 2
		}
		if values[4*i] < values[4*i+3] {
			classes[i] = 1
		}
	}
	x, err := epl.NewTensor(engine, values, 8, 4)
	check(err)
	defer x.Close()
	target, err := epl.NewTensor(engine, classes, 8)
	check(err)
	defer target.Close()
	var metrics epl.Metrics
	for range 50 {
		metrics, err = session.Step(ctx, x, target)
		check(err)
	}
	hash, err := session.Hash(ctx)
	check(err)
	fmt.Printf("loss %.4f  weights %016x\n", metrics.Loss, hash)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
