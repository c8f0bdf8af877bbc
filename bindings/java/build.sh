#!/bin/sh
# build.sh LIBRARY OUT [RPATH]: the jar OUT/epl.jar, with LIBRARY (a libepl.so) and the JNI library in it. Needs a JDK
# from 17 on and a C compiler. OUT/classes is made anew. With RPATH also OUT/system, for a system that has the library:
# a jar of the classes alone, and libepl_jni.so, which looks for libepl.so.1 in RPATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
library=$(readlink -f "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
javac=$(readlink -f "$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}javac")")
home=$(dirname "$(dirname "$javac")")
# Java's own names of the platform: linux-amd64.
platform=linux-$("$home/bin/java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *os.arch = //p')
rm -rf "$out/classes" "$out/epl.jar" "$out/system"
native="$out/classes/ai/epl/native/$platform"
mkdir -p "$native" "$out/system"
"$javac" -encoding UTF-8 --release 17 -parameters -g -Xlint:all -Werror -d "$out/classes" $(find "$here/src/main/java" -name '*.java')
mkdir -p "$out/classes/META-INF"
cp "$here/../../LICENSE" "$out/classes/META-INF/LICENSE"
# The same classes give the same jar: files in one order, and no time of their own where this jar tool can say so.
"$home/bin/jar" --help | grep -q -- --date && date=--date=2000-01-01T00:00:00Z || date=
jar() {
  (cd "$out/classes" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort >"$out/files" &&
    "$home/bin/jar" --create --file "$1" $date @"$out/files")
  rm "$out/files"
}
jni() { # jni FOLDER RPATH: -s, for what has no symbols is the same wherever it was compiled
  "${CC:-cc}" -shared -s -o "$1/libepl_jni.so" "$out/epl_jni.o" "$library" "-Wl,-rpath,$2"
}
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -c -o "$out/epl_jni.o" \
  "$here/src/main/native/epl_jni.c" -I"$here/../../include" -I"$home/include" -I"$home/include/linux"
if [ -n "${3:-}" ]; then
  jar "$out/system/epl.jar"
  jni "$out/system" "$3"
fi
cp "$library" "$native/libepl.so.1"
jni "$native" '$ORIGIN'
jar "$out/epl.jar"
rm "$out/epl_jni.o"
