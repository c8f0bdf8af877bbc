package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	epl "epl.ai/go"
)

// Spec is what a client asks for. It is kept beside the job, so that a service that starts again goes on with it.
type Spec struct {
	Model      string         `json:"model"`      // the id of an upload
	Data       string         `json:"data"`       // the id of an upload
	Dataset    map[string]any `json:"dataset"`    // options of the reader: docs/readers.md
	Trainer    map[string]any `json:"trainer"`    // docs/training.md
	Strategy   map[string]any `json:"strategy"`   // docs/strategy.md
	Ranks      int            `json:"ranks"`      // 0: 1
	Steps      int64          `json:"steps"`      // to make in all
	Checkpoint int64          `json:"checkpoint"` // a checkpoint after so many steps; 0: by time
	Seconds    float64        `json:"checkpoint_seconds"`
}

// Phase says where a job is.
type Phase string

const (
	Waiting Phase = "waiting" // created, not started
	Running Phase = "running"
	Paused  Phase = "paused"
	Done    Phase = "done"
	Failed  Phase = "failed"  // its record is all that is left
	Deleted Phase = "deleted" // what its watchers hear last
)

// Status is what watchers see. Its JSON is the service's promise.
type Status struct {
	ID         string `json:"id"`
	Phase      Phase  `json:"phase"`
	Step       int64  `json:"step"`
	Steps      int64  `json:"steps"`
	Loss       Number `json:"loss"`
	Rate       Number `json:"learning_rate"`
	Seconds    Number `json:"seconds_per_step"`
	Memory     int64  `json:"memory_bytes"` // its part of the budget; 0 of a job that has failed
	Checkpoint int64  `json:"checkpoint_step"`
	Created    int64  `json:"created"` // milliseconds since 1970
	Error      string `json:"error,omitempty"`
	Log        string `json:"log,omitempty"` // a line, of this event alone
}

// Job trains one model. One goroutine has the session; others ask it by way of `asked`, between two steps. Predictions
// go beside the steps: whoever has the predictor predicts.
type Job struct {
	spec            Spec
	folder          string
	plan            *epl.Plan
	inputs, outputs []epl.Info // of predictions
	engine          *epl.Engine
	hub             *hub
	board           *board
	history         *History
	log             *slog.Logger

	asked      chan request
	predictors chan *epl.Predictor // has the job's only one, while nobody predicts
	done       chan struct{}       // closed when the goroutine has ended
	ends       <-chan struct{}     // closed when the service ends
	told       func(error) string  // an error as a client hears it
	deleted    atomic.Bool         // its folder is gone, or about to go
	saved      time.Time           // when a checkpoint was looked for last; of the goroutine

	lock   sync.Mutex
	status Status
}

type request struct {
	run    func(context.Context, *epl.Session, *epl.Dataset) error
	answer chan error
}

func (j *Job) Status() Status {
	j.lock.Lock()
	defer j.lock.Unlock()
	return j.status
}

// change updates the status and tells the watchers.
func (j *Job) change(f func(*Status)) {
	j.lock.Lock()
	f(&j.status)
	status := j.status
	j.status.Log = ""
	j.lock.Unlock()
	j.hub.send(status)
	j.board.send(status)
}

