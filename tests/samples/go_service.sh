#!/bin/sh
# go_service.sh SOURCE LIBRARY_FOLDER OUT: generates, builds and tests the training service, and lets the client of all
# services (service_client.py) use it. gRPC's modules are
# fetched as go.sum has them.
set -eu
command -v go >/dev/null 2>&1 || { echo "SKIP: go is not installed"; exit 0; }
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge 24 ] || { echo "SKIP: $(go env GOVERSION) is older than go1.24"; exit 0; }
command -v protoc >/dev/null 2>&1 || { echo "SKIP: protoc is not installed"; exit 0; }
mkdir -p "$3"
# Everything that go writes stays in the build, so the sample is copied there. What is compiled is shared with
# tests/bindings/go.sh. With the race detector it is all compiled once, and the client's requests meet it as well.
export GOCACHE="$2/../bindings/go/cache" GOPATH="$3/path" GOFLAGS="-tags=epl_flags -modcacherw"
export GOTOOLCHAIN=local CGO_ENABLED=1
export CGO_CFLAGS="-I$1/include" CGO_LDFLAGS="-L$2 -lepl -Wl,-rpath,$2"
rm -rf "$3/service"
mkdir "$3/service"
cd "$1/samples/go/service"
[ -z "$(gofmt -l ./*.go)" ] || { gofmt -d ./*.go; exit 1; }
cp ./*.go ./*.sh go.mod go.sum training.proto ../../service/page.html "$3/service"
cd "$3/service"
go mod edit -replace "epl.ai/go=$1/bindings/go"
go mod download || { echo "SKIP: the modules of gRPC cannot be fetched"; exit 0; }
export GOPROXY=off  # what follows has all that it needs
go generate .
go vet -race .
TMPDIR="$3" go test -race -count=1 .
go build -race -o training .
# Without gRPC: the client of all services knows HTTP.
EPL_LIBRARY="$2/libepl.so" python3 "$1/tests/samples/service_client.py" "$3/client" -- ./training --grpc ""
