package main

import (
	"context"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	epl "epl.ai/go"
)

//go:embed page.html
var page []byte

const (
	largestUpload   = 8 << 30
	largestDocument = 16 << 20
)

// Server answers clients of a manager. token: what they must bring; empty: nothing.
type Server struct {
	manager *Manager
	token   string
}

func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !s.known(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				refuse(w, http.StatusUnauthorized, errors.New("this service wants a bearer token"))
				return
			}
			if err := f(w, r); err != nil {
				refuse(w, statusOf(err), err)
			}
		})
	}
	handle("POST /v1/uploads/{name}", s.upload)
	handle("POST /v1/jobs", s.create)
	handle("GET /v1/jobs", func(w http.ResponseWriter, r *http.Request) error { return answer(w, s.manager.List()) })
	handle("GET /v1/jobs/{id}", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		return answer(w, j.Status())
	}))
	handle("GET /v1/jobs/{id}/plan", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		text, err := j.plan.Print(r.Context(), "explain")
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, text)
		return err
	}))
	for action, phase := range map[string]Phase{"start": Running, "pause": Paused, "resume": Running} {
		handle("POST /v1/jobs/{id}/"+action, s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
			if err := j.setPhase(phase); err != nil {
				return err
			}
			if err := j.writeNote(); err != nil {
				return err
			}
			return answer(w, j.Status())
		}))
	}
	handle("POST /v1/jobs/{id}/checkpoint", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		err := j.ask(r.Context(), func(_ context.Context, session *epl.Session, data *epl.Dataset) error {
			return j.save(session, data)
		})
		if err != nil {
			return err
		}
		return answer(w, j.Status())
	}))
	handle("GET /v1/jobs/{id}/model", s.withJob(s.download))
	handle("POST /v1/jobs/{id}/predict", s.withJob(s.predict))
	handle("GET /v1/jobs/{id}/events", s.withJob(s.events))
	return mux
}

// known compares in a time that does not tell how much of a token was right. The page's EventSource cannot set a header,
// so a token may come in the query as well.
func (s *Server) known(r *http.Request) bool {
	if s.token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		given = r.URL.Query().Get("token")
	}
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
}

func (s *Server) withJob(f func(http.ResponseWriter, *http.Request, *Job) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		j, err := s.manager.Job(r.PathValue("id"))
		if err != nil {
			return err
		}
		return f(w, r, j)
	}
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	id, err := s.manager.Upload(r.PathValue("name"), http.MaxBytesReader(w, r.Body, largestUpload))
	if err != nil {
		return err
	}
	return answer(w, map[string]string{"id": id})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var spec Spec
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestDocument))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return err
	}
	j, err := s.manager.Create(r.Context(), spec)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/jobs/"+j.Status().ID)
	w.WriteHeader(http.StatusCreated)
	return answer(w, j.Status())
}

// download exports the weights as they are between two steps.
func (s *Server) download(w http.ResponseWriter, r *http.Request, j *Job) error {
	path := filepath.Join(j.folder, newID()+".onnx")
	defer os.Remove(path)
	err := j.ask(r.Context(), func(ctx context.Context, session *epl.Session, _ *epl.Dataset) error {
		return session.ExportONNX(ctx, path)
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", `attachment; filename="trained.onnx"`)
	http.ServeFile(w, r, path)
	return nil
}

// predict takes {"inputs": {"x": {"dims": [2, 4], "values": [...]}}}, and gives outputs in the same form.
func (s *Server) predict(w http.ResponseWriter, r *http.Request, j *Job) error {
	type value struct {
		Dims   []int64   `json:"dims"`
		Values []float64 `json:"values"`
	}
	var asked struct {
		Inputs map[string]value `json:"inputs"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestDocument)).Decode(&asked); err != nil {
		return err
	}
	infos, err := j.plan.Inputs(epl.Predict)
	if err != nil {
		return err
	}
	var inputs []*epl.Tensor
	defer func() {
		for _, one := range inputs {
			one.Close()
		}
	}()
	for _, info := range infos {
		given, ok := asked.Inputs[info.Name]
		if !ok {
			return fmt.Errorf("input %q is missing", info.Name)
		}
		tensor, err := tensorOf(j.engine, info.DType, given.Values, given.Dims)
		if err != nil {
			return err
		}
		inputs = append(inputs, tensor)
	}
	var outputs []*epl.Tensor
	err = j.ask(r.Context(), func(_ context.Context, session *epl.Session, _ *epl.Dataset) (err error) {
		outputs, err = session.Predict(r.Context(), inputs...)
		return err
	})
	if err != nil {
		return err
	}
	names, err := j.plan.Outputs(epl.Predict)
	if err != nil {
		return err
	}
	answers := map[string]value{}
	for i, one := range outputs {
		defer one.Close()
		numbers, err := numbersOf(one)
		if err != nil {
			return err
		}
		answers[names[i].Name] = value{one.Dims(), numbers}
	}
	return answer(w, map[string]any{"step": j.Status().Step, "outputs": answers})
}

func tensorOf(engine *epl.Engine, dtype epl.DType, values []float64, dims []int64) (*epl.Tensor, error) {
	switch dtype {
	case epl.F32:
		return epl.NewTensor(engine, converted[float32](values), dims...)
	case epl.F64:
		return epl.NewTensor(engine, values, dims...)
	case epl.I64:
		return epl.NewTensor(engine, converted[int64](values), dims...)
	case epl.I32:
		return epl.NewTensor(engine, converted[int32](values), dims...)
	}
	return nil, fmt.Errorf("inputs of type %v cannot be given as JSON numbers", dtype)
}

func numbersOf(t *epl.Tensor) ([]float64, error) {
	switch t.DType() {
	case epl.F32:
		view, err := epl.View[float32](t)
		return converted[float64](view), err
	case epl.F64:
		return epl.Values[float64](t)
	case epl.I64:
		view, err := epl.View[int64](t)
		return converted[float64](view), err
	}
	return nil, fmt.Errorf("outputs of type %v cannot be given as JSON numbers", t.DType())
}

func converted[To, From float32 | float64 | int32 | int64](values []From) []To {
	all := make([]To, len(values))
	for i, one := range values {
		all[i] = To(one)
	}
	return all
}

// events streams the job's status as server-sent events, until the client goes or the job has ended.
func (s *Server) events(w http.ResponseWriter, r *http.Request, j *Job) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	watcher := j.hub.watch()
	defer watcher.leave()
	send := func(status Status) error {
		text, err := json.Marshal(status)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", status.Step, text); err != nil {
			return nil // the client has gone
		}
		control.Flush()
		return nil
	}
	if err := send(j.Status()); err != nil {
		return err
	}
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		select {
		case status := <-watcher.news:
			if err := send(status); err != nil {
				return err
			}
			if status.Phase == Done || status.Phase == Failed {
				return nil
			}
		case <-alive.C:
			io.WriteString(w, ": alive\n\n")
			control.Flush()
		case <-r.Context().Done():
			return nil
		case <-s.manager.ctx.Done():
			return nil
		}
	}
}

func answer(w http.ResponseWriter, value any) error {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	return json.NewEncoder(w).Encode(value)
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

func statusOf(err error) int {
	var over *overBudget
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errUnknown), errors.Is(err, epl.NotFound):
		return http.StatusNotFound
	case errors.As(err, &over):
		return http.StatusInsufficientStorage
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errGone), errors.Is(err, epl.Busy):
		return http.StatusConflict
	case errors.Is(err, epl.Internal), errors.Is(err, epl.IO), errors.Is(err, epl.OutOfMemory):
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}
