#!/bin/sh
# rust_service.sh SOURCE LIBRARY_FOLDER OUT: builds and tests the service of samples/rust/adapters, and asks rustfmt
# and clippy. Its crates come from the registry, as its Cargo.lock has them.
set -eu
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 82 ] || { echo "SKIP: rustc is older than 1.82"; exit 0; }
export EPL_LIB_DIR="$2" LD_LIBRARY_PATH="$2" CARGO_TARGET_DIR="$3/target" TMPDIR="$3"
mkdir -p "$3"
cd "$1/samples/rust/adapters"
cargo fetch --quiet --locked || { echo "SKIP: the crates of axum cannot be fetched"; exit 0; }
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi
cargo test --quiet --locked
cargo clippy --version >/dev/null 2>&1 || exit 0
cargo clippy --quiet --locked --all-targets -- -D warnings
