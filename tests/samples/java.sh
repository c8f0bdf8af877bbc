#!/bin/sh
# java.sh SOURCE LIBRARY_FOLDER OUT: the service of samples/java, as its users meet it, and once more after a stop.
set -eu
source=$1 out=$3
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
rm -rf "$out"
mkdir -p "$out/temporary"
sh "$source/bindings/java/build.sh" "$2/libepl.so" "$out/jar"
javac -Xlint:all -Werror -d "$out" -cp "$out/jar/epl.jar" "$source/samples/java/TrainingService.java" \
  "$source/tests/samples/java/ServiceClient.java"
before=0
for start in first second; do
  java -Xcheck:jni -Djava.io.tmpdir="$out/temporary" -cp "$out:$out/jar/epl.jar" TrainingService "$out/service" 0 \
    >"$out/service.log" 2>&1 &
  pid=$!
  trap 'kill $pid 2>/dev/null || :' EXIT
  tries=0
  until url=$(grep -m1 '^http' "$out/service.log"); do
    tries=$((tries + 1))
    kill -0 $pid 2>/dev/null && [ $tries -lt 600 ] || { cat "$out/service.log"; exit 1; }
    sleep 0.1
  done
  java -cp "$out" ServiceClient "$url" "$before" >"$out/client.log" || { tail -30 "$out/service.log"; exit 1; }
  sed '$d' "$out/client.log"
  before=$(tail -1 "$out/client.log")
  # By itself, with nothing left.
  wait $pid || { echo "the $start service ended badly"; tail -30 "$out/service.log"; exit 1; }
done
