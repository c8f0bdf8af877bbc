package epl

import (
	"context"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Dataset gives batches, of a file, of a [SampleReader] or of a [Feed], in an order, from a position that checkpoints
// keep.
type Dataset struct {
	child
	tokens tokens
	host   *samplesOfHost // nil where the samples are not the host's
	pushed bool           // its batches are those of a feed, which does not go back
}

// OpenDataset opens a file, a folder of files, or several by * and ? in the last part of the path. options is a JSON
// object (docs/readers.md), as a string or as anything that encoding/json makes one of; nil for defaults.
//
// The options may be a client's: a file that one of them names lies in the folder of the data.
func (e *Engine) OpenDataset(ctx context.Context, path string, options any) (*Dataset, error) {
	return e.openDataset(ctx, options, func(engine *raw.Engine, text string, call *raw.CallOptions) (*raw.Dataset, *raw.Error) {
		return raw.DatasetOpen(engine, path, text, call)
	})
}

// OpenDatasetWithin is OpenDataset where files that the options name may lie anywhere in folder. "/" is for options
// that are your own, and not a client's.
func (e *Engine) OpenDatasetWithin(ctx context.Context, path, folder string, options any) (*Dataset, error) {
	return e.openDataset(ctx, options, func(engine *raw.Engine, text string, call *raw.CallOptions) (*raw.Dataset, *raw.Error) {
		return raw.DatasetOpenWithin(engine, path, folder, text, call)
	})
}

func (e *Engine) openDataset(ctx context.Context, options any,
	open func(*raw.Engine, string, *raw.CallOptions) (*raw.Dataset, *raw.Error)) (*Dataset, error) {
	text, err := document(options)
	if err != nil {
		return nil, err
	}
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	var made *raw.Dataset
	err = within(ctx, engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = open(engine, text, call)
		return
	})
	if err != nil {
		return nil, err
	}
	return newDataset(e, made, nil), nil
}

func newDataset(e *Engine, made *raw.Dataset, host *samplesOfHost) *Dataset {
	d := &Dataset{host: host}
	d.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.DatasetDestroy((*raw.Dataset)(p)) })
	return watch(d, &d.handle)
}

// Close gives the dataset back; its batches are gone with it.
func (d *Dataset) Close() error {
	if d.state.Load() >= 0 {
		d.tokens.close()
	}
	return d.handle.Close()
}

func (d *Dataset) do(f func(*raw.Dataset) *raw.Error) error {
	at := d.enter()
	if at == nil {
		return ErrClosed
	}
	defer d.leave()
	return taken(f((*raw.Dataset)(at)))
}

func (d *Dataset) number(f func(*raw.Dataset) int64) int64 {
	at := d.enter()
	if at == nil {
		return 0
	}
	defer d.leave()
	return f((*raw.Dataset)(at))
}

// Fields lists what a batch has.
func (d *Dataset) Fields() ([]Info, error) {
	at := d.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer d.leave()
	dataset := (*raw.Dataset)(at)
	return infos(raw.DatasetFieldCount(dataset), func(i int64, info *raw.TensorInfo) *raw.Error {
		return raw.DatasetField(dataset, i, info)
	})
}

// Samples is the number of samples of an epoch; -1 where nobody knows.
func (d *Dataset) Samples() int64 { return d.number(raw.DatasetSamples) }

// Batches is the number of batches of an epoch; -1 where nobody knows.
func (d *Dataset) Batches() int64 { return d.number(raw.DatasetBatches) }

// Position is the number of batches given so far, which is where a checkpoint goes on.
func (d *Dataset) Position() int64 { return d.number(raw.DatasetPosition) }

// SeekBatch makes the batch of a position the next one.
func (d *Dataset) SeekBatch(position int64) error {
	return d.do(func(dataset *raw.Dataset) *raw.Error { return raw.DatasetSeek(dataset, position) })
}

// Describe gives, as JSON, what was read and how.
func (d *Dataset) Describe() (string, error) {
	at := d.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer d.leave()
	return given(raw.DatasetDescribe((*raw.Dataset)(at)))
}

// Bind gives batches the inputs of an entry of the plan, in its order.
func (d *Dataset) Bind(p *Plan, entry Entry) error {
	return d.bind(p, func(dataset *raw.Dataset, plan *raw.Plan) *raw.Error {
		return raw.DatasetBind(dataset, plan, int32(entry))
	})
}

// BindSlice gives of each batch the samples alone that so many ranks from firstRank on read.
func (d *Dataset) BindSlice(p *Plan, entry Entry, firstRank, ranks int) error {
	return d.bind(p, func(dataset *raw.Dataset, plan *raw.Plan) *raw.Error {
		return raw.DatasetBindSlice(dataset, plan, int32(entry), int64(firstRank), int64(ranks))
	})
}

func (d *Dataset) bind(p *Plan, f func(*raw.Dataset, *raw.Plan) *raw.Error) error {
	plan, done, err := p.use()
	if err != nil {
		return err
	}
	defer done()
	return d.do(func(dataset *raw.Dataset) *raw.Error { return f(dataset, plan) })
}

// Check reads every sample once and looks for integers that the model cannot take.
func (d *Dataset) Check(ctx context.Context, p *Plan, entry Entry) error {
	plan, done, err := p.use()
	if err != nil {
		return err
	}
	defer done()
	at := d.enter()
	if at == nil {
		return ErrClosed
	}
	defer d.leave()
	return within(ctx, d.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.DatasetCheck((*raw.Dataset)(at), plan, int32(entry), call)
	})
}

// Next gives the next batch: tensors of the dataset's own, which the next call fills anew. They need no Close. After the
// last batch of an epoch the next epoch begins.
func (d *Dataset) Next(ctx context.Context) ([]*Tensor, error) {
	at := d.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer d.leave()
	dataset := (*raw.Dataset)(at)
	given := make([]*raw.Tensor, raw.DatasetFieldCount(dataset))
	err := d.tokens.within(ctx, d.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.DatasetNext(dataset, call, given)
	})
	if err != nil {
		return nil, d.host.explain(err)
	}
	tensors := make([]*Tensor, len(given))
	for i, one := range given {
		if one != nil { // nil: no rank of this process reads it
			tensors[i] = lentTensor(one)
		}
	}
	return tensors, nil
}
