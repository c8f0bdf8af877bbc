#!/bin/sh
# rust.sh SOURCES PREFIX BUILD OUT: the program of docs/rust.md in a clean folder: with the crates of the Debian package
# and the libraries of PREFIX, shared and static; and with those that `cargo package` has made, against what is only
# built in BUILD.
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

# project DEPENDENCY: a program in this folder that takes the crate so.
project() {
  cat >Cargo.toml <<END
[package]
name = "user"
version = "0.1.0"
edition = "2021"

[dependencies]
epl = $1
END
}
trains() { # trains [FOLDER]: of the library, where the program does not know it
  LD_LIBRARY_PATH=${1:-} "$out/target/debug/user" | tail -1 | grep '^step 50'
  test -s trained.onnx
  rm trained.onnx
}
cd "$out/user"
# The crate's front page, without the lines that only its test has.
awk '/^```$/ { if (inside) exit; inside = 1; next } inside && !/^ *# /' "$packages/epl-0.1.0/README.md" >src/main.rs

# As Debian's builds have it: its folder of crates stands for the registry.
mkdir .cargo
cat >.cargo/config.toml <<END
[source.crates-io]
replace-with = "debian-packages"

[source.debian-packages]
directory = "$prefix/share/cargo/registry"
END
project '"0.1.0"'
cargo build --quiet --offline
trains "$prefix/lib"
project '{ version = "0.1.0", default-features = false, features = ["static"] }'
cargo build --quiet --offline
trains
# Without a library, one sentence says what to do, and it is the last one.
project '"0.1.0"'
if [ ! -e /usr/lib/libepl.so ] && [ ! -e /usr/local/lib/libepl.so ]; then
  if PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH= cargo build --quiet --offline 2>log; then
    echo "FAILED: built without a library" && exit 1
  fi
  tail -1 log | grep 'libepl.so is not found: install EPL .* or set EPL_LIB_DIR' || { cat log && exit 1; }
fi
rm -r .cargo Cargo.lock

project '"0.1"'
printf '\n[patch.crates-io]\nepl = { path = "%s" }\nepl-sys = { path = "%s" }\n' "$packages/epl-0.1.0" \
  "$packages/epl-sys-0.1.0" >>Cargo.toml
export PKG_CONFIG_PATH="$build/pkgconfig" RUSTFLAGS="-C link-arg=-Wl,-rpath,$build/lib"
cargo build --quiet --offline
trains
