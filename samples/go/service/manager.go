package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	epl "epl.ai/go"
)

// Manager has the jobs of one folder, under one memory budget. The folder has `uploads` and `jobs`.
type Manager struct {
	folder  string
	budget  int64 // bytes of all sessions and predictors together; 0: none
	engine  *epl.Engine
	owner   *epl.FolderLock // no other process trains the same jobs
	uploads *Uploads
	board   *board
	log     *slog.Logger

	ctx  context.Context
	stop context.CancelFunc

	making sync.Mutex // a job after the other is let in
	lock   sync.Mutex
	jobs   map[string]*Job
	coming map[string]Spec // of jobs that are not let in yet
	last   int64           // when the last one was created
}

// What a client may ask for.
const (
	mostSteps = 1 << 40
	mostRanks = 64
	mostAhead = 16 // batches, which are memory beside the budget
)

// Options of a dataset that a client may set (docs/readers.md). A file that one of them names lies among the uploads:
// the library sees to that.
var datasetOptions = []string{"batch", "channels", "classes", "context", "fields", "fit", "header", "height", "held_out",
	"ignore", "input", "inputs", "layout", "mean", "missing", "order", "partial", "prefetch", "reader", "seed", "separator",
	"split", "split_seed", "std", "stride", "target", "target_column", "width"}

var unknown = Number(math.NaN())

// Where folders of deleted jobs are until all of their files are removed. No job has this name.
var deletedJobs = filepath.Join("jobs", "deleted")

