package epl_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	epl "epl.ai/go"
)

// What follows the first training, each a few lines. docs/go.md explains them.
func Example_secondDay() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "epl")
	check(err)
	defer os.RemoveAll(folder)
	engine, err := epl.NewEngine(epl.EngineOptions{})
	check(err)
	defer engine.Close()

	// --- A table, and a model for it
	file, table := filepath.Join(folder, "model.onnx"), filepath.Join(folder, "table.csv")
	check(engine.WriteTemplate(ctx, "mlp", `{"sizes": [2, 16, 2], "seed": 1}`, file))
	check(os.WriteFile(table, []byte("a,b,target\n"+strings.Repeat("1,2,0\n3,1,1\n", 20)), 0o666))
	model, err := engine.LoadModel(ctx, file, epl.ModelOptions{})
	check(err)
	defer model.Close()
	trainer, err := engine.ParseTrainer(map[string]any{"optimizer": "adamw", "optimizer.lr": 0.05})
	check(err)
	defer trainer.Close()
	data, err := engine.OpenDataset(ctx, table, map[string]any{"batch": 8, "order": "shuffled", "split": "train"})
	check(err)
	defer data.Close()
	check(trainer.BindDataset(model, data))
	plan, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{})
	check(err)
	defer plan.Close()

	// --- Train, validate, keep the best
	session, err := plan.Session(ctx, epl.SessionOptions{})
	check(err)
	defer session.Close()
	heldOut, err := engine.OpenDataset(ctx, table, map[string]any{"batch": 8, "split": "held_out"})
	check(err)
	defer heldOut.Close()
	evaluation, err := plan.Evaluation("accuracy")
	check(err)
	defer evaluation.Close()
	check(data.Bind(plan, epl.Train))
	check(heldOut.Bind(plan, epl.Evaluate))
	saved, best := filepath.Join(folder, "best"), -1.0
	for range 10 {
		for batch, err := range data.Epoch(ctx) {
			check(err)
			_, err = session.Step(ctx, batch...)
			check(err)
		}
		check(evaluation.Reset())
		check(evaluation.AddDataset(ctx, session, heldOut, 0))
		accuracy, err := evaluation.Result("accuracy")
		check(err)
		if accuracy > best {
			best = accuracy
			check(session.Save(ctx, saved, data)) // with the position in the data
		}
	}
	fmt.Printf("held out: %.0f %% right\n", 100*best)

	// --- Go on later, to the bit
	later, err := plan.Session(ctx, epl.SessionOptions{})
	check(err)
	defer later.Close()
	check(later.Load(ctx, saved, data))
	fmt.Println("goes on after a step:", later.Steps() > 0)

	// --- Predict, and read the numbers
	x, err := epl.NewTensor(engine, []float32{1, 2, 3, 1}, 2, 2) // two samples; a batch may have fewer than the plan's
	check(err)
	defer x.Close()
	outputs, err := session.Predict(ctx, x)
	check(err)
	defer outputs[0].Close()
	scores, err := epl.Values[float32](outputs[0]) // one row behind the other
	check(err)
	fmt.Println(outputs[0].Dims(), scores[0] > scores[1], scores[2] < scores[3])
	weight, err := session.Get(ctx, "net.0.weight")
	check(err)
	defer weight.Close()
	fmt.Println(weight.Dims())

	// --- Predict while it trains
	predictor, err := session.Predictor(ctx, nil) // has the weights of one step until it is refreshed
	check(err)
	defer predictor.Close()
	done := make(chan error)
	go func() {
		for _, err := range session.Train(ctx, data, session.Steps()+5) {
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	before, err := predictor.Predict(ctx, x) // beside the steps
	check(err)
	defer before[0].Close()
	check(<-done)
	check(predictor.Refresh(ctx))
	fmt.Println("refreshed:", predictor.Steps() == session.Steps())

	// --- Into memory, a socket, an object store
	var kept bytes.Buffer
	check(session.SaveTo(ctx, &kept, data))
	check(later.LoadFrom(ctx, bytes.NewReader(kept.Bytes()), int64(kept.Len()), data))

	// --- Adapters beside frozen weights
	check(trainer.AddAdapter("*", epl.Adapter{Rank: 2}))
	adapted, err := model.Plan(ctx, trainer, nil, epl.PlanOptions{})
	check(err)
	defer adapted.Close()
	tuned, err := adapted.Session(ctx, epl.SessionOptions{})
	check(err)
	defer tuned.Close()
	check(data.Bind(adapted, epl.Train))
	for _, err := range tuned.Train(ctx, data, 3) {
		check(err)
	}
	check(tuned.ExportAdapters(ctx, filepath.Join(folder, "adapters")))
	check(tuned.ExportONNX(ctx, filepath.Join(folder, "tuned.onnx"))) // the adapters are in its weights
	// Output:
	// held out: 100 % right
	// goes on after a step: true
	// [2 2] true true
	// [16 2]
	// refreshed: true
}
