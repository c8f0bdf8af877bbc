package epl

import (
	"context"
	"encoding/json"
	"math"
)

// FitOptions are the options of [Fit] and of [Model.Fit].
type FitOptions struct {
	HeldOut  *Dataset                  // data that is measured on and not trained on; nil: none
	Settings any                       // of the job, as Engine.NewJob takes them: JobSettings
	Progress func(event JobEvent) bool // nil, or called with every event; false ends the job after its last checkpoint

	// Of Model.Fit alone: a session has all of it already.
	Trainer  any         // a *Trainer, or what Engine.ParseTrainer takes: TrainerSettings; nil: all defaults
	Strategy any         // a *Strategy, or what Engine.ParseStrategy takes; nil: all defaults
	Plan     PlanOptions // as Model.Plan takes them
}

// Fit runs a job from its start to its end, and gives its last event: JobEvent.Ended says why it has ended. A context
// that ends is an error; what was trained until then is in the session, and in the folder where there is one.
func Fit(ctx context.Context, s *Session, data *Dataset, options FitOptions) (JobEvent, error) {
	if options.Trainer != nil || options.Strategy != nil || options.Plan != (PlanOptions{}) {
		return JobEvent{}, &Error{Code: InvalidArgument, Rank: -1,
			Message: "a session has a trainer, a strategy and a plan; Model.Fit takes others"}
	}
	return fit(ctx, s, data, options)
}

func fit(ctx context.Context, s *Session, data *Dataset, options FitOptions) (JobEvent, error) {
	j, err := s.owner.NewJob(options.Settings)
	if err != nil {
		return JobEvent{}, err
	}
	defer j.Close()
	if err := j.Start(ctx, s, data, options.HeldOut); err != nil {
		return JobEvent{}, err
	}
	var last JobEvent
	for event, err := range j.Events(ctx) {
		if err != nil {
			return last, err
		}
		last = event
		if options.Progress != nil && event.Kind != JobDone && !options.Progress(event) {
			if err := j.End(EndedStopped, "the host has ended it"); err != nil {
				return last, err
			}
			options.Progress = nil
		}
	}
	return last, nil
}

// Fit trains the model on a dataset: it binds the inputs as the data has them, makes a plan and a session, and runs a
// job on it as [Fit] does. A schedule that goes to an end has it at the job's, unless "schedule.total_steps" says more.
// Close the session. It is given with an error as well where it was made: what was trained until then is in it.
func (m *Model) Fit(ctx context.Context, data *Dataset, options FitOptions) (*Session, JobEvent, error) {
	s, err := m.sessionFor(ctx, data, options)
	if err != nil {
		return nil, JobEvent{}, err
	}
	last, err := fit(ctx, s, data, options)
	return s, last, err
}

func (m *Model) sessionFor(ctx context.Context, data *Dataset, options FitOptions) (*Session, error) {
	trainer, given := options.Trainer.(*Trainer)
	if !given {
		text, err := m.owner.withTotalSteps(options.Trainer, options.Settings, data)
		if err != nil {
			return nil, err
		}
		if trainer, err = m.owner.ParseTrainer(text); err != nil {
			return nil, err
		}
		defer trainer.Close()
	}
	strategy, given := options.Strategy.(*Strategy)
	if !given && options.Strategy != nil {
		var err error
		if strategy, err = m.owner.ParseStrategy(options.Strategy); err != nil {
			return nil, err
		}
		defer strategy.Close()
	}
	if err := trainer.BindDataset(m, data); err != nil {
		return nil, err
	}
	plan, err := m.Plan(ctx, trainer, strategy, options.Plan)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	return plan.Session(ctx, SessionOptions{})
}

// withTotalSteps gives the settings of a trainer, with the end of the job as that of its schedule, which may have one.
func (e *Engine) withTotalSteps(trainer, job any, data *Dataset) (string, error) {
	text, err := document(trainer)
	if err != nil {
		return "", err
	}
	settings, err := document(job)
	if err != nil {
		return "", err
	}
	var keys map[string]json.RawMessage
	var asked struct {
		Schedule string
		Steps    float64
		Epochs   float64
	}
	// What is no JSON is refused, in its own words, by what reads it next.
	if json.Unmarshal([]byte(text), &keys) != nil || json.Unmarshal(keys["schedule"], &asked.Schedule) != nil ||
		json.Unmarshal([]byte(settings), &asked) != nil || keys["schedule.total_steps"] != nil {
		return text, nil
	}
	steps := asked.Steps
	if steps == 0 && asked.Epochs > 0 {
		steps = math.Round(asked.Epochs * float64(data.Batches()))
	}
	if ends, err := e.scheduleEnds(asked.Schedule); err != nil || !ends || steps <= 0 {
		return text, err
	}
	keys["schedule.total_steps"], _ = json.Marshal(int64(steps))
	whole, err := json.Marshal(keys)
	return string(whole), err
}

func (e *Engine) scheduleEnds(schedule string) (bool, error) {
	text, err := e.Describe()
	if err != nil {
		return false, err
	}
	var known struct {
		Schedules []struct {
			Name    string
			Options map[string]any
		}
	}
	if err := json.Unmarshal([]byte(text), &known); err != nil {
		return false, err
	}
	for _, row := range known.Schedules {
		if _, ends := row.Options["total_steps"]; ends && row.Name == schedule {
			return true, nil
		}
	}
	return false, nil
}
