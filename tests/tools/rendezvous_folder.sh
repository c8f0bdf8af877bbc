#!/bin/sh
# rendezvous_folder.sh EPL OUT: where a launcher gives its processes no place to meet, they make a folder. Whatever a
# job that was killed has left of that hinders no later one, and goes.
. "$(dirname "$0")/begin.sh"
small_job
mkdir folders
train="$epl train model.onnx --text book.txt --batch 8 --threads 1 --sample-bytes 0 --json --checkpoint-every 1000000"

# start STEPS: both processes of a job in the background, as a launcher that tells them only their numbers does. Their
# folder has the number of the process that started them in its name, which is that of this shell.
start() {
  for rank in 0 1; do
    env TMPDIR=$PWD/folders PMI_RANK=$rank PMI_SIZE=2 MPI_LOCALNRANKS=2 $train --steps $1 --out "$2" >$rank.json \
      2>$rank.err &
    eval "process_$rank=\$!"
  done
}
# ends_well WHAT: and nothing is left of the rendezvous of the job.
ends_well() {
  wait $process_0 || fail "$1: process 0: $(cat 0.err)"
  wait $process_1 || fail "$1: process 1: $(cat 1.err)"
  holds "$1: the same weights" test "$(hash_of 0.json)" = "$good"
  [ -z "$(ls folders)" ] || fail "$1: there is left $(ls folders)"
}
# killed: both processes of a job, in mid-step.
killed() {
  start 100000 killed
  for i in $(seq 600); do grep -q '"step":2,' 0.json && break; sleep 0.1; done
  kill -KILL $process_0 $process_1
  wait $process_0 $process_1 2>/dev/null
  [ -n "$(ls folders)" ] || fail "a killed job leaves nothing: this looks for nothing"
  rm -rf killed
}

good=$($train --steps 3 --out alone 2>/dev/null | sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p')
start 3 first
ends_well "the first job"
# Of the same name, and with a secret that nobody knows any more.
killed
start 3 second
ends_well "a job behind one that was killed"
# Of another name, as of another launcher.
killed
left=$(ls folders)
mv "folders/$left" "folders/${left%-*}-1"
start 3 third
ends_well "a job beside what was left"
# A job that runs is nobody's to tidy up.
start 100000 running
for i in $(seq 600); do grep -q '"step":2,' 0.json && break; sleep 0.1; done
held=$(ls folders)
(start 3 beside && wait $process_0 && wait $process_1) || fail "a job beside one that runs: $(cat 0.err 1.err)"
[ "$(ls folders)" = "$held" ] || fail "another job has removed the rendezvous of one that runs"
kill -TERM $process_0 $process_1
wait $process_0 $process_1
[ -z "$(ls folders)" ] || fail "there is left $(ls folders)"
exit $failed
