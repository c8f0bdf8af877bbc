package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	epl "epl.ai/go"
)

// The service is a process of its own, as its users have it; only its address is known to the tests.
var binary string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "service")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(folder, "service")
	build := exec.Command("go", "build", "-tags", "epl_flags", "-o", binary, ".")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

type client struct {
	*testing.T
	command *exec.Cmd
	address string // of HTTP
	grpc    string // of gRPC
	log     bytes.Buffer
}

func start(t *testing.T, folder string, options ...string) *client {
	t.Helper()
	c := &client{T: t}
	c.command = exec.Command(binary, append([]string{"-folder", folder, "-listen", "127.0.0.1:0", "-grpc", "127.0.0.1:0",
		"-threads", "1"}, options...)...)
	c.command.Stderr = &c.log
	out, err := c.command.StdoutPipe()
	c.check(err)
	c.check(c.command.Start())
	t.Cleanup(func() {
		c.command.Process.Kill()
		c.command.Wait()
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	lines := bufio.NewReader(out)
	for _, one := range []struct {
		prefix string
		into   *string
	}{{"listening for gRPC on ", &c.grpc}, {"listening on ", &c.address}} {
		line, err := lines.ReadString('\n')
		if err != nil {
			c.command.Wait()
			t.Fatal(err, c.log.String())
		}
		*one.into = strings.TrimSpace(strings.TrimPrefix(line, one.prefix))
	}
	return c
}

func (c *client) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// call makes a request and reads a JSON answer into `into`; it gives the HTTP status.
func (c *client) call(method, path string, body any, into any) int {
	c.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		reader = bytes.NewReader(b)
	default:
		text, err := json.Marshal(body)
		c.check(err)
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, c.address+path, reader)
	c.check(err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	c.check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	c.check(err)
	if bytes, ok := into.(*[]byte); ok {
		*bytes = text
	} else if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			c.Fatalf("%s %s: %v in %q", method, path, err, text)
		}
	}
	return response.StatusCode
}

// files writes a model and a table, and gives their bytes.
func files(t *testing.T) (model, table []byte) {
	t.Helper()
	return filesOf(t, "[2,64,2]")
}

