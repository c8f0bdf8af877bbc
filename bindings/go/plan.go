package epl

import (
	"context"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Strategy says how the work of a step is spread over ranks.
type Strategy struct{ child }

// ParseStrategy makes a strategy of its JSON form (docs/strategy.md), as a string or as anything that encoding/json
// makes one of; nil for defaults.
func (e *Engine) ParseStrategy(options any) (*Strategy, error) {
	text, err := document(options)
	if err != nil {
		return nil, err
	}
	if text == "" {
		text = "{}"
	}
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.StrategyParse(engine, text)
	if failure != nil {
		return nil, taken(failure)
	}
	return newStrategy(e, made), nil
}

// NewStrategy makes a strategy with all defaults and without scopes.
func (e *Engine) NewStrategy() (*Strategy, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.StrategyCreate(engine)
	if failure != nil {
		return nil, taken(failure)
	}
	return newStrategy(e, made), nil
}

// ScopeKind says what the devices of a [Scope] do with its nodes.
type ScopeKind int32

const (
	Replicate ScopeKind = raw.EPL_SCOPE_REPLICATE // a copy of these nodes takes the devices, which share its batch
	Split     ScopeKind = raw.EPL_SCOPE_SPLIT     // their weights are cut over the devices
	Experts   ScopeKind = raw.EPL_SCOPE_EXPERT    // their experts are
)

// Scope is a scope of a strategy.
type Scope struct {
	strategy *Strategy
	number   int64
}

// AddScope adds a scope behind those that are there: siblings are stages of a pipeline, in the order of the calls.
// Without a match it has every node. name may be empty.
func (s *Strategy) AddScope(kind ScopeKind, devices int, name string) (*Scope, error) {
	return s.addScope(raw.EPL_SCOPE_TOP, kind, devices, name)
}

// SetDefault makes the scope of every node that no other one matches.
func (s *Strategy) SetDefault(kind ScopeKind, devices int) (*Scope, error) {
	return s.addScope(raw.EPL_SCOPE_DEFAULT, kind, devices, "")
}

func (s *Strategy) addScope(outer int64, kind ScopeKind, devices int, name string) (*Scope, error) {
	at := s.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer s.leave()
	number, failure := raw.StrategyAddScope((*raw.Strategy)(at), outer, int32(kind), int64(devices), name)
	if failure != nil {
		return nil, taken(failure)
	}
	return &Scope{s, number}, nil
}

// AddScope adds a scope within this one.
func (c *Scope) AddScope(kind ScopeKind, devices int, name string) (*Scope, error) {
	return c.strategy.addScope(c.number, kind, devices, name)
}

// Match gives the scope the nodes of these globs: over names of nodes, "node:NAME", "op:MatMul" or "param:embed*".
func (c *Scope) Match(patterns ...string) error {
	at := c.strategy.enter()
	if at == nil {
		return ErrClosed
	}
	defer c.strategy.leave()
	for _, pattern := range patterns {
		if failure := raw.StrategyAddMatch((*raw.Strategy)(at), c.number, pattern); failure != nil {
			return taken(failure)
		}
	}
	return nil
}

// PinDim says in which dimension a weight, or the result of a node, is cut over the scope's devices: from 0, or from -1
// back from the end.
func (c *Scope) PinDim(value string, dim int) error {
	at := c.strategy.enter()
	if at == nil {
		return ErrClosed
	}
	defer c.strategy.leave()
	return taken(raw.StrategyPinDim((*raw.Strategy)(at), c.number, value, int32(dim)))
}

func newStrategy(e *Engine, made *raw.Strategy) *Strategy {
	s := &Strategy{}
	s.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.StrategyDestroy((*raw.Strategy)(p)) })
	return watch(s, &s.handle)
}

// Set sets one key, "pipeline.num_micro_batch" for example.
func (s *Strategy) Set(key string, value any) error {
	at := s.enter()
	if at == nil {
		return ErrClosed
	}
	defer s.leave()
	return taken(raw.StrategySet((*raw.Strategy)(at), key, textOf(value)))
}

// Describe gives the JSON form.
func (s *Strategy) Describe() (string, error) {
	at := s.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer s.leave()
	return given(raw.StrategyDescribe((*raw.Strategy)(at)))
}

