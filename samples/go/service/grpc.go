package main

import (
	"context"
	"errors"
	"io"

	pb "epl.ai/samples/service/trainingpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

//go:generate sh generate.sh

const largestPiece = 256 << 10

// grpcDoor answers clients of a manager by gRPC.
type grpcDoor struct {
	pb.UnimplementedTrainingServer
	manager *Manager
}

// newGRPC makes a server whose clients must bring the token. Errors of handlers become codes here.
func newGRPC(manager *Manager, token Token) *grpc.Server {
	allowed := func(ctx context.Context) error {
		given := ""
		if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
			given = bearer(values[0])
		}
		if !token.known(given) {
			return errStranger
		}
		return nil
	}
	coded := func(err error) error {
		if _, ok := status.FromError(err); ok {
			return err // nothing, or an error of the stream, which has its code
		}
		_, code := kindOf(err)
		return status.Error(code, manager.told(err))
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(largestDocument),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (answer any, err error) {
			if err = allowed(ctx); err == nil {
				answer, err = handle(ctx, request)
			}
			return answer, coded(err)
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			err := allowed(stream.Context())
			if err == nil {
				err = handle(service, stream)
			}
			return coded(err)
		}))
	pb.RegisterTrainingServer(server, &grpcDoor{manager: manager})
	return server
}

// pieces reads the bytes of a stream of uploads.
type pieces struct {
	stream grpc.ClientStreamingServer[pb.UploadRequest, pb.UploadReply]
	rest   []byte
}

func (p *pieces) Read(to []byte) (int, error) {
	for len(p.rest) == 0 {
		message, err := p.stream.Recv()
		if err != nil {
			return 0, err // io.EOF where the client is done
		}
		p.rest = message.Piece
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (d *grpcDoor) Upload(stream grpc.ClientStreamingServer[pb.UploadRequest, pb.UploadReply]) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return errors.New("an upload begins with the name of the file")
	}
	if err != nil {
		return err
	}
	upload, err := d.manager.uploads.add(first.Name, &pieces{stream, first.Piece})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.UploadReply{Id: upload.ID})
}

func (d *grpcDoor) Create(ctx context.Context, r *pb.CreateRequest) (*pb.Status, error) {
	spec := Spec{Model: r.Model, Data: r.Data, Ranks: int(r.Ranks), Steps: r.Steps, Checkpoint: r.Checkpoint,
		Seconds: r.CheckpointSeconds}
	for _, one := range []struct {
		name, text string
		into       *map[string]any
	}{
		{"dataset", r.Dataset, &spec.Dataset}, {"trainer", r.Trainer, &spec.Trainer},
		{"strategy", r.Strategy, &spec.Strategy},
	} {
		if one.text == "" {
			continue
		}
		if err := fromJSON(one.name, []byte(one.text), one.into); err != nil {
			return nil, err
		}
	}
	j, err := d.manager.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return statusMessage(j.Status()), nil
}

func (d *grpcDoor) List(context.Context, *pb.ListRequest) (*pb.ListReply, error) {
	reply := &pb.ListReply{}
	for _, one := range d.manager.List() {
		reply.Jobs = append(reply.Jobs, statusMessage(one))
	}
	return reply, nil
}

// with does something with a job and answers with its status.
func (d *grpcDoor) with(r *pb.Job, f func(*Job) error) (*pb.Status, error) {
	j, err := d.manager.Job(r.Id)
	if err != nil {
		return nil, err
	}
	if err := f(j); err != nil {
		return nil, err
	}
	return statusMessage(j.Status()), nil
}

func (d *grpcDoor) Get(_ context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(*Job) error { return nil })
}

func (d *grpcDoor) Start(ctx context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(j *Job) error { return j.setPhase(ctx, Running) })
}

func (d *grpcDoor) Pause(ctx context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(j *Job) error { return j.setPhase(ctx, Paused) })
}

func (d *grpcDoor) Resume(ctx context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(j *Job) error { return j.setPhase(ctx, Running) })
}

func (d *grpcDoor) Checkpoint(ctx context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(j *Job) error { return j.saveNow(ctx) })
}

func (d *grpcDoor) Delete(ctx context.Context, r *pb.Job) (*pb.Status, error) {
	return d.with(r, func(j *Job) error { return d.manager.Delete(ctx, j) })
}

func (d *grpcDoor) Watch(r *pb.Job, stream grpc.ServerStreamingServer[pb.Status]) error {
	j, err := d.manager.Job(r.Id)
	if err != nil {
		return err
	}
	return j.follow(stream.Context(), func(s Status) error { return stream.Send(statusMessage(s)) }, nil)
}

func (d *grpcDoor) Predict(ctx context.Context, r *pb.PredictRequest) (*pb.PredictReply, error) {
	j, err := d.manager.Job(r.Id)
	if err != nil {
		return nil, err
	}
	inputs := map[string]Value{}
	for name, one := range r.Inputs {
		inputs[name] = Value{one.GetDims(), one.GetValues()}
	}
	step, outputs, err := j.predict(ctx, inputs)
	if err != nil {
		return nil, err
	}
	reply := &pb.PredictReply{Step: step, Outputs: map[string]*pb.Value{}}
	for name, one := range outputs {
		reply.Outputs[name] = &pb.Value{Dims: one.Dims, Values: one.Values}
	}
	return reply, nil
}

func (d *grpcDoor) Download(r *pb.Job, stream grpc.ServerStreamingServer[pb.Piece]) error {
	j, err := d.manager.Job(r.Id)
	if err != nil {
		return err
	}
	file, err := j.export(stream.Context())
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		piece := make([]byte, largestPiece)
		n, err := file.Read(piece)
		if n > 0 {
			if err := stream.Send(&pb.Piece{Piece: piece[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func statusMessage(s Status) *pb.Status {
	return &pb.Status{Id: s.ID, Phase: string(s.Phase), Step: s.Step, Steps: s.Steps, Loss: float64(s.Loss), LearningRate: float64(s.Rate),
		SecondsPerStep: float64(s.Seconds), MemoryBytes: s.Memory, CheckpointStep: s.Checkpoint, Error: s.Error, Log: s.Log,
		Created: s.Created}
}
