#!/bin/sh
# rust_epl.sh SOURCE LIBRARY_FOLDER OUT: the tests of the crate epl and of its front page, against the library that was
# built, and what rustfmt, rustdoc and clippy say. The crates of its features come from the registry.
set -eu
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 82 ] || { echo "SKIP: rustc is older than 1.82"; exit 0; }
export EPL_LIB_DIR="$2" LD_LIBRARY_PATH="$2" CARGO_TARGET_DIR="$3/target"
# cargo writes its lock beside the sources, so these are copied.
mkdir -p "$3"
rm -rf "$3/rust"
cp -r "$1/bindings/rust" "$3/rust"
cp "$1/rustfmt.toml" "$3/rust"
cd "$3/rust/epl"
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi
cargo fetch --quiet || { echo "SKIP: the crates of its features cannot be fetched"; exit 0; }
cargo test --quiet --features ndarray,safetensors,serde,tracing,futures
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --features ndarray,safetensors,serde,tracing,futures
cargo clippy --version >/dev/null 2>&1 || exit 0
cargo clippy --quiet --all-targets --features ndarray,safetensors,serde,tracing,futures -- -D warnings
