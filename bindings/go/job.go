package epl

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"time"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// JobEventKind says what a [JobEvent] tells.
type JobEventKind int32

const (
	StepDone       JobEventKind = raw.EPL_JOB_STEP     // a step was done
	Measured       JobEventKind = raw.EPL_JOB_MEASURED // the held-out data was measured: JobEvent.Metrics
	CheckpointDone JobEventKind = raw.EPL_JOB_SAVED    // a checkpoint was written to the path JobEvent.Text
	JobWarning     JobEventKind = raw.EPL_JOB_WARNING  // JobEvent.Text is a sentence; training goes on
	JobDone        JobEventKind = raw.EPL_JOB_DONE     // nothing follows: JobEvent.Ended says why
)

// JobEnd says why a job has ended.
type JobEnd int32

const (
	JobRunning      JobEnd = raw.EPL_JOB_RUNNING
	EndedSteps      JobEnd = raw.EPL_JOB_ENDED_STEPS     // all steps were done
	EndedStopped    JobEnd = raw.EPL_JOB_ENDED_STOPPED   // the host has ended it
	EndedPatience   JobEnd = raw.EPL_JOB_ENDED_PATIENCE  // so many measurements in a row were no better
	EndedCancelled  JobEnd = raw.EPL_JOB_ENDED_CANCELLED // its context has ended
	EndedFailed     JobEnd = raw.EPL_JOB_ENDED_FAILED    // a call has failed
	EndedDataIsOver JobEnd = raw.EPL_JOB_ENDED_DATA      // a feed was finished
)

// String is "steps", "patience" and so on.
func (e JobEnd) String() string {
	names := []string{"running", "steps", "stopped", "patience", "cancelled", "failed", "data"}
	if e < 0 || int(e) >= len(names) {
		return "unknown"
	}
	return names[e]
}

// JobEvent is what a job tells: numbers as they stand after it, NaN where there is none yet.
type JobEvent struct {
	Kind             JobEventKind
	Ended            JobEnd  // of JobDone
	Step, Steps      int64   // done, those of earlier runs included; wanted in all, 0: until the data ends
	Epoch            float64 // times through the data
	Samples          int64   // seen, those of earlier runs included; of Measured those that were measured
	Loss             float64 // of the last step
	LearningRate     float64
	GradientNorm     float64 // -1 where it was not computed
	HeldOutLoss      float64 // as measured last
	Monitored        float64 // the number that says which weights are best, as measured last
	BestValue        float64
	BestStep         int64 // of which step the best weights are; -1 where there are none
	Best             bool  // of Measured and CheckpointDone: the best so far
	Elapsed          time.Duration
	Left             time.Duration // about; negative where nobody knows
	SamplesPerSecond float64
	MemoryBytes      int64
	Text             string             // a path, a warning, or why the job has ended
	Metrics          map[string]float64 // of Measured, "loss" among them; NaN where nothing counted
}

func durationOf(seconds float64) time.Duration {
	if math.IsNaN(seconds) || seconds > 9e9 {
		return -1
	}
	return time.Duration(seconds * float64(time.Second))
}

func jobEventOf(e *raw.JobEvent, text string) JobEvent {
	event := JobEvent{Kind: JobEventKind(e.Kind), Ended: JobEnd(e.Ended), Step: e.Step, Steps: e.Steps, Epoch: e.Epoch,
		Samples: e.Samples, Loss: e.Loss, LearningRate: e.LearningRate, GradientNorm: e.GradientNorm,
		HeldOutLoss: e.HeldOutLoss, Monitored: e.Monitored, BestValue: e.BestValue, BestStep: e.BestStep, Best: e.Best != 0,
		Elapsed: durationOf(e.Seconds), Left: durationOf(e.SecondsLeft), SamplesPerSecond: e.SamplesPerSecond,
		MemoryBytes: e.MemoryBytes, Text: text}
	if event.Kind != Measured {
		return event
	}
	var numbers map[string]*float64
	if json.Unmarshal([]byte(text), &numbers) == nil {
		event.Metrics, event.Text = make(map[string]float64, len(numbers)), ""
		for name, value := range numbers {
			event.Metrics[name] = math.NaN()
			if value != nil {
				event.Metrics[name] = *value
			}
		}
	}
	return event
}

// Job is the loop around steps: it trains a session on a dataset, measures it on data that it does not train on, saves
// checkpoints, keeps the best weights, ends early, and goes on with an earlier run to the bit (docs/training.md). It has
// one caller at a time.
type Job struct {
	child
	tokens tokens
	data   *Dataset // whose own errors are explained
}

// NewJob makes a job. settings are those of docs/training.md, as a [JobSettings], or as anything else that
// encoding/json makes an object of.
func (e *Engine) NewJob(settings any) (*Job, error) {
	text, err := document(settings)
	if err != nil {
		return nil, err
	}
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.JobCreate(engine, text)
	if failure != nil {
		return nil, taken(failure)
	}
	j := &Job{}
	j.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.JobDestroy((*raw.Job)(p)) })
	return watch(j, &j.handle), nil
}

