#!/bin/sh
# spark.sh SOURCE LIBRARY_FOLDER OUT: samples/spark on a cluster of two workers of this host. One training, undisturbed,
# with an executor killed in the midst of it, and as one process: all end with the same weights.
# It takes minutes, so it runs where EPL_TEST_WHOLE is set, or EPL_SPARK_HOME: where Spark lies, the folder `pyspark` of
# the package in samples/spark/requirements.txt, else that of .venv-spark.
set -eu
if [ "${1-}" != on_cluster ]; then
  source=$1 library=$2
  mkdir -p "$3"
  out=$(cd "$3" && pwd)
  [ -n "${EPL_TEST_WHOLE-}${EPL_SPARK_HOME-}" ] || { echo "SKIP: takes minutes, ./test --all runs it"; exit 0; }
  home=${EPL_SPARK_HOME:-$(find "$source/.venv-spark/lib" -maxdepth 3 -name pyspark 2>/dev/null | head -1)}
  [ -n "$home" ] || { echo "SKIP: samples/spark/requirements.txt is not in .venv-spark"; exit 0; }
  command -v javac >/dev/null 2>&1 || { echo "SKIP: javac is not installed"; exit 0; }
  jdk=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
  [ -f "$jdk/include/jni.h" ] || { echo "SKIP: $jdk has no jni.h; a JDK has"; exit 0; }
  rm -rf "$out"
  mkdir -p "$out/classes"
  export SPARK_HOME="$home" OUT="$out"
  sh "$source/bindings/java/build.sh" "$library/libepl.so" "$out/jar"
  javac -proc:none -nowarn -d "$out/classes" -cp "$out/jar/epl.jar:$SPARK_HOME/jars/*" "$source"/samples/spark/*.java
  jar --create --file "$out/train.jar" -C "$out/classes" .
  # What is learned: whether the first number of a sample is above the second. 2,048 samples are 32 batches of 64.
  "$library/../bin/epl" template mlp --sizes 4,1024,1024,2 --seed 1 --out "$out/model.onnx" >/dev/null
  awk 'BEGIN { srand(3); print "a,b,c,d,target"
    for (i = 0; i < 2048; ++i) {
      a = rand(); b = rand(); printf "%.6f,%.6f,%.6f,%.6f,%d\n", a, b, rand(), rand(), (a > b)
    }
  }' >"$out/data.csv"
  exec sh "$source/samples/spark/cluster.sh" "$out/cluster" sh "$0" on_cluster
fi

# submit NAME MASTER [OPTION VALUE...]: trains, and leaves what the job says in NAME.log.
submit() {
  name=$1 master=$2
  shift 2
  timeout 900 "$SPARK_HOME/bin/spark-submit" --master "$master" --driver-memory 512m --jars "$OUT/jar/epl.jar" \
    --conf spark.executor.memory=512m --conf spark.executor.cores=1 --conf spark.driver.host=127.0.0.1 \
    --conf spark.ui.enabled=false --class TrainOnSpark "$OUT/train.jar" \
    --model "$OUT/model.onnx" --data "$OUT/data.csv" --checkpoint "$OUT/$name.checkpoint" --out "$OUT/$name.onnx" \
    --batch 64 --trainer '{"optimizer": "adam", "optimizer.lr": 0.001}' --steps 600 --checkpoint-every 20 "$@" \
    >"$OUT/$name.log" 2>"$OUT/$name.err" || { grep -v INFO "$OUT/$name.err" | tail -40; echo "$name failed"; return 1; }
  sed -n "s/^rank/$name: rank/p" "$OUT/$name.log"
}

# kill_an_executor NAME: when the job's first checkpoint is there. An executor is the newest child of a worker; it is
# looked for before, because the rest of the training takes seconds.
kill_an_executor() {
  executor=
  until [ -e "$OUT/$1.checkpoint/manifest.epl" ]; do
    sleep 0.05
    executor=$(pgrep -n -P "${WORKERS##* }") || :
  done
  kill -9 "$executor" && echo "killed an executor"
}

weights() { sed -n 's/^rank.*weights //p' "$OUT/$1.log" | sort -u; }
expect() { [ "$2" = "$3" ] || { echo "$1: $2, not $3"; exit 1; }; }

kill_an_executor killed &
killer=$!
trap 'kill $killer 2>/dev/null || :' EXIT
submit killed "$MASTER"
submit undisturbed "$MASTER"
submit alone 'local[1]' --ranks 1
expect "weights of one process" "$(weights alone)" "$(weights undisturbed)"
expect "weights after a kill" "$(weights killed)" "$(weights undisturbed)"
expect "ranks" "$(grep -c '^rank' "$OUT/killed.log")" 2
# Nothing of the above says anything if no executor was lost, or all was done once more from the start.
expect "attempts" "$(grep -c '^rank [01]: attempt 1, resumed at step [1-9][0-9]*, 600 steps' "$OUT/killed.log")" 2
expect "attempts" "$(grep -c '^rank [01]: attempt 0, resumed at step 0, 600 steps' "$OUT/undisturbed.log")" 2
cmp "$OUT/killed.onnx" "$OUT/alone.onnx"
