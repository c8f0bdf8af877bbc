#!/bin/sh
# A job in several processes from the command line: the weights of one process, whoever launches them; and what becomes
# of the others when one fails.
# usage: launch.sh EPL FOLDER [PYTHON]
python=${3:-}
case $python in /* | "") ;; *) python=$PWD/$python ;; esac
. "$(dirname "$0")/begin.sh"
small_job
begin="$epl train model.onnx --text book.txt --batch 8 --seed 3 --json"
train="$begin --steps 6 --checkpoint-every 3"
$train --out alone >alone.json || exit 1
alone=$(hash_of alone.json)
holds "there is a hash" test -n "$alone"

# Every process ends well, process 0 alone prints, and the weights are those of one process.
"$epl" launch -n 4 -- $train --out four >four.json 2>four.err || { cat four.err; failed=1; }
holds "four processes have the weights of one" test "$(hash_of four.json)" = "$alone"
holds "only process 0 prints" test "$(grep -cv '^\[0\] ' four.json)" = 0
holds "the export is the same" cmp -s alone/trained.onnx four/trained.onnx
"$epl" launch -n 2 --plain -- $train --ranks 2 --out two >two.json || failed=1
holds "two processes of two ranks have them as well" test "$(hash_of two.json)" = "$alone"
holds "and --plain leaves lines alone" test "$(grep -c '^{' two.json)" = "$(wc -l <two.json)"

# What was measured on the way, over a last batch that is not full.
measured() { sed -n '/"event":"evaluation"/{s/^\[0\] //;s/"seconds":[0-9.e+-]*,//;p}' "$1"; }
holds "something is measured" test -n "$(measured alone.json)"
holds "four processes measure what one does" test "$(measured four.json)" = "$(measured alone.json)"
# A pipeline: the first process reads the text, the second what comes next of it. It goes on as four copies.
staged='{"pipeline.num_stages": 2, "pipeline.num_micro_batch": 4}'
"$epl" launch -n 2 -- $begin --steps 3 --out stages --strategy "$staged" >/dev/null || failed=1
"$epl" launch -n 4 -- $train --out stages --resume stages >stages.json || failed=1
holds "a pipeline goes on as copies" test "$(hash_of stages.json)" = "$alone"
"$epl" launch -n 2 -- $train --out pipeline --ranks 2 --strategy "$staged" >pipeline.json || failed=1
holds "copies of stages in two processes have the weights of one" test "$(hash_of pipeline.json)" = "$alone"
holds "and measure the same" test "$(measured pipeline.json)" = "$(measured alone.json)"

# A job goes on in another number of processes.
"$epl" launch -n 2 -- $begin --steps 3 --out part >/dev/null || failed=1
"$epl" launch -n 4 -- $train --out part --resume part >part.json || failed=1
holds "a job goes on in more processes" test "$(hash_of part.json)" = "$alone"
"$epl" launch -n 2 -- "$epl" evaluate four/trained.onnx --text book.txt --batch 8 >evaluated || failed=1
"$epl" evaluate four/trained.onnx --text book.txt --batch 8 | sed 's/^/[0] /' >expected
holds "evaluation in two processes is that in one" cmp -s evaluated expected

# The secret and the rendezvous are handed over, and nobody sees the secret.
"$epl" launch -n 2 -- sh -c 'echo $EPL_RANK of $EPL_WORLD_SIZE: $(wc -c <&$EPL_SECRET_FD); env; tr "\0" "\n" </proc/$$/cmdline' \
  >seen 2>&1 || failed=1
holds "ranks" grep -q '^\[1\] 1 of 2: 64' seen
holds "the rendezvous" grep -q '^\[0\] EPL_RENDEZVOUS=tcp://127.0.0.1:' seen
echo "a word that is seen nowhere" >given.secret
chmod 600 given.secret
EPL_SECRET="a word that is seen nowhere" "$epl" launch -n 1 -- sh -c 'env; tr "\0" "\n" </proc/$$/cmdline; exit 0' >seen
holds "a secret of the environment is not passed on in it" test "$(grep -c 'seen nowhere' seen)" = 0

# When one fails the others are ended, and its exit code is the launcher's.
start=$(date +%s)
"$epl" launch -n 3 --patience 1 -- sh -c 'test $EPL_RANK = 1 && exit 5; trap "" TERM; while :; do sleep 0.1; done' 2>err
holds "the exit code of the first failure" test $? = 5
holds "it says who" grep -q 'process 1 ended with exit code 5; the others are asked to end' err
holds "the others do not go on" test $(($(date +%s) - start)) -lt 30
"$epl" launch -n 2 -- sh -c 'test $EPL_RANK = 0 && kill -9 $$; sleep 60' 2>err
holds "a signal is an exit code" test $? = 137
"$epl" launch -n 1 -- ./no-such-program 2>err
holds "a program that is not there" test $? = 127
holds "is named" grep -q 'no-such-program' err

# What processes leave running holds up nobody, and what they have printed is all there.
start=$(date +%s)
"$epl" launch -n 2 -- sh -c 'setsid sleep 100 & seq 3000; printf end' >left
holds "all of it has come" test "$(grep -c '^\[[01]\] \(3000\|end\)$' left)" = 4
"$epl" launch -n 2 --patience 1 -- sh -c 'trap "" TERM; setsid sleep 100 & test $EPL_RANK = 0 && exit 4; sleep 50; sleep 50' \
  2>err
holds "the code of the one that failed" test $? = 4
holds "nobody waits for what was left" test $(($(date +%s) - start)) -lt 40

# stop_after STEP OUT WORDS...: a job of two processes that is asked to end once it has reached a step; its exit code.
stop_after() {
  at=$1 folder=$2
  shift 2
  "$epl" launch -n 2 -- $begin --steps 100000 --checkpoint-every 100000 "$@" --out $folder >$folder.json 2>err &
  launcher=$!
  for i in $(seq 600); do
    grep -q "\"step\":$at" $folder.json && break
    sleep 0.1
  done
  kill -TERM $launcher
  wait $launcher
}

# A signal goes to all, wherever each of them is: the job saves what it has and goes on as if it had not been stopped.
for turn in 1 2 3; do
  rm -rf stopped stopped.json
  stop_after $((turn * 17)) stopped
  holds "a job that is asked to end says so" test $? = 143
  holds "it went on to no step of its own" test -z "$(grep -v '^\[0\]' stopped.json)"
  holds "it has saved" test -f stopped/checkpoint/manifest.epl
done
to=$(($(value step stopped.json) + 3))
$begin --steps $to --schedule constant --out straight >straight.json || failed=1
"$epl" launch -n 2 -- $begin --steps $to --schedule constant --out stopped --resume stopped >on.json 2>err || { cat err; failed=1; }
holds "no batch is left out" test "$(hash_of on.json)" = "$(hash_of straight.json)"
# While it measures as well.
stop_after 3 measuring --evaluate-every 1 --evaluate-batches 400
holds "a job that measures ends, too" test $? = 143
# When the launcher is killed, nobody goes on.
"$epl" launch -n 2 -- sh -c 'echo $$ >>pids; exec sleep 300' &
launcher=$!
for i in $(seq 300); do
  test "$(cat pids 2>/dev/null | wc -l)" = 2 && break
  sleep 0.1
done
kill -KILL $launcher
sleep 1
# Whoever adopts them may not have asked for their end.
for pid in $(cat pids); do
  holds "process $pid has ended" test -z "$(sed -n 's/^State:[^A-Z]*\([^ZX]\) .*/\1/p' /proc/$pid/status 2>/dev/null)"
