package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	epl "epl.ai/go"
	"google.golang.org/grpc/codes"
)

var (
	errUnknown  = errors.New("there is no such job or upload")
	errGone     = errors.New("the job has failed, and only its record is left")
	errEnds     = errors.New("the service ends")
	errTooLarge = errors.New("the upload is too large")
	errQuota    = errors.New("there is no room for the upload")
	errInUse    = errors.New("the upload is in use")
	errStranger = errors.New("this service wants a bearer token")
	errForeign  = errors.New("the request comes from another site's page, or asks for another host")
	errNoJSON   = errors.New("the body is JSON, with the header Content-Type: application/json")
)

// overBudget says by how much a job does not fit.
type overBudget struct{ wanted, free int64 }

func (e *overBudget) Error() string {
	return fmt.Sprintf("the job needs %d bytes, with those to predict while it trains, and the budget has %d left: "+
		"%d too few; a smaller batch or more micro-batches need less", e.wanted, e.free, e.wanted-e.free)
}

// told is what a client hears of an error: paths of this machine are cut down to what the client knows.
func (m *Manager) told(err error) string {
	return strings.NewReplacer(filepath.Join(m.folder, "uploads")+"/", "", m.folder+"/", "").Replace(err.Error())
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
	case errors.Is(err, errForeign):
		return http.StatusForbidden, codes.PermissionDenied
	case errors.Is(err, errNoJSON):
		return http.StatusUnsupportedMediaType, codes.InvalidArgument
	case errors.Is(err, errUnknown):
		return http.StatusNotFound, codes.NotFound
	case errors.As(err, &over), errors.Is(err, errQuota):
		return http.StatusInsufficientStorage, codes.ResourceExhausted
	case errors.Is(err, errTooLarge), errors.As(err, &body):
		return http.StatusRequestEntityTooLarge, codes.ResourceExhausted
	case errors.Is(err, errEnds):
		return http.StatusServiceUnavailable, codes.Unavailable
	case errors.Is(err, context.Canceled):
		return http.StatusRequestTimeout, codes.Canceled // nobody reads it: the client has gone
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusRequestTimeout, codes.DeadlineExceeded
	case errors.Is(err, errGone), errors.Is(err, errInUse), errors.Is(err, epl.Busy):
		return http.StatusConflict, codes.FailedPrecondition
	case errors.Is(err, epl.Internal), errors.Is(err, epl.IO), errors.Is(err, epl.OutOfMemory), errors.As(err, &path),
		errors.As(err, &rename):
		return http.StatusInternalServerError, codes.Internal
	}
	return http.StatusBadRequest, codes.InvalidArgument
}
