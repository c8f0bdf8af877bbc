#!/bin/sh
# go.sh SOURCES PREFIX BUILD OUT: the module alone, outside of the repository, and the program of docs/go.md in a clean
# folder: built as the page says, against what is installed in PREFIX and against what is only built in BUILD.
set -eu
sources=$1 prefix=$2 build=$3 out=$4
command -v go >/dev/null 2>&1 || { echo "SKIP: go is not installed"; exit 0; }
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge 24 ] || { echo "SKIP: $(go env GOVERSION) is older than go1.24"; exit 0; }
[ -d "$prefix/lib/pkgconfig" ] || { echo "SKIP: no Debian packages were installed"; exit 0; }
rm -rf "$out/user" "$out/module" "$out/same_module" "$out/path"
mkdir -p "$out/user"
cp -r "$sources/bindings/go" "$out/module"
cp "$sources/samples/go/first/main.go" "$out/user"
# No module comes from elsewhere. What was compiled of Go itself is taken over from the other test.
export GOCACHE="$build/bindings/go/cache" GOPATH="$out/path" GOPROXY=off GOTOOLCHAIN=local GOFLAGS= CGO_ENABLED=1
cd "$out/user"
go mod init example.com/user 2>&1
go mod edit -require=epl.ai/go@v0.0.0 -replace=epl.ai/go="$out/module"

PKG_CONFIG_PATH="$prefix/lib/pkgconfig" go build -o installed ./...
LD_LIBRARY_PATH="$prefix/lib" ./installed | tail -1 | grep '^step 50'
test -s trained.onnx
rm trained.onnx

# Go does not see that pkg-config says something else now; of a module in another folder it has compiled nothing.
mv "$out/module" "$out/same_module"
go mod edit -replace=epl.ai/go="$out/same_module"
PKG_CONFIG_PATH="$build/pkgconfig" go build -o local ./...
./local | tail -1 | grep '^step 50'
test -s trained.onnx
