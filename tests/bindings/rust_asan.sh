#!/bin/sh
# rust_asan.sh SOURCE LIBRARY_FOLDER OUT: the tests of the Rust crates, of their front page and of the service under the
# address sanitizer, which also finds what is lost. It sees every access of Rust, and every block of memory of the
# library, which is the one that was built: blocks that are freed twice, read by Rust when they are gone, or lost.
set -eu
[ -n "${EPL_TEST_WHOLE:-}" ] || { echo "SKIP: ./test --all runs the Rust crates under the address sanitizer"; exit 0; }
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 82 ] || { echo "SKIP: rustc is older than 1.82"; exit 0; }
host=$(rustc -vV | sed -n 's/^host: //p')
# The runtime of the sanitizer lies beside the standard library; a stable compiler wants to be told that we know.
ls "$(rustc --print target-libdir)"/librustc-*_rt.asan.a >/dev/null 2>&1 ||
  { echo "SKIP: this rustc came without the address sanitizer"; exit 0; }
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" RUSTDOCFLAGS="-Zsanitizer=address"
export EPL_LIB_DIR="$2" LD_LIBRARY_PATH="$2" CARGO_TARGET_DIR="$3/target"
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
# cargo writes its lock beside the sources, so these are copied.
mkdir -p "$3"
rm -rf "$3/rust"
cp -r "$1/bindings/rust" "$3/rust"
cd "$3/rust/epl"
cargo fetch --quiet || { echo "SKIP: the crates ndarray and safetensors cannot be fetched"; exit 0; }
# With a target named, the flags are for the crates and not for what builds them.
cargo test --quiet --target "$host" --features ndarray,safetensors
cd ../epl-sys
cargo test --quiet --target "$host"
cd "$1/samples/rust/adapters"
cargo fetch --quiet --locked || { echo "the crates of the service cannot be fetched, so it is left out"; exit 0; }
cargo test --quiet --locked --target "$host"
