package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	epl "epl.ai/go"
	pb "epl.ai/samples/service/trainingpb"
	"google.golang.org/grpc/codes"
)

// watch begins to watch a job. What it gives waits for the last event.
func (c *client) watch(id string) func() Status {
	response, err := http.Get(c.address + "/v1/jobs/" + id + "/events")
	if err != nil {
		c.Error(err)
		return func() Status { return Status{} }
	}
	return func() (last Status) {
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(text), &last); err != nil {
					c.Error(err)
				}
			}
		}
		return last
	}
}

// wants makes a request that must be answered with a code.
func (c *client) wants(code int, method, path string, body any) {
	c.Helper()
	var text []byte
	if got := c.call(method, path, body, &text); got != code {
		c.Errorf("%s %s: %d, not %d: %s", method, path, got, code, text)
	}
}

// wantsAll asks everything about one job.
func (c *client) wantsAll(code int, id string) {
	c.Helper()
	for _, one := range []string{"GET /plan", "GET /model", "POST /start", "POST /pause", "POST /resume",
		"POST /checkpoint", "POST /predict"} {
		method, path, _ := strings.Cut(one, " ")
		c.wants(code, method, "/v1/jobs/"+id+path, aPrediction)
	}
}

var aPrediction = map[string]any{"inputs": map[string]Value{"x": {Dims: []int64{1, 2}, Values: []float64{-1, 1}}}}

// left gives what a service's folder has of jobs.
func left(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "jobs", "*"))
	deleted, failure := filepath.Glob(filepath.Join(folder, "jobs", "deleted", "*"))
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	for _, one := range append(all, deleted...) {
		if base := filepath.Base(one); base != "deleted" {
			names = append(names, base)
		}
	}
	return names
}

// TestFailedJobs: a job that fails gives its bytes back, all of them and before its watchers hear of it; its record
// stays, also when the service starts again.
func TestFailedJobs(t *testing.T) {
	folder := t.TempDir()
	c := start(t, t.TempDir())
	budget := fmt.Sprint(c.newJob(10).Memory)
	c = start(t, folder, "-budget", budget)
	spec := c.spec(100)
	spec.Trainer["optimizer.lr"] = 1e30 // a step soon gives no number
	var job Status
	if code := c.call("POST", "/v1/jobs", spec, &job); code != http.StatusCreated {
		t.Fatal(code, job)
	}
	c.wants(http.StatusInsufficientStorage, "POST", "/v1/jobs", spec)
	c.wants(http.StatusOK, "POST", "/v1/jobs/"+job.ID+"/start", nil)
	failed := c.watch(job.ID)()
	if failed.Phase != Failed || failed.Step < 1 || failed.Loss == 0 || failed.Error == "" || failed.Memory != 0 {
		t.Errorf("%+v", failed)
	}
	other := c.newJob(100)
	c.wantsAll(http.StatusConflict, job.ID)
	record := c.status(job.ID)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		c.check(c.command.Process.Signal(signal))
		c.command.Wait()
		c = start(t, folder, "-budget", budget)
		if again := c.status(job.ID); again != record || again.Error != failed.Error || again.Step != failed.Step {
			t.Errorf("%+v, %+v", again, record)
		}
		if again := c.status(other.ID); again.Phase != Waiting || again.Memory != other.Memory {
			t.Errorf("%+v, %+v", again, other)
		}
		c.wantsAll(http.StatusConflict, job.ID)
		if last := c.watch(job.ID)(); last != record {
			t.Errorf("%+v, %+v", last, record)
		}
	}
	// What cannot go on is seen, and may be deleted; with more room it goes on.
	c.check(c.command.Process.Kill())
	c.command.Wait()
	c = start(t, folder, "-budget", "1000")
	if s := c.status(other.ID); s.Phase != Failed || !strings.Contains(s.Error, "too few") || s.Memory != 0 {
		t.Errorf("%+v", s)
	}
	c.wants(http.StatusOK, "DELETE", "/v1/jobs/"+job.ID, nil)
	c.wants(http.StatusNotFound, "DELETE", "/v1/jobs/"+job.ID, nil)
	c.wantsAll(http.StatusNotFound, job.ID)
	c.check(c.command.Process.Signal(syscall.SIGTERM))
	c.check(c.command.Wait())
	c = start(t, folder, "-budget", budget)
	c.wants(http.StatusOK, "POST", "/v1/jobs/"+other.ID+"/start", nil)
	c.finish(other.ID)
	c.wants(http.StatusOK, "DELETE", "/v1/jobs/"+other.ID, nil)
	if names := left(t, folder); len(names) != 0 {
		t.Error(names)
	}
}