// Close gives the job and its folder back. Beside a call of another goroutine it lets that go on to its end.
func (j *Job) Close() error {
	if j.state.Load() >= 0 {
		j.tokens.close()
	}
	return j.handle.Close()
}

func (j *Job) do(f func(*raw.Job) *raw.Error) error {
	at := j.enter()
	if at == nil {
		return ErrClosed
	}
	defer j.leave()
	return taken(f((*raw.Job)(at)))
}

// Set sets one setting, before the job starts.
func (j *Job) Set(key string, value any) error {
	return j.do(func(job *raw.Job) *raw.Error { return raw.JobSet(job, key, textOf(value)) })
}

// TakeFolder takes the job's folder now, which Start does otherwise: [Busy] where another job writes to it, and
// [InvalidArgument] where it holds a run that is neither replaced nor gone on with.
func (j *Job) TakeFolder() error { return j.do(raw.JobTakeFolder) }

// Start refuses what would fail later, and loads the checkpoint that the job goes on from. heldOut may be nil. Datasets
// that are not bound to the session's plan are bound to it.
func (j *Job) Start(ctx context.Context, s *Session, data, heldOut *Dataset) error {
	at := j.enter()
	if at == nil {
		return ErrClosed
	}
	defer j.leave()
	j.data = data
	return withData(data, func(dataset *raw.Dataset) error {
		return withData(heldOut, func(measured *raw.Dataset) error {
			return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
				return raw.JobStart((*raw.Job)(at), session, dataset, measured, call)
			})
		})
	})
}

// Next works until there is an event. An error changes nothing: the same call again does the same work.
func (j *Job) Next(ctx context.Context) (JobEvent, error) {
	at := j.enter()
	if at == nil {
		return JobEvent{}, ErrClosed
	}
	defer j.leave()
	e := raw.NewJobEvent()
	err := j.tokens.within(ctx, j.engine, func(call *raw.CallOptions) *raw.Error {
		return raw.JobNext((*raw.Job)(at), call, &e)
	})
	if err != nil {
		if j.data != nil {
			err = j.data.host.explain(err)
		}
		return JobEvent{}, err
	}
	return jobEventOf(&e, raw.CopyText(e.Text, e.TextLength)), nil
}

// End says that no step follows the one that runs: as [EndedStopped], [EndedCancelled] or [EndedFailed]. Next then does
// what is left, a last checkpoint among it. Any goroutine may call it; the first call counts.
func (j *Job) End(how JobEnd, reason string) error {
	return j.do(func(job *raw.Job) *raw.Error { return raw.JobEnd(job, int32(how), reason) })
}

// Events are those of a job that has started, to its end. A context that ends, and a call that fails, end the job: its
// last checkpoint is written all the same, and then comes the error. So does breaking out of the loop.
func (j *Job) Events(ctx context.Context) iter.Seq2[JobEvent, error] {
	return func(yield func(JobEvent, error) bool) {
		over := false
		defer func() {
			if !over { // the loop's body has panicked
				_ = j.finish(ctx, EndedFailed, "the host has failed")
			}
		}()
		for {
			event, err := j.Next(ctx)
			if err != nil {
				over = true
				yield(event, errors.Join(err, j.finish(ctx, endOf(err), err.Error())))
				return
			}
			over = event.Kind == JobDone
			if goesOn := yield(event, nil); over {
				return
			} else if !goesOn {
				over = true
				_ = j.finish(ctx, EndedStopped, "")
				return
			}
		}
	}
}

func endOf(err error) JobEnd {
	if errors.Is(err, Cancelled) || errors.Is(err, DeadlineExceeded) {
		return EndedCancelled
	}
	return EndedFailed
}

// finish ends the job and does what is left, whatever has become of the context.
func (j *Job) finish(ctx context.Context, how JobEnd, reason string) error {
	if err := j.End(how, reason); err != nil {
		return err
	}
	for {
		event, err := j.Next(context.WithoutCancel(ctx))
		if err != nil || event.Kind == JobDone {
			return err
		}
	}
}

// Describe gives, as JSON, settings, paths, numbers and the history of the job and of those that it goes on with.
func (j *Job) Describe() (string, error) {
	at := j.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer j.leave()
	return given(raw.JobDescribe((*raw.Job)(at)))
}

// FindCheckpoint gives the checkpoint that a path means: it, or the newest of a job's folder. A path that is neither
// stays as it is.
func (e *Engine) FindCheckpoint(path string) (string, error) {
	engine, done, err := e.use()
	if err != nil {
		return "", err
	}
	defer done()
	return given(raw.CheckpointFind(engine, path))
}

// BindDataset binds the inputs of a model, and the target where it is a class, as batches of a dataset have them.
func (t *Trainer) BindDataset(m *Model, data *Dataset) error {
	model, done, err := m.use()
	if err != nil {
		return err
	}
	defer done()
	return withData(data, func(dataset *raw.Dataset) error {
		return t.do(func(trainer *raw.Trainer) *raw.Error { return raw.TrainerBindDataset(trainer, model, dataset) })
	})
}
