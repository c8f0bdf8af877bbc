#!/bin/sh
# java.sh SOURCES PREFIX BUILD OUT: the program of docs/java.md in a clean folder: with the Debian package of PREFIX,
# and in a project that names the artefact by its coordinates, which `mvn install` with the library of PREFIX has put
# into a repository that has nothing.
set -eu
sources=$1 prefix=$2 library=$2/lib/libepl.so.1 out=$4
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
[ -e "$library" ] || { echo "SKIP: no Debian packages were installed"; exit 0; }
rm -rf "$out"
mkdir -p "$out/user/src/main/java" "$out/temporary"
cd "$out/user"
awk '/^```java/ {on = 1; next} /^```/ {if (on) exit} on' "$sources/docs/java.md" >src/main/java/First.java
# A Java of Debian's looks into /usr/lib/jni by itself.
of_package() { # of_package JAVA [OPTION...]
  "$@" -Djava.library.path="$prefix/lib/jni:$prefix/lib" -Djava.io.tmpdir="$out/temporary" \
    -cp "$prefix/share/java/epl.jar" src/main/java/First.java "$out" | grep '^loss 0\.0[0-9]* after 200 steps$'
  test -s "$out/trained.onnx"
  rm "$out/trained.onnx"
  [ -z "$(ls "$out/temporary")" ] || { echo "FAILED: the package's jar has unpacked something"; exit 1; }
}
of_package java
newer=$(sh "$sources/tests/bindings/newer_jdk.sh" "$home")
[ -z "$newer" ] || of_package "$newer/bin/java" --enable-native-access=ALL-UNNAMED

if java -Djava.library.path="$out" -cp "$prefix/share/java/epl.jar" src/main/java/First.java "$out" 2>"$out/log"; then
  echo "FAILED: the package's jar needs no library" && exit 1
fi
grep -q 'no folder of java.library.path has libepl_jni.so: set ai.epl.library' "$out/log" || { cat "$out/log" && exit 1; }

command -v mvn >/dev/null 2>&1 || { echo "SKIP: mvn is not installed"; exit 0; }
maven() {
  mvn -q -B -Dmaven.repo.local="$out/repository" "$@" >"$out/mvn.log" 2>&1 || {
    grep -q 'Could not transfer artifact\|Unknown host\|offline' "$out/mvn.log" && {
      echo "SKIP: mvn cannot fetch its plugins"; exit 0; }
    tail -40 "$out/mvn.log"
    exit 1
  }
}
maven -f "$sources/bindings/java/pom.xml" -Depl.library="$library" -Depl.build="$out/build" install

version=$(sed -n 's/^#define EPL_VERSION_[A-Z]* //p' "$sources/include/epl.h" | paste -s -d.)
jar=$out/repository/ai/epl/epl/$version/epl-$version.jar
test -s "$jar" || { echo "FAILED: the artefact is not of the version $version of the header"; exit 1; }
jar --list --file "$jar" >"$out/files"
grep -q '^META-INF/LICENSE$' "$out/files" || { echo "FAILED: the jar has no licence"; exit 1; }
jar --list --file "${jar%.jar}-sources.jar" | grep -q '^ai/epl/Session.java$' || { echo "FAILED: no sources"; exit 1; }
jar --list --file "${jar%.jar}-javadoc.jar" | grep -q 'ai/epl/Session.html$' || { echo "FAILED: no javadoc"; exit 1; }
rm -rf "$out/build"  # all that a user has is the repository

cat >pom.xml <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>user</groupId>
  <artifactId>user</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
$(awk '/^```xml/ {on = 1; next} /^```/ {if (on) exit} on' "$sources/docs/java.md")
  </dependencies>
</project>
END
maven compile org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath -Dmdep.outputFile=classpath
java -Djava.io.tmpdir="$out/temporary" -cp "target/classes:$(cat classpath)" First "$out" |
  grep '^loss 0\.0[0-9]* after 200 steps$'
test -s "$out/trained.onnx"