// TestDelete: in each phase, by either door, a job goes with its files, its watchers hear of it, and the next one fits,
// which takes the budget to the byte.
func TestDelete(t *testing.T) {
	folder := t.TempDir()
	c := start(t, t.TempDir())
	memory := c.newJob(10).Memory
	c = start(t, folder, "-budget", fmt.Sprint(memory))
	r := dial(t, c.grpc)
	for i, phase := range []Phase{Waiting, Running, Paused, Done, Running, Waiting} {
		steps := int64(1_000_000)
		if phase == Done {
			steps = 100
		}
		job := c.newJob(steps)
		at := "/v1/jobs/" + job.ID
		if phase != Waiting {
			c.wants(http.StatusOK, "POST", at+"/start", nil)
			c.until(job.ID, func(s Status) bool { return s.Step > 60 })
		}
		if phase == Paused {
			c.wants(http.StatusOK, "POST", at+"/pause", nil)
		}
		if phase == Done {
			c.finish(job.ID)
			c.wants(http.StatusOK, "POST", at+"/predict", aPrediction)
		}
		c.wants(http.StatusInsufficientStorage, "POST", "/v1/jobs", c.spec(10))
		watching := c.watch(job.ID)
		if i < 4 {
			var last Status
			if code := c.call("DELETE", at, nil, &last); code != http.StatusOK || last.Phase != Deleted || last.Memory != 0 {
				t.Errorf("%d, %+v", code, last)
			}
		} else if last := must[*pb.Status](r)(r.Delete(r.ctx, &pb.Job{Id: job.ID})); last.Phase != "deleted" {
			t.Error(last)
		}
		last := watching()
		if want := map[bool]Phase{true: Done, false: Deleted}[phase == Done]; last.Phase != want {
			t.Errorf("%s: the last event is %+v", phase, last)
		}
		c.wantsAll(http.StatusNotFound, job.ID)
		c.wants(http.StatusNotFound, "GET", at, nil)
		c.wants(http.StatusNotFound, "GET", at+"/events", nil)
		c.wants(http.StatusNotFound, "DELETE", at, nil)
		_, err := r.Delete(r.ctx, &pb.Job{Id: job.ID})
		r.wants(codes.NotFound, err)
		var list []Status
		if c.call("GET", "/v1/jobs", nil, &list); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		if names := left(t, folder); len(names) != 0 {
			t.Error(names)
		}
	}
	c.newJob(10)
}

