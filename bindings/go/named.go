package epl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"epl.ai/go/internal/raw"
)

// Named are tensors by the names of a model's inputs or outputs.
type Named map[string]*Tensor

// Close gives all of them back.
func (n Named) Close() error {
	for _, one := range n {
		one.Close()
	}
	return nil
}

// names are those of all entries.
func (p *Plan) names() (map[Entry]names, error) {
	all := map[Entry]names{}
	for _, entry := range []Entry{Train, Evaluate, Predict} {
		var n names
		for kind, list := range map[int32]*[]string{raw.EPL_PORT_INPUT: &n.inputs, raw.EPL_PORT_OUTPUT: &n.outputs} {
			ports, err := p.ports(entry, kind)
			if err != nil {
				return nil, err
			}
			*list = namesOf(ports)
		}
		all[entry] = n
	}
	return all, nil
}

// Ordered puts inputs by name into the order in which calls of an entry take them; an error names what is missing, or
// is no input.
func (s *Session) Ordered(entry Entry, inputs Named) ([]*Tensor, error) {
	return inputs.ordered("input", s.names[entry%raw.EPL_ENTRY_SHAPE].inputs)
}

// Ordered is [Session.Ordered] before there is a session, and for what has none.
func (p *Plan) Ordered(entry Entry, inputs Named) ([]*Tensor, error) {
	ports, err := p.Inputs(entry)
	if err != nil {
		return nil, err
	}
	return inputs.ordered("input", namesOf(ports))
}

func namesOf(infos []Info) []string {
	names := make([]string, len(infos))
	for i, one := range infos {
		names[i] = one.Name
	}
	return names
}

func (n Named) ordered(what string, wanted []string) ([]*Tensor, error) {
	all := make([]*Tensor, len(wanted))
	var missing []string
	for i, name := range wanted {
		one, there := n[name]
		if !there {
			missing = append(missing, name)
		}
		all[i] = one
	}
	for name := range n {
		if !slices.Contains(wanted, name) {
			return nil, &Error{Code: InvalidArgument, Where: name, Rank: -1,
				Message: fmt.Sprintf("there is no %s %q; there are %s", what, name, strings.Join(wanted, ", "))}
		}
	}
	if missing != nil {
		return nil, &Error{Code: InvalidArgument, Where: missing[0], Rank: -1,
			Message: "nothing is given for " + strings.Join(missing, ", ")}
	}
	return all, nil
}

// StepNamed is Step with inputs by name.
func (s *Session) StepNamed(ctx context.Context, inputs Named) (Metrics, error) {
	all, err := s.Ordered(Train, inputs)
	if err != nil {
		return Metrics{}, err
	}
	return s.Step(ctx, all...)
}

// EvaluateNamed is Evaluate with inputs by name.
func (s *Session) EvaluateNamed(ctx context.Context, inputs Named) (Metrics, error) {
	all, err := s.Ordered(Evaluate, inputs)
	if err != nil {
		return Metrics{}, err
	}
	return s.Evaluate(ctx, all...)
}

// PredictNamed is Predict with inputs and outputs by name.
func (s *Session) PredictNamed(ctx context.Context, inputs Named) (Named, error) {
	all, err := s.Ordered(Predict, inputs)
	if err != nil {
		return nil, err
	}
	outputs, err := s.Predict(ctx, all...)
	return namedOf(s.names[Predict].outputs, outputs), err
}

func namedOf(names []string, all []*Tensor) Named {
	named := Named{}
	for i, one := range all {
		named[names[i]] = one
	}
	return named
}

// GradientsNamed is Gradients with inputs by name.
func (s *Session) GradientsNamed(ctx context.Context, inputs Named) (Metrics, error) {
	all, err := s.Ordered(Train, inputs)
	if err != nil {
		return Metrics{}, err
	}
	return s.Gradients(ctx, all...)
}

// PredictNamed is Predict with inputs and outputs by name.
func (p *Predictor) PredictNamed(ctx context.Context, inputs Named) (Named, error) {
	all, err := inputs.ordered("input", p.names.inputs)
	if err != nil {
		return nil, err
	}
	outputs, err := p.Predict(ctx, all...)
	return namedOf(p.names.outputs, outputs), err
}

// AddNamed is Add with inputs by name.
func (v *Evaluation) AddNamed(ctx context.Context, s *Session, inputs Named) error {
	all, err := s.Ordered(Evaluate, inputs)
	if err != nil {
		return err
	}
	return v.Add(ctx, s, all...)
}

// PushNamed is Push with tensors by the names of the fields.
func (f *Feed) PushNamed(ctx context.Context, batch Named) error {
	all, err := batch.ordered("field", f.fields)
	if err != nil {
		return err
	}
	return f.Push(ctx, all...)
}

// Symbols are the names of the symbolic dimensions of an input or output of the model, in the order of its dimensions;
// empty for one that is fixed or has no name. [Trainer.Bind] gives them their sizes.
func (m *Model) Symbols(name string) ([]string, error) {
	model, done, err := m.use()
	if err != nil {
		return nil, err
	}
	defer done()
	for _, kind := range []int32{raw.EPL_PORT_INPUT, raw.EPL_PORT_OUTPUT} {
		ports, err := m.ports(kind)
		if err != nil {
			return nil, err
		}
		for i, port := range ports {
			if port.Name != name {
				continue
			}
			symbols := make([]string, len(port.Dims))
			for dim := range symbols {
				symbols[dim] = raw.ModelDimSymbol(model, kind, int64(i), int32(dim))
			}
			return symbols, nil
		}
	}
	return nil, &Error{Code: NotFound, Where: name, Rank: -1, Message: fmt.Sprintf("the model has no input or output %q", name)}
}