// Entry is one of the things that a plan can do.
type Entry int32

const (
	Train    Entry = raw.EPL_ENTRY_TRAIN
	Evaluate Entry = raw.EPL_ENTRY_EVALUATE
	Predict  Entry = raw.EPL_ENTRY_PREDICT
)

// Shape is the same for batches of the n-th shape that [Trainer.AddShape] has added, counted from 1:
// Train.Shape(1). 0 is the shape that the trainer binds.
func (e Entry) Shape(n int) Entry { return e + Entry(n*raw.EPL_ENTRY_SHAPE) }

// PlanOptions are the options of [Model.Plan]; the zero value is all defaults.
type PlanOptions struct {
	Ranks      int    // of the job, in this and other processes; 0: 1
	LocalRanks int    // of this process, which share its threads; 0: all of them
	Seed       uint64 // of dropout and of new adapters
	Device     string // empty: "cpu"
}

// Plan is everything decided and nothing allocated.
type Plan struct{ child }

// Plan decides how a model is trained. trainer nil: a plan to predict with, of a model whose dimensions are all fixed;
// strategy nil: all defaults. Both may be changed or closed afterwards.
func (m *Model) Plan(ctx context.Context, trainer *Trainer, strategy *Strategy, options PlanOptions) (*Plan, error) {
	return m.plan(ctx, trainer, strategy, options, raw.PlanCreate)
}

// LoadPlan makes a plan with the decisions of a file of [Plan.Save].
func (m *Model) LoadPlan(ctx context.Context, trainer *Trainer, strategy *Strategy, options PlanOptions,
	path string) (*Plan, error) {
	return m.plan(ctx, trainer, strategy, options, func(model *raw.Model, trainer *raw.Trainer, strategy *raw.Strategy,
		o *raw.PlanOptions, call *raw.CallOptions) (*raw.Plan, *raw.Error) {
		return raw.PlanLoad(model, trainer, strategy, o, path, call)
	})
}

// LoadPlanBytes makes a plan with the decisions that [Plan.SaveTo] wrote.
func (m *Model) LoadPlanBytes(ctx context.Context, trainer *Trainer, strategy *Strategy, options PlanOptions,
	data []byte) (*Plan, error) {
	return m.plan(ctx, trainer, strategy, options, func(model *raw.Model, trainer *raw.Trainer, strategy *raw.Strategy,
		o *raw.PlanOptions, call *raw.CallOptions) (*raw.Plan, *raw.Error) {
		return raw.PlanLoadBytes(model, trainer, strategy, o, data, call)
	})
}

func (m *Model) plan(ctx context.Context, trainer *Trainer, strategy *Strategy, options PlanOptions,
	make func(*raw.Model, *raw.Trainer, *raw.Strategy, *raw.PlanOptions, *raw.CallOptions) (*raw.Plan, *raw.Error),
) (*Plan, error) {
	model, done, err := m.use()
	if err != nil {
		return nil, err
	}
	defer done()
	var t *raw.Trainer
	if trainer != nil {
		if t = (*raw.Trainer)(trainer.enter()); t == nil {
			return nil, ErrClosed
		}
		defer trainer.leave()
	}
	var s *raw.Strategy
	if strategy != nil {
		if s = (*raw.Strategy)(strategy.enter()); s == nil {
			return nil, ErrClosed
		}
		defer strategy.leave()
	}
	o := raw.NewPlanOptions()
	o.Ranks, o.LocalRanks, o.Seed = int64(options.Ranks), int64(options.LocalRanks), options.Seed
	if options.Device != "" {
		o.Device, o.DeviceLength = raw.AllocText(options.Device)
		defer raw.FreeText(o.Device)
	}
	var made *raw.Plan
	err = within(ctx, m.engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = make(model, t, s, &o, call)
		return
	})
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	p.adopt(m.owner, unsafe.Pointer(made), func(at unsafe.Pointer) { raw.PlanDestroy((*raw.Plan)(at)) })
	return watch(p, &p.handle), nil
}

func (p *Plan) use() (plan *raw.Plan, done func(), err error) {
	at := p.enter()
	if at == nil {
		return nil, nil, ErrClosed
	}
	return (*raw.Plan)(at), p.leave, nil
}