// ask runs f in the job's goroutine, between two steps.
func (j *Job) ask(ctx context.Context, f func(context.Context, *epl.Session, *epl.Dataset) error) error {
	r := request{f, make(chan error, 1)}
	select {
	case j.asked <- r:
	case <-j.done:
		return j.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-r.answer
}

// alive gives an error where nothing but the record of a job is left.
func (j *Job) alive() error {
	select {
	case <-j.done:
		return j.gone()
	default:
		return nil
	}
}

// gone says why a job answers no more.
func (j *Job) gone() error {
	if j.deleted.Load() {
		return errUnknown
	}
	select {
	case <-j.ends:
		return errEnds
	default:
		return errGone
	}
}

// setPhase starts, pauses and resumes. Only a job that is not done can.
func (j *Job) setPhase(ctx context.Context, phase Phase) error {
	return j.ask(ctx, func(_ context.Context, session *epl.Session, data *epl.Dataset) error {
		if now := j.Status().Phase; now == Done || now == Failed {
			return fmt.Errorf("the job is %s", now)
		}
		j.change(func(s *Status) { s.Phase = phase; s.Log = string(phase) })
		if err := j.writeNote(); err != nil || phase != Paused {
			return err
		}
		return j.save(session, data)
	})
}

// saveNow writes a checkpoint of the last step.
func (j *Job) saveNow(ctx context.Context) error {
	return j.ask(ctx, func(_ context.Context, session *epl.Session, data *epl.Dataset) error {
		return j.save(session, data)
	})
}

// export gives a file with the weights as they are between two steps. It has no name any more: closed, it is gone. So a
// client that is slow to take it holds up no step, and keeps the file where the job is deleted.
func (j *Job) export(ctx context.Context) (file *os.File, err error) {
	path := filepath.Join(j.folder, newID()+".onnx")
	defer os.Remove(path)
	err = j.ask(ctx, func(_ context.Context, session *epl.Session, _ *epl.Dataset) (err error) {
		if err = session.ExportONNX(ctx, path); err == nil {
			file, err = os.Open(path)
		}
		return err
	})
	return file, err
}

// explain says what a step is, and why.
func (j *Job) explain(ctx context.Context) (string, error) {
	if err := j.alive(); err != nil {
		return "", err
	}
	text, err := j.plan.Print(ctx, "explain")
	if errors.Is(err, epl.ErrClosed) { // in between
		err = j.gone()
	}
	return text, err
}

// follow sends the status now and after each change, until the job is done, has failed or is deleted. quiet is called
// where nothing has happened for a while; it may be nil.
func (j *Job) follow(ctx context.Context, send func(Status) error, quiet func() error) error {
	watcher := j.hub.watch()
	defer watcher.leave()
	over := func(s Status) bool { return s.Phase == Done || s.Phase == Failed || s.Phase == Deleted }
	if now := j.Status(); over(now) {
		return send(now)
	} else if err := send(now); err != nil {
		return err
	}
	var alive <-chan time.Time
	if quiet != nil {
		ticker := time.NewTicker(15 * time.Second)
		defer ticker.Stop()
		alive = ticker.C
	}
	for {
		select {
		case status := <-watcher.news:
			if err := send(status); err != nil || over(status) {
				return err
			}
			time.Sleep(10 * time.Millisecond) // a step may take some microseconds
		case <-alive:
			if err := quiet(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-j.ends:
			return errEnds
		}
	}
}

func (j *Job) checkpoint() string { return filepath.Join(j.folder, "checkpoint") }

// open makes the session, and the predictor where the model has outputs.
func (j *Job) open(ctx context.Context) (session *epl.Session, predictor *epl.Predictor, err error) {
	if j.outputs, err = j.plan.Outputs(epl.Predict); err != nil {
		return nil, nil, err
	}
	if session, err = j.plan.Session(ctx, epl.SessionOptions{}); err != nil {
		return nil, nil, err
	}
	if len(j.outputs) == 0 {
		return session, nil, nil
	}
	if j.inputs, err = j.plan.Inputs(epl.Predict); err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	if predictor, err = session.Predictor(ctx, nil); err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	return session, predictor, nil
}

// bytesOf says what a session of a plan and its predictor, if the model has outputs, will take: to the byte.
func bytesOf(ctx context.Context, plan *epl.Plan) (session, predictor int64, err error) {
	for rank := range plan.Ranks() {
		session += plan.MemoryPeak(rank)
	}
	outputs, err := plan.Outputs(epl.Predict)
	if err != nil || len(outputs) == 0 {
		return session, 0, err
	}
	text, err := plan.Describe(ctx, "memory")
	if err != nil {
		return 0, 0, err
	}
	var memory struct {
		Predictor int64 `json:"predictor_bytes"`
	}
	err = json.Unmarshal([]byte(text), &memory)
	return session, memory.Predictor, err
}

// run is the job's goroutine: until ctx ends, which lets the step under way end, and saves, or until the job is
// deleted. It closes the plan and what open made of it.
func (j *Job) run(ctx context.Context, session *epl.Session, predictor *epl.Predictor) {
	defer close(j.done)
	err := j.train(ctx, session, predictor)
	if predictor != nil {
		predictor.Close()
	}
	session.Close()
	j.plan.Close()
	if err == nil {
		return
	}
	// Who hears that it has failed finds its part of the budget free.
	j.log.Error("job", "id", j.status.ID, "error", err)
	j.change(func(s *Status) { s.Phase, s.Error, s.Memory = Failed, j.told(err), 0 })
	if err := j.writeNote(); err != nil {
		j.log.Error("job", "id", j.status.ID, "error", err)
	}
}

func (j *Job) train(ctx context.Context, session *epl.Session, predictor *epl.Predictor) error {
	all := context.Background() // calls that must not be cut off
	data, err := j.engine.OpenDataset(all, filepath.Join(filepath.Dir(filepath.Dir(j.folder)), "uploads", j.spec.Data),
		j.spec.Dataset)
	if err != nil {
		return err
	}
	defer data.Close()
	if err := data.Bind(j.plan, epl.Train); err != nil {
		return err
	}
	if _, err := os.Stat(j.checkpoint()); err == nil {
		if err := session.Load(all, j.checkpoint(), data); err != nil {
			return err
		}
		steps := session.Steps()
		if err := j.history.load(filepath.Join(j.folder, "history.json"), steps); err != nil {
			return err
		}
		j.change(func(s *Status) {
			s.Step, s.Checkpoint = steps, steps
			s.Log = fmt.Sprintf("goes on after step %d", steps)
		})
	}
	if predictor != nil {
		j.predictors <- predictor
		defer func() { <-j.predictors }() // a prediction under way ends first
	}
	j.saved = time.Now()
	for !j.deleted.Load() {
		running := j.Status().Phase == Running
		if running && session.Steps() >= j.spec.Steps {
			if err := j.save(session, data); err != nil {
				return err
			}
			j.change(func(s *Status) { s.Phase = Done; s.Log = "done" })
			running = false
		}
		if running {
			select {
			case r := <-j.asked:
				r.answer <- r.run(all, session, data)
				continue
			case <-ctx.Done():
				return j.save(session, data)
			default:
			}
		} else {
			select {
			case r := <-j.asked:
				r.answer <- r.run(all, session, data)
				continue
			case <-ctx.Done():
				return j.save(session, data)
			}
		}
		inputs, err := data.Next(all)
		if err != nil {
			return err
		}
		m, err := session.Step(all, inputs...)
		if err != nil {
			return err
		}
		j.change(func(s *Status) {
			s.Step, s.Loss, s.Rate, s.Seconds = m.Step, Number(m.Loss), Number(m.LearningRate), Number(m.Duration.Seconds())
		})
		j.history.add(m.Step, m.Loss, m.LearningRate)
		if j.due(m.Step) {
			if err := j.save(session, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// due says whether it is time for a checkpoint.
func (j *Job) due(step int64) bool {
	if j.spec.Checkpoint > 0 {
		return step%j.spec.Checkpoint == 0
	}
	return time.Since(j.saved).Seconds() >= j.spec.Seconds
}

// save writes a checkpoint, if there are steps that none has.
func (j *Job) save(session *epl.Session, data *epl.Dataset) error {
	steps := session.Steps()
	j.saved = time.Now()
	if steps == j.Status().Checkpoint {
		return nil
	}
	if err := session.Save(context.Background(), j.checkpoint(), data); err != nil {
		return err
	}
	j.change(func(s *Status) { s.Checkpoint = steps; s.Log = fmt.Sprintf("checkpoint at step %d", steps) })
	return j.history.save(filepath.Join(j.folder, "history.json"))
}

// note is kept in the job's folder: the spec, whether it was to run, and the record of a job that has failed.
type note struct {
	Spec Spec `json:"spec"`
	Status
}

func (j *Job) writeNote() error {
	text, err := json.MarshalIndent(note{j.spec, j.Status()}, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(j.folder, "job.json")
	if err := os.WriteFile(path+".new", text, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// wait gives the job's goroutine so long to end.
func (j *Job) wait(limit time.Duration) bool {
	select {
	case <-j.done:
		return true
	case <-time.After(limit):
		return false
	}
}
