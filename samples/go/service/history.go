package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
)

const mostPoints = 1024

// Point is the mean loss of the steps since the point before it, and the learning rate of the last of them.
type Point struct {
	Step int64  `json:"step"`
	Loss Number `json:"loss"`
	Rate Number `json:"learning_rate"`
}

// History is what a page shows of a job's past: a point for each `Stride` steps. When it is full, two points become one.
type History struct {
	lock   sync.Mutex
	Stride int64   `json:"stride"`
	Points []Point `json:"points"`
	sum    float64
	count  int64
}

func newHistory() *History { return &History{Stride: 1, Points: []Point{}} }

func (h *History) add(step int64, loss, rate float64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.sum, h.count = h.sum+loss, h.count+1
	if step%h.Stride != 0 {
		return
	}
	h.Points = append(h.Points, Point{step, Number(h.sum / float64(h.count)), Number(rate)})
	h.sum, h.count = 0, 0
	if len(h.Points) < mostPoints {
		return
	}
	h.Stride *= 2
	kept := h.Points[:0]
	var before *Point
	for _, one := range h.Points {
		if one.Step%h.Stride != 0 {
			before = &Point{one.Step, one.Loss, one.Rate}
			continue
		}
		if before != nil {
			one.Loss = (one.Loss + before.Loss) / 2
			before = nil
		}
		kept = append(kept, one)
	}
	h.Points = kept
}

func (h *History) MarshalJSON() ([]byte, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return json.Marshal(struct {
		Stride int64   `json:"stride"`
		Points []Point `json:"points"`
	}{h.Stride, h.Points})
}

// save keeps it beside a checkpoint.
func (h *History) save(path string) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o666)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// load takes up what was before a checkpoint of this step. Steps after it are made again.
func (h *History) load(path string, step int64) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept struct {
		Stride int64
		Points []Point
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.Stride, h.Points, h.sum, h.count = max(kept.Stride, 1), []Point{}, 0, 0
	for _, one := range kept.Points {
		if one.Step <= step {
			h.Points = append(h.Points, one)
		}
	}
	return nil
}
