package epl

import (
	"context"
	"errors"
	"io"
	"runtime/cgo"

	"epl.ai/go/internal/raw"
)

// Format is what ExportTo writes.
type Format string

const (
	ONNX            Format = "onnx"              // the model's file with the trained weights, ready for inference
	ONNXForTraining Format = "onnx_for_training" // the same, but to train on
	Safetensors     Format = "safetensors"       // parameters and buffers under their names
)

// stream is a writer or reader of the host's behind a userdata, and its first failure.
type stream struct {
	writer io.Writer
	reader io.ReaderAt
	err    error
}

func (s *stream) read(target []byte, offset int64) error {
	err := readAll(s.reader, target, offset)
	if err != nil {
		s.err = err
	}
	return err
}

// within runs a call with the stream behind a userdata. An error of the stream is found in what the call gives.
func (s *stream) within(f func(userdata uintptr) error) error {
	handle := cgo.NewHandle(s)
	defer handle.Delete()
	err := f(uintptr(handle))
	var explained *Error
	if s.err != nil && errors.As(err, &explained) && explained.cause == nil {
		explained.cause = s.err
	}
	return err
}

// SaveTo writes a checkpoint as one stream, which Load and LoadFrom read: a zip archive of what Save makes.
func (s *Session) SaveTo(ctx context.Context, w io.Writer, data *Dataset) error {
	to := &stream{writer: w}
	return to.within(func(userdata uintptr) error {
		return withData(data, func(dataset *raw.Dataset) error {
			return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
				return raw.SessionSaveTo(session, writeFunction(), userdata, dataset, call)
			})
		})
	})
}

// LoadFrom goes on from such a stream of so many bytes. It is read twice: to check it before anything changes, and to
// take its values.
func (s *Session) LoadFrom(ctx context.Context, r io.ReaderAt, bytes int64, data *Dataset) error {
	from := &stream{reader: r}
	return from.within(func(userdata uintptr) error {
		source := raw.NewSource()
		source.Bytes, source.Read, source.Userdata = uint64(bytes), readFunction(), userdata
		return withData(data, func(dataset *raw.Dataset) error {
			return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
				return raw.SessionLoadFrom(session, &source, dataset, call)
			})
		})
	})
}

// ExportTo writes what was trained, without a file.
func (s *Session) ExportTo(ctx context.Context, w io.Writer, format Format) error {
	to := &stream{writer: w}
	return to.within(func(userdata uintptr) error {
		return s.wait(ctx, func(session *raw.Session, call *raw.CallOptions) *raw.Error {
			return raw.SessionExportTo(session, string(format), writeFunction(), userdata, call)
		})
	})
}

// SaveTo writes the decisions of the plan, without a file: [Model.LoadPlanBytes].
func (p *Plan) SaveTo(ctx context.Context, w io.Writer) error {
	to := &stream{writer: w}
	return to.within(func(userdata uintptr) error {
		return p.write(ctx, func(plan *raw.Plan, call *raw.CallOptions) *raw.Error {
			return raw.PlanSaveTo(plan, writeFunction(), userdata, call)
		})
	})
}
