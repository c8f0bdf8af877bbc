package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	epl "epl.ai/go"
	"google.golang.org/grpc/codes"
)

var (
	errUnknown  = errors.New("there is no such job or upload")
	errGone     = errors.New("the job has failed, and only its record is left")
	errEnds     = errors.New("the service ends")
	errTooLarge = errors.New("the upload is too large")
	errStranger = errors.New("this service wants a bearer token")
)

// overBudget says by how much a job does not fit.
type overBudget struct{ wanted, free int64 }

func (e *overBudget) Error() string {
	return fmt.Sprintf("the job needs %d bytes, with those to predict while it trains, and the budget has %d left: "+
		"%d too few; a smaller batch or more micro-batches need less", e.wanted, e.free, e.wanted-e.free)
}

// kindOf says what an error is at both doors.
func kindOf(err error) (int, codes.Code) {
	var over *overBudget
	var body *http.MaxBytesError
	var path *fs.PathError
	var rename *os.LinkError
	switch {
	case errors.Is(err, errStranger):
		return http.StatusUnauthorized, codes.Unauthenticated
	case errors.Is(err, errUnknown), errors.Is(err, epl.NotFound):
		return http.StatusNotFound, codes.NotFound
	case errors.As(err, &over):
		return http.StatusInsufficientStorage, codes.ResourceExhausted
	case errors.Is(err, errTooLarge), errors.As(err, &body):
		return http.StatusRequestEntityTooLarge, codes.ResourceExhausted
	case errors.Is(err, errEnds):
		return http.StatusServiceUnavailable, codes.Unavailable
	case errors.Is(err, context.Canceled):
		return http.StatusRequestTimeout, codes.Canceled // nobody reads it: the client has gone
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusRequestTimeout, codes.DeadlineExceeded
	case errors.Is(err, errGone), errors.Is(err, epl.Busy):
		return http.StatusConflict, codes.FailedPrecondition
	case errors.Is(err, epl.Internal), errors.Is(err, epl.IO), errors.Is(err, epl.OutOfMemory), errors.As(err, &path),
		errors.As(err, &rename):
		return http.StatusInternalServerError, codes.Internal
	}
	return http.StatusBadRequest, codes.InvalidArgument
}
