package epl

import (
	"context"
	"errors"

	"epl.ai/go/internal/raw"
)

// Code says what kind of failure an [Error] is. A code is itself an error, for errors.Is.
type Code int32

const (
	InvalidArgument  Code = raw.EPL_ERROR_INVALID_ARGUMENT  // the caller passed something wrong
	InvalidModel     Code = raw.EPL_ERROR_INVALID_MODEL     // a model file is damaged or contradicts itself
	Unsupported      Code = raw.EPL_ERROR_UNSUPPORTED       // known, but not built or not possible here
	NotFound         Code = raw.EPL_ERROR_NOT_FOUND         // a file, key or name that does not exist
	IO               Code = raw.EPL_ERROR_IO                // the operating system refused a read or a write
	OutOfMemory      Code = raw.EPL_ERROR_OUT_OF_MEMORY     // there is no memory
	Cancelled        Code = raw.EPL_ERROR_CANCELLED         // the context of the call was cancelled
	DeadlineExceeded Code = raw.EPL_ERROR_DEADLINE_EXCEEDED // the deadline of its context, or another time, is over
	PeerFailed       Code = raw.EPL_ERROR_PEER_FAILED       // another rank died or returned an error
	Misuse           Code = raw.EPL_ERROR_MISUSE            // calls in an order that the rules forbid
	NotFinite        Code = raw.EPL_ERROR_NOT_FINITE        // NaN or infinity where the step had to stop
	Internal         Code = raw.EPL_ERROR_INTERNAL          // a bug of the library
	DataLoss         Code = raw.EPL_ERROR_DATA_LOSS         // a checkpoint or plan file is damaged
	Busy             Code = raw.EPL_ERROR_BUSY              // another goroutine is inside a call with this object
	StateLost        Code = raw.EPL_ERROR_STATE_LOST        // the session's state is of no one step: load a checkpoint
	Exhausted        Code = raw.EPL_ERROR_EXHAUSTED         // no thread, descriptor or space on the disk
)

// Error is the name of the code, "not found" for example.
func (c Code) Error() string { return raw.ErrorCodeName(int32(c)) }

// ErrClosed is the error of a call with an object after its Close.
var ErrClosed = errors.New("epl: closed")

// Error is a failure that the library explains.
type Error struct {
	Code      Code
	Message   string // what was wrong and what to do
	Where     string // the node, file or object it concerns; empty when there is none
	Rank      int    // the rank it concerns; -1 when there is none
	Retryable bool   // the same call may succeed later
	cause     error  // of the context, where it ended the call
}

func (e *Error) Error() string {
	if e.Where == "" {
		return "epl: " + e.Message
	}
	return "epl: " + e.Where + ": " + e.Message
}

// Is makes errors.Is(err, epl.NotFound) true for errors of that code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap is what the context of the call said, if that ended it.
func (e *Error) Unwrap() error { return e.cause }

// taken makes a Go error of one of the library's, which it destroys; nil is none.
func taken(failure *raw.Error) error {
	if failure == nil {
		return nil
	}
	return explained(failure)
}

func explained(failure *raw.Error) *Error {
	defer raw.ErrorDestroy(failure)
	return &Error{
		Code:      Code(raw.ErrorCode(failure)),
		Message:   raw.ErrorMessage(failure),
		Where:     raw.ErrorWhere(failure),
		Rank:      int(raw.ErrorRank(failure)),
		Retryable: raw.ErrorRetryable(failure) != 0,
	}
}

// takenIn is taken for a call that ctx may have ended.
func takenIn(ctx context.Context, failure *raw.Error) error {
	if failure == nil {
		return nil
	}
	err := explained(failure)
	if err.Code == Cancelled && ctx.Err() != nil {
		err.endedBy(ctx)
	}
	return err
}

// endedBy says how ctx, which has ended, has ended the call. The library knows a token alone, and not why it was
// triggered.
func (e *Error) endedBy(ctx context.Context) {
	e.cause = causeOf(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code, e.Message = DeadlineExceeded, "the deadline of the context has passed"
	}
}

// causeOf is what ctx says of its end: why, where somebody has said it, and context.Canceled or DeadlineExceeded.
func causeOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if plain := ctx.Err(); plain != nil && !errors.Is(cause, plain) {
		return errors.Join(plain, cause)
	}
	return cause
}
