package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	epl "epl.ai/go"
)

// Manager has the jobs of one folder, under one memory budget. The folder has `uploads` and `jobs`.
type Manager struct {
	folder string
	budget int64 // bytes of all sessions and predictors together; 0: none
	engine *epl.Engine
	log    *slog.Logger

	ctx  context.Context
	stop context.CancelFunc

	making sync.Mutex // a job after the other is let in
	lock   sync.Mutex
	jobs   map[string]*Job
}

// Where folders of deleted jobs are until all of their files are removed. No job has this name.
var deletedJobs = filepath.Join("jobs", "deleted")

// Open takes up a folder with what is in it: jobs that ran go on from their last checkpoint.
func Open(folder string, budget int64, threads int, log *slog.Logger) (*Manager, error) {
	if err := os.RemoveAll(filepath.Join(folder, deletedJobs)); err != nil {
		return nil, err
	}
	for _, one := range []string{"uploads", "jobs", deletedJobs} {
		if err := os.MkdirAll(filepath.Join(folder, one), 0o777); err != nil {
			return nil, err
		}
	}
	engine, err := epl.NewEngine(epl.EngineOptions{Threads: threads, Logger: log})
	if err != nil {
		return nil, err
	}
	m := &Manager{folder: folder, budget: budget, engine: engine, log: log, jobs: map[string]*Job{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	notes, err := filepath.Glob(filepath.Join(folder, "jobs", "*", "job.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(notes)
	for _, path := range notes {
		var n note
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		id := filepath.Base(filepath.Dir(path))
		if err == nil && n.Phase != Failed {
			_, err = m.begin(m.ctx, id, n.Spec, n.Phase)
		}
		if err != nil { // its note keeps its phase: when the service starts again, there may be what it lacks
			log.Error("a job cannot go on", "note", path, "error", err)
			n.Phase, n.Error = Failed, err.Error()
		}
		if n.Phase == Failed {
			j := m.newJob(id, n.Spec)
			n.Status.ID, n.Status.Steps, n.Status.Memory = id, n.Spec.Steps, 0
			j.status = n.Status
			close(j.done)
			m.jobs[id] = j
		}
	}
	return m, nil
}

// newJob makes one that has nothing yet.
func (m *Manager) newJob(id string, spec Spec) *Job {
	return &Job{spec: spec, folder: filepath.Join(m.folder, "jobs", id), engine: m.engine, hub: newHub(), log: m.log,
		asked: make(chan request), predictors: make(chan *epl.Predictor, 1), done: make(chan struct{}), ends: m.ctx.Done()}
}

func newID() string {
	var bytes [8]byte
	rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

const largestUpload = 8 << 30

// What a client may name a file: it becomes part of a path.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$`)

// Upload keeps a file under an id, which ends in its name, so that a reader is found by the ending.
func (m *Manager) Upload(name string, body io.Reader) (string, error) {
	if !plainName.MatchString(name) {
		return "", fmt.Errorf("%q is no plain file name", name)
	}
	id := newID() + "-" + name
	path := filepath.Join(m.folder, "uploads", id)
	file, err := os.Create(path + ".part")
	if err != nil {
		return "", err
	}
	// One byte more than is allowed shows that there are more.
	if size, failure := io.Copy(file, io.LimitReader(body, largestUpload+1)); failure != nil {
		err = failure
	} else if size > largestUpload {
		err = errTooLarge
	}
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(path+".part"))
	}
	return id, nil
}

// Create plans a job, which bounds its memory before anything is allocated, and takes it on if the budget allows.
func (m *Manager) Create(ctx context.Context, spec Spec) (*Job, error) {
	for _, upload := range []string{spec.Model, spec.Data} {
		if !plainName.MatchString(upload) {
			return nil, errUnknown
		}
		if _, err := os.Stat(filepath.Join(m.folder, "uploads", upload)); err != nil {
			return nil, fmt.Errorf("%w: %s", errUnknown, upload)
		}
	}
	if spec.Steps <= 0 {
		return nil, errors.New("steps must be positive")
	}
	if spec.Checkpoint == 0 {
		spec.Checkpoint = 100
	}
	id := newID()
	j, err := m.begin(ctx, id, spec, Waiting)
	if err != nil {
		os.RemoveAll(filepath.Join(m.folder, "jobs", id))
	}
	return j, err
}

func (m *Manager) begin(ctx context.Context, id string, spec Spec, phase Phase) (*Job, error) {
	plan, err := m.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	j := m.newJob(id, spec)
	j.plan, j.status = plan, Status{ID: id, Phase: phase, Steps: spec.Steps}
	err = os.MkdirAll(j.folder, 0o777)
	if err == nil {
		err = j.writeNote()
	}
	if err == nil {
		err = m.admit(ctx, j)
	}
	if err != nil {
		plan.Close()
		return nil, err
	}
	return j, nil
}

// admit lets a job begin, if the budget has room for its session and its predictor, before either is made.
func (m *Manager) admit(ctx context.Context, j *Job) error {
	m.making.Lock()
	defer m.making.Unlock()
	ofSession, ofPredictor, err := bytesOf(ctx, j.plan)
	if err != nil {
		return err
	}
	j.status.Memory = ofSession + ofPredictor
	if free := m.budget - m.used(); m.budget > 0 && j.status.Memory > free {
		return &overBudget{j.status.Memory, free}
	}
	session, predictor, err := j.open(ctx)
	if err != nil {
		return err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.ctx.Err() != nil {
		if predictor != nil {
			predictor.Close()
		}
		return errors.Join(errEnds, session.Close())
	}
	m.jobs[j.status.ID] = j
	go j.run(m.ctx, session, predictor)
	return nil
}

func (m *Manager) plan(ctx context.Context, spec Spec) (*epl.Plan, error) {
	model, err := m.engine.LoadModel(ctx, filepath.Join(m.folder, "uploads", spec.Model), epl.ModelOptions{})
	if err != nil {
		return nil, err
	}
	defer model.Close()
	trainer, err := m.engine.ParseTrainer(spec.Trainer)
	if err != nil {
		return nil, err
	}
	defer trainer.Close()
	strategy, err := m.engine.ParseStrategy(spec.Strategy)
	if err != nil {
		return nil, err
	}
	defer strategy.Close()
	return model.Plan(ctx, trainer, strategy, epl.PlanOptions{Ranks: spec.Ranks})
}

// used is the memory of all jobs.
func (m *Manager) used() (bytes int64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, j := range m.jobs {
		bytes += j.Status().Memory
	}
	return bytes
}

func (m *Manager) Job(id string) (*Job, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if j := m.jobs[id]; j != nil {
		return j, nil
	}
	return nil, errUnknown
}

func (m *Manager) List() []Status {
	m.lock.Lock()
	defer m.lock.Unlock()
	all := []Status{}
	for _, j := range m.jobs {
		all = append(all, j.Status())
	}
	slices.SortFunc(all, func(a, b Status) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// Delete ends a job between two steps, without a checkpoint, and removes it with its files. What is under way with it,
// a prediction or a download, comes to its end. A kill leaves the whole job or nothing: the folder goes by one rename.
func (m *Manager) Delete(ctx context.Context, j *Job) error {
	id := j.Status().ID
	aside := filepath.Join(m.folder, deletedJobs, id)
	take := func(context.Context, *epl.Session, *epl.Dataset) error {
		if j.deleted.Swap(true) {
			return errUnknown // another client was first
		}
		err := os.Rename(j.folder, aside)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // somebody has removed its files by hand
		}
		if err != nil {
			j.deleted.Store(false)
		}
		return err
	}
	err := j.ask(ctx, take)
	if errors.Is(err, errGone) { // it has failed: nobody writes to its folder any more
		err = take(ctx, nil, nil)
	}
	if err != nil {
		return err
	}
	<-j.done
	m.lock.Lock()
	delete(m.jobs, id)
	m.lock.Unlock()
	err = os.RemoveAll(aside)
	j.change(func(s *Status) { s.Phase, s.Memory, s.Log = Deleted, 0, string(Deleted) })
	return err
}

// Close lets every job end the step it is in, and saves them all. No step is lost.
func (m *Manager) Close() error {
	m.stop()
	m.lock.Lock()
	defer m.lock.Unlock()
	var err error
	for id, j := range m.jobs {
		if !j.wait(time.Minute) {
			err = errors.Join(err, fmt.Errorf("job %s has not ended", id))
			continue
		}
		if j.Status().Phase != Failed && !j.deleted.Load() {
			err = errors.Join(err, j.writeNote())
		}
	}
	m.engine.Close()
	return err
}
