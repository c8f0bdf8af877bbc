// A training in several processes, started by `epl launch -n 2 -- ./processes`. Each gets the whole batch, and works on
// its part.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	epl "epl.ai/go"
)

func main() {
	ctx := context.Background()
	rank, ranks := number("EPL_RANK", 0), number("EPL_WORLD_SIZE", 1)
	engine, err := epl.NewEngine(epl.EngineOptions{Threads: 1})
	check(err)
	defer engine.Close()
	file := fmt.Sprintf("model-%d.onnx", rank)
	check(engine.WriteTemplate(ctx, "mlp", map[string]any{"sizes": []int{4, 16, 2}, "seed": 1}, file))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{
		"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": map[string]int{"batch": 8}})
	check(err)
	defer trainer.Close()

	plan, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{Ranks: ranks, LocalRanks: 1})
	check(err)
	defer plan.Close()
	place := epl.SessionOptions{FirstRank: rank, Ranks: 1}
	if ranks > 1 { // as epl launch says it; another launcher has other means
		secret := make([]byte, 256)
		n, _ := os.NewFile(uintptr(number("EPL_SECRET_FD", 0)), "secret").ReadAt(secret, 0)
		place.Rendezvous, place.Secret = os.Getenv("EPL_RENDEZVOUS"), string(secret[:n])
	}
	session, err := plan.Session(ctx, place)
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

// What a variable says, or the number for a program that was started alone.
func number(name string, alone int) int {
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return alone
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
