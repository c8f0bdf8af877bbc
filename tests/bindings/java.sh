#!/bin/sh
# java.sh SOURCE LIBRARY_FOLDER OUT: builds the raw layer of Java and trains with it, JNI's own checks on.
set -eu
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
mkdir -p "$3"
javac -Xlint:all -Werror -d "$3" "$1/bindings/java/src/main/java/ai/epl/raw/Raw.java" "$1/tests/bindings/RawTest.java"
cc -std=c11 -O1 -Wall -Wextra -Werror -fvisibility=hidden -shared -fPIC -o "$3/libepl_jni.so" \
  "$1/bindings/java/src/main/native/epl_jni.c" \
  -I"$1/include" -I"$home/include" -I"$home/include/linux" -L"$2" -lepl "-Wl,-rpath,$2"
log=$(java -Xcheck:jni -cp "$3" RawTest "$3/libepl_jni.so" "$3")
echo "$log"
# What JNI's checks have to say, they print. Of the JDK's own code they say that it does not look for exceptions.
if echo "$log" | grep -A2 -E 'WARNING|FATAL' | grep -q 'ai.epl'; then exit 1; fi
