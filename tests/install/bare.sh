#!/bin/sh
# bare.sh PACKAGES OUT: the Debian packages of the folder PACKAGES on a system that has nothing else: a minimal Debian
# 12 made by debootstrap in OUT, as root. Prints SKIP and why where that cannot be had. Needs a mirror, the one that apt
# uses. Debian 12 has no Go that is new enough: it is that of this machine, if there is one.
set -u
packages=$1 out=$2 sources=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "SKIP: a system in a folder needs root"; exit 0; }
command -v debootstrap >/dev/null || { echo "SKIP: debootstrap is not installed"; exit 0; }
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -1)
root=$out/system
rm -rf "$root" && mkdir -p "$root" || exit 1
debootstrap --variant=minbase bookworm "$root" $mirror >"$out/debootstrap.log" 2>&1 ||
  { tail -5 "$out/debootstrap.log"; echo "SKIP: debootstrap failed, is there a mirror?"; exit 0; }
mkdir "$root/packages" "$root/programs" && cp "$packages"/*.deb "$root/packages" || exit 1
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null
if grep -q '^VERSION_ID="12"' /etc/os-release; then  # its updates have a newer Rust
  rm "$root/etc/apt/sources.list"
  cp -r /etc/apt/sources.list /etc/apt/sources.list.d "$root/etc/apt" 2>/dev/null
fi
# The smallest training program of each language.
block() { awk -v fence="^\`\`\`$1\$" '$0 ~ fence {on = 1; next} /^```/ {if (on) exit} on' "$2"; }
block python "$sources/bindings/python/README.md" >"$root/programs/first.py"
block java "$sources/docs/java.md" >"$root/programs/First.java"
block rust "$sources/docs/rust.md" >"$root/programs/main.rs"
cp "$sources/samples/go/first/main.go" "$sources/samples/cpp/first.cc" "$root/programs"
go=$(go env GOROOT 2>/dev/null)
if [ -n "$go" ]; then cp -r "$go" "$root/go"; fi
cat >"$root/try.sh" <<'END'
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /tmp
apt-get update >apt.log 2>&1 || { cat apt.log && exit 1; }
add() { apt-get install -y --no-install-recommends "$@" >apt.log 2>&1 || { cat apt.log && exit 1; }; }
add /packages/libepl1_*.deb /packages/epl_*.deb
epl template mlp --sizes 4,8,2 --out mlp.onnx
printf 'a,b,c,d,kind\n' >table.csv
i=0
while [ $i -lt 16 ]; do echo "$i,1,0,$((i % 3)),$((i % 2))" >>table.csv; i=$((i + 1)); done
epl train mlp.onnx --data table.csv --data-options '{"classes": true}' --steps 20 --out trained
test -s trained/trained.onnx

# A GPU needs a driver, and a plan for one needs nothing.
if [ -e /packages/libepl1-cuda_*.deb ]; then
  add /packages/libepl1-cuda_*.deb
  epl plan mlp.onnx --data table.csv --data-options '{"classes": true}' --device cuda:h100 >plan.txt
  grep -q 'the plan fits' plan.txt
  echo "GPU: $(grep 'the plan fits' plan.txt)"
  epl devices | grep -q cuda-nvrtc-13-0
fi

# trains LANGUAGE COMMAND...: the program leaves a trained model.
trains() {
  language=$1
  shift
  rm -f trained.onnx
  echo "$language: $("$@" | tail -1)"
  test -s trained.onnx
}
add /packages/python3-epl_*.deb
trains Python python3 /programs/first.py
if [ -e /packages/libepl-java_*.deb ] && [ -e /proc/self ]; then  # Debian's Java is not installed without
  add /packages/libepl-java_*.deb default-jdk-headless
  trains Java java -cp /usr/share/java/epl.jar /programs/First.java .
fi
add /packages/libepl-dev_*.deb g++ libc6-dev pkg-config
g++ -std=c++20 /programs/first.cc $(pkg-config --cflags --libs epl) -o first_cpp
trains C++ ./first_cpp
add /packages/golang-epl-go-dev_*.deb
if [ -e /go ]; then
  mkdir -p go
  cp /programs/main.go go
  export GO111MODULE=off GOPATH=/tmp/path:/usr/share/gocode GOCACHE=/tmp/cache GOTOOLCHAIN=local
  (cd go && /go/bin/go build -o ../first_go .)
  trains Go ./first_go
fi
add /packages/librust-epl-dev_*.deb
if apt-get install -y --no-install-recommends cargo-web zlib1g-dev >apt.log 2>&1; then
  mkdir -p rust/src rust/.cargo
  cp /programs/main.rs rust/src
  printf '[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "/usr/share/cargo/registry"\n' \
    >rust/.cargo/config.toml
  project() {
    printf '[package]\nname = "first"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nepl = %s\n' "$1" \
      >rust/Cargo.toml
    (cd rust && cargo build --quiet --offline)
  }
  project '"0.1"'
  trains Rust rust/target/debug/first
  project '{ version = "0.1", default-features = false, features = ["static"] }'
  trains "Rust, with the library inside" rust/target/debug/first
fi

apt-get remove -y epl libepl1 >apt.log
left=$(find /usr -name 'epl' -o -name 'epl[-_.]*' -o -name 'libepl*')
[ -z "$left" ] || { echo "left behind: $left" && exit 1; }
END
# With this machine's /proc, where mounts of its own can be had.
own=
unshare -m true 2>/dev/null && own='unshare -m'
$own sh -c '[ -z "$2" ] || mount --rbind /proc "$1/proc"; exec chroot "$1" sh /try.sh' - "$root" "$own" \
  >"$out/try.log" 2>&1 || { echo "FAILED: on a bare Debian:"; tail -20 "$out/try.log"; exit 1; }
grep -E '^(GPU|Python|Java|C\+\+|Go|Rust)' "$out/try.log"
rm -rf "$root"
