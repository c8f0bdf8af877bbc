package epl

import (
	"context"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Progress is what the last step told. Any goroutine may ask, also while the next one runs. Before the first step all is
// zero.
func (s *Session) Progress() Metrics {
	at := s.enter()
	if at == nil {
		return Metrics{}
	}
	defer s.leave()
	m := raw.NewMetrics()
	raw.SessionProgress((*raw.Session)(at), &m)
	return metricsOf(&m)
}

// Predictor predicts beside the steps of a session, from another goroutine, with a copy of the weights of one step. It
// outlives its session. It has one caller at a time; a session may have several predictors.
type Predictor struct {
	child
	names  names
	tokens tokens
}

// Predictor makes one with the weights of the last step. shapes is another plan of the same model and trainer, for
// batches of another size; nil: the session's own. It waits for a step's update at most.
func (s *Session) Predictor(ctx context.Context, shapes *Plan) (*Predictor, error) {
	at := s.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer s.leave()
	named := s.names[Predict]
	var plan *raw.Plan
	if shapes != nil {
		other, done, err := shapes.use()
		if err != nil {
			return nil, err
		}
		defer done()
		plan = other
		all, err := shapes.names()
		if err != nil {
			return nil, err
		}
		named = all[Predict]
	}
	var made *raw.Predictor
	err := within(ctx, s.engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = raw.PredictorCreate((*raw.Session)(at), plan, call)
		return
	})
	if err != nil {
		return nil, err
	}
	p := &Predictor{names: named}
	p.adopt(s.owner, unsafe.Pointer(made), func(at unsafe.Pointer) { raw.PredictorDestroy((*raw.Predictor)(at)) })
	return watch(p, &p.handle), nil
}

// Close gives the predictor back.
func (p *Predictor) Close() error {
	if p.state.Load() >= 0 {
		p.tokens.close()
	}
	return p.handle.Close()
}

// Refresh takes the weights of the session's last step, all at once. The session must not be closed.
func (p *Predictor) Refresh(ctx context.Context) error {
	at := p.enter()
	if at == nil {
		return ErrClosed
	}
	defer p.leave()
	return p.tokens.within(ctx, p.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.PredictorRefresh((*raw.Predictor)(at), call)
	})
}

// Steps is the number of steps that the session had done when these were its weights.
func (p *Predictor) Steps() int64 {
	at := p.enter()
	if at == nil {
		return 0
	}
	defer p.leave()
	return raw.PredictorSteps((*raw.Predictor)(at))
}

// MemoryBytes is what the predictor has allocated for weights and work.
func (p *Predictor) MemoryBytes() int64 {
	at := p.enter()
	if at == nil {
		return 0
	}
	defer p.leave()
	return raw.PredictorMemoryBytes((*raw.Predictor)(at))
}

// Predict gives the outputs of the model, new tensors in the order of Plan.Outputs(Predict).
func (p *Predictor) Predict(ctx context.Context, inputs ...*Tensor) ([]*Tensor, error) {
	at := p.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer p.leave()
	var b batch
	if err := b.take(inputs); err != nil {
		return nil, err
	}
	defer b.free()
	made := make([]*raw.Tensor, len(p.names.outputs))
	err := p.tokens.within(ctx, p.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.PredictorPredict((*raw.Predictor)(at), b.all, call, made)
	})
	if err != nil {
		return nil, err
	}
	return newTensors(made), nil
}

// PredictInto is [Session.PredictInto] with the predictor's weights.
func (p *Predictor) PredictInto(ctx context.Context, inputs, outputs []*Tensor) error {
	at := p.enter()
	if at == nil {
		return ErrClosed
	}
	defer p.leave()
	var in, into batch
	if err := in.take(inputs); err != nil {
		return err
	}
	defer in.free()
	if err := into.take(outputs); err != nil {
		return err
	}
	defer into.free()
	return p.tokens.within(ctx, p.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.PredictorPredictInto((*raw.Predictor)(at), in.all, call, into.all)
	})
}
