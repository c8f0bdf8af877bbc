package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// hub gives every watcher of a job the newest status. A watcher that is slow misses what came between, never the
// newest, and never holds up the training.
type hub struct {
	lock     sync.Mutex
	last     *Status
	watchers map[*watcher]struct{}
}

type watcher struct {
	hub  *hub
	news chan Status // of one place: the newest that was not read yet
}

func newHub() *hub { return &hub{watchers: map[*watcher]struct{}{}} }

func (h *hub) send(status Status) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.last = &status
	for w := range h.watchers {
		w.put(status)
	}
}

// put is called with the hub's lock held.
func (w *watcher) put(status Status) {
	select {
	case old := <-w.news:
		if status.Log == "" {
			status.Log = old.Log // a line that was not read yet is not lost to a mere number
		}
	default:
	}
	w.news <- status
}

func (h *hub) watch() *watcher {
	h.lock.Lock()
	defer h.lock.Unlock()
	w := &watcher{hub: h, news: make(chan Status, 1)}
	h.watchers[w] = struct{}{}
	if h.last != nil {
		w.put(*h.last)
	}
	return w
}

func (w *watcher) leave() {
	w.hub.lock.Lock()
	defer w.hub.lock.Unlock()
	delete(w.hub.watchers, w)
}

// board gives watchers of all jobs the newest status of each, and as hub does never holds up the training.
type board struct {
	lock    sync.Mutex
	readers map[*reader]struct{}
}

// reader has, by its id, the newest status of each job that was not read yet.
type reader struct {
	news map[string]Status
	wake chan struct{}
}

func newBoard() *board { return &board{readers: map[*reader]struct{}{}} }

func (b *board) send(status Status) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for r := range b.readers {
		r.put(status)
	}
}

// put is called with the board's lock held.
func (r *reader) put(status Status) {
	if old, ok := r.news[status.ID]; ok && status.Log == "" {
		status.Log = old.Log
	}
	r.news[status.ID] = status
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (b *board) join(now []Status) *reader {
	b.lock.Lock()
	defer b.lock.Unlock()
	r := &reader{news: map[string]Status{}, wake: make(chan struct{}, 1)}
	b.readers[r] = struct{}{}
	for _, one := range now {
		r.put(one)
	}
	return r
}

func (b *board) leave(r *reader) {
	b.lock.Lock()
	defer b.lock.Unlock()
	delete(b.readers, r)
}

// take gives what is new, in the order of the jobs.
func (b *board) take(r *reader) []Status {
	b.lock.Lock()
	defer b.lock.Unlock()
	all := slices.SortedFunc(maps.Values(r.news), byTime)
	clear(r.news)
	return all
}

// byTime orders jobs as they were created.
func byTime(a, b Status) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
}
