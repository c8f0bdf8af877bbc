#!/bin/sh
# java.sh SOURCE LIBRARY_FOLDER OUT: builds samples/java with its JNI shim and runs it with JNI's own checks on.
set -eu
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
mkdir -p "$3"
javac -d "$3" "$1/samples/java/TrainMlp.java"
cc -std=c99 -Wall -Wextra -shared -fPIC -o "$3/libtrain_mlp_jni.so" "$1/samples/java/train_mlp_jni.c" \
  -I"$1/include" -I"$home/include" -I"$home/include/linux" -L"$2" -lepl "-Wl,-rpath,$2"
# A folder with a character that JNI's own strings cannot hold; Java reads its arguments in the encoding of the locale.
folder=$(printf '%s/\360\237\230\200' "$3")
mkdir -p "$folder"
LC_ALL=C.UTF-8 java -Xcheck:jni -cp "$3" TrainMlp "$3/libtrain_mlp_jni.so" "$folder"