func filesOf(t *testing.T, sizes string) (model, table []byte) {
	t.Helper()
	engine, err := epl.NewEngine(epl.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := engine.WriteTemplate(context.Background(), "mlp", `{"sizes":`+sizes+`,"seed":1}`, path); err != nil {
		t.Fatal(err)
	}
	if model, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("a,b,target\n")
	for i := range 256 {
		a, b := (i*37)%101, (i*53)%103
		class := 0
		if a < b {
			class = 1
		}
		fmt.Fprintf(&text, "%g,%g,%d\n", float64(a)/50-1, float64(b)/50-1, class)
	}
	return model, []byte(text.String())
}

// uploaded gives the id of an upload of a service in this process.
func uploaded(t *testing.T, m *Manager, name string, data []byte) string {
	t.Helper()
	upload, err := m.uploads.add(name, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return upload.ID
}

// spec uploads what a job needs.
func (c *client) spec(steps int64) Spec {
	c.Helper()
	model, table := files(c.T)
	var m, d struct{ ID string }
	c.call("POST", "/v1/uploads/model.onnx", model, &m)
	c.call("POST", "/v1/uploads/table.csv", table, &d)
	return Spec{Model: m.ID, Data: d.ID, Steps: steps, Checkpoint: 50,
		Dataset: map[string]any{"batch": 16, "order": "shuffled", "seed": 3},
		Trainer: map[string]any{"optimizer": "adamw", "optimizer.lr": 0.01, "symbols": map[string]any{"batch": 16}}}
}

// endless is more steps than are made while a test waits, however long a busy machine keeps it waiting.
const endless = 1 << 40

func (c *client) newJob(steps int64) Status {
	c.Helper()
	var status Status
	code := c.call("POST", "/v1/jobs", c.spec(steps), &status)
	if code != http.StatusCreated || status.Memory <= 0 || status.Phase != Waiting {
		c.Fatalf("%d, %+v, %s", code, status, c.log.String())
	}
	return status
}

func (c *client) status(id string) (s Status) {
	c.Helper()
	c.call("GET", "/v1/jobs/"+id, nil, &s)
	return s
}

// limit ends what hangs, and no slow machine.
const limit = 5 * time.Minute

// until waits for a job to be as f wants it.
func (c *client) until(id string, f func(Status) bool) Status {
	c.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s := c.status(id); f(s) {
			return s
		} else if s.Phase == Failed {
			c.Fatalf("%+v", s)
		}
	}
	c.Fatalf("the job stays %+v", c.status(id))
	return Status{}
}

func (c *client) finish(id string) []byte {
	c.Helper()
	s := c.until(id, func(s Status) bool { return s.Phase == Done })
	if s.Step != s.Steps || s.Checkpoint != s.Steps {
		c.Fatalf("%+v", s)
	}
	var model []byte
	if code := c.call("GET", "/v1/jobs/"+id+"/model", nil, &model); code != http.StatusOK {
		c.Fatal(code, string(model))
	}
	return model
}

func TestTrainsWatchesAndPredicts(t *testing.T) {
	c := start(t, t.TempDir())
	job := c.newJob(endless)
	if code := c.call("POST", "/v1/jobs/"+job.ID+"/start", nil, nil); code != http.StatusOK {
		t.Fatal(code)
	}
	var answer struct {
		Step    int64
		Outputs map[string]struct {
			Dims   []int64
			Values []float64
		}
	}
	c.until(job.ID, func(s Status) bool { return s.Step > 100 })
	var plan []byte
	if c.call("GET", "/v1/jobs/"+job.ID+"/plan", nil, &plan); !strings.Contains(string(plan), "bytes") {
		t.Error(string(plan))
	}
	input := map[string]any{"inputs": map[string]any{"x": map[string]any{"dims": []int{2, 2}, "values": []float64{-1, 1, 1, -1}}}}
	if code := c.call("POST", "/v1/jobs/"+job.ID+"/predict", input, &answer); code != http.StatusOK {
		t.Fatal(code)
	}
	if len(answer.Outputs) != 1 {
		t.Fatal(answer)
	}
	for _, one := range answer.Outputs {
		if v := one.Values; len(v) != 4 || v[0] > v[1] || v[2] < v[3] {
			t.Error(one)
		}
	}
	c.call("POST", "/v1/jobs/"+job.ID+"/pause", nil, nil)
	at := c.status(job.ID)
	time.Sleep(50 * time.Millisecond)
	if again := c.status(job.ID); again.Step != at.Step || again.Phase != Paused {
		t.Errorf("%+v, %+v", at, again)
	}
	var saved Status
	if c.call("POST", "/v1/jobs/"+job.ID+"/checkpoint", nil, &saved); saved.Checkpoint != at.Step {
		t.Errorf("%+v", saved)
	}
	c.call("POST", "/v1/jobs/"+job.ID+"/resume", nil, nil)
	c.until(job.ID, func(s Status) bool { return s.Step > at.Step })
	job = c.newJob(300)
	c.call("POST", "/v1/jobs/"+job.ID+"/start", nil, nil)
	if model := c.finish(job.ID); len(model) < 1000 {
		t.Error(len(model))
	}
	if code := c.call("POST", "/v1/jobs/"+job.ID+"/start", nil, nil); code != http.StatusBadRequest {
		t.Error(code)
	}
	if code := c.call("GET", "/v1/jobs/nothing", nil, nil); code != http.StatusNotFound {
		t.Error(code)
	}
	if code := c.call("POST", "/v1/jobs", map[string]any{"modle": "x"}, nil); code != http.StatusBadRequest {
		t.Error(code)
	}
	if code := c.call("POST", "/v1/jobs", Spec{Model: "../../etc/passwd", Data: "x", Steps: 1}, nil); code != http.StatusNotFound {
		t.Error(code)
	}
}

// TestAThousandWatchers: each sees the job's end, and the training does not wait for those that do not read.
func TestAThousandWatchers(t *testing.T) {
	c := start(t, t.TempDir())
	job := c.newJob(3000)
	var group sync.WaitGroup
	var ends, events atomic.Int64
	transport := &http.Transport{MaxConnsPerHost: 0}
	defer transport.CloseIdleConnections()
	ready := make(chan struct{}, 1000)
	for i := range 1000 {
		group.Add(1)
		go func() {
			defer group.Done()
			response, err := (&http.Client{Transport: transport}).Get(c.address + "/v1/jobs/" + job.ID + "/events")
			ready <- struct{}{}
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if i%10 == 9 { // this one sleeps over everything
				time.Sleep(time.Second)
			}
			lines := bufio.NewScanner(response.Body)
			var last Status
			for lines.Scan() {
				if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					events.Add(1)
					if err := json.Unmarshal([]byte(text), &last); err != nil {
						t.Error(err)
					}
				}
			}
			if last.Phase == Done && last.Step == 3000 {
				ends.Add(1)
			}
		}()
	}
	for range 1000 {
		<-ready
	}
	c.call("POST", "/v1/jobs/"+job.ID+"/start", nil, nil)
	group.Wait()
	if ends.Load() != 1000 {
		t.Errorf("%d of 1000 watchers saw the end; %d events", ends.Load(), events.Load())
	}
	t.Logf("%d events", events.Load())
}

