#!/bin/sh
# build.sh LIBRARY OUT: the jar OUT/epl.jar, with LIBRARY (a libepl.so) and the JNI library in it. Needs a JDK from 17
# on and a C compiler. OUT/classes is made anew. With a JDK from 22 on, JAVA_HOME's or another one beside it, the jar
# has what such a Java uses instead of JNI as well.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
library=$(readlink -f "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
javac=$(readlink -f "$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}javac")")
home=$(dirname "$(dirname "$javac")")
# Java's own names of the platform: linux-amd64.
platform=linux-$("$home/bin/java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *os.arch = //p')
rm -rf "$out/classes" "$out/epl.jar"
native="$out/classes/ai/epl/native/$platform"
mkdir -p "$native"
"$javac" -encoding UTF-8 --release 17 -Xlint:all -Werror -d "$out/classes" $(find "$here/src/main/java" -name '*.java')
jdk22=$(sh "$here/jdk22.sh" "$home")
if [ -n "$jdk22" ]; then
  "$jdk22/bin/javac" --release 22 -Xlint:all,-restricted -Werror -d "$out/classes/META-INF/versions/22" \
    "$here/src/main/java22/ai/epl/raw/Raw.java"
fi
mkdir -p "$out/classes/META-INF"
cp "$here/../../LICENSE" "$out/classes/META-INF/LICENSE"
cp "$library" "$native/libepl.so.1"
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -o "$native/libepl_jni.so" \
  "$here/src/main/native/epl_jni.c" -I"$here/../../include" -I"$home/include" -I"$home/include/linux" \
  "$native/libepl.so.1" '-Wl,-rpath,$ORIGIN'
echo 'Multi-Release: true' >"$out/manifest"
"$home/bin/jar" --create --file "$out/epl.jar" --manifest "$out/manifest" -C "$out/classes" .
