package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	epl "epl.ai/go"
	pb "epl.ai/samples/service/trainingpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// remote is a client by gRPC.
type remote struct {
	*testing.T
	pb.TrainingClient
	ctx context.Context
}

func dial(t *testing.T, address string) *remote {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return &remote{t, pb.NewTrainingClient(connection), ctx}
}

// must gives what a call gave, and ends the test where it failed.
func must[A any](r *remote) func(A, error) A {
	return func(answer A, err error) A {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
		return answer
	}
}

func (r *remote) upload(name string, data []byte) string {
	r.Helper()
	stream, err := r.Upload(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), 1000) // several pieces, whatever the file
		if err := stream.Send(&pb.UploadRequest{Name: name, Piece: data[:n]}); err != nil {
			break // CloseAndRecv says why
		}
		data = data[n:]
	}
	return must[*pb.UploadReply](r)(stream.CloseAndRecv()).Id
}

func (r *remote) create(steps int64) *pb.Job {
	r.Helper()
	model, table := files(r.T)
	made := must[*pb.Status](r)(r.Create(r.ctx, &pb.CreateRequest{
		Model: r.upload("model.onnx", model), Data: r.upload("table.csv", table), Steps: steps, Checkpoint: 50,
		Dataset: `{"batch": 16, "order": "shuffled", "seed": 3}`,
		Trainer: `{"optimizer": "adamw", "optimizer.lr": 0.01, "symbols": {"batch": 16}}`}))
	if made.Phase != "waiting" || made.MemoryBytes <= 0 || made.Steps != steps {
		r.Fatal(made)
	}
	return &pb.Job{Id: made.Id}
}

// watch calls f with each status until f is satisfied; where the stream ends before, it gives why.
func (r *remote) watch(job *pb.Job, f func(*pb.Status) bool) (*pb.Status, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	stream, err := r.Watch(ctx, job)
	if err != nil {
		return nil, err
	}
	for {
		s, err := stream.Recv()
		if err != nil || f(s) {
			return s, err
		}
	}
}

func (r *remote) until(job *pb.Job, f func(*pb.Status) bool) *pb.Status {
	r.Helper()
	return must[*pb.Status](r)(r.watch(job, f))
}

func (r *remote) download(job *pb.Job) (model []byte) {
	r.Helper()
	stream := must[grpc.ServerStreamingClient[pb.Piece]](r)(r.Download(r.ctx, job))
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return model
		}
		if err != nil {
			r.Fatal(err)
		}
		model = append(model, piece.Piece...)
	}
}

func (r *remote) wants(code codes.Code, err error) {
	r.Helper()
	if status.Code(err) != code {
		r.Errorf("%v is wanted, not %v", code, err)
	}
}

// TestByGRPC goes through all doors of gRPC, and sees the same job by HTTP.
func TestByGRPC(t *testing.T) {
	c := start(t, t.TempDir())
	r := dial(t, c.grpc)
	job := r.create(endless)
	must[*pb.Status](r)(r.Start(r.ctx, job))
	r.until(job, func(s *pb.Status) bool { return s.Step > 100 })

	// Predictions come while it trains: each is of a later step.
	x := &pb.Value{Dims: []int64{2, 2}, Values: []float64{-1, 1, 1, -1}}
	input := &pb.PredictRequest{Id: job.Id, Inputs: map[string]*pb.Value{"x": x}}
	var last int64
	for range 5 {
		answer := must[*pb.PredictReply](r)(r.Predict(r.ctx, input))
		if answer.Step <= last {
			t.Errorf("step %d after step %d", answer.Step, last)
		}
		last = answer.Step
		for name, one := range answer.Outputs {
			if v := one.Values; name != "logits" || len(v) != 4 || v[0] > v[1] || v[2] < v[3] {
				t.Error(name, one)
			}
		}
		r.until(job, func(s *pb.Status) bool { return s.Step > last })
	}

	paused := must[*pb.Status](r)(r.Pause(r.ctx, job))
	time.Sleep(50 * time.Millisecond)
	if again := must[*pb.Status](r)(r.Get(r.ctx, job)); again.Step != paused.Step || again.Phase != "paused" {
		t.Error(paused, again)
	}
	if saved := must[*pb.Status](r)(r.Checkpoint(r.ctx, job)); saved.CheckpointStep != paused.Step {
		t.Error(saved)
	}
	if seen := c.status(job.Id); seen.Step != paused.Step || seen.Phase != Paused || seen.Checkpoint != paused.Step {
		t.Errorf("%+v by HTTP, %v by gRPC", seen, paused)
	}
	must[*pb.Status](r)(r.Resume(r.ctx, job))
	r.until(job, func(s *pb.Status) bool { return s.Step > paused.Step })
	must[*pb.Status](r)(r.Delete(r.ctx, job))
	job = r.create(300)
	must[*pb.Status](r)(r.Start(r.ctx, job))
	if end := r.until(job, func(s *pb.Status) bool { return s.Phase == "done" }); end.Step != 300 {
		t.Error(end)
	}
	var byHTTP []byte
	if c.call("GET", "/v1/jobs/"+job.Id+"/model", nil, &byHTTP); !bytes.Equal(r.download(job), byHTTP) {
		t.Error("the doors give other models")
	}
	if list := must[*pb.ListReply](r)(r.List(r.ctx, &pb.ListRequest{})); len(list.Jobs) != 1 || list.Jobs[0].Id != job.Id {
		t.Error(list)
	}
	_, err := r.Start(r.ctx, job)
	r.wants(codes.InvalidArgument, err)
	_, err = r.Get(r.ctx, &pb.Job{Id: "nothing"})
	r.wants(codes.NotFound, err)
	_, err = r.watch(&pb.Job{Id: "nothing"}, func(*pb.Status) bool { return true })
	r.wants(codes.NotFound, err)
	_, err = r.Predict(r.ctx, &pb.PredictRequest{Id: job.Id})
	r.wants(codes.InvalidArgument, err)
	_, err = r.Create(r.ctx, &pb.CreateRequest{Model: "../../etc/passwd", Data: "x", Steps: 1})
	r.wants(codes.NotFound, err)
	_, err = r.Create(r.ctx, &pb.CreateRequest{Trainer: "{"})
	r.wants(codes.InvalidArgument, err)
	stream, err := r.Upload(r.ctx)
	c.check(err)
	stream.Send(&pb.UploadRequest{Name: "../model.onnx"})
	_, err = stream.CloseAndRecv()
	r.wants(codes.InvalidArgument, err)
}

