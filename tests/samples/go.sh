#!/bin/sh
# go.sh SOURCE LIBRARY_FOLDER OUT: builds samples/go with cgo and runs it.
set -eu
command -v go >/dev/null 2>&1 || { echo "SKIP: go is not installed"; exit 0; }
mkdir -p "$3"
# Everything that go writes stays below OUT; nothing is fetched.
export GOCACHE="$3/cache" GOPATH="$3/path" GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=1
export CGO_CFLAGS="-I$1/include" CGO_LDFLAGS="-L$2 -lepl -Wl,-rpath,$2"
cd "$1/samples/go"
go build -o "$3/train_mlp" .
"$3/train_mlp" "$3"