done

# Wrong use.
for words in "-n 2" "-- true" "-n 0 -- true" "--hosts a:x -- true" "--hosts a:1,b:1 -- true" "-n 1 --host a -- true"; do
  "$epl" launch $words >/dev/null 2>err
  holds "epl launch $words is wrong use" test $? = 2
done
EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=tcp://192.0.2.1:5 $train --out never >/dev/null 2>err
holds "without a secret" test $? = 2
holds "nobody meets where others come" grep -q 'need a secret' err

# Data over other transports: the same weights.
for transport in sockets gloo mpi; do
  pack=$(dirname "$epl")/../lib/libepl_$transport.so
  if [ $transport != sockets ] && [ ! -f "$pack" ]; then
    echo "transport $transport was not tried: its pack is not built"
    continue
  fi
  start="$epl launch -n 4 --plain --"
  [ $transport = mpi ] && start="mpirun --allow-run-as-root --oversubscribe -n 4"
  EPL_TRANSPORT=$transport $start $train --out by_$transport >by_$transport.json 2>err || { cat err; failed=1; }
  holds "$transport gives the weights of one process" test "$(hash_of by_$transport.json)" = "$alone"
done
EPL_TRANSPORT=pigeons "$epl" launch -n 2 -- $train --out never >/dev/null 2>err
holds "a transport that there is not" grep -q 'transport "pigeons"; there are sockets, gloo, mpi' err
if [ -f "$(dirname "$epl")/../lib/libepl_mpi.so" ]; then
  EPL_TRANSPORT=mpi "$epl" launch -n 2 -- $train --out never >/dev/null 2>err
  holds "MPI without mpirun" grep -q 'one mpirun must start all processes of the job' err
fi

# The launchers of others, where they are.
if command -v mpirun >/dev/null && mpirun --version 2>&1 | grep -q 'Open MPI'; then
  mpirun --allow-run-as-root --oversubscribe -n 4 $train --out mpi >mpi.json 2>err || { cat err; failed=1; }
  holds "mpirun gives the weights of one process" test "$(hash_of mpi.json)" = "$alone"
  holds "and leaves no folder" test "$(ls -d "${TMPDIR:-/tmp}/epl-$(id -u)-"* 2>/dev/null | wc -l)" = 0
else
  echo "mpirun was not tried: Open MPI is not installed"
fi
if [ -n "$python" ] && "$python" -c 'import torch.distributed.run' 2>/dev/null; then
  "$python" -m torch.distributed.run --standalone --no-python --nproc-per-node 2 $train --out torchrun \
    >torchrun.json 2>err ||
    { cat err; failed=1; }
  holds "torchrun gives the weights of one process" test "$(hash_of torchrun.json)" = "$alone"
else
  echo "torchrun was not tried: PyTorch is not installed"
fi
[ $failed = 0 ] && echo "launching works"
exit $failed
