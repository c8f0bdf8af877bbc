package epl

import (
	"context"
	"sync"

	"epl.ai/go/internal/raw"
)

type streamKey struct{}

// The numbers of streams that are no handle, as DLPack has them.
const (
	NoStream     int64 = -1 // the program has waited itself
	LegacyStream int64 = 1  // the legacy default stream, which is taken where nothing is said
)

// WithStream gives a context for calls with tensors of a GPU. They come behind what the program has given to this
// stream of its own before: a handle of that GPU, [NoStream] or [LegacyStream].
func WithStream(ctx context.Context, stream int64) context.Context {
	return context.WithValue(ctx, streamKey{}, stream)
}

func streamOf(ctx context.Context) int64 {
	stream, _ := ctx.Value(streamKey{}).(int64)
	return stream
}

// saysNothing tells whether a call with this context needs no options.
func saysNothing(ctx context.Context) bool {
	return ctx.Done() == nil && streamOf(ctx) == 0
}

// token carries the end of one context, and its stream, into calls of the library.
type token struct {
	ctx     context.Context
	options *raw.CallOptions // memory of its own, without a pointer of Go's, as cgo wants it
	release func()
}

// newToken gives nil for a context that says nothing.
func newToken(ctx context.Context, engine *raw.Engine) (*token, error) {
	if saysNothing(ctx) {
		return nil, nil
	}
	if err := ended(ctx); err != nil {
		return nil, err
	}
	options := raw.NewCallOptions()
	options.Stream = streamOf(ctx)
	if ctx.Done() == nil { // it never ends
		return &token{ctx: ctx, options: &options, release: func() {}}, nil
	}
	cancel, failure := raw.CancelCreate(engine)
	if failure != nil {
		return nil, taken(failure)
	}
	triggered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		raw.CancelTrigger(cancel)
		close(triggered)
	})
	t := &token{ctx: ctx, options: &options}
	t.options.Cancel = cancel
	t.release = func() {
		if !stop() {
			<-triggered // it is being used: it must not go before that
		}
		raw.CancelDestroy(cancel)
	}
	return t, nil
}

// ended is the error of a call that begins after the end of its context.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	err := &Error{Code: Cancelled, Message: "the context was cancelled before the call", Rank: -1, Retryable: true}
	err.endedBy(ctx)
	return err
}

func (t *token) call() *raw.CallOptions {
	if t == nil {
		return nil
	}
	return t.options
}

// within runs one call of the library that ctx may end.
func within(ctx context.Context, engine *raw.Engine, f func(*raw.CallOptions) *raw.Error) error {
	t, err := newToken(ctx, engine)
	if err != nil {
		return err
	}
	if t != nil {
		defer t.release()
	}
	return takenIn(ctx, f(t.call()))
}

// tokens keeps the token of the last context, because steps are mostly made with one.
type tokens struct {
	lock sync.Mutex
	last *token
}

// within is the same for calls that come again and again.
func (k *tokens) within(ctx context.Context, engine *raw.Engine, f func(*raw.CallOptions) *raw.Error) error {
	if saysNothing(ctx) {
		return takenIn(ctx, f(nil))
	}
	if !k.lock.TryLock() { // a second caller, to whom the library will say so
		return within(ctx, engine, f)
	}
	defer k.lock.Unlock()
	if err := ended(ctx); err != nil { // the token may not know yet
		return err
	}
	if k.last == nil || k.last.ctx != ctx {
		t, err := newToken(ctx, engine)
		if err != nil {
			return err
		}
		k.drop()
		k.last = t
	}
	return takenIn(ctx, f(k.last.call()))
}

func (k *tokens) drop() {
	if k.last != nil {
		k.last.release()
		k.last = nil
	}
}

func (k *tokens) close() {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.drop()
}
