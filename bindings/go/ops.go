package epl

import (
	"fmt"
	"runtime/cgo"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Operand is a tensor that an [Op] reads or writes, dense and row-major, or the type of one.
type Operand struct {
	DType DType // 0: it is absent
	Dims  []int64
	// Data are its elements, which [Elements] shows as numbers: the library's memory, gone after the call. nil where
	// only types are asked for. Inputs must not be written.
	Data []byte
}

// Absent says of an input that the node leaves it out, of a gradient that nobody wants it or nothing flows back.
func (o Operand) Absent() bool { return o.DType == 0 }

// Op is an operator of the host's own: [Engine.AddOp]. Any goroutines may call its methods at once. The same operands
// must always have the same answer. attributes are those of the node, a JSON object. An error or a panic ends the call
// that a method serves: a plan is not made, a step changes nothing.
type Op interface {
	// Shape gives the types of the outputs, of the full batch and of a rank's part of it.
	Shape(attributes string, inputs []Operand) ([]Operand, error)
	// Run writes the outputs.
	Run(attributes string, inputs, outputs []Operand) error
}

// GradientOp is an operator that can be trained through.
type GradientOp interface {
	Op
	// Gradient writes the gradients of the inputs, of which there are as many as inputs; those that nobody wants are
	// absent. upstream are the gradients of the outputs; one through which nothing flows back is absent.
	Gradient(attributes string, inputs, outputs, upstream, gradients []Operand) error
}

// OpOptions say what an [Op] is called in a model's file.
type OpOptions struct {
	Domain  string // not the standard's
	Name    string // the op type
	Outputs int    // how many it has; 0: one
	// Sharding says how dimensions of inputs and outputs correspond, a letter for each: "n k, k -> n k" lets a batch be
	// cut at n, and "... k -> ... k" in any dimension in front. "| unshardable k" behind it says what must stay uncut.
	// Empty: nothing is cut.
	Sharding string
}

// AddOp gives models that are loaded with this engine from now on an operator.
func (e *Engine) AddOp(op Op, options OpOptions) error {
	engine, done, err := e.use()
	if err != nil {
		return err
	}
	defer done()
	o := raw.NewOpOptions()
	o.Domain, o.DomainLength = raw.AllocText(options.Domain)
	defer raw.FreeText(o.Domain)
	o.Name, o.NameLength = raw.AllocText(options.Name)
	defer raw.FreeText(o.Name)
	if options.Sharding != "" {
		o.Sharding, o.ShardingLength = raw.AllocText(options.Sharding)
		defer raw.FreeText(o.Sharding)
	}
	o.OutputCount = int64(options.Outputs)
	o.Shape, o.Run, o.Destroy = shapeFunction(), runFunction(), dropFunction()
	if _, ok := op.(GradientOp); ok {
		o.Gradient = gradientFunction()
	}
	userdata := cgo.NewHandle(op)
	o.Userdata = uintptr(userdata)
	if failure := raw.EngineAddOp(engine, &o); failure != nil {
		userdata.Delete() // where it fails it is still ours
		return taken(failure)
	}
	return nil
}

func operands(at unsafe.Pointer, count int) []Operand {
	all := make([]Operand, count)
	for i, one := range unsafe.Slice((*raw.OpTensor)(at), count) {
		all[i] = Operand{DType: DType(one.Dtype), Dims: append([]int64(nil), one.Dims[:one.Ndim]...)}
		if one.Data != nil {
			all[i].Data = unsafe.Slice((*byte)(one.Data), int(one.Bytes))
		}
	}
	return all
}

// fill writes the types that an operator gave for its outputs.
func fill(types []Operand, outputs []raw.OpTensor) error {
	if len(types) != len(outputs) {
		return fmt.Errorf("Shape gave the types of %d outputs, the operator has %d", len(types), len(outputs))
	}
	for i, one := range types {
		if len(one.Dims) > raw.EPL_MAX_NDIM {
			return fmt.Errorf("%v has more than %d dimensions", one.Dims, raw.EPL_MAX_NDIM)
		}
		outputs[i].Dtype, outputs[i].Ndim = int32(one.DType), int32(len(one.Dims))
		copy(outputs[i].Dims[:], one.Dims)
	}
	return nil
}
