// A training service: clients upload a model and data, start jobs, watch them by server-sent events, ask for predictions
// while they train, pause, resume, delete, and download what was learnt.
//
//	service -folder DIR [-listen 127.0.0.1:8080] [-grpc 127.0.0.1:8081] [-budget BYTES] [-quota BYTES]
//	        [-largest-upload BYTES] [-threads N] [-token-file FILE]
//
// SIGTERM ends it: every job ends the step it is in and saves. Started again, it goes on. README.md has a session by curl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	folder := flag.String("folder", "", "where uploads, jobs and checkpoints are kept")
	listen := flag.String("listen", "127.0.0.1:8080", "HOST:PORT of HTTP; port 0: any that is free")
	grpc := flag.String("grpc", "127.0.0.1:8081", "HOST:PORT of gRPC; empty: none")
	var limits Limits
	flag.Int64Var(&limits.Budget, "budget", 0, "bytes of memory for all jobs together; 0: no limit")
	flag.Int64Var(&limits.Quota, "quota", 20<<30, "bytes for all uploads together; 0: no limit")
	flag.Int64Var(&limits.Largest, "largest-upload", 8<<30, "bytes for one upload; 0: no limit")
	threads := flag.Int("threads", 0, "of the engine; 0: one for each processor")
	tokenFile := flag.String("token-file", "", "a file with the bearer token that clients must bring")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serve(*folder, *listen, *grpc, limits, *threads, *tokenFile, log); err != nil {
		log.Error("the service ends", "error", err)
		os.Exit(1)
	}
}

func serve(folder, listen, grpcListen string, limits Limits, threads int, tokenFile string, log *slog.Logger) error {
	if folder == "" {
		return errors.New("-folder is missing")
	}
	token, err := readToken(tokenFile)
	if err != nil {
		return err
	}
	// Doors that cannot be opened are found before a job trains.
	listener, err := token.listen(listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	var grpcListener net.Listener
	if grpcListen != "" {
		if grpcListener, err = token.listen(grpcListen); err != nil {
			return err
		}
		defer grpcListener.Close()
	}
	// From before the first job trains: whoever reads that this listens may end it.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	manager, err := Open(folder, limits, threads, log)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	byGRPC := newGRPC(manager, token)
	defer byGRPC.Stop()
	if grpcListener != nil {
		go func() { ended <- byGRPC.Serve(grpcListener) }()
		fmt.Printf("listening for gRPC on %s\n", grpcListener.Addr())
	}
	byHTTP := &http.Server{Handler: (&httpDoor{manager, token}).Handler(), ReadHeaderTimeout: 10 * time.Second,
		DisableGeneralOptionsHandler: true} // every request is answered by the door
	go func() { ended <- byHTTP.Serve(listener) }()
	fmt.Printf("listening on http://%s\n", listener.Addr())

	select {
	case err = <-ended:
	case <-ctx.Done():
		err = nil
	}
	err = errors.Join(err, manager.Close()) // first: it ends the streams of events
	// Other answers have ten seconds. All is saved: who does not take his answer until then makes this end no failure.
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	context.AfterFunc(limit, byGRPC.Stop) // ends what GracefulStop waits for
	if byHTTP.Shutdown(limit) != nil {
		byHTTP.Close()
	}
	byGRPC.GracefulStop()
	return err
}