// TestKilledWhileDeleting: afterwards there is the whole job, which goes on, or nothing of it.
func TestKilledWhileDeleting(t *testing.T) {
	folder := t.TempDir()
	whole := 0
	for i := range 9 {
		c := start(t, folder)
		job := c.newJob(1_000_000)
		c.wants(http.StatusOK, "POST", "/v1/jobs/"+job.ID+"/start", nil)
		c.until(job.ID, func(s Status) bool { return s.Checkpoint >= 50 })
		mine := filepath.Join(folder, "jobs", job.ID)
		for n := range 2000 { // so that it takes a while
			c.check(os.WriteFile(filepath.Join(mine, fmt.Sprint("more-", n)), nil, 0o666))
		}
		asked := make(chan struct{})
		go func() {
			request, _ := http.NewRequest("DELETE", c.address+"/v1/jobs/"+job.ID, nil)
			close(asked)
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
		}()
		<-asked
		time.Sleep(time.Duration(i) * time.Millisecond)
		c.check(c.command.Process.Kill())
		c.command.Wait()
		if i == 8 { // whatever the others met: this one was killed after the rename, or before
			os.Rename(mine, filepath.Join(folder, "jobs", "deleted", job.ID))
		}
		c = start(t, folder)
		if c.call("GET", "/v1/jobs/"+job.ID, nil, nil) == http.StatusOK && i < 8 {
			whole++
			c.until(job.ID, func(s Status) bool { return s.Step > 60 && s.Checkpoint >= 50 })
			if more, err := filepath.Glob(filepath.Join(mine, "more-*")); err != nil || len(more) != 2000 {
				t.Error(len(more), err)
			}
			c.wants(http.StatusOK, "DELETE", "/v1/jobs/"+job.ID, nil)
		}
		c.wantsAll(http.StatusNotFound, job.ID)
		if names := left(t, folder); len(names) != 0 {
			t.Error(names)
		}
		c.check(c.command.Process.Signal(syscall.SIGTERM))
		c.check(c.command.Wait())
	}
	t.Logf("%d of 8 were whole", whole)
}

