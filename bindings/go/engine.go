package epl

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/cgo"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// EngineOptions are the options of [NewEngine]; the zero value is all defaults.
type EngineOptions struct {
	Threads int          // for the sessions of the engine, their callers among them; 0: one for each processor
	Logger  *slog.Logger // nil: nothing is logged
	Packs   string       // the folder of the optional packs; empty: the one that libepl.so is in
	Memory  uint64       // bytes that tensors, sessions and predictors may have together; 0: no bound
	// A folder in which what is compiled for a GPU stays for later processes, which share it; empty: nowhere.
	KernelCache string
}

// Engine is what everything else is made from.
type Engine struct{ handle }

// NewEngine makes an engine. It costs microseconds, and starts no thread.
func NewEngine(options EngineOptions) (*Engine, error) {
	o := raw.NewEngineOptions()
	o.Threads = int32(options.Threads)
	o.MemoryBytes = options.Memory
	if options.Packs != "" {
		o.Packs, o.PacksLength = raw.AllocText(options.Packs)
		defer raw.FreeText(o.Packs)
	}
	if options.KernelCache != "" {
		o.KernelCache, o.KernelCacheLength = raw.AllocText(options.KernelCache)
		defer raw.FreeText(o.KernelCache)
	}
	var logger cgo.Handle
	if options.Logger != nil {
		logger = cgo.NewHandle(options.Logger)
		setLogger(&o, logger, options.Logger)
	}
	made, failure := raw.EngineCreate(&o)
	if failure != nil {
		if logger != 0 {
			logger.Delete()
		}
		return nil, taken(failure)
	}
	e := &Engine{}
	e.init(unsafe.Pointer(made), func(p unsafe.Pointer) { raw.EngineDestroy((*raw.Engine)(p)) })
	return watch(e, &e.handle), nil
}

// use gives the engine for a call; done ends it.
func (e *Engine) use() (engine *raw.Engine, done func(), err error) {
	at := e.enter()
	if at == nil {
		return nil, nil, ErrClosed
	}
	return (*raw.Engine)(at), e.leave, nil
}

// MemoryBytes are what the engine's tensors, sessions and predictors have now; 0 once it is closed.
func (e *Engine) MemoryBytes() uint64 {
	engine, done, err := e.use()
	if err != nil {
		return 0
	}
	defer done()
	return raw.EngineMemoryBytes(engine)
}

// Version is that of the library in use: major * 1000000 + minor * 1000 + patch.
func Version() uint32 { return raw.Version() }

// Describe gives, as JSON, what this build and this machine have: version, processor level, devices, losses, metrics,
// optimizers, schedules, readers, model families, strategy keys, packs.
func (e *Engine) Describe() (string, error) {
	engine, done, err := e.use()
	if err != nil {
		return "", err
	}
	defer done()
	return given(raw.EngineDescribe(engine))
}

// Device is something that plans can be made for.
type Device struct {
	Name        string // for PlanOptions.Device
	Threads     int
	MemoryBytes int64 // 0: not known
}

// Devices lists what plans can be made for.
func (e *Engine) Devices() ([]Device, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	devices := make([]Device, raw.EngineDeviceCount(engine))
	for i := range devices {
		info := raw.NewDeviceInfo()
		if failure := raw.EngineDevice(engine, int64(i), &info); failure != nil {
			return nil, taken(failure)
		}
		devices[i] = Device{raw.CopyText(info.Name, info.NameLength), int(info.Threads), info.MemoryBytes}
	}
	return devices, nil
}

// WriteTemplate writes a model of a known family to path, with weights drawn from a seed. options is a JSON object, as
// a string or as anything that encoding/json makes one of; nil for defaults.
func (e *Engine) WriteTemplate(ctx context.Context, family string, options any, path string) error {
	text, err := document(options)
	if err != nil {
		return err
	}
	engine, done, err := e.use()
	if err != nil {
		return err
	}
	defer done()
	return within(ctx, engine, func(call *raw.CallOptions) *raw.Error {
		return raw.XTemplateWrite(engine, family, text, path, call)
	})
}

// ComparePlans says what two plan files decide differently, a sentence a line; nothing where they decide the same.
func (e *Engine) ComparePlans(ctx context.Context, path, other string) (string, error) {
	return e.textOf(ctx, func(engine *raw.Engine, call *raw.CallOptions) (*raw.Text, *raw.Error) {
		return raw.PlanCompare(engine, path, other, call)
	})
}

// DescribeCheckpoint gives, as JSON, what a checkpoint holds: the step, the tensors, and what the run was.
func (e *Engine) DescribeCheckpoint(ctx context.Context, path string) (string, error) {
	return e.textOf(ctx, func(engine *raw.Engine, call *raw.CallOptions) (*raw.Text, *raw.Error) {
		return raw.CheckpointDescribe(engine, path, call)
	})
}

// textOf is the text of a call that reads files.
func (e *Engine) textOf(ctx context.Context,
	read func(*raw.Engine, *raw.CallOptions) (*raw.Text, *raw.Error)) (string, error) {
	engine, done, err := e.use()
	if err != nil {
		return "", err
	}
	defer done()
	var made *raw.Text
	err = within(ctx, engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = read(engine, call)
		return
	})
	if err != nil {
		return "", err
	}
	return given(made, nil)
}

// RemoveCheckpoint removes the files that a checkpoint consists of, and the folder if nothing else lies there.
func (e *Engine) RemoveCheckpoint(path string) error {
	engine, done, err := e.use()
	if err != nil {
		return err
	}
	defer done()
	return taken(raw.CheckpointRemove(engine, path))
}

// document is options as the text of a JSON object.
func document(options any) (string, error) {
	switch value := options.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case []byte:
		return string(value), nil
	}
	text, err := json.Marshal(options)
	if string(text) == "null" { // a map that is nil
		return "", err
	}
	return string(text), err
}