// TestGRPCLosesNoStep: SIGTERM ends watchers with a code that says why, and the steps are there afterwards.
func TestGRPCLosesNoStep(t *testing.T) {
	folder := t.TempDir()
	c := start(t, folder)
	r := dial(t, c.grpc)
	job := r.create(1000000)
	must[*pb.Status](r)(r.Start(r.ctx, job))
	var seen int64
	_, err := r.watch(job, func(s *pb.Status) bool {
		if seen == 0 && s.Step > 0 {
			c.check(c.command.Process.Signal(syscall.SIGTERM))
		}
		seen = max(seen, s.Step)
		return false
	})
	r.wants(codes.Unavailable, err)
	if err := c.command.Wait(); err != nil {
		t.Error(err)
	}
	c = start(t, folder)
	r = dial(t, c.grpc)
	if s := r.until(job, func(s *pb.Status) bool { return s.CheckpointStep > 0 }); s.CheckpointStep < seen || seen == 0 {
		t.Errorf("step %d was seen, and it goes on from %d", seen, s.CheckpointStep)
	}
}

// TestGRPCReadsJSON: the texts of a request are read as bodies by HTTP are, and refusals name no type of Go's.
func TestGRPCReadsJSON(t *testing.T) {
	c := start(t, t.TempDir())
	r := dial(t, c.grpc)
	model, table := files(t)
	good := &pb.CreateRequest{Model: r.upload("model.onnx", model), Data: r.upload("table.csv", table), Steps: 10,
		Dataset: `{"batch": 16}`, Trainer: `{"symbols": {"batch": 16}}`}
	for _, one := range []struct{ dataset, trainer, strategy, says string }{
		{`{"batch": 16, "batch": 8}`, "", "", `"batch" stands twice`},
		{`{"batch": 1e400}`, "", "", "1e400"},
		{"[16]", "", "", "dataset is an object"},
		{"null", "", "", "dataset is an object"},
		{"", `{"symbols": {"batch": 16, "batch": 8}}`, "", `"batch" stands twice`},
		{"", `{"symbols": {"batch": 16}} {}`, "", "more than one"},
		{"", "\"adamw\"", "", "trainer is an object"},
		{"", "", `{"scopes": [{"name": 1, "name": 2}]}`, `"name" stands twice`},
		{"", "", `{"a":` + strings.Repeat("[", 100000) + "}", "nested too deep"},
	} {
		asked := &pb.CreateRequest{Model: good.Model, Data: good.Data, Steps: 10, Dataset: cmp.Or(one.dataset, good.Dataset),
			Trainer: cmp.Or(one.trainer, good.Trainer), Strategy: one.strategy}
		_, err := r.Create(r.ctx, asked)
		r.wants(codes.InvalidArgument, err)
		if said := status.Convert(err).Message(); !strings.Contains(said, one.says) || strings.Contains(said, "Go ") {
			t.Errorf("%q does not say %q", said, one.says)
		}
	}
	for _, seconds := range []float64{math.NaN(), math.Inf(1), -1} {
		asked := &pb.CreateRequest{Model: good.Model, Data: good.Data, Steps: 10, Dataset: good.Dataset, Trainer: good.Trainer,
			CheckpointSeconds: seconds}
		_, err := r.Create(r.ctx, asked)
		if said := status.Convert(err).Message(); !strings.HasPrefix(said, "checkpoint_seconds is") {
			t.Errorf("%v: %s", seconds, said)
		}
	}
	must[*pb.Status](r)(r.Create(r.ctx, good))
}