// opened is a service in this process, with what a job needs.
func opened(t *testing.T) (*Manager, Spec) {
	t.Helper()
	m, err := Open(t.TempDir(), Limits{Budget: 0}, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	model, table := files(t)
	spec := Spec{Steps: 1 << 40, Checkpoint: 20, Dataset: map[string]any{"batch": 16},
		Trainer: map[string]any{"symbols": map[string]any{"batch": 16}}}
	spec.Model = uploaded(t, m, "model.onnx", model)
	spec.Data = uploaded(t, m, "table.csv", table)
	return m, spec
}

// TestDeleteWaits: a prediction under way ends before its job does, and a download has its file to the end.
func TestDeleteWaits(t *testing.T) {
	m, spec := opened(t)
	defer m.Close()
	ctx := context.Background()
	job, err := m.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.setPhase(ctx, Running); err != nil {
		t.Fatal(err)
	}
	file, err := job.export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	predictor := <-job.predictors // as a prediction has it
	deleted := make(chan error, 1)
	go func() { deleted <- m.Delete(ctx, job) }()
	for !job.deleted.Load() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if len(deleted) > 0 || m.used() == 0 {
		t.Error("it is deleted while a prediction is under way")
	}
	again := make(chan error, 1)
	go func() { again <- m.Delete(ctx, job) }()
	if err := predictor.Refresh(ctx); err != nil {
		t.Error(err)
	}
	x, err := epl.NewTensor(m.engine, make([]float32, 32), 16, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	outputs, err := predictor.Predict(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	defer outputs[0].Close()
	job.predictors <- predictor
	if err := <-deleted; err != nil || m.used() != 0 {
		t.Error(err, m.used())
	}
	if err := <-again; err != errUnknown {
		t.Error(err)
	}
	if text, err := io.ReadAll(file); err != nil || len(text) < 1000 {
		t.Error(len(text), err)
	}
	if _, err := job.export(ctx); err != errUnknown {
		t.Error(err)
	}
}

// TestDeleteBeside: while everything else is asked of them jobs are deleted, each by two clients at once. Nothing is
// used after its end, and nothing is left.
func TestDeleteBeside(t *testing.T) {
	m, spec := opened(t)
	defer m.Close()
	server := httptest.NewServer((&httpDoor{manager: m}).Handler())
	defer server.Close()
	c := &client{T: t, address: server.URL}
	before := epl.LiveHandles()
	var answers, deleted atomic.Int64
	for i := range 20 {
		var job Status
		if code := c.call("POST", "/v1/jobs", spec, &job); code != http.StatusCreated {
			t.Fatal(code)
		}
		at := "/v1/jobs/" + job.ID
		c.wants(http.StatusOK, "POST", at+"/start", nil)
		var group sync.WaitGroup
		beside := func(f func()) {
			group.Add(1)
			go func() { defer group.Done(); f() }()
		}
		for _, one := range []string{"GET /plan", "GET /model", "POST /start", "POST /pause", "POST /checkpoint",
			"POST /predict", "POST /predict", "GET "} {
			method, path, _ := strings.Cut(one, " ")
			beside(func() {
				for code := http.StatusOK; code == http.StatusOK; answers.Add(1) {
					var text []byte
					code = c.call(method, at+path, aPrediction, &text)
					if code != http.StatusOK && code != http.StatusNotFound {
						t.Error(one, code, string(text))
					}
				}
			})
		}
		for range 3 {
			watching := c.watch(job.ID)
			beside(func() {
				if last := watching(); last.Phase != Deleted {
					t.Errorf("%+v", last)
				}
			})
		}
		time.Sleep(time.Duration(5+i) * time.Millisecond)
		for range 2 {
			beside(func() {
				switch code := c.call("DELETE", at, nil, nil); code {
				case http.StatusOK:
					deleted.Add(1)
				case http.StatusNotFound:
				default:
					t.Error(code)
				}
			})
		}
		group.Wait()
		if m.used() != 0 || deleted.Load() != int64(i+1) || len(left(t, m.folder)) != 0 {
			t.Fatal(m.used(), deleted.Load(), left(t, m.folder))
		}
	}
	if now := epl.LiveHandles(); now != before {
		t.Errorf("%d handles live, and %d did before", now, before)
	}
	t.Logf("%d answers", answers.Load())
}

// TestDeleteFailedAtOnce: of several clients that delete a job that has failed, one is the first.
func TestDeleteFailedAtOnce(t *testing.T) {
	m, spec := opened(t)
	defer m.Close()
	spec.Trainer["optimizer.lr"] = 1e30 // its second step gives no number
	ctx := context.Background()
	for range 100 {
		job, err := m.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := job.setPhase(ctx, Running); err != nil {
			t.Fatal(err)
		}
		<-job.done
		answers := make(chan error, 8)
		begin := make(chan struct{})
		for range cap(answers) {
			go func() {
				<-begin
				answers <- m.Delete(ctx, job)
			}()
		}
		close(begin)
		deleted := 0
		for range cap(answers) {
			if err := <-answers; err == nil {
				deleted++
			} else if err != errUnknown {
				t.Error(err)
			}
		}
		if deleted != 1 || job.Status().Phase != Deleted || len(left(t, m.folder)) != 0 {
			t.Errorf("%d have deleted it, %+v", deleted, job.Status())
		}
	}
}

// TestDeleteWhatIsGone: somebody has removed the folder of a job by hand.
func TestDeleteWhatIsGone(t *testing.T) {
	m, spec := opened(t)
	defer m.Close()
	job, err := m.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(job.folder); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(context.Background(), job); err != nil || m.used() != 0 {
		t.Error(err, m.used())
	}
	if names := left(t, m.folder); len(names) != 0 {
		t.Error(names)
	}
}

// TestDeleteWantsToken: as every call.
func TestDeleteWantsToken(t *testing.T) {
	m, spec := opened(t)
	defer m.Close()
	job, err := m.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	handler := (&httpDoor{m, "open sesame"}).Handler()
	for _, one := range []struct {
		token string
		code  int
	}{{"", http.StatusUnauthorized}, {"open", http.StatusUnauthorized}, {"open sesame", http.StatusOK},
		{"open sesame", http.StatusNotFound}, {"", http.StatusUnauthorized}} {
		request := httptest.NewRequest("DELETE", "/v1/jobs/"+job.Status().ID, nil)
		request.Header.Set("Authorization", "Bearer "+one.token)
		answer := httptest.NewRecorder()
		if handler.ServeHTTP(answer, request); answer.Code != one.code {
			t.Error(one, answer.Code)
		}
	}
}
