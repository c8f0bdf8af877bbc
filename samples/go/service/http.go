package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page.html
var page []byte // samples/service/page.html, which all services have

const mostDrained = 64 << 20

// httpDoor answers clients of a manager by HTTP.
type httpDoor struct {
	manager *Manager
	token   Token
}

func (s *httpDoor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.token.guard(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
		w.Write(page)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.refuse(w, r, errUnknown) })
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := s.token.guard(r)
			if err == nil && !s.token.known(tokenOf(r)) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				err = errStranger
			}
			if err == nil {
				err = f(w, r)
			}
			if err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	handle("GET /v1/uploads", func(w http.ResponseWriter, r *http.Request) error {
		all, err := s.manager.uploads.list(s.manager.users)
		if err != nil {
			return err
		}
		return answer(w, all)
	})
	handle("DELETE /v1/uploads/{id}", func(w http.ResponseWriter, r *http.Request) error {
		gone, err := s.manager.DeleteUpload(r.PathValue("id"))
		if err != nil {
			return err
		}
		return answer(w, gone)
	})
	handle("GET /v1/events", s.allEvents)
	handle("GET /v1/jobs/{id}/history", s.withJob(func(w http.ResponseWriter, r *http.Request, j *Job) error {
		return answer(w, j.history)
	}))
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would lead to another path; and nothing here has a name that must be escaped.
		escaped := r.URL.EscapedPath()
		if !strings.HasPrefix(escaped, "/") || path.Clean(escaped) != escaped || strings.Contains(escaped, "%") {
			s.refuse(w, r, errUnknown)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// tokenOf is what a client brings. The page's EventSource cannot set a header, so a token may come in the query as well.
func tokenOf(r *http.Request) string {
	if header := r.Header.Get("Authorization"); header != "" {
		return bearer(header)
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
	upload, err := s.manager.uploads.add(r.PathValue("name"), r.Body)
	if err != nil {
		return err
	}
	return answer(w, upload)
}

func (s *httpDoor) create(w http.ResponseWriter, r *http.Request) error {
	var spec Spec
	if err := document(r, &spec); err != nil {
		return err
	}
	j, err := s.manager.Create(r.Context(), spec)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/jobs/"+j.Status().ID)
	w.Header().Set("Content-Type", "application/json")
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
	if err := document(r, &asked); err != nil {
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
	send, quiet := stream(w)
	if r.Method == http.MethodHead {
		return nil
	}
	j.follow(r.Context(), send, quiet)
	return nil // the answer has begun, so its end is all that can be told
}

// allEvents streams the statuses of all jobs, a few times a second: now, and after each change.
func (s *httpDoor) allEvents(w http.ResponseWriter, r *http.Request) error {
	send, quiet := stream(w)
	if r.Method == http.MethodHead {
		return nil
	}
	s.manager.follow(r.Context(), send, quiet)
	return nil
}

// stream begins an answer of server-sent events.
func stream(w http.ResponseWriter) (send func(Status) error, quiet func() error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	write := func(format string, values ...any) error {
		_, err := fmt.Fprintf(w, format, values...)
		return errors.Join(err, control.Flush())
	}
	send = func(status Status) error {
		text, err := json.Marshal(status)
		if err != nil {
			return err
		}
		return write("id: %d\ndata: %s\n\n", status.Step, text)
	}
	quiet = func() error { return write(": alive\n\n") }
	quiet() // the head goes out at once
	return send, quiet
}

func answer(w http.ResponseWriter, value any) error {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	return json.NewEncoder(w).Encode(value)
}

func (s *httpDoor) refuse(w http.ResponseWriter, r *http.Request, err error) {
	// A client that is still sending reads the answer only when it has sent all.
	io.CopyN(io.Discard, r.Body, mostDrained)
	status, _ := kindOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": s.manager.told(err)})
}
