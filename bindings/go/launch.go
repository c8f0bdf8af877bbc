package epl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// Launch is what `epl launch` says in the environment of a process that it has started; the zero value but for Ranks = 1
// is that of a program that was started alone.
type Launch struct {
	Rank, Ranks           int // of the processes of the job
	LocalRank, LocalRanks int // of those on this host
	Rendezvous            string
	secret                string
}

// FromLaunch reads the variables of `epl launch` (docs/processes.md). Without them it is of a program that was started
// alone. The library reads no environment; this does, for a program that asks.
func FromLaunch() (Launch, error) {
	l := Launch{Ranks: 1, LocalRanks: 1, Rendezvous: os.Getenv("EPL_RENDEZVOUS")}
	if _, launched := os.LookupEnv("EPL_RANK"); !launched {
		return Launch{Ranks: 1, LocalRanks: 1}, nil
	}
	fd := -1
	for name, number := range map[string]*int{"EPL_RANK": &l.Rank, "EPL_WORLD_SIZE": &l.Ranks,
		"EPL_LOCAL_RANK": &l.LocalRank, "EPL_LOCAL_WORLD_SIZE": &l.LocalRanks, "EPL_SECRET_FD": &fd} {
		text, there := os.LookupEnv(name)
		if !there && (name == "EPL_LOCAL_RANK" || name == "EPL_LOCAL_WORLD_SIZE" || name == "EPL_SECRET_FD") {
			continue
		}
		value, err := strconv.Atoi(text)
		if err != nil || value < 0 {
			return l, &Error{Code: InvalidArgument, Where: name, Rank: -1, Message: fmt.Sprintf("%s is %q, which is no number", name, text)}
		}
		*number = value
	}
	if fd < 0 {
		return l, nil
	}
	secret := make([]byte, 256)
	file := os.NewFile(uintptr(fd), "the secret of EPL_SECRET_FD")
	if file == nil {
		return l, &Error{Code: IO, Where: "EPL_SECRET_FD", Rank: -1, Message: "there is no descriptor of that number"}
	}
	n, err := file.ReadAt(secret, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return l, &Error{Code: IO, Where: "EPL_SECRET_FD", Rank: -1, Message: "the secret cannot be read: " + err.Error(), cause: err}
	}
	launchedSecrets = append(launchedSecrets, file) // a file that is collected closes its descriptor, which others may read
	l.secret = string(secret[:n])
	return l, nil
}

var launchedSecrets []*os.File

// String is what logs show of it: all but the secret.
func (l Launch) String() string {
	return fmt.Sprintf("{Rank:%d Ranks:%d LocalRank:%d LocalRanks:%d Rendezvous:%s}", l.Rank, l.Ranks, l.LocalRank,
		l.LocalRanks, l.Rendezvous)
}

// GoString is the same for %#v.
func (l Launch) GoString() string { return "epl.Launch" + l.String() }

// PlanOptions are those of a job in which each process has one rank.
func (l Launch) PlanOptions() PlanOptions { return PlanOptions{Ranks: l.Ranks, LocalRanks: 1} }

// SessionOptions say which rank this process has and where the others are.
func (l Launch) SessionOptions() SessionOptions {
	if l.Ranks == 1 {
		return SessionOptions{}
	}
	return SessionOptions{FirstRank: l.Rank, Ranks: 1, Rendezvous: l.Rendezvous, Secret: l.secret}
}
