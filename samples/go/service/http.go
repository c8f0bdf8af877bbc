package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

//go:embed page.html
var page []byte

const largestDocument = 16 << 20

// httpDoor answers clients of a manager by HTTP.
type httpDoor struct {
	manager *Manager
	token   Token
}

func (s *httpDoor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := errStranger
			if s.token.known(tokenOf(r)) {
				err = f(w, r)
			} else {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			if err != nil {
				refuse(w, err)
			}
		})
	}
	handle("POST /v1/uploads/{name}", s.upload)
	handle("POST /v1/jobs", s.create)
	handle("GET /v1/jobs", func(w http.ResponseWriter, r *http.Request) error { return answer(w, s.manager.List()) })
	handle("GET /v1/jobs/{id}", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		return answer(w, j.Status())
	}))
	handle("DELETE /v1/jobs/{id}", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		if err := s.manager.Delete(r.Context(), j); err != nil {
			return err
		}
		return answer(w, j.Status())
	}))
	handle("GET /v1/jobs/{id}/plan", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		text, err := j.explain(r.Context())
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, text)
		return err
	}))
	for action, phase := range map[string]Phase{"start": Running, "pause": Paused, "resume": Running} {
		handle("POST /v1/jobs/{id}/"+action, s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
			if err := j.setPhase(r.Context(), phase); err != nil {
				return err
			}
			return answer(w, j.Status())
		}))
	}
	handle("POST /v1/jobs/{id}/checkpoint", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		if err := j.saveNow(r.Context()); err != nil {
			return err
		}
		return answer(w, j.Status())
	}))
	handle("GET /v1/jobs/{id}/model", s.withJob(s.download))
	handle("POST /v1/jobs/{id}/predict", s.withJob(s.predict))
	handle("GET /v1/jobs/{id}/events", s.withJob(s.events))
	return mux
}

// tokenOf is what a client brings. The page's EventSource cannot set a header, so a token may come in the query as well.
func tokenOf(r *http.Request) string {
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return given
	}
	return r.URL.Query().Get("token")
}

func (s *httpDoor) withJob(f func(http.ResponseWriter, *http.Request, *Job) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		j, err := s.manager.Job(r.PathValue("id"))
		if err != nil {
			return err
		}
		return f(w, r, j)
	}
}

func (s *httpDoor) upload(w http.ResponseWriter, r *http.Request) error {
	id, err := s.manager.Upload(r.PathValue("name"), r.Body)
	if err != nil {
		return err
	}
	return answer(w, map[string]string{"id": id})
}

func (s *httpDoor) create(w http.ResponseWriter, r *http.Request) error {
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

func (s *httpDoor) download(w http.ResponseWriter, r *http.Request, j *Job) error {
	file, err := j.export(r.Context())
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Disposition", `attachment; filename="trained.onnx"`)
	http.ServeContent(w, r, "trained.onnx", time.Time{}, file)
	return nil
}

// predict takes {"inputs": {"x": {"dims": [2, 4], "values": [...]}}}, and gives outputs in the same form.
func (s *httpDoor) predict(w http.ResponseWriter, r *http.Request, j *Job) error {
	var asked struct {
		Inputs map[string]Value `json:"inputs"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestDocument)).Decode(&asked); err != nil {
		return err
	}
	step, outputs, err := j.predict(r.Context(), asked.Inputs)
	if err != nil {
		return err
	}
	return answer(w, map[string]any{"step": step, "outputs": outputs})
}

// events streams the job's status as server-sent events, until the client goes or the job has ended.
func (s *httpDoor) events(w http.ResponseWriter, r *http.Request, j *Job) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	write := func(format string, values ...any) error {
		_, err := fmt.Fprintf(w, format, values...)
		return errors.Join(err, control.Flush())
	}
	send := func(status Status) error {
		text, err := json.Marshal(status)
		if err != nil {
			return err
		}
		return write("id: %d\ndata: %s\n\n", status.Step, text)
	}
	j.follow(r.Context(), send, func() error { return write(": alive\n\n") })
	return nil // the answer has begun, so its end is all that can be told
}

func answer(w http.ResponseWriter, value any) error {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	return json.NewEncoder(w).Encode(value)
}

func refuse(w http.ResponseWriter, err error) {
	status, _ := kindOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
