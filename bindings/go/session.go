package epl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// SessionOptions are the options of [Plan.Session]. The zero value: the ranks of the plan are threads of this process.
// Otherwise each process of a job has some of the ranks, and all make the same calls (docs/processes.md).
type SessionOptions struct {
	FirstRank, Ranks int           // this process has Ranks ranks from FirstRank on
	Rendezvous       string        // "tcp://HOST:PORT", what Store.ID gives, or "file:///FOLDER"
	Secret           string        `json:"-"` // what all processes know and nobody else; no text of the options shows it
	Address          string        // of this host, under which the others reach it
	Transport        string        // "shared,sockets" if empty
	JoinTimeout      time.Duration // for all processes to come; 0: a minute
	SilenceTimeout   time.Duration // for a process that says nothing within a call; 0: ten minutes
	Slices           bool          // calls take the samples of this process's ranks alone: Plan.Slice
	TakeWeights      bool          // those of rank 0 where the model file of this process has others; else an error
	CompareEvery     int           // steps between comparisons of copies; 0: 100; -1: with checkpoints alone
	Integrity        string        // "hmac" signs what goes over connections, by the secret; "none" if empty
}

// String is what logs show of the options: all but the secret.
func (o SessionOptions) String() string {
	type shown SessionOptions // without this method
	if o.Secret != "" {
		o.Secret = "(hidden)"
	}
	return fmt.Sprintf("%+v", shown(o))
}

// GoString is the same for %#v.
func (o SessionOptions) GoString() string { return "epl.SessionOptions" + o.String() }

// Metrics is what a step or an evaluation tells.
type Metrics struct {
	Step         int64   // steps done, this one included
	Loss         float64 // before the update
	GradientNorm float64 // global, before clipping; -1 where it was not computed
	LearningRate float64 // of the ungrouped parameters; 0 of an evaluation
	Duration     time.Duration
}

func metricsOf(m *raw.Metrics) Metrics {
	return Metrics{m.Step, m.Loss, m.GradientNorm, m.LearningRate, time.Duration(m.Nanoseconds)}
}

// Session is a running training job. It has one caller at a time; a second one gets [Busy].
type Session struct {
	child
	outputs int
	names   map[Entry]names
	tokens  tokens
}

// names are those of an entry's inputs and outputs, in their order.
type names struct{ inputs, outputs []string }

// Session makes a session: memory is allocated and weights are read.
func (p *Plan) Session(ctx context.Context, options SessionOptions) (*Session, error) {
	plan, done, err := p.use()
	if err != nil {
		return nil, err
	}
	defer done()
	o := raw.NewSessionOptions()
	o.FirstRank, o.Ranks = int64(options.FirstRank), int64(options.Ranks)
	o.JoinTimeoutNanoseconds = int64(options.JoinTimeout)
	o.SilenceTimeoutNanoseconds = int64(options.SilenceTimeout)
	if options.Slices {
		o.Slices = 1
	}
	if options.TakeWeights {
		o.TakeWeights = 1
	}
	o.CompareEvery = int64(options.CompareEvery)
	if options.Integrity != "" {
		o.Integrity, o.IntegrityLength = raw.AllocText(options.Integrity)
		defer raw.FreeText(o.Integrity)
	}
	if options.Rendezvous != "" {
		o.Rendezvous, o.RendezvousLength = raw.AllocText(options.Rendezvous)
		defer raw.FreeText(o.Rendezvous)
	}
	if options.Secret != "" {
		o.Secret, o.SecretLength = raw.AllocText(options.Secret)
		defer raw.FreeText(o.Secret)
	}
	if options.Address != "" {
		o.Address, o.AddressLength = raw.AllocText(options.Address)
		defer raw.FreeText(o.Address)
	}
	if options.Transport != "" {
		o.Transport, o.TransportLength = raw.AllocText(options.Transport)
		defer raw.FreeText(o.Transport)
	}
	var made *raw.Session
	err = within(ctx, p.engine, func(call *raw.CallOptions) (failure *raw.Error) {
		made, failure = raw.SessionCreate(plan, &o, call)
		return
	})
	if err != nil {
		return nil, err
	}
	named, err := p.names()
	if err != nil {
		raw.SessionDestroy(made)
		return nil, err
	}
	s := &Session{outputs: len(named[Predict].outputs), names: named}
	s.adopt(p.owner, unsafe.Pointer(made), func(at unsafe.Pointer) { raw.SessionDestroy((*raw.Session)(at)) })
	return watch(s, &s.handle), nil
}

