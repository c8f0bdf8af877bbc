package epl

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"unsafe"

	"epl.ai/go/internal/raw"
)

// DType is the type of a tensor's elements.
type DType int32

const (
	F32  DType = raw.EPL_DTYPE_F32
	F64  DType = raw.EPL_DTYPE_F64
	F16  DType = raw.EPL_DTYPE_F16
	BF16 DType = raw.EPL_DTYPE_BF16
	I8   DType = raw.EPL_DTYPE_I8
	I16  DType = raw.EPL_DTYPE_I16
	I32  DType = raw.EPL_DTYPE_I32
	I64  DType = raw.EPL_DTYPE_I64
	U8   DType = raw.EPL_DTYPE_U8
	U16  DType = raw.EPL_DTYPE_U16
	U32  DType = raw.EPL_DTYPE_U32
	U64  DType = raw.EPL_DTYPE_U64
	Bool DType = raw.EPL_DTYPE_BOOL
)

func (d DType) String() string { return raw.DtypeName(int32(d)) }

// Float16 and BFloat16 hold the bits of 16-bit floating-point numbers, which Go has no types for.
type (
	Float16  uint16
	BFloat16 uint16
)

// Element is a Go type that tensors hold.
type Element interface {
	float32 | float64 | Float16 | BFloat16 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool
}

// DTypeOf is the element type that T is in a tensor.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case uint16:
		return U16
	case uint32:
		return U32
	case uint64:
		return U64
	}
	return Bool
}

// Tensor is data in row-major order.
type Tensor struct{ handle }

func newTensor(made *raw.Tensor) *Tensor {
	t := &Tensor{}
	t.init(unsafe.Pointer(made), func(p unsafe.Pointer) { raw.TensorDestroy((*raw.Tensor)(p)) })
	return watch(t, &t.handle)
}

func newTensors(made []*raw.Tensor) []*Tensor {
	tensors := make([]*Tensor, len(made))
	for i, one := range made {
		tensors[i] = newTensor(one)
	}
	return tensors
}

// lentTensor shows a tensor of the library's own, which Close does not give back.
func lentTensor(made *raw.Tensor) *Tensor {
	t := &Tensor{}
	t.init(unsafe.Pointer(made), func(unsafe.Pointer) {})
	return t
}

func bytesOf[T Element](values []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(zero)))
}

// NewTensor copies values into a new tensor of the shape dims, whose product is their number.
func NewTensor[T Element](e *Engine, values []T, dims ...int64) (*Tensor, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.TensorCreateCopy(engine, int32(DTypeOf[T]()), dims, bytesOf(values))
	if failure != nil {
		return nil, taken(failure)
	}
	return newTensor(made), nil
}

// pinned is a Go slice that the library reads where it lies.
type pinned struct{ pinner runtime.Pinner }

func (p *pinned) drop() { p.pinner.Unpin() }

// Borrow makes a tensor of values where they lie, without a copy. They are pinned until the tensor is closed and no
// call uses it any more; written only by the caller, between calls.
func Borrow[T Element](e *Engine, values []T, dims ...int64) (*Tensor, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	if len(values) == 0 {
		return NewTensor(e, values, dims...)
	}
	keep := &pinned{}
	keep.pinner.Pin(unsafe.SliceData(values))
	userdata := cgo.NewHandle(keep) // the library drops it, also where it fails
	bytes := bytesOf(values)
	made, failure := raw.TensorCreateBorrow(engine, int32(DTypeOf[T]()), dims, unsafe.Pointer(unsafe.SliceData(bytes)),
		uintptr(len(bytes)), 0, dropFunction(), uintptr(userdata))
	if failure != nil {
		return nil, taken(failure)
	}
	return newTensor(made), nil
}

func (t *Tensor) use() (tensor *raw.Tensor, done func(), err error) {
	at := t.enter()
	if at == nil {
		return nil, nil, ErrClosed
	}
	return (*raw.Tensor)(at), t.leave, nil
}

// DType is the type of the elements; 0 once the tensor is closed.
func (t *Tensor) DType() DType {
	tensor, done, err := t.use()
	if err != nil {
		return 0
	}
	defer done()
	return DType(raw.TensorDtype(tensor))
}

// Dims is the shape; nil once the tensor is closed.
func (t *Tensor) Dims() []int64 {
	tensor, done, err := t.use()
	if err != nil {
		return nil
	}
	defer done()
	dims := make([]int64, raw.TensorNdim(tensor))
	for i := range dims {
		dims[i] = raw.TensorDim(tensor, int32(i))
	}
	return dims
}

// DLPack gives a DLManagedTensorVersioned, by which a library that knows DLPack takes the data without a copy. It keeps
// the data alive, and whoever receives it calls its deleter.
func (t *Tensor) DLPack() (unsafe.Pointer, error) {
	tensor, done, err := t.use()
	if err != nil {
		return nil, err
	}
	defer done()
	managed, failure := raw.TensorToDlpack(tensor)
	return managed, taken(failure)
}

// FromDLPack makes a tensor of such a struct, of a row-major tensor of the CPU or of an NVIDIA GPU, and takes it over,
// also when it fails. One of a GPU is for sessions on that GPU ([WithStream]); [View] and [Values] do not reach it.
func FromDLPack(e *Engine, managed unsafe.Pointer) (*Tensor, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.TensorFromDlpack(engine, managed)
	if failure != nil {
		return nil, taken(failure)
	}
	return newTensor(made), nil
}

// View gives the elements of t where they lie, which must be of type T. It is valid until t is closed, or, of a
// dataset's tensor, until the next batch.
func View[T Element](t *Tensor) ([]T, error) {
	tensor, done, err := t.use()
	if err != nil {
		return nil, err
	}
	defer done()
	if got, want := DType(raw.TensorDtype(tensor)), DTypeOf[T](); got != want {
		return nil, &Error{Code: InvalidArgument, Message: fmt.Sprintf("the tensor holds %v, not %v", got, want), Rank: -1}
	}
	if raw.TensorDevice(tensor) != raw.EPL_DEVICE_CPU {
		return nil, &Error{Code: Unsupported, Message: "the tensor lies on a GPU, where the host cannot read it", Rank: -1}
	}
	var zero T
	data := raw.TensorData(tensor)
	if data == nil {
		return nil, nil // it has no elements
	}
	return unsafe.Slice((*T)(data), int(raw.TensorBytes(tensor))/int(unsafe.Sizeof(zero))), nil
}

// Values copies the elements of t, which must be of type T.
func Values[T Element](t *Tensor) ([]T, error) {
	view, err := View[T](t)
	if err != nil {
		return nil, err
	}
	return append([]T(nil), view...), nil
}

// Info names an input, an output, a parameter or a field, and says its type.
type Info struct {
	Name  string
	DType DType
	Dims  []int64 // -1: not known before a plan binds it
}

func infoOf(info *raw.TensorInfo) Info {
	return Info{raw.CopyText(info.Name, info.NameLength), DType(info.Dtype),
		append([]int64(nil), info.Dims[:info.Ndim]...)}
}

// infos collects count descriptions.
func infos(count int64, get func(int64, *raw.TensorInfo) *raw.Error) ([]Info, error) {
	all := make([]Info, 0, count)
	for i := range count {
		info := raw.NewTensorInfo()
		if failure := get(i, &info); failure != nil {
			return nil, taken(failure)
		}
		all = append(all, infoOf(&info))
	}
	return all, nil
}