// TestKilledAndTerminated: after SIGKILL and after SIGTERM the service goes on, and ends with the bytes of a run that
// nobody disturbed. SIGTERM loses no step.
func TestKilledAndTerminated(t *testing.T) {
	calm := start(t, t.TempDir())
	undisturbed := calm.newJob(2000)
	calm.call("POST", "/v1/jobs/"+undisturbed.ID+"/start", nil, nil)
	want := calm.finish(undisturbed.ID)

	folder := t.TempDir()
	c := start(t, folder)
	job := c.newJob(2000)
	c.call("POST", "/v1/jobs/"+job.ID+"/start", nil, nil)
	c.until(job.ID, func(s Status) bool { return s.Step > 120 })
	c.check(c.command.Process.Kill())
	c.command.Wait()

	c = start(t, folder)
	s := c.until(job.ID, func(s Status) bool { return s.Step > 0 })
	if s.Step < 100 {
		t.Errorf("a checkpoint each 50 steps, and it goes on from %d", s.Step)
	}
	c.until(job.ID, func(s Status) bool { return s.Step > 300 })
	before := c.status(job.ID)
	c.check(c.command.Process.Signal(syscall.SIGTERM))
	if err := c.command.Wait(); err != nil {
		t.Error(err)
	}

	c = start(t, folder)
	if s := c.until(job.ID, func(s Status) bool { return s.Checkpoint > 0 }); s.Checkpoint < before.Step {
		t.Errorf("step %d was done, and it goes on from %d", before.Step, s.Checkpoint)
	}
	if got := c.finish(job.ID); !bytes.Equal(got, want) {
		t.Error("the weights differ from those of the undisturbed run")
	}
}

// TestBesideSteps: predictions are answered while a step is under way, of the weights before it. The service is in this
// process, so that no request takes longer than a step.
func TestBesideSteps(t *testing.T) {
	m, err := Open(t.TempDir(), Limits{Budget: 0}, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	model, table := filesOf(t, "[2,1024,1024,2]")
	spec := Spec{Steps: 100_000, Checkpoint: 100_000, Dataset: map[string]any{"batch": 256},
		Trainer: map[string]any{"symbols": map[string]any{"batch": 256},
			"shapes": []any{map[string]any{"symbols": map[string]any{"batch": 1}}}}} // so that one sample is quick
	spec.Model = uploaded(t, m, "model.onnx", model)
	spec.Data = uploaded(t, m, "table.csv", table)
	ctx := context.Background()
	job, err := m.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.setPhase(ctx, Running); err != nil {
		t.Fatal(err)
	}
	x := map[string]Value{"x": {Dims: []int64{1, 2}, Values: []float64{-1, 1}}}
	beside, last := 0, int64(0)
	for end := time.Now().Add(limit); beside < 5 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		before := job.Status().Step
		step, _, err := job.predict(ctx, x)
		if err != nil {
			t.Fatal(err)
		}
		if step < before {
			t.Fatalf("step %d was done, and the weights are of step %d", before, step)
		}
		if job.Status().Step == before && step > last {
			beside, last = beside+1, step
		}
	}
	t.Logf("within %d of %d steps there was an answer of another step's weights", beside, job.Status().Step)
	if beside < 5 {
		t.Error("predictions wait for steps")
	}
}

// TestBudget: jobs are let in where what their sessions and predictors have fits, to the byte.
func TestBudget(t *testing.T) {
	c := start(t, t.TempDir())
	memory := c.newJob(10).Memory
	c = start(t, t.TempDir(), "-budget", fmt.Sprint(2*memory))
	c.newJob(10)
	c.newJob(10)
	c = start(t, t.TempDir(), "-budget", fmt.Sprint(2*memory-1))
	c.newJob(10)
	var refused struct{ Error string }
	code := c.call("POST", "/v1/jobs", c.spec(10), &refused)
	if code != http.StatusInsufficientStorage || !strings.Contains(refused.Error, "too few") {
		t.Error(code, refused)
	}
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, t.TempDir(), "-token-file", file)
	if code := c.call("GET", "/v1/jobs", nil, nil); code != http.StatusUnauthorized {
		t.Error(code)
	}
	request, _ := http.NewRequest("GET", c.address+"/v1/jobs", nil)
	request.Header.Set("Authorization", "Bearer open sesame")
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Error(err, response)
	}
	response.Body.Close()
	// Off loopback a token is a must.
	for _, door := range []string{"-listen", "-grpc"} {
		command := exec.Command(binary, "-folder", t.TempDir(), "-listen", "127.0.0.1:0", "-grpc", "", door, "0.0.0.0:0")
		text, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(text), "-token-file") {
			t.Error(door, err, string(text))
		}
	}
}
