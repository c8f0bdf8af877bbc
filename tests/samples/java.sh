#!/bin/sh
# java.sh SOURCE LIBRARY_FOLDER OUT: builds the training service of samples/java as its page says, and lets the client
# of all services (service_client.py) use it.
set -eu
source=$1 out=$3
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
rm -rf "$out"
mkdir -p "$out/temporary"
sh "$source/bindings/java/build.sh" "$2/libepl.so" "$out/jar"
javac -Xlint:all -Werror -d "$out/classes" -cp "$out/jar/epl.jar" "$source"/samples/java/service/*.java
cp "$source/samples/service/page.html" "$out/classes"
EPL_LIBRARY="$2/libepl.so" python3 "$source/tests/samples/service_client.py" "$out/client" -- \
  java -Xcheck:jni -Djava.io.tmpdir="$out/temporary" -cp "$out/jar/epl.jar:$out/classes" TrainingService
