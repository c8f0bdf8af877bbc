#!/bin/sh
# What the processes of a job must have in common: whatever one of them alone has otherwise is named before it does
# harm, and nobody waits.
# usage: agreement.sh EPL FOLDER
. "$(dirname "$0")/begin.sh"
small_job
"$epl" template gpt2 --layers 1 --width 16 --heads 2 --context 16 --vocab 256 --seed 9 --out other.onnx >/dev/null
tr 7 9 <book.txt >edited.txt # of the same size
job="--batch 8 --seed 3 --json --sample-bytes 0 --threads 1"

# both ZERO ONE: two processes of a job, of which process 0 gets the words ZERO besides and process 1 ONE; its exit
# code. What they say is in `said`, and how many seconds it took in $took.
both() {
  start=$(date +%s)
  rm -rf out
  timeout 100 "$epl" launch -n 2 --patience 5 -- sh -c "
    words='$1'; [ \$EPL_RANK = 1 ] && words='$2'
    exec \"\$@\" \$words" sh "$epl" train model.onnx --out out $job >said 2>&1
  code=$?
  took=$(($(date +%s) - start))
  return $code
}
# differs WORDS: the job was refused, soon, and says so.
differs() {
  [ $code != 0 ] || fail "$1: the job ran"
  [ $took -lt 60 ] || fail "$1: it took $took s"
  grep -q -e "$1" said || { fail "it does not say \"$1\""; head -c 2000 said; }
}

own="--text book.txt --steps 3"
both "$own" "$own" || { fail "a job whose processes have all in common"; cat said; }
good=$(hash_of said)
both "$own" "--text book.txt --steps 4"
differs 'steps is "3" at rank 0 and "4" at rank 1'
both "$own" "$own --checkpoint-every 2"
differs 'checkpoint-every is "0" at rank 0 and "2" at rank 1'
both "$own" "$own --lr 0.5"
differs 'optimizer.lr is'
both "$own" "--text edited.txt --steps 3"
differs 'text is '
head -c 40000 book.txt >short.txt
both "$own" "--text short.txt --steps 3"
differs 'text is '

# Other weights in the model's file of one process: refused by name, or taken from rank 0.
weights() {
  rm -rf out
  timeout 100 "$epl" launch -n 2 --patience 5 -- sh -c 'model=model.onnx; [ $EPL_RANK = 1 ] && model=other.onnx
    exec "$0" train $model "$@"' "$epl" --text book.txt --steps 3 --out out $job "$@" >said 2>&1
  code=$? took=0
}
weights
differs 'rank 1 has other weights than rank 0 in its model.s file: first differs'
weights --take-weights
holds "weights of rank 0 are taken" test $code = 0
holds "and are those of a job that has them" test "$(hash_of said)" = "$good"

# Process 0 alone cannot open its text again between two calls: the other one hears of it.
for files in 14 15 16 17 18 19 20; do
  rm -rf out
  start=$(date +%s)
  (ulimit -n $files && timeout 100 "$epl" launch -n 2 --patience 5 -- "$epl" train model.onnx --text book.txt \
    --steps 3 --out out $job --evaluate-every 1 >said 2>&1)
  [ $(($(date +%s) - start)) -lt 60 ] || fail "with $files descriptors nobody ends: $(tail -n 1 said)"
done

# Process 1 alone has too little memory: what process 0 says of that names it.
short=0
for kilobytes in 60000 100000 150000 200000 300000 400000; do
  rm -rf out
  timeout 100 "$epl" launch -n 2 --patience 5 -- sh -c '[ $EPL_RANK = 1 ] && ulimit -v '$kilobytes'
    exec "$0" train model.onnx "$@"' "$epl" --text book.txt --steps 3 --out out $job >said 2>&1 && continue
  grep '^\[0\].*\(memory\|gave no\)' said >of_zero && short=$((short + 1))
  grep -v 'rank 1' of_zero && fail "with $kilobytes KiB process 0 takes the failure of process 1 for its own"
done
[ $short -gt 0 ] || fail "process 1 has never had too little memory"

# Signed frames: the same weights, and never without a secret.
rm -rf out
EPL_TRANSPORT=sockets "$epl" launch -n 2 -- "$epl" train model.onnx --text book.txt --steps 3 --out out $job \
  --integrity hmac >said 2>&1 || { fail "signed frames"; cat said; }
holds "signed frames give the same weights" test "$(hash_of said)" = "$good"
mkdir meet
expect 3 'there is no secret' env EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_LOCAL_RANK=0 EPL_LOCAL_WORLD_SIZE=2 \
  EPL_RENDEZVOUS="file://$PWD/meet" "$epl" train model.onnx --text book.txt --steps 3 --out never $job --integrity hmac
exit $failed
