package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	epl "epl.ai/go"
)

// Value is a tensor as clients write it: its elements row by row.
type Value struct {
	Dims   []int64 `json:"dims"`
	Values Numbers `json:"values"` // null is NaN
}

// predict computes the outputs beside the steps, with the weights of the last one that is done, and says which it was.
// Requests take turns.
func (j *Job) predict(ctx context.Context, given map[string]Value) (step int64, answers map[string]Value, err error) {
	if err := j.alive(); err != nil {
		return 0, nil, err
	}
	if len(j.outputs) == 0 {
		return 0, nil, errors.New("the model of this job has no outputs")
	}
	for name := range given {
		if !slices.ContainsFunc(j.inputs, func(info epl.Info) bool { return info.Name == name }) {
			return 0, nil, fmt.Errorf("the model has no input %q", excerpt(name))
		}
	}
	var inputs, outputs []*epl.Tensor
	defer func() {
		for _, one := range append(inputs, outputs...) {
			one.Close()
		}
	}()
	for _, info := range j.inputs {
		one, ok := given[info.Name]
		if !ok {
			return 0, nil, fmt.Errorf("input %q is missing", info.Name)
		}
		tensor, err := tensorOf(j.engine, info, one)
		if err != nil {
			return 0, nil, err
		}
		inputs = append(inputs, tensor)
	}
	var predictor *epl.Predictor
	select {
	case predictor = <-j.predictors:
	case <-j.done:
		return 0, nil, j.gone()
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	if predictor.Steps() != j.Status().Step {
		err = predictor.Refresh(ctx)
	}
	if err == nil {
		outputs, err = predictor.Predict(ctx, inputs...)
		step = predictor.Steps()
	}
	j.predictors <- predictor
	if err != nil {
		return 0, nil, err
	}
	answers = map[string]Value{}
	for i, one := range outputs {
		if answers[j.outputs[i].Name], err = valueOf(one); err != nil {
			return 0, nil, err
		}
	}
	return step, answers, nil
}

func tensorOf(engine *epl.Engine, info epl.Info, value Value) (*epl.Tensor, error) {
	elements := int64(1)
	for _, one := range value.Dims {
		if one < 0 || one > largestDocument {
			return nil, fmt.Errorf("input %q: there are no dims %v", info.Name, value.Dims)
		}
		elements = min(elements*one, largestDocument)
	}
	if elements != int64(len(value.Values)) {
		return nil, fmt.Errorf("input %q: dims %v have %d elements, and there are %d values", info.Name, value.Dims,
			elements, len(value.Values))
	}
	switch info.DType {
	case epl.F32:
		return epl.NewTensor(engine, converted[float32]([]float64(value.Values)), value.Dims...)
	case epl.F64:
		return epl.NewTensor(engine, []float64(value.Values), value.Dims...)
	case epl.I64:
		return epl.NewTensor(engine, converted[int64]([]float64(value.Values)), value.Dims...)
	case epl.I32:
		return epl.NewTensor(engine, converted[int32]([]float64(value.Values)), value.Dims...)
	}
	return nil, fmt.Errorf("inputs of type %v cannot be given as numbers", info.DType)
}

func valueOf(t *epl.Tensor) (value Value, err error) {
	value.Dims = t.Dims()
	switch t.DType() {
	case epl.F32:
		var view []float32
		view, err = epl.View[float32](t)
		value.Values = converted[float64](view)
	case epl.F64:
		value.Values, err = epl.Values[float64](t)
	case epl.I64:
		var view []int64
		view, err = epl.View[int64](t)
		value.Values = converted[float64](view)
	default:
		err = fmt.Errorf("outputs of type %v cannot be given as numbers", t.DType())
	}
	return value, err
}

func converted[To, From float32 | float64 | int32 | int64](values []From) []To {
	all := make([]To, len(values))
	for i, one := range values {
		all[i] = To(one)
	}
	return all
}
