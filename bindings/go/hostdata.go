package epl

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime/cgo"
	"strings"
	"sync/atomic"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// SampleReader gives samples of the host's own: rows of a database, say.
type SampleReader interface {
	// ReadSamples writes one field of these samples to target, one behind the other, in the machine's order of bytes;
	// [Elements] shows target as numbers. An error ends the call that wants the batch, with the code that it has as an
	// *Error or a [Code]; io.EOF is [NotFound]. A panic is an error. It is called by one goroutine at a time, of the
	// library's own where the dataset reads ahead. target is the library's, and gone after the call.
	ReadSamples(field int, samples []int64, target []byte) error
}

// SampleFunc is a function as a [SampleReader].
type SampleFunc func(field int, samples []int64, target []byte) error

// ReadSamples calls f.
func (f SampleFunc) ReadSamples(field int, samples []int64, target []byte) error {
	return f(field, samples, target)
}

// Elements shows memory that the library lends, row-major and aligned, as numbers where they lie.
func Elements[T Element](memory []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/int(unsafe.Sizeof(zero)))
}

// samplesOfHost is a reader behind a userdata, and its last failure.
type samplesOfHost struct {
	reader SampleReader
	failed atomic.Pointer[error]
}

func (h *samplesOfHost) read(field int, samples []int64, target []byte) unsafe.Pointer {
	err := guarded(func() error { return h.reader.ReadSamples(field, samples, target) })
	if err == nil {
		return nil
	}
	h.failed.Store(&err)
	if errors.Is(err, io.EOF) {
		return refused(err, NotFound)
	}
	return refused(err, IO)
}

// explain makes the reader's error the cause of what the library made of it.
func (h *samplesOfHost) explain(err error) error {
	if h == nil {
		return err
	}
	var explained *Error
	failed := h.failed.Load()
	if failed != nil && errors.As(err, &explained) && explained.cause == nil &&
		strings.Contains(explained.Message, (*failed).Error()) {
		explained.cause = *failed
	}
	return err
}

// rawInfos are descriptions as the library takes them; free gives their names back.
func rawInfos(fields []Info) (all []raw.TensorInfo, free func(), err error) {
	all = make([]raw.TensorInfo, 0, len(fields))
	free = func() {
		for _, one := range all {
			raw.FreeText(one.Name)
		}
	}
	for _, field := range fields {
		if len(field.Dims) > raw.EPL_MAX_NDIM {
			free()
			return nil, nil, &Error{Code: InvalidArgument, Where: field.Name, Message: "there are too many dimensions",
				Rank: -1}
		}
		info := raw.NewTensorInfo()
		info.Name, info.NameLength = raw.AllocText(field.Name)
		info.Dtype, info.Ndim = int32(field.DType), int32(len(field.Dims))
		copy(info.Dims[:], field.Dims)
		all = append(all, info)
	}
	return all, free, nil
}

// ofFields calls create with the engine and with fields as the library takes them.
func (e *Engine) ofFields(fields []Info, create func(*raw.Engine, []raw.TensorInfo) *raw.Error) error {
	engine, done, err := e.use()
	if err != nil {
		return err
	}
	defer done()
	infos, free, err := rawInfos(fields)
	if err != nil {
		return err
	}
	defer free()
	return taken(create(engine, infos))
}

// NewDataset makes a dataset of samples that reader gives when it is asked for them. fields are those of a sample; of a
// full batch where the option "batch" is 0. samples is how many there are; -1: nobody knows, and reader gives io.EOF
// for one that is not there. options are those of [Engine.OpenDataset] that no reader of files declares: batches,
// order, reading ahead and positions in checkpoints are as those of files.
func (e *Engine) NewDataset(fields []Info, samples int64, reader SampleReader, options any) (*Dataset, error) {
	text, err := document(options)
	if err != nil {
		return nil, err
	}
	host := &samplesOfHost{reader: reader}
	var made *raw.Dataset
	err = e.ofFields(fields, func(engine *raw.Engine, infos []raw.TensorInfo) (failure *raw.Error) {
		userdata := cgo.NewHandle(host)
		made, failure = raw.DatasetCreate(engine, infos, samples, samplesFunction(), uintptr(userdata), dropFunction(), text)
		if failure != nil {
			userdata.Delete() // where it fails it is still ours
		}
		return
	})
	if err != nil {
		return nil, err
	}
	return newDataset(e, made, host), nil
}

// Epoch gives the batches of an epoch, or what is left of it, as [Dataset.Next] does; of a feed those until it is
// finished. It ends with the first error.
func (d *Dataset) Epoch(ctx context.Context) iter.Seq2[[]*Tensor, error] {
	return func(yield func([]*Tensor, error) bool) {
		for batches := d.Batches(); batches != 0; {
			batch, err := d.Next(ctx)
			if batches < 0 && errors.Is(err, NotFound) {
				return // where nobody knows how many there are, the end is found
			}
			if !yield(batch, err) || err != nil || batches > 0 && d.Position()%batches == 0 {
				return
			}
		}
	}
}

// Feed takes batches that the host pushes when it has them; its dataset gives them. Any goroutines may push. A feed that
// is closed before it was finished is an error to who waits for a batch.
type Feed struct {
	child
	fields []string
}

// NewFeed makes a feed. fields are those of a batch, and so many batches wait at most.
func (e *Engine) NewFeed(fields []Info, capacity int) (*Feed, error) {
	var made *raw.Feed
	err := e.ofFields(fields, func(engine *raw.Engine, infos []raw.TensorInfo) (failure *raw.Error) {
		made, failure = raw.FeedCreate(engine, infos, int64(capacity))
		return
	})
	if err != nil {
		return nil, err
	}
	f := &Feed{fields: namesOf(fields)}
	f.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.FeedDestroy((*raw.Feed)(p)) })
	return watch(f, &f.handle), nil
}

// Dataset is where the batches come out; a feed has one.
func (f *Feed) Dataset() (*Dataset, error) {
	at := f.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer f.leave()
	made, failure := raw.DatasetOfFeed((*raw.Feed)(at))
	if failure != nil {
		return nil, taken(failure)
	}
	d := newDataset(f.owner, made, nil)
	d.pushed = true
	return d, nil
}

// Push copies a batch, a tensor for each field, and waits while there is no room: that is the back-pressure. Where ctx
// ends the wait nothing was pushed.
func (f *Feed) Push(ctx context.Context, batchOfHost ...*Tensor) error {
	at := f.enter()
	if at == nil {
		return ErrClosed
	}
	defer f.leave()
	var b batch
	if err := b.take(batchOfHost); err != nil {
		return err
	}
	defer b.free()
	return within(ctx, f.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.FeedPush((*raw.Feed)(at), b.all, call)
	})
}

// PushAll pushes what an iterator gives and finishes the feed. An error, of the iterator or of a push, closes it. A
// batch has been copied when the iterator goes on.
func (f *Feed) PushAll(ctx context.Context, batches iter.Seq2[[]*Tensor, error]) error {
	for one, err := range batches {
		if err == nil {
			err = f.Push(ctx, one...)
		}
		if err != nil {
			f.Close()
			return err
		}
	}
	return f.Finish()
}

// Finish says that no batch follows: when those that wait have been taken, the dataset gives [NotFound], and its epoch
// ends.
func (f *Feed) Finish() error {
	at := f.enter()
	if at == nil {
		return ErrClosed
	}
	defer f.leave()
	return taken(raw.FeedFinish((*raw.Feed)(at)))
}
