#!/bin/sh
# cluster.sh FOLDER COMMAND...: a Spark cluster on this host, a master and two workers of one core each, for as long as
# the command runs, which finds its address in $MASTER and the workers' processes in $WORKERS. Needs SPARK_HOME. Logs
# and what the executors print are left in FOLDER, which is made anew. Ports are chosen by the system, and nothing is
# reachable from outside.
set -eu
folder=$1
shift
: "${SPARK_HOME:?is where Spark lies: the folder pyspark of the package from PyPI}"
rm -rf "$folder"
mkdir -p "$folder/executors" "$folder/local"
export SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS="$folder/local" SPARK_DAEMON_MEMORY=256m
export SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1"
export SPARK_WORKER_OPTS="-XX:TieredStopAtLevel=1"
pids= WORKERS=
stop() {
  for pid in $pids; do kill "$pid" 2>/dev/null || :; done
  for pid in $pids; do wait "$pid" 2>/dev/null || :; done
}
trap stop EXIT
trap 'exit 130' INT TERM

# wait_for FILE PATTERN: until a line of the file has it, a minute or two.
wait_for() {
  tries=0
  until grep -q "$2" "$1" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "$1 does not say \"$2\":"; tail -5 "$1"; exit 1; }
    sleep 0.2
  done
}

"$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 0 --webui-port 0 \
  >"$folder/master.log" 2>&1 &
pids="$pids $!"
wait_for "$folder/master.log" 'New state: ALIVE'
MASTER=$(sed -n 's/.*Starting Spark master at \(spark:[^ ]*\).*/\1/p' "$folder/master.log")
export MASTER
for n in 1 2; do
  "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --port 0 --webui-port 0 \
    --cores 1 --memory 1g --work-dir "$folder/executors/$n" "$MASTER" >"$folder/worker$n.log" 2>&1 &
  WORKERS="$WORKERS $!"
done
pids="$pids $WORKERS"
export WORKERS
for n in 1 2; do wait_for "$folder/worker$n.log" 'Successfully registered'; done
"$@"
