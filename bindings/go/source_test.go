package epl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// withoutSeeking is a file system whose files can only be read from front to back.
type withoutSeeking struct{ fs.FS }

func (s withoutSeeking) Open(name string) (fs.File, error) {
	file, err := s.FS.Open(name)
	return struct{ fs.File }{file}, err
}

// damaged has a file that ends before its length.
type damaged struct{ fs.FS }
type shortFile struct{ fs.File }

func (shortFile) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
func (s damaged) Open(name string) (fs.File, error) {
	file, err := s.FS.Open(name)
	return shortFile{file}, err
}

func TestModelsOfAFileSystem(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	path := filepath.Join(t.TempDir(), "m.onnx")
	w.check(w.engine.WriteTemplate(w.ctx, "mlp", `{"sizes":[4,16,2],"seed":1}`, path))
	content, err := os.ReadFile(path)
	w.check(err)
	files := fstest.MapFS{"models/m.onnx": &fstest.MapFile{Data: content}}
	model, err := w.engine.LoadModelFS(w.ctx, files, "models/m.onnx", ModelOptions{})
	w.check(err)
	defer model.Close()
	trainer, err := w.engine.NewTrainer()
	w.check(err)
	defer trainer.Close()
	w.check(trainer.Bind("batch", 8))
	plan, err := model.Plan(w.ctx, trainer, nil, PlanOptions{})
	w.check(err)
	defer plan.Close()
	session, err := plan.Session(w.ctx, SessionOptions{})
	w.check(err)
	defer session.Close()
	want, err := w.session.Hash(w.ctx)
	w.check(err)
	if hash, err := session.Hash(w.ctx); err != nil || hash != want {
		t.Error(hash, want, err)
	}
	if _, err := w.engine.LoadModelFS(w.ctx, files, "models/other.onnx", ModelOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	_, err = w.engine.LoadModelFS(w.ctx, withoutSeeking{files}, "models/m.onnx", ModelOptions{})
	if err == nil || !strings.Contains(err.Error(), "io.ReaderAt") {
		t.Error(err)
	}
	_, err = w.engine.LoadModelFS(w.ctx, damaged{files}, "models/m.onnx", ModelOptions{})
	if !errors.Is(err, IO) || !strings.Contains(err.Error(), "models/m.onnx") ||
		!strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Error(err)
	}
}

// modelWithWeightsBeside is x [8, 4] times w [4, 2], whose values are in weights.bin.
func modelWithWeightsBeside() []byte {
	product := onnx(nil).text(1, "x").text(1, "w").text(2, "scores").text(4, "MatMul")
	at := onnx(nil).text(1, "location").text(2, "weights.bin")
	w := onnx(nil).number(1, 4).number(1, 2).number(2, 1).text(8, "w").text(13, string(at)).number(14, 1)
	graph := onnx(nil).text(1, string(product)).text(5, string(w)).text(11, port("x", 8, 4)).
		text(12, port("scores", 8, 2)).text(2, "graph")
	return onnx(nil).number(1, 8).text(7, string(graph)).text(8, string(onnx(nil).text(1, "").number(2, 17)))
}

func TestWhatLiesBesideAModelIsOpenedThere(t *testing.T) {
	w := newWorld(t, "4,2", 8, nil, 0)
	for _, folder := range []string{"", "deep/folder/"} {
		files := fstest.MapFS{folder + "model.onnx": &fstest.MapFile{Data: modelWithWeightsBeside()},
			folder + "weights.bin": &fstest.MapFile{Data: make([]byte, 32)}}
		model, err := w.engine.LoadModelFS(w.ctx, files, folder+"model.onnx", ModelOptions{})
		w.check(err)
		w.check(model.Close())
		delete(files, folder+"weights.bin")
		_, err = w.engine.LoadModelFS(w.ctx, files, folder+"model.onnx", ModelOptions{})
		if !errors.Is(err, IO) || !strings.Contains(err.Error(), "weights.bin") {
			t.Error(err)
		}
	}
}

// A training that was cancelled at any moment, saved and resumed ends with the weights of one that was not.
func TestACancelledTrainingLosesNoBatch(t *testing.T) {
	w := newWorld(t, "2,64,64,2", 8, nil, 0)
	var table strings.Builder
	table.WriteString("a,b,target\n")
	for i := range 64 {
		fmt.Fprintf(&table, "%d,%d,%d\n", (i*37)%11, (i*53)%13, i%2)
	}
	path := filepath.Join(t.TempDir(), "table.csv")
	w.check(os.WriteFile(path, []byte(table.String()), 0o666))
	const until = 400
	train := func(interrupt bool) uint64 {
		session, err := w.plan.Session(w.ctx, SessionOptions{})
		w.check(err)
		defer session.Close()
		data, err := w.engine.OpenDataset(w.ctx, path, map[string]any{"batch": 8, "order": "shuffled", "prefetch": 2})
		w.check(err)
		defer data.Close()
		w.check(data.Bind(w.plan, Train))
		for session.Steps() < until {
			ctx, cancel := context.WithCancel(w.ctx)
			asked := session.Steps() + 5
			for m, err := range session.Train(ctx, data, until) {
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if interrupt && m.Step == asked {
					go cancel() // it is met in a step, or between two of them
				}
			}
			cancel()
			if data.Position() != session.Steps() {
				t.Fatal(data.Position(), session.Steps())
			}
		}
		hash, err := session.Hash(w.ctx)
		w.check(err)
		return hash
	}
	if whole, parts := train(false), train(true); whole != parts {
		t.Error(whole, parts)
	}
}

func TestEvaluationsMerge(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	var all [3]*Evaluation
	for i := range all {
		v, err := w.plan.Evaluation("accuracy")
		w.check(err)
		defer v.Close()
		all[i] = v
	}
	w.check(all[0].Add(w.ctx, w.session, w.inputs...))
	w.check(all[1].Add(w.ctx, w.session, w.inputs...))
	w.check(all[0].Merge(all[1]))
	for range 2 {
		w.check(all[2].Add(w.ctx, w.session, w.inputs...))
	}
	for _, name := range []string{"loss", "accuracy"} {
		merged, err := all[0].Result(name)
		w.check(err)
		if whole, err := all[2].Result(name); err != nil || merged != whole || all[0].Samples() != 16 {
			t.Error(name, merged, whole, err)
		}
	}
	if err := all[0].Merge(all[0]); !errors.Is(err, InvalidArgument) && !errors.Is(err, Busy) {
		t.Error(err)
	}
}

func TestPlansAreCompared(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	trainer, err := w.engine.NewTrainer()
	w.check(err)
	defer trainer.Close()
	w.check(trainer.Bind("batch", 8))
	other, err := w.model.Plan(w.ctx, trainer, nil, PlanOptions{Ranks: 2})
	w.check(err)
	defer other.Close()
	one, two := filepath.Join(t.TempDir(), "one.plan"), filepath.Join(t.TempDir(), "two.plan")
	w.check(w.plan.Save(w.ctx, one))
	w.check(other.Save(w.ctx, two))
	if text, err := w.engine.ComparePlans(w.ctx, one, one); err != nil || text != "" {
		t.Error(text, err)
	}
	if text, err := w.engine.ComparePlans(w.ctx, one, two); err != nil || !strings.Contains(text, "ranks") {
		t.Error(text, err)
	}
}

func TestGivingUpInOneProcessDoesNothing(t *testing.T) {
	w := newWorld(t, "4,16,2", 8, nil, 0)
	w.check(w.session.GiveUp(w.ctx, "a sample cannot be read"))
	w.step()
}
