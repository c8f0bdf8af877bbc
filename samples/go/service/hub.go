package main

import "sync"

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
