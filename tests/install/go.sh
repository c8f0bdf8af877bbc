#!/bin/sh
# go.sh SOURCES PREFIX BUILD OUT: the program of docs/go.md in a clean folder with the module of the Debian package: as
# Debian's builds find it, against what is installed in PREFIX, and as the page says, against what is only built in
# BUILD.
set -eu
sources=$1 prefix=$2 build=$3 out=$4
command -v go >/dev/null 2>&1 || { echo "SKIP: go is not installed"; exit 0; }
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge 24 ] || { echo "SKIP: $(go env GOVERSION) is older than go1.24"; exit 0; }
[ -d "$prefix/lib/pkgconfig" ] || { echo "SKIP: no Debian packages were installed"; exit 0; }
module=$prefix/share/gocode/src/epl.ai/go
rm -rf "$out/user" "$out/module" "$out/path"
mkdir -p "$out/user" "$out/path"
cp "$sources/samples/go/first/main.go" "$out/user"
# No module comes from elsewhere. What was compiled of Go itself is taken over from the other test.
export GOCACHE="$build/bindings/go/cache" GOPROXY=off GOTOOLCHAIN=local GOFLAGS= CGO_ENABLED=1
cd "$out/user"
GO111MODULE=off GOPATH="$out/path:$prefix/share/gocode" PKG_CONFIG_PATH="$prefix/lib/pkgconfig" go build -o installed .
LD_LIBRARY_PATH="$prefix/lib" ./installed | tail -1 | grep '^step 50'
test -s trained.onnx
rm trained.onnx

# Go does not see that pkg-config says something else now; of a module in another folder it has compiled nothing.
cp -r "$module" "$out/module"
export GOPATH="$out/path" PKG_CONFIG_PATH="$build/pkgconfig"
go mod init example.com/user 2>&1
go mod edit -require=epl.ai/go@v0.0.0 -replace=epl.ai/go="$out/module"
go build -o local ./...
./local | tail -1 | grep '^step 50'
test -s trained.onnx