// Close gives the session back. Beside a call of another goroutine it lets that go on to its end.
func (s *Session) Close() error {
	if s.state.Load() >= 0 {
		s.tokens.close()
	}
	return s.handle.Close()
}

// batch is the handles of the inputs of a call, which are held while it runs.
type batch struct {
	all  []*raw.Tensor // memory of its own, without a pointer of Go's, as cgo wants it
	held []*Tensor
}

func (b *batch) take(inputs []*Tensor) error {
	b.all = make([]*raw.Tensor, 0, len(inputs))
	for i, input := range inputs {
		var at *raw.Tensor
		if input != nil { // nil: a slice that no rank of this process reads
			if at = (*raw.Tensor)(input.enter()); at == nil {
				b.held = inputs[:i]
				b.free()
				return ErrClosed
			}
		}
		b.all = append(b.all, at)
	}
	b.held = inputs
	return nil
}

func (b *batch) free() {
	for _, input := range b.held {
		if input != nil {
			input.leave()
		}
	}
}

// run makes one call with inputs.
func (s *Session) run(ctx context.Context, inputs []*Tensor,
	f func(*raw.Session, []*raw.Tensor, *raw.CallOptions) *raw.Error) error {
	at := s.enter()
	if at == nil {
		return ErrClosed
	}
	defer s.leave()
	var b batch
	if err := b.take(inputs); err != nil {
		return err
	}
	defer b.free()
	return s.tokens.within(ctx, s.engine, func(call *raw.CallOptions) *raw.Error {
		return f((*raw.Session)(at), b.all, call)
	})
}

// Step makes one optimizer step over the global batch, inputs in the order of Plan.Inputs(Train). A step happens or
// does not: after an error nothing has changed.
func (s *Session) Step(ctx context.Context, inputs ...*Tensor) (Metrics, error) {
	m := raw.NewMetrics()
	err := s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionStep(session, all, call, &m)
	})
	return metricsOf(&m), err
}

// Gradients makes the gradients of a batch without an update, for a trainer with keep_gradients: Get and Set read and
// change them as "<parameter>.gradient".
func (s *Session) Gradients(ctx context.Context, inputs ...*Tensor) (Metrics, error) {
	m := raw.NewMetrics()
	err := s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionGradients(session, all, call, &m)
	})
	return metricsOf(&m), err
}

// Apply is the update of a step, by the gradients that the session has.
func (s *Session) Apply(ctx context.Context) (Metrics, error) {
	m := raw.NewMetrics()
	err := s.run(ctx, nil, func(session *raw.Session, _ []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionApply(session, call, &m)
	})
	return metricsOf(&m), err
}

// Evaluate computes the loss without an update, dropout off.
func (s *Session) Evaluate(ctx context.Context, inputs ...*Tensor) (Metrics, error) {
	m := raw.NewMetrics()
	err := s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionEvaluate(session, all, call, &m)
	})
	return metricsOf(&m), err
}

// Predict gives the outputs of the model, new tensors in the order of Plan.Outputs(Predict).
func (s *Session) Predict(ctx context.Context, inputs ...*Tensor) ([]*Tensor, error) {
	made := make([]*raw.Tensor, s.outputs)
	err := s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionPredict(session, all, call, made)
	})
	if err != nil {
		return nil, err
	}
	return newTensors(made), nil
}

// PredictInto is Predict into tensors that are there, of the types and sizes of the outputs of so many samples; nil for
// one that is not wanted. They share no memory with the inputs. After an error they hold anything.
func (s *Session) PredictInto(ctx context.Context, inputs, outputs []*Tensor) error {
	var into batch
	if err := into.take(outputs); err != nil {
		return err
	}
	defer into.free()
	return s.run(ctx, inputs, func(session *raw.Session, all []*raw.Tensor, call *raw.CallOptions) *raw.Error {
		return raw.SessionPredictInto(session, all, call, into.all)
	})
}

