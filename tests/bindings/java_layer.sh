#!/bin/sh
# java_layer.sh SOURCE LIBRARY_FOLDER OUT: the jar, its tests in JUnit with JNI's own checks on and a small heap, and
# the program of docs/java.md.
set -eu
source=$1 library=$2/libepl.so out=$3
command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
[ -f "$home/include/jni.h" ] || { echo "SKIP: $home has no jni.h; a JDK has"; exit 0; }
mkdir -p "$out"
junit=$out/junit-platform-console-standalone-1.11.4.jar
if [ ! -f "$junit" ]; then
  command -v mvn >/dev/null 2>&1 || { echo "SKIP: mvn, which fetches JUnit, is not installed"; exit 0; }
  mvn -q -B dependency:copy -Dartifact=org.junit.platform:junit-platform-console-standalone:1.11.4 \
    -DoutputDirectory="$out" >"$out/mvn.log" 2>&1 || { echo "SKIP: mvn cannot fetch JUnit"; exit 0; }
fi
export LC_ALL=C.UTF-8  # else Java takes no file name beyond ASCII
rm -rf "$out/temporary" "$out/tests"
mkdir -p "$out/temporary"
sh "$source/bindings/java/build.sh" "$library" "$out"
javac -Xlint:all,-processing -Werror -d "$out/tests" -cp "$out/epl.jar:$junit" \
  $(find "$source/bindings/java/src/test/java" -name '*.java')

# suite JAVA [OPTION...]: the tests by this machine. What JNI's checks have to say, they print; of the JDK's own code
# they say that it does not look for exceptions.
log=$out/junit.log
suite() {
  "$@" -Xcheck:jni -Xmx128m -Djava.io.tmpdir="$out/temporary" -Depl.jar="$out/epl.jar" \
    -cp "$out/tests:$out/epl.jar:$junit" org.junit.platform.console.ConsoleLauncher execute \
    --scan-classpath "$out/tests" --fail-if-no-tests --disable-banner --details=tree --disable-ansi-colors \
    >"$log" 2>&1 || { tail -100 "$log"; exit 1; }
  sed -n '/tests successful/p; /tests found/p' "$log"
  if grep -A3 -E 'WARNING in native|FATAL|WARNING: JNI' "$log" | grep 'ai\.epl'; then exit 1; fi
}
suite java
newer=$(sh "$source/tests/bindings/newer_jdk.sh" "$home")
if [ -n "$newer" ]; then
  suite "$newer/bin/java" --enable-native-access=ALL-UNNAMED
else
  echo "no newer JDK lies beside $home"
fi

# The page's own program, as its reader would start it.
awk '/^```java/ {on = 1; next} /^```/ {if (on) exit} on' "$source/docs/java.md" >"$out/First.java"
java -Xcheck:jni -Djava.io.tmpdir="$out/temporary" -cp "$out/epl.jar" "$out/First.java" "$out" >"$out/first.log" 2>&1 ||
  { cat "$out/first.log"; exit 1; }
grep -E '^loss 0\.0[0-9]* after 200 steps$' "$out/first.log" || { cat "$out/first.log"; exit 1; }

# And its fragments, which are about objects that a program has by then.
awk 'BEGIN {
    print "import ai.epl.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.io.*; class Fragments { static Engine engine; static Model model;"
    print "static Trainer trainer; static Strategy strategy; static Session session; static Dataset dataset;"
    print "static Dataset data, heldOut; static Plan plan; static Path run; static Launch launch; static Tensor x; static Path table, saved, folder; static long rank;"
  }
  /^```java/ {on = ++n > 1; if (on) print "static void f" n "() throws Exception {"; next}
  /^```/ {if (on) print "}"; on = 0}
  on
  END {print "}"}' "$source/docs/java.md" >"$out/Fragments.java"
javac -d "$out/fragments" -cp "$out/epl.jar" "$out/Fragments.java"
