#!/bin/sh
# rust_service.sh SOURCE LIBRARY_FOLDER OUT: builds the services of samples/rust, and asks rustfmt and clippy. The one
# for adapters has its own tests; the client of all training services (service_client.py) uses the other. Their crates
# come from the registry, as their Cargo.lock has them. Once they are fetched, nothing asks for the network.
set -eu
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 82 ] || { echo "SKIP: rustc is older than 1.82"; exit 0; }
export EPL_LIB_DIR="$2" LD_LIBRARY_PATH="$2" CARGO_TARGET_DIR="$3/target" TMPDIR="$3"
mkdir -p "$3"
for sample in adapters service; do
  cd "$1/samples/rust/$sample"
  CARGO_NET_OFFLINE=false cargo fetch --quiet --locked || { echo "SKIP: the crates of axum cannot be fetched"; exit 0; }
  export CARGO_NET_OFFLINE=true
  if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi
  cargo test --quiet --locked
  cargo build --quiet --locked
  if cargo clippy --version >/dev/null 2>&1; then cargo clippy --quiet --locked --all-targets -- -D warnings; fi
done
EPL_LIBRARY="$2/libepl.so" python3 "$1/tests/samples/service_client.py" "$3/client" -- "$3/target/debug/service"