// Output is an output of the last step ([Train]) or of the last evaluation ([Evaluate]) by its name: "loss" of a step,
// or what a key of the strategy merges ("outputs.global_mean").
func (s *Session) Output(entry Entry, name string) (*Tensor, error) {
	var made *raw.Tensor
	err := s.do(func(session *raw.Session) (failure *raw.Error) {
		made, failure = raw.SessionOutput(session, int32(entry), name)
		return
	})
	if err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

// Train steps over a dataset that is bound to the plan until the session has made `until` steps in all, and gives each
// step's metrics. Where the session has made so many already, the loop ends at once, without a step, as a [Job] of so
// many steps does. It ends with the first error, and the batch of a step that was given up is the next one again, unless
// a feed has given it. Breaking out of the loop ends the training between two steps.
func (s *Session) Train(ctx context.Context, data *Dataset, until int64) iter.Seq2[Metrics, error] {
	return func(yield func(Metrics, error) bool) {
		for s.Steps() < until {
			m, err := s.next(ctx, data)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// next makes a step of the next batch.
func (s *Session) next(ctx context.Context, data *Dataset) (Metrics, error) {
	before, steps := data.Position(), s.Steps()
	inputs, err := data.Next(ctx)
	if err != nil {
		if told := s.GiveUp(context.WithoutCancel(ctx), err.Error()); told != nil {
			err = errors.Join(err, told)
		}
		return Metrics{}, err
	}
	m, err := s.Step(ctx, inputs...)
	givenUp := errors.Is(err, Cancelled) || errors.Is(err, DeadlineExceeded) || errors.Is(err, PeerFailed)
	// It may also have been made before a peer was lost.
	if givenUp && s.Steps() == steps && !data.pushed {
		if back := data.SeekBatch(before); back != nil {
			err = errors.Join(err, back)
		}
	}
	return m, err
}

// GiveUp tells the other processes of a job that this one will not make its next call, for example because it cannot
// read its samples. The call that they are in, or their next one, ends with [PeerFailed] and the reason; afterwards all
// may make the same call again. In one process it does nothing.
func (s *Session) GiveUp(ctx context.Context, reason string) error {
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionGiveUp(session, reason, call)
	})
}

// Agree compares with the other processes of a job what all must have in common: facts, a JSON object of the caller's own,
// and the data, nil for none. What differs is an error in all of them that names it. In one process it does nothing.
func (s *Session) Agree(ctx context.Context, facts string, data *Dataset) error {
	return withData(data, func(dataset *raw.Dataset) error {
		return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
			return raw.SessionAgree(session, facts, dataset, call)
		})
	})
}

func (s *Session) do(f func(*raw.Session) *raw.Error) error {
	at := s.enter()
	if at == nil {
		return ErrClosed
	}
	defer s.leave()
	return taken(f((*raw.Session)(at)))
}

func (s *Session) wait(ctx context.Context, f func(*raw.Session, *raw.CallOptions) *raw.Error) error {
	at := s.enter()
	if at == nil {
		return ErrClosed
	}
	defer s.leave()
	return within(ctx, s.engine, func(call *raw.CallOptions) *raw.Error { return f((*raw.Session)(at), call) })
}

// Steps is the number of steps done. Any goroutine may ask, also while a step runs.
func (s *Session) Steps() int64 {
	at := s.enter()
	if at == nil {
		return 0
	}
	defer s.leave()
	return raw.SessionSteps((*raw.Session)(at))
}

// MemoryPeak is the number of bytes that a rank has used at its fullest so far, never above the plan's.
func (s *Session) MemoryPeak(rank int) int64 {
	at := s.enter()
	if at == nil {
		return -1
	}
	defer s.leave()
	return raw.SessionMemoryBytesPeak((*raw.Session)(at), int64(rank))
}

// Metric is a scalar output of the last step, "gradient_norm:<parameter>" for example.
func (s *Session) Metric(name string) (value float64, err error) {
	err = s.do(func(session *raw.Session) (failure *raw.Error) {
		value, failure = raw.SessionMetric(session, name)
		return
	})
	return value, err
}

// Number is a number that decides how training goes on: "learning_rate", "learning_rate:GROUP",
// "learning_rate_scale" or "frozen:PATTERN".
func (s *Session) Number(name string) (value float64, err error) {
	err = s.do(func(session *raw.Session) (failure *raw.Error) {
		value, failure = raw.SessionGetNumber(session, name)
		return
	})
	return value, err
}

// SetNumber changes such a number, between steps.
func (s *Session) SetNumber(name string, value float64) error {
	return s.do(func(session *raw.Session) *raw.Error { return raw.SessionSetNumber(session, name, value) })
}

// Observe tells the schedule "plateau" what was measured.
func (s *Session) Observe(value float64, higherIsBetter bool) error {
	higher := int32(0)
	if higherIsBetter {
		higher = 1
	}
	return s.do(func(session *raw.Session) *raw.Error { return raw.SessionObserve(session, value, higher) })
}

