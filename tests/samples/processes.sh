#!/bin/sh
# processes.sh SOURCES BUILD OUT: the samples of the pages' "Several processes", alone and in two processes that `epl
# launch` starts. All languages whose tools are here end with the same weights.
set -eu
sources=$1 build=$2 out=$3
mkdir -p "$out"
cd "$out"
rm -f lines
export PKG_CONFIG_PATH="$build/pkgconfig"
has() { command -v "$1" >/dev/null 2>&1; }
# try LANGUAGE COMMAND...: alone, and twice.
try() {
  language=$1
  shift
  { "$@" && "$build/bin/epl" launch -n 2 -- "$@"; } >"$language.log" 2>&1 || { cat "$language.log"; exit 1; }
  sed -n "s/.*weights \([0-9a-f]*\)$/\1 $language/p" "$language.log" >>lines
}

eval c++ -std=c++20 -Wall -Wextra -pedantic-errors -Werror "$sources/samples/cpp/processes.cc" \
  "$(pkg-config --cflags --libs epl)" -o in_cpp
try cpp ./in_cpp

for python in "$sources/.venv/bin/python" "${EPL_PYTHON:-python3}"; do
  if "$python" -c 'import numpy' 2>/dev/null; then
    export PYTHONPATH="$sources/bindings/python" EPL_LIBRARY="$build/lib/libepl.so" PYTHONDONTWRITEBYTECODE=1
    try python "$python" "$sources/samples/python/processes.py"
    break
  fi
done

if has go && [ "$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 24 ]; then
  export GOCACHE="$build/bindings/go/cache" GOPATH="$out/path" GOPROXY=off GOTOOLCHAIN=local GOFLAGS= CGO_ENABLED=1
  (cd "$sources/samples/go/processes" && [ -z "$(gofmt -l .)" ] && go vet . && go build -o "$out/in_go" .)
  try go ./in_go
fi

if has cargo && [ "$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')" -ge 82 ]; then
  rm -rf rust && cp -rL "$sources/bindings/rust" rust
  if (cd rust/epl && cargo fetch --quiet); then
    (cd rust/epl && CARGO_TARGET_DIR="$out/target" RUSTFLAGS="-C link-arg=-Wl,-rpath,$build/lib" \
      cargo build --quiet --offline --example processes)
    try rust target/debug/examples/processes
  fi
fi

if has javac && [ -f "$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")/include/jni.h" ]; then
  sh "$sources/bindings/java/build.sh" "$build/lib/libepl.so" "$out/jar"
  javac -Xlint:all -Werror -d classes -cp jar/epl.jar "$sources/samples/java/Processes.java"
  try java java -Djava.io.tmpdir="$out" -cp jar/epl.jar:classes Processes
fi

cat lines
[ "$(cut -d' ' -f1 lines | sort -u | wc -l)" = 1 ] || { echo "FAILED: the weights differ"; exit 1; }
[ "$(wc -l <lines)" = $((3 * $(cut -d' ' -f2 lines | sort -u | wc -l))) ] || { echo "FAILED: a process is missing"; exit 1; }