// Open takes up a folder with what is in it: jobs that ran go on from their last checkpoint.
func Open(folder string, limits Limits, threads int, log *slog.Logger) (*Manager, error) {
	folder, err := filepath.Abs(folder)
	if err == nil {
		err = os.MkdirAll(folder, 0o777)
	}
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder) // messages name it as it is, and clients do not hear it
	}
	if err != nil {
		return nil, err
	}
	engine, err := epl.NewEngine(epl.EngineOptions{Threads: threads, Logger: log})
	if err != nil {
		return nil, err
	}
	m := &Manager{folder: folder, budget: limits.Budget, engine: engine, board: newBoard(), log: log, jobs: map[string]*Job{},
		coming: map[string]Spec{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	if m.owner, err = engine.LockFolder(folder); err == nil {
		if err = m.takeUp(limits); err != nil {
			err = errors.Join(err, m.Close())
			return nil, err
		}
		return m, nil
	}
	engine.Close()
	return nil, err
}

// takeUp opens what is in the folder.
func (m *Manager) takeUp(limits Limits) error {
	if err := os.RemoveAll(filepath.Join(m.folder, deletedJobs)); err != nil {
		return err
	}
	for _, one := range []string{"uploads", "jobs", deletedJobs} {
		if err := os.MkdirAll(filepath.Join(m.folder, one), 0o777); err != nil {
			return err
		}
	}
	var err error
	if m.uploads, err = openUploads(filepath.Join(m.folder, "uploads"), limits); err != nil {
		return err
	}
	notes, err := filepath.Glob(filepath.Join(m.folder, "jobs", "*", "job.json"))
	if err != nil {
		return err
	}
	slices.Sort(notes)
	for _, path := range notes {
		var n note
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		id := filepath.Base(filepath.Dir(path))
		m.last = max(m.last, n.Created)
		if err == nil && n.Phase != Failed {
			_, err = m.begin(m.ctx, id, n.Spec, n.Phase, n.Created)
		}
		if err != nil { // its note keeps its phase: when the service starts again, there may be what it lacks
			m.log.Error("a job cannot go on", "note", path, "error", err)
			n.Phase, n.Error = Failed, m.told(err)
		}
		if n.Phase == Failed {
			j := m.newJob(id, n.Spec)
			n.Status.ID, n.Status.Steps, n.Status.Memory = id, n.Spec.Steps, 0
			j.status = n.Status
			close(j.done)
			m.jobs[id] = j
		}
	}
	return nil
}

// newJob makes one that has nothing yet.
func (m *Manager) newJob(id string, spec Spec) *Job {
	return &Job{spec: spec, folder: filepath.Join(m.folder, "jobs", id), engine: m.engine, hub: newHub(), log: m.log,
		board: m.board, history: newHistory(), told: m.told,
		asked: make(chan request), predictors: make(chan *epl.Predictor, 1), done: make(chan struct{}), ends: m.ctx.Done()}
}

func newID() string {
	var bytes [8]byte
	rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

// Create plans a job, which bounds its memory before anything is allocated, and takes it on if the budget allows.
func (m *Manager) Create(ctx context.Context, spec Spec) (*Job, error) {
	id := newID()
	defer m.claim(id, spec)()
	if err := m.check(&spec); err != nil {
		return nil, err
	}
	j, err := m.begin(ctx, id, spec, Waiting, m.moment())
	if err != nil {
		os.RemoveAll(filepath.Join(m.folder, "jobs", id))
	}
	return j, err
}

// moment is when a job is created: in milliseconds, and no two at once.
func (m *Manager) moment() int64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.last = max(time.Now().UnixMilli(), m.last+1)
	return m.last
}

// check looks at what a client asks for, before anything is made of it.
func (m *Manager) check(spec *Spec) error {
	if spec.Steps <= 0 || spec.Steps > mostSteps {
		return fmt.Errorf("steps is %d; a number from 1 to %d is expected", spec.Steps, int64(mostSteps))
	}
	if spec.Ranks < 0 || spec.Ranks > mostRanks {
		return fmt.Errorf("ranks is %d; a number from 0 to %d is expected", spec.Ranks, mostRanks)
	}
	if spec.Checkpoint < 0 || spec.Checkpoint > mostSteps {
		return fmt.Errorf("checkpoint is %d; a number from 0 to %d is expected", spec.Checkpoint, int64(mostSteps))
	}
	if !(spec.Seconds >= 0 && spec.Seconds < 1e9) { // nor NaN, which gRPC has
		return fmt.Errorf("checkpoint_seconds is %g; a number from 0 to 1e9 is expected", spec.Seconds)
	}
	if spec.Seconds == 0 {
		spec.Seconds = 60
	}
	for name, value := range spec.Dataset {
		if !slices.Contains(datasetOptions, name) {
			return fmt.Errorf("a client cannot set the dataset's option %q; there are: %s", excerpt(name),
				strings.Join(datasetOptions, ", "))
		}
		if ahead, ok := value.(float64); name == "prefetch" && ok && ahead > mostAhead {
			return fmt.Errorf("prefetch is %g; this service reads at most %d batches ahead", ahead, mostAhead)
		}
	}
	for _, upload := range []string{spec.Model, spec.Data} {
		if _, err := m.uploads.find(upload); err != nil {
			return err
		}
	}
	return nil
}

// try opens a job's data as its goroutine will, and looks at every sample: what cannot run is not taken on.
func (m *Manager) try(ctx context.Context, plan *epl.Plan, spec Spec) error {
	path, err := m.uploads.find(spec.Data)
	if err != nil {
		return err
	}
	data, err := m.engine.OpenDataset(ctx, path, spec.Dataset)
	if err != nil {
		return err
	}
	defer data.Close()
	if err := data.Bind(plan, epl.Train); err != nil {
		return err
	}
	return data.Check(ctx, plan, epl.Train)
}

func (m *Manager) begin(ctx context.Context, id string, spec Spec, phase Phase, created int64) (*Job, error) {
	plan, err := m.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	if phase == Waiting {
		if err := m.try(ctx, plan, spec); err != nil {
			plan.Close()
			return nil, err
		}
	}
	j := m.newJob(id, spec)
	j.plan, j.status = plan, Status{ID: id, Phase: phase, Steps: spec.Steps, Created: created, Loss: unknown,
		Rate: unknown, Seconds: unknown}
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
	m.board.send(j.Status())
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
	slices.SortFunc(all, byTime)
	return all
}

// users are the jobs that need an upload.
func (m *Manager) users(upload string) []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	ids := []string{}
	for id, j := range m.jobs {
		if j.spec.uses(upload) {
			ids = append(ids, id)
		}
	}
	for id, spec := range m.coming {
		if spec.uses(upload) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// DeleteUpload removes one that no job uses. Jobs are not let in meanwhile.
func (m *Manager) DeleteUpload(id string) (Upload, error) {
	m.making.Lock()
	defer m.making.Unlock()
	return m.uploads.remove(id, m.users)
}

// follow sends the status of every job, now and after each change, at most some times a second.
func (m *Manager) follow(ctx context.Context, send func(Status) error, quiet func() error) error {
	reader := m.board.join(m.List())
	defer m.board.leave(reader)
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		select {
		case <-reader.wake:
			for _, one := range m.board.take(reader) {
				if err := send(one); err != nil {
					return err
				}
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-alive.C:
			if err := quiet(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return errEnds
		}
	}
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
	err = errors.Join(err, m.owner.Close())
	m.engine.Close()
	return err
}