// Hash is a hash over the bytes of all trained parameters: equal weights, equal hash.
func (s *Session) Hash(ctx context.Context) (hash uint64, err error) {
	err = s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) (failure *raw.Error) {
		hash, failure = raw.SessionHash(session, call)
		return
	})
	return hash, err
}

// StateKind is a kind of what a session keeps.
type StateKind int32

const (
	Parameters     StateKind = raw.EPL_STATE_PARAMETER
	Frozen         StateKind = raw.EPL_STATE_FROZEN
	Buffers        StateKind = raw.EPL_STATE_BUFFER
	OptimizerState StateKind = raw.EPL_STATE_OPTIMIZER
	Gradient       StateKind = raw.EPL_STATE_GRADIENT
)

// State lists what the session keeps of a kind, in the order of the names.
func (s *Session) State(kind StateKind) ([]Info, error) {
	at := s.enter()
	if at == nil {
		return nil, ErrClosed
	}
	defer s.leave()
	session := (*raw.Session)(at)
	return infos(raw.SessionStateCount(session, int32(kind)), func(i int64, info *raw.TensorInfo) *raw.Error {
		return raw.SessionStatePort(session, int32(kind), i, info)
	})
}

// Get copies a parameter, a buffer or optimizer state, by its name.
func (s *Session) Get(ctx context.Context, name string) (*Tensor, error) {
	var made *raw.Tensor
	err := s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) (failure *raw.Error) {
		made, failure = raw.SessionGet(session, name, call)
		return
	})
	if err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

// Set changes one of them; the tensor is copied.
func (s *Session) Set(ctx context.Context, name string, value *Tensor) error {
	tensor, done, err := value.use()
	if err != nil {
		return err
	}
	defer done()
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionSet(session, name, tensor, call)
	})
}

// withData runs f with a dataset, which may be nil.
func withData(data *Dataset, f func(*raw.Dataset) error) error {
	if data == nil {
		return f(nil)
	}
	at := data.enter()
	if at == nil {
		return ErrClosed
	}
	defer data.leave()
	return f((*raw.Dataset)(at))
}

// Save writes a checkpoint into a folder: everything that decides how training goes on, and where data (may be nil)
// stands. Whatever happens, the last complete checkpoint can be loaded.
func (s *Session) Save(ctx context.Context, path string, data *Dataset) error {
	return withData(data, func(dataset *raw.Dataset) error {
		return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
			return raw.SessionSave(session, path, dataset, call)
		})
	})
}

// Load goes on from a checkpoint, under any layout.
func (s *Session) Load(ctx context.Context, path string, data *Dataset) error {
	return withData(data, func(dataset *raw.Dataset) error {
		return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
			return raw.SessionLoad(session, path, dataset, call)
		})
	})
}

// Compare gives, as a JSON list, in what this session differs from the run that saved a checkpoint.
func (s *Session) Compare(ctx context.Context, path string, data *Dataset) (text string, err error) {
	err = withData(data, func(dataset *raw.Dataset) error {
		var made *raw.Text
		err := s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) (failure *raw.Error) {
			made, failure = raw.SessionCompare(session, path, dataset, call)
			return
		})
		if err != nil {
			return err
		}
		text, err = given(made, nil)
		return err
	})
	return text, err
}

// ExportONNX writes the model's file with the trained weights, ready for inference.
func (s *Session) ExportONNX(ctx context.Context, path string) error {
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionExportOnnx(session, path, call)
	})
}

// ExportONNXForTraining writes the same, but to train on.
func (s *Session) ExportONNXForTraining(ctx context.Context, path string) error {
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionExportOnnxForTraining(session, path, call)
	})
}

// ExportSafetensors writes parameters and buffers under their names, adapters merged into their weights.
func (s *Session) ExportSafetensors(ctx context.Context, path string) error {
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionExportSafetensors(session, path, call)
	})
}

// ExportAdapters writes the low-rank adapters into a folder, as Hugging Face PEFT loads them.
func (s *Session) ExportAdapters(ctx context.Context, folder string) error {
	return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
		return raw.SessionExportAdapters(session, folder, call)
	})
}

// Record notes what the ranks do in the next steps; 0: no more. Trace gives it.
func (s *Session) Record(steps int64) error {
	return s.do(func(session *raw.Session) *raw.Error { return raw.SessionRecord(session, steps) })
}

// Trace gives what was recorded, in the format of trace files of Chrome and Perfetto.
func (s *Session) Trace() (string, error) {
	at := s.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer s.leave()
	return given(raw.SessionTrace((*raw.Session)(at)))
}
