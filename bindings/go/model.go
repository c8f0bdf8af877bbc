package epl

import (
	"context"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// child is an object that was made from an engine, and keeps it for the tokens of its calls.
type child struct {
	handle
	owner  *Engine
	engine *raw.Engine
}

// adopt takes over what was made from e, within a call that uses e or another child of it. So e is there, closed or
// not.
func (c *child) adopt(e *Engine, pointer unsafe.Pointer, destroy func(unsafe.Pointer)) {
	e.state.Add(1)
	c.owner, c.engine = e, (*raw.Engine)(e.pointer)
	c.init(pointer, func(p unsafe.Pointer) {
		destroy(p)
		e.leave()
	})
}

// Model is a model file with its parameters.
type Model struct{ child }

// ModelOptions are the options of [Engine.LoadModel]; the zero value is all defaults.
type ModelOptions struct {
	NoRewrites bool // attention, layer norm and the like stay as the file writes them
}

func (o ModelOptions) raw() raw.ModelOptions {
	r := raw.NewModelOptions()
	if o.NoRewrites {
		r.NoRewrites = 1
	}
	return r
}

// LoadModel reads a model file. Large weights stay in the file until a session or an export needs them.
func (e *Engine) LoadModel(ctx context.Context, path string, options ModelOptions) (*Model, error) {
	o := options.raw()
	return e.loadModel(ctx, func(engine *raw.Engine, call *raw.CallOptions) (*raw.Model, *raw.Error) {
		return raw.ModelLoad(engine, path, &o, call)
	})
}

// LoadModelBytes reads a model from memory, which is copied.
func (e *Engine) LoadModelBytes(ctx context.Context, data []byte, options ModelOptions) (*Model, error) {
	o := options.raw()
	return e.loadModel(ctx, func(engine *raw.Engine, call *raw.CallOptions) (*raw.Model, *raw.Error) {
		return raw.ModelLoadBytes(engine, data, &o, call)
	})
}

func (e *Engine) loadModel(ctx context.Context,
	load func(*raw.Engine, *raw.CallOptions) (*raw.Model, *raw.Error)) (*Model, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	var made *raw.Model
	err = within(ctx, engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = load(engine, call)
		return
	})
	if err != nil {
		return nil, err
	}
	m := &Model{}
	m.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.ModelDestroy((*raw.Model)(p)) })
	return watch(m, &m.handle), nil
}

func (m *Model) use() (model *raw.Model, done func(), err error) {
	at := m.enter()
	if at == nil {
		return nil, nil, ErrClosed
	}
	return (*raw.Model)(at), m.leave, nil
}

func (m *Model) ports(kind int32) ([]Info, error) {
	model, done, err := m.use()
	if err != nil {
		return nil, err
	}
	defer done()
	return infos(raw.ModelPortCount(model, kind), func(i int64, info *raw.TensorInfo) *raw.Error {
		return raw.ModelPort(model, kind, i, info)
	})
}

// Inputs lists what the model takes.
func (m *Model) Inputs() ([]Info, error) { return m.ports(raw.EPL_PORT_INPUT) }

// Outputs lists what the model gives.
func (m *Model) Outputs() ([]Info, error) { return m.ports(raw.EPL_PORT_OUTPUT) }

// Initializers lists what the file has values of, parameters and constants.
func (m *Model) Initializers() ([]Info, error) { return m.ports(raw.EPL_PORT_INITIALIZER) }

// Describe gives all that is known about the file, as JSON.
func (m *Model) Describe() (string, error) {
	model, done, err := m.use()
	if err != nil {
		return "", err
	}
	defer done()
	return given(raw.ModelDescribe(model))
}

// Findings gives, as a JSON list, what its owner should know before training it.
func (m *Model) Findings() (string, error) {
	model, done, err := m.use()
	if err != nil {
		return "", err
	}
	defer done()
	return given(raw.ModelFindings(model))
}

// Strategy is what the model's file itself asks for on so many ranks; its error is [NotFound] where that is nothing.
func (m *Model) Strategy(ranks int) (*Strategy, error) {
	model, done, err := m.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.StrategyOfModel(model, int64(ranks))
	if failure != nil {
		return nil, taken(failure)
	}
	return newStrategy(m.owner, made), nil
}