// TestGRPCHangingClients: the service ends soon and well after SIGTERM, with every step saved, whatever clients have begun.
func TestGRPCHangingClients(t *testing.T) {
	folder := t.TempDir()
	c := start(t, folder)
	r := dial(t, c.grpc)
	job := r.create(1 << 40)
	must[*pb.Status](r)(r.Start(r.ctx, job))
	upload := must[grpc.ClientStreamingClient[pb.UploadRequest, pb.UploadReply]](r)(r.Upload(r.ctx))
	c.check(upload.Send(&pb.UploadRequest{Name: "half.csv", Piece: []byte("a,b")}))
	must[grpc.ClientStreamingClient[pb.UploadRequest, pb.UploadReply]](r)(r.Upload(r.ctx)) // says nothing
	for range 3 {
		must[grpc.ServerStreamingClient[pb.Status]](r)(r.Watch(r.ctx, job)) // nobody reads them
		must[grpc.ServerStreamingClient[pb.Piece]](r)(r.Download(r.ctx, job))
	}
	time.Sleep(2 * time.Second)
	r.until(job, func(s *pb.Status) bool { return s.Step > 0 })
	before := must[*pb.Status](r)(r.Get(r.ctx, job)).Step
	began := time.Now()
	c.check(c.command.Process.Signal(syscall.SIGTERM))
	if err := c.command.Wait(); err != nil || time.Since(began) > time.Minute {
		t.Errorf("it ended with %v after %v", err, time.Since(began))
	}
	c = start(t, folder)
	r = dial(t, c.grpc)
	after := r.until(job, func(s *pb.Status) bool { return s.Step > 0 })
	if before == 0 || after.CheckpointStep < before {
		t.Errorf("step %d was done, and it goes on after %d", before, after.CheckpointStep)
	}
}

func TestGRPCBudgetAndToken(t *testing.T) {
	c := start(t, t.TempDir(), "-budget", "1000")
	r := dial(t, c.grpc)
	model, table := files(t)
	_, err := r.Create(r.ctx, &pb.CreateRequest{Model: r.upload("model.onnx", model), Data: r.upload("table.csv", table),
		Steps: 10, Dataset: `{"batch": 16}`, Trainer: `{"symbols": {"batch": 16}}`})
	r.wants(codes.ResourceExhausted, err)

	file := filepath.Join(t.TempDir(), "token")
	c.check(os.WriteFile(file, []byte("open sesame\n"), 0o600))
	c = start(t, t.TempDir(), "-token-file", file)
	r = dial(t, c.grpc)
	for _, given := range []string{"", "Bearer open", "Bearer ", "open sesam"} {
		r.ctx = metadata.NewOutgoingContext(r.ctx, metadata.Pairs("authorization", given))
		_, err = r.List(r.ctx, &pb.ListRequest{})
		r.wants(codes.Unauthenticated, err)
		_, err = r.watch(&pb.Job{}, func(*pb.Status) bool { return true })
		r.wants(codes.Unauthenticated, err)
	}
	r.ctx = metadata.NewOutgoingContext(r.ctx, metadata.Pairs("authorization", "Bearer open sesame"))
	must[*pb.ListReply](r)(r.List(r.ctx, &pb.ListRequest{}))
}

// TestGRPCWatchers: 200 watch. A fourth of them go before the job begins, and leave nothing behind; a fourth never read;
// the others see the end. Here the service is in the test's own process, so that what is left of it can be counted.
func TestGRPCWatchers(t *testing.T) {
	before := epl.LiveHandles()
	manager, err := Open(t.TempDir(), Limits{Budget: 0}, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newGRPC(manager, "")
	go server.Serve(listener)
	r := dial(t, listener.Addr().String())
	job := r.create(3000)
	hub := manager.jobs[job.Id].hub
	watching := func(n int) {
		t.Helper()
		for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
			hub.lock.Lock()
			now := len(hub.watchers)
			hub.lock.Unlock()
			if now == n {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%d watch, not %d", now, n)
			}
		}
	}
	early, leave := context.WithCancel(r.ctx)
	var group sync.WaitGroup
	for i := range 200 {
		ctx := r.ctx
		if i%4 == 0 {
			ctx = early
		}
		stream := must[grpc.ServerStreamingClient[pb.Status]](r)(r.Watch(ctx, job))
		if i%4 == 1 {
			continue // never read: the room of its stream fills up, and nobody waits for it
		}
		group.Add(1)
		go func() {
			defer group.Done()
			var last *pb.Status
			for {
				s, err := stream.Recv()
				if err != nil {
					if i%4 == 0 {
						r.wants(codes.Canceled, err)
					} else if !errors.Is(err, io.EOF) || last.GetPhase() != "done" || last.GetStep() != 3000 {
						t.Error(err, last)
					}
					return
				}
				last = s
			}
		}()
	}
	watching(200)
	leave()
	watching(150)
	must[*pb.Status](r)(r.Start(r.ctx, job))
	group.Wait()
	if err := manager.Close(); err != nil {
		t.Error(err)
	}
	server.Stop()
	watching(0)
	if now := epl.LiveHandles(); now != before {
		t.Errorf("%d handles live, and %d did before", now, before)
	}
}
