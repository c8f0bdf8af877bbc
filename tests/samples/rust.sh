#!/bin/sh
# rust.sh SOURCE LIBRARY_FOLDER OUT: builds samples/rust/main.rs with rustc and runs it.
set -eu
command -v rustc >/dev/null 2>&1 || { echo "SKIP: rustc is not installed"; exit 0; }
mkdir -p "$3"
rustc --edition 2021 -O -o "$3/train_mlp" "$1/samples/rust/main.rs" -L "native=$2" -l dylib=epl -C \
  "link-arg=-Wl,-rpath,$2"
"$3/train_mlp" "$3"
