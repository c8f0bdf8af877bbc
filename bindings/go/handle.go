package epl

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// LiveHandles counts what the library has given to this process and not got back, errors and texts included: zero when
// everything is closed. For tests.
func LiveHandles() int64 { return raw.LiveHandles() }

// OnLeak is called, on a goroutine of the garbage collector, for each object that became unreachable without a Close. It
// is set before anything is made; nil reports nothing.
var OnLeak func(kind string)

// handle owns an object of the library. Close and calls may meet: the object is destroyed when it is closed and the last
// call that uses it has returned.
type handle struct {
	// The number of calls inside, and closed: its smallest value plus that number.
	state   atomic.Int64
	pointer unsafe.Pointer
	destroy func(unsafe.Pointer)
	cleanup runtime.Cleanup
}

const closed = math.MinInt64

// init takes over a pointer.
func (h *handle) init(pointer unsafe.Pointer, destroy func(unsafe.Pointer)) {
	h.pointer, h.destroy = pointer, destroy
}

// watch reports owner to OnLeak if it is lost unclosed.
func watch[T any](owner *T, h *handle) *T {
	h.cleanup = runtime.AddCleanup(owner, func(kind string) {
		if OnLeak != nil {
			OnLeak(kind)
		}
	}, fmt.Sprintf("%T", owner))
	return owner
}

// enter begins a call; leave ends it. A nil pointer means that it is closed.
func (h *handle) enter() unsafe.Pointer {
	for {
		n := h.state.Load()
		if n < 0 {
			return nil
		}
		if h.state.CompareAndSwap(n, n+1) {
			return h.pointer
		}
	}
}

func (h *handle) leave() {
	if h.state.Add(-1) == closed {
		h.destroy(h.pointer)
	}
}

// Close gives the object back; its memory goes once nothing else needs it. A second Close does nothing.
func (h *handle) Close() error {
	if before := h.state.Or(closed); before < 0 {
		return nil
	} else if before == 0 {
		h.destroy(h.pointer)
	}
	h.cleanup.Stop()
	return nil
}

// given is the text that a call gave, or its error.
func given(text *raw.Text, failure *raw.Error) (string, error) {
	if failure != nil {
		return "", taken(failure)
	}
	defer raw.TextDestroy(text)
	return raw.TextData(text), nil
}
