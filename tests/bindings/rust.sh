#!/bin/sh
# rust.sh SOURCE LIBRARY_FOLDER OUT [FOLDER]: the tests of the Rust crates against the library that was built, and
# against FOLDER/libepl.a where it is there.
set -eu
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 77 ] || { echo "SKIP: rustc is older than 1.77"; exit 0; }
export EPL_LIB_DIR="$2" LD_LIBRARY_PATH="$2" CARGO_TARGET_DIR="$3" CARGO_NET_OFFLINE=true
cd "$1/bindings/rust/epl-sys"
cargo test --quiet
[ -f "${4:-}/libepl.a" ] || exit 0
unset LD_LIBRARY_PATH
EPL_LIB_DIR="$4" CARGO_TARGET_DIR="$3/static" cargo test --quiet --no-default-features --features static
