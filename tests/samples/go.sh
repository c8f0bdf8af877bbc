#!/bin/sh
# go.sh SOURCE LIBRARY_FOLDER OUT: runs the first program of docs/go.md.
set -eu
command -v go >/dev/null 2>&1 || { echo "SKIP: go is not installed"; exit 0; }
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge 24 ] || { echo "SKIP: $(go env GOVERSION) is older than go1.24"; exit 0; }
mkdir -p "$3"
# Everything that go writes stays in the build; nothing is fetched. What is compiled is shared with
# tests/bindings/go.sh.
export GOCACHE="$2/../bindings/go/cache" GOPATH="$3/path" GOFLAGS=-tags=epl_flags GOPROXY=off
export GOTOOLCHAIN=local CGO_ENABLED=1
export CGO_CFLAGS="-I$1/include" CGO_LDFLAGS="-L$2 -lepl -Wl,-rpath,$2"
cd "$1/samples/go/first"
[ -z "$(gofmt -l .)" ] || { gofmt -d .; exit 1; }
go vet .
go build -o "$3/first" .
(cd "$3" && ./first | tail -1 | grep -q '^step 50' && test -s trained.onnx)
