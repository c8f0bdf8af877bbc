package epl

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Trainer says what is learnt and how: loss, optimizer, schedule, what is frozen, what sizes are bound.
type Trainer struct{ child }

// NewTrainer makes a trainer with all defaults: cross-entropy and plain gradient descent.
func (e *Engine) NewTrainer() (*Trainer, error) { return e.trainer(raw.TrainerCreate) }

// ParseTrainer makes a trainer from the JSON that [Trainer.Describe] gives, as a string or as anything that
// encoding/json makes one of.
func (e *Engine) ParseTrainer(options any) (*Trainer, error) {
	text, err := document(options)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return e.NewTrainer()
	}
	return e.trainer(func(engine *raw.Engine) (*raw.Trainer, *raw.Error) { return raw.TrainerParse(engine, text) })
}

func (e *Engine) trainer(make func(*raw.Engine) (*raw.Trainer, *raw.Error)) (*Trainer, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := make(engine)
	if failure != nil {
		return nil, taken(failure)
	}
	t := &Trainer{}
	t.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.TrainerDestroy((*raw.Trainer)(p)) })
	return watch(t, &t.handle), nil
}

func (t *Trainer) do(f func(*raw.Trainer) *raw.Error) error {
	at := t.enter()
	if at == nil {
		return ErrClosed
	}
	defer t.leave()
	return taken(f((*raw.Trainer)(at)))
}

// textOf writes a value as options are written: 0.1, true, adamw, "0.9,0.999" of []float64{0.9, 0.999}.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case []float64:
		texts := make([]string, len(v))
		for i, one := range v {
			texts[i] = textOf(one)
		}
		return strings.Join(texts, ",")
	}
	return fmt.Sprint(value)
}

// Set sets a key: "loss", "optimizer", "optimizer.lr", "schedule", "clip_norm" and others, all of which docs/training.md
// lists.
func (t *Trainer) Set(key string, value any) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error {
		return raw.TrainerSet(trainer, key, textOf(value))
	})
}

// Unset gives a key its default again.
func (t *Trainer) Unset(key string) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerUnset(trainer, key) })
}

// Describe gives all that was set, as the JSON that [Engine.ParseTrainer] reads.
func (t *Trainer) Describe() (string, error) {
	at := t.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer t.leave()
	return given(raw.TrainerDescribe((*raw.Trainer)(at)))
}

// Bind gives a symbolic dimension of the model its size, "batch" for example.
func (t *Trainer) Bind(symbol string, size int64) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerBindSymbol(trainer, symbol, size) })
}

// BindInput gives an input its shape; of the name "target" that of the loss's target, with its type. A dtype of 0 is
// the model's own.
func (t *Trainer) BindInput(input string, dtype DType, dims ...int64) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error {
		return raw.TrainerBindInput(trainer, input, int32(dtype), dims)
	})
}

// BindBatchDim says which dimension of an input, or of the "target", counts samples; -1 for none.
func (t *Trainer) BindBatchDim(input string, dim int) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerBindBatchDim(trainer, input, int32(dim)) })
}

// BindValue makes an input a constant, which no call takes any more.
func (t *Trainer) BindValue(input string, value *Tensor) error {
	tensor, done, err := value.use()
	if err != nil {
		return err
	}
	defer done()
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerBindValue(trainer, input, tensor) })
}

// AddShape names one more shape that batches may have, as JSON or as anything that encoding/json makes JSON of:
// {"symbols": {"length": 64}} for a bucket of shorter texts, {"symbols": {"batch": 3}} for what an epoch leaves over.
// [Entry.Shape] asks a plan about it; steps, evaluations and predictions find it by what they are given.
func (t *Trainer) AddShape(shape any) error {
	text, err := document(shape)
	if err != nil {
		return err
	}
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerAddShape(trainer, text) })
}

// TrainOnly trains the parameters whose names match the globs, and freezes all others.
func (t *Trainer) TrainOnly(patterns ...string) error {
	for _, pattern := range patterns {
		err := t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerTrainOnly(trainer, pattern) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Group gives the parameters that match one of the globs options of their own: {"lr": 0.1}, {"frozen": true}. The
// first group that matches a parameter has it.
func (t *Trainer) Group(patterns []string, options map[string]any) error {
	return t.do(func(trainer *raw.Trainer) *raw.Error {
		var group int64
		for i, pattern := range patterns {
			var failure *raw.Error
			if i == 0 {
				group, failure = raw.TrainerAddGroup(trainer, pattern)
			} else {
				failure = raw.TrainerGroupAdd(trainer, group, pattern)
			}
			if failure != nil {
				return failure
			}
		}
		for key, value := range options {
			if failure := raw.TrainerGroupSet(trainer, group, key, textOf(value)); failure != nil {
				return failure
			}
		}
		return nil
	})
}

// Adapter describes low-rank adapters; zeros are defaults (rank 8, alpha 16, no dropout).
type Adapter struct {
	Rank    int64
	Alpha   float64
	Dropout float64
}

// AddAdapter puts low-rank adapters beside every product and convolution whose module or weight matches the glob.
func (t *Trainer) AddAdapter(pattern string, adapter Adapter) error {
	o := raw.NewAdapterOptions()
	o.Rank, o.Alpha, o.Dropout = adapter.Rank, adapter.Alpha, adapter.Dropout
	return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerAddAdapter(trainer, pattern, &o) })
}
