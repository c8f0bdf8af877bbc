#!/bin/sh
# newer_jdk.sh JDK: the newest JDK that lies beside this one; nothing where none is newer.
newest=0 found=
for jdk in "$1" "$(dirname "$1")"/*; do
  version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$jdk/release" 2>/dev/null)
  if [ -x "$jdk/bin/javac" ] && [ "${version:-0}" -gt "$newest" ]; then newest=$version found=$jdk; fi
done
[ "$found" != "$1" ] || found=
echo "$found"
