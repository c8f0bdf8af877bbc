#!/bin/sh
# jdk22.sh JDK: a JDK from 22 on, this one or one that lies beside it; nothing where there is none.
for jdk in "$1" "$(dirname "$1")"/*; do
  version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$jdk/release" 2>/dev/null)
  if [ "${version:-0}" -ge 22 ] && [ -x "$jdk/bin/javac" ]; then
    echo "$jdk"
    exit
  fi
done
