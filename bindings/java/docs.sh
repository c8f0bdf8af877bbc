#!/bin/sh
# docs.sh OUT: what an IDE shows beside the jar, OUT/epl-sources.jar and OUT/epl-javadoc.jar. Needs a JDK from 17 on. A
# comment that javadoc cannot read is an error.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
home=$(dirname "$(dirname "$(readlink -f "$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}javac")")")")
"$home/bin/jar" --help | grep -q -- --date && date=--date=2000-01-01T00:00:00Z || date=
packed() { # packed FOLDER JAR: the same files give the same jar, as in build.sh
  rm -f "$2"
  (cd "$1" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort >"$out/files" &&
    "$home/bin/jar" --create --no-manifest --file "$2" $date @"$out/files")
  rm "$out/files"
}
packed "$here/src/main/java" "$out/epl-sources.jar"
rm -rf "$out/javadoc"
"$home/bin/javadoc" -quiet -notimestamp -Werror -Xdoclint:all,-missing -encoding UTF-8 --release 17 -d "$out/javadoc" \
  -windowtitle EPL $(find "$here/src/main/java" -name '*.java')
packed "$out/javadoc" "$out/epl-javadoc.jar"
rm -rf "$out/javadoc"
