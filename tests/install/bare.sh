#!/bin/sh
# bare.sh PACKAGES OUT: the Debian packages of the folder PACKAGES on a system that has nothing else: a minimal Debian
# 12 made by debootstrap in OUT, as root. Prints SKIP and why where that cannot be had. Needs a mirror, the one that apt
# uses.
set -u
packages=$1 out=$2
[ "$(id -u)" = 0 ] || { echo "SKIP: a system in a folder needs root"; exit 0; }
command -v debootstrap >/dev/null || { echo "SKIP: debootstrap is not installed"; exit 0; }
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -1)
root=$out/system
rm -rf "$root" && mkdir -p "$root" || exit 1
debootstrap --variant=minbase bookworm "$root" $mirror >"$out/debootstrap.log" 2>&1 ||
  { tail -5 "$out/debootstrap.log"; echo "SKIP: debootstrap failed, is there a mirror?"; exit 0; }
mkdir "$root/packages" && cp "$packages"/*.deb "$root/packages" || exit 1
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null
cat >"$root/try.sh" <<'END'
set -eu
cd /tmp
apt-get install -y --no-install-recommends /packages/libepl1_*.deb /packages/epl_*.deb
epl template mlp --sizes 4,8,2 --out mlp.onnx
printf 'a,b,c,d,kind\n' >table.csv
i=0
while [ $i -lt 16 ]; do echo "$i,1,0,$((i % 3)),$((i % 2))" >>table.csv; i=$((i + 1)); done
epl train mlp.onnx --data table.csv --data-options '{"classes": true}' --steps 20 --out trained
test -s trained/trained.onnx
apt-get remove -y epl libepl1
test ! -e /usr/lib/libepl.so.1
END
chroot "$root" sh /try.sh >"$out/try.log" 2>&1 || { echo "FAILED: on a bare Debian:"; tail -20 "$out/try.log"; exit 1; }
tail -3 "$out/try.log"
rm -rf "$root"
