#!/bin/sh
# rust.sh SOURCES PREFIX BUILD OUT: `cargo package` of both crates, which builds each from its package alone, and a
# program in a clean folder that takes the packages: against what is installed in PREFIX, and what is only built in
# BUILD.
set -eu
sources=$1 prefix=$2 build=$3 out=$4
command -v cargo >/dev/null 2>&1 || { echo "SKIP: cargo is not installed"; exit 0; }
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 82 ] || { echo "SKIP: rustc is older than 1.82"; exit 0; }
[ -d "$prefix/lib/pkgconfig" ] || { echo "SKIP: no Debian packages were installed"; exit 0; }
rm -rf "$out"
mkdir -p "$out/user/src"
cp -rL "$sources/bindings/rust" "$out/rust"
unset EPL_LIB_DIR
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" CARGO_TARGET_DIR="$out/target"
packages=$out/target/package
cd "$out/rust/epl"
cargo fetch --quiet || { echo "SKIP: the crates ndarray and safetensors cannot be fetched"; exit 0; }

(cd ../epl-sys && cargo package --quiet --offline)
# Until epl-sys is in a registry, its package stands for it.
cargo package --quiet --offline --config "patch.crates-io.epl-sys.path='$packages/epl-sys-0.1.0'"
for crate in epl-sys epl; do
  tar -tzf "$packages/$crate-0.1.0.crate" | grep -q "^$crate-0.1.0/LICENSE$" ||
    { echo "FAILED: the package of $crate has no licence"; exit 1; }
done

cd "$out/user"
cat >Cargo.toml <<END
[package]
name = "user"
version = "0.1.0"
edition = "2021"

[dependencies]
epl = { path = "$packages/epl-0.1.0" }

[patch.crates-io]
epl-sys = { path = "$packages/epl-sys-0.1.0" }
END
# The crate's front page, without the lines that only its test has.
awk '/^```$/ { if (inside) exit; inside = 1; next } inside && !/^ *# /' "$packages/epl-0.1.0/README.md" >src/main.rs
cargo build --quiet --offline
LD_LIBRARY_PATH="$prefix/lib" "$out/target/debug/user" | tail -1 | grep '^step 50'
test -s trained.onnx
rm trained.onnx

export PKG_CONFIG_PATH="$build/pkgconfig" RUSTFLAGS="-C link-arg=-Wl,-rpath,$build/lib"
cargo build --quiet --offline
"$out/target/debug/user" | tail -1 | grep '^step 50'
test -s trained.onnx
