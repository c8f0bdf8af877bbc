package epl

import (
	"context"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Evaluation collects loss and metrics over any number of batches, exactly: the numbers are those of all samples
// together.
type Evaluation struct{ child }

// Evaluation makes one. metrics names them, "accuracy, top_k(k=5)"; empty: those of the loss; "none": the loss alone.
func (p *Plan) Evaluation(metrics string) (*Evaluation, error) {
	plan, done, err := p.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.EvaluationCreate(plan, metrics)
	if failure != nil {
		return nil, taken(failure)
	}
	v := &Evaluation{}
	v.adopt(p.owner, unsafe.Pointer(made), func(at unsafe.Pointer) { raw.EvaluationDestroy((*raw.Evaluation)(at)) })
	return watch(v, &v.handle), nil
}

// Add makes one forward pass over a batch, or over fewer samples.
func (v *Evaluation) Add(ctx context.Context, s *Session, inputs ...*Tensor) error {
	at := v.enter()
	if at == nil {
		return ErrClosed
	}
	defer v.leave()
	return s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.EvaluationAdd((*raw.Evaluation)(at), session, all, call)
	})
}

// AddDataset takes the next batches of a dataset that is bound to Evaluate or Train; 0: an epoch from its start.
func (v *Evaluation) AddDataset(ctx context.Context, s *Session, data *Dataset, batches int64) error {
	at := v.enter()
	if at == nil {
		return ErrClosed
	}
	defer v.leave()
	return withData(data, func(dataset *raw.Dataset) error {
		return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
			return raw.EvaluationAddDataset((*raw.Evaluation)(at), session, dataset, batches, call)
		})
	})
}

// Merge adds what other, of an equal plan with the same metrics, has seen: of another part of the data, say.
func (v *Evaluation) Merge(other *Evaluation) error {
	at, from := v.enter(), other.enter()
	if at != nil {
		defer v.leave()
	}
	if from != nil {
		defer other.leave()
	}
	if at == nil || from == nil {
		return ErrClosed
	}
	return taken(raw.EvaluationMerge((*raw.Evaluation)(at), (*raw.Evaluation)(from)))
}

// Reset forgets all samples.
func (v *Evaluation) Reset() error {
	at := v.enter()
	if at == nil {
		return ErrClosed
	}
	defer v.leave()
	return taken(raw.EvaluationReset((*raw.Evaluation)(at)))
}

// Samples is the number of samples seen.
func (v *Evaluation) Samples() int64 {
	at := v.enter()
	if at == nil {
		return 0
	}
	defer v.leave()
	return raw.EvaluationSamples((*raw.Evaluation)(at))
}

// Result is "loss", or a metric by its name; NaN where nothing counted.
func (v *Evaluation) Result(name string) (float64, error) {
	at := v.enter()
	if at == nil {
		return 0, ErrClosed
	}
	defer v.leave()
	value, failure := raw.EvaluationResult((*raw.Evaluation)(at), name)
	return value, taken(failure)
}

// Describe gives all results as JSON.
func (v *Evaluation) Describe() (string, error) {
	at := v.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer v.leave()
	return given(raw.EvaluationDescribe((*raw.Evaluation)(at)))
}
