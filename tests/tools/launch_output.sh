#!/bin/sh
# launch_output.sh EPL OUT: whoever reads what epl launch passes on, slowly or not at all: it goes on seeing signals,
# and loses nothing of a reader who takes his time.
. "$(dirname "$0")/begin.sh"
small_job
now() { date +%s; }

# A reader who takes nothing: the launcher ends when it is asked to.
mkfifo stuck.pipe
sleep 600 <stuck.pipe &
reader=$!
"$epl" launch -n 2 -- yes >stuck.pipe 2>err &
launcher=$!
sleep 2
start=$(now)
kill -TERM $launcher
for i in $(seq 400); do kill -0 $launcher 2>/dev/null || break; sleep 0.1; done
holds "a launcher that nobody reads ends" test $(($(now) - start)) -lt 30
wait $launcher
holds "by the signal" test $? = 143
# And its processes save what they have, though nobody reads them.
"$epl" launch -n 2 -- "$epl" train model.onnx --text book.txt --batch 8 --threads 1 --sample-bytes 0 --json \
  --steps 100000000 --checkpoint-every 1000000000 --out run >stuck.pipe 2>err &
launcher=$!
for i in $(seq 600); do [ -d run/checkpoints ] && break; sleep 0.1; done
sleep 5   # its lines fill the pipe
kill -TERM $launcher
for i in $(seq 400); do kill -0 $launcher 2>/dev/null || break; sleep 0.1; done
kill -0 $launcher 2>/dev/null && { fail "a job that nobody reads does not end"; kill -KILL $launcher; }
holds "the job has saved" test -f run/checkpoint/manifest.epl
kill $reader
# A slow reader gets all of it.
holds "nothing is lost" test "$("$epl" launch -n 2 --plain -- seq 300000 | { sleep 2; wc -l; })" = 600000

# Lines without an end cost no more than others.
for megabytes in 20 200; do
  start=$(now)
  "$epl" launch -n 1 -- sh -c "head -c ${megabytes}000000 /dev/zero" | wc -c >bytes
  took=$(($(now) - start))
  holds "all $megabytes MB have come" test "$(cat bytes)" = $((megabytes * 1000000 + 5))
done
holds "200 MB without a line end take seconds: $took" test $took -lt 60
# Progress that writes over itself is seen as it goes.
mkfifo progress.pipe
"$epl" launch -n 1 -- sh -c 'printf "\rstep 1"; sleep 1; printf "\rstep 2"; sleep 80' >progress.pipe &
launcher=$!
seen=$(timeout 60 head -c 21 progress.pipe | tr '\r' '|')
holds "progress passes through: $seen" test "$seen" = "|[0] step 1|[0] step "
kill -TERM $launcher
wait $launcher
exit $failed