func (p *Plan) ports(entry Entry, kind int32) ([]Info, error) {
	plan, done, err := p.use()
	if err != nil {
		return nil, err
	}
	defer done()
	return infos(raw.PlanPortCount(plan, int32(entry), kind), func(i int64, info *raw.TensorInfo) *raw.Error {
		return raw.PlanPort(plan, int32(entry), kind, i, info)
	})
}

// Inputs lists what calls take, in their order.
func (p *Plan) Inputs(entry Entry) ([]Info, error) { return p.ports(entry, raw.EPL_PORT_INPUT) }

// Outputs lists what calls give, in their order.
func (p *Plan) Outputs(entry Entry) ([]Info, error) { return p.ports(entry, raw.EPL_PORT_OUTPUT) }

// Input is the position of an input by its name; -1 where there is none.
func (p *Plan) Input(entry Entry, name string) int {
	plan, done, err := p.use()
	if err != nil {
		return -1
	}
	defer done()
	return int(raw.PlanFindPort(plan, int32(entry), raw.EPL_PORT_INPUT, name))
}

// Slice gives the samples of an input, [first, first + samples) of the batch, that any of so many ranks from firstRank
// on reads: what a process with these ranks passes where SessionOptions.Slices is set.
func (p *Plan) Slice(entry Entry, input, firstRank, ranks int) (first, samples int64, err error) {
	plan, done, err := p.use()
	if err != nil {
		return 0, 0, err
	}
	defer done()
	first, samples, failure := raw.PlanSlice(plan, int32(entry), int64(input), int64(firstRank), int64(ranks))
	return first, samples, taken(failure)
}

// Ranks is the number of ranks of the job.
func (p *Plan) Ranks() int {
	plan, done, err := p.use()
	if err != nil {
		return 0
	}
	defer done()
	return int(raw.PlanRanks(plan))
}

// MemoryPeak is the number of bytes that a rank will have at its peak, exact; -1 for a rank that is not there.
func (p *Plan) MemoryPeak(rank int) int64 {
	plan, done, err := p.use()
	if err != nil {
		return -1
	}
	defer done()
	return raw.PlanMemoryBytesPeak(plan, int64(rank))
}

// Print gives a text for people: "explain", "graph", "plan", "local", "program", "kernels", "evaluate.graph", ...
func (p *Plan) Print(ctx context.Context, stage string) (string, error) {
	return p.text(ctx, func(plan *raw.Plan, call *raw.CallOptions) (*raw.Text, *raw.Error) {
		return raw.PlanPrint(plan, stage, call)
	})
}

// Describe gives a JSON document for programs: "overview", "memory", "parameters" or "notes".
func (p *Plan) Describe(ctx context.Context, document string) (string, error) {
	return p.text(ctx, func(plan *raw.Plan, call *raw.CallOptions) (*raw.Text, *raw.Error) {
		return raw.PlanDescribe(plan, document, call)
	})
}

func (p *Plan) text(ctx context.Context, get func(*raw.Plan, *raw.CallOptions) (*raw.Text, *raw.Error)) (string, error) {
	plan, done, err := p.use()
	if err != nil {
		return "", err
	}
	defer done()
	var text *raw.Text
	err = within(ctx, p.engine, func(call *raw.CallOptions) (failure *raw.Error) {
		text, failure = get(plan, call)
		return
	})
	if err != nil {
		return "", err
	}
	return given(text, nil)
}

func (p *Plan) write(ctx context.Context, f func(*raw.Plan, *raw.CallOptions) *raw.Error) error {
	plan, done, err := p.use()
	if err != nil {
		return err
	}
	defer done()
	return within(ctx, p.engine, func(call *raw.CallOptions) *raw.Error { return f(plan, call) })
}

// Save writes the decisions of the plan.
func (p *Plan) Save(ctx context.Context, path string) error {
	return p.write(ctx, func(plan *raw.Plan, call *raw.CallOptions) *raw.Error { return raw.PlanSave(plan, path, call) })
}

// ExportONNX writes the model's file with the plan in it, as device annotations of ONNX.
func (p *Plan) ExportONNX(ctx context.Context, path string) error {
	return p.write(ctx, func(plan *raw.Plan, call *raw.CallOptions) *raw.Error {
		return raw.PlanExportOnnx(plan, path, call)
	})
}
