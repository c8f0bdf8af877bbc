// A training service: clients upload a model and data, start jobs, watch them by server-sent events, ask for predictions
// while they train, pause, resume, and download what was learnt.
//
//	service -folder DIR [-listen 127.0.0.1:8080] [-budget BYTES] [-threads N] [-token-file FILE]
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
	"strings"
	"syscall"
	"time"
)

func main() {
	folder := flag.String("folder", "", "where uploads, jobs and checkpoints are kept")
	listen := flag.String("listen", "127.0.0.1:8080", "HOST:PORT; port 0: any that is free")
	budget := flag.Int64("budget", 0, "bytes for all jobs together; 0: no limit")
	threads := flag.Int("threads", 0, "of the engine; 0: one for each processor")
	tokenFile := flag.String("token-file", "", "a file with the bearer token that clients must bring")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serve(*folder, *listen, *budget, *threads, *tokenFile, log); err != nil {
		log.Error("the service ends", "error", err)
		os.Exit(1)
	}
}

func serve(folder, listen string, budget int64, threads int, tokenFile string, log *slog.Logger) error {
	if folder == "" {
		return errors.New("-folder is missing")
	}
	token := ""
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return err
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return fmt.Errorf("%s is empty", tokenFile)
		}
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if at := listener.Addr().(*net.TCPAddr); token == "" && !at.IP.IsLoopback() {
		listener.Close()
		return fmt.Errorf("%s is reached from other hosts, so clients need a token: -token-file", at)
	}
	manager, err := Open(folder, budget, threads, log)
	if err != nil {
		listener.Close()
		return err
	}
	server := &http.Server{Handler: (&Server{manager, token}).Handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Printf("listening on http://%s\n", listener.Addr())

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = nil
	}
	err = errors.Join(err, manager.Close()) // first: it ends the streams of events
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(limit))
}
