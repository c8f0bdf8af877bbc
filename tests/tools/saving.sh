#!/bin/sh
# saving.sh EPL OUT: whatever ends a run, the trained weights are saved, and nothing that was saved before is lost.
. "$(dirname "$0")/begin.sh"
# Waits until FILE has COUNT lines with WORDS, or the process is gone.
wait_for() {
  tries=0
  while ! [ "$(grep -c "$2" "$1" 2>/dev/null)" -ge "$3" ] 2>/dev/null && [ $tries -lt 1200 ] &&
    kill -0 "$child" 2>/dev/null; do sleep 0.02; tries=$((tries + 1)); done
}

expect 0 "" "$epl" template mlp --sizes 4,8,2 --out m.onnx
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 64 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv
classes='{"classes": true}'
train() { exec "$epl" train m.onnx --data t.csv --data-options "$classes" --batch 8 --json "$@"; }

# A signal ends a run after its step, with everything saved; the run that goes on has the bits of one that was never
# stopped.
for signal in TERM HUP INT; do
  case $signal in TERM) code=143 ;; HUP) code=129 ;; INT) code=130 ;; esac
  if [ $signal = INT ]; then   # a shell's background jobs ignore it; timeout's child does not, and gets it twice
    timeout -s INT 1 "$epl" train m.onnx --data t.csv --data-options "$classes" --batch 8 --json --steps 100000000 \
      --out s$signal >s$signal.json 2>s$signal.err
    got=$?
    [ $got = 124 ] && got=130   # what timeout says of a child that it ended
  else
    (train --steps 100000000 --out s$signal) >s$signal.json 2>s$signal.err &
    child=$!
    wait_for s$signal.json '"step"' 5
    kill -$signal $child
    wait $child
    got=$?
  fi
  [ $got = $code ] || fail "SIG$signal ended the run with $got, not $code: $(cat s$signal.err)"
  grep -q '"ended":"interrupted"' s$signal.json || fail "SIG$signal: no word of it: $(tail -n 1 s$signal.json)"
  for made in checkpoint/manifest.epl trained.onnx report.html; do [ -s s$signal/$made ] ||
    fail "SIG$signal: no $made"; done
done
steps=$(sed -n 's/.*"event":"done","step":\([0-9]*\).*/\1/p' sTERM.json)
(train --steps $((steps + 5)) --resume sTERM) >resumed.json 2>/dev/null || fail "resuming after SIGTERM"
(train --steps $((steps + 5)) --out whole) >whole.json 2>/dev/null || fail "the whole run"
[ -n "$(hash_of whole.json)" ] && [ "$(hash_of whole.json)" = "$(hash_of resumed.json)" ] ||
  fail "a run that was stopped and went on has other weights"
# The history is one: the report and the programs that read it do not see the interruption.
[ "$(grep -c '"event":"step"' sTERM/history.jsonl)" -ge "$((steps < 1000 ? steps : 1000))" ] ||
  fail "the history begins at the resumed step"
expect 0 "\"step\":1," head -n 1 sTERM/history.jsonl
expect 0 "leaves nothing to do" "$epl" train m.onnx --data t.csv --data-options "$classes" --batch 8 --steps 5 \
  --resume whole

# Where gradients carry a loss scale, the lines, the history, the report and a run that goes on say it.
amp='{"amp.level": "O1", "amp.type": "f16"}'
(train --steps 3 --strategy "$amp" --out scaled) >scaled.json 2>/dev/null || fail "a run with a loss scale"
(train --steps 5 --strategy "$amp" --resume scaled) >scaled_on.json 2>/dev/null || fail "going on with a loss scale"
for lines in scaled.json scaled_on.json scaled/history.jsonl; do
  grep '"event":"step"' $lines | grep -q '"loss_scale":.*"skipped_steps":[0-9]' || fail "$lines: no loss scale"
done
grep -q 'steps skipped by the loss scale' scaled/report.html || fail "the report has no loss scale"
grep -q '"loss_scale"' resumed.json && fail "a loss scale of float32"

# Somebody reads the JSON lines no longer, so that the run waits to write: the first signal is noted, a second one later
# ends it at once, by the signal's own effect. One within a second is the same request. The thread sanitizer holds signals
# back until the write has returned, so there is no such end under it.
if ! grep -q __tsan_init "$epl"; then
  mkfifo stuck.pipe
  sleep 30 <stuck.pipe &
  reader=$!
  (train --steps 100000000 --checkpoint-every 100 --out stuck) >stuck.pipe 2>/dev/null &
  child=$!
  tries=0
  while ! [ -e stuck/checkpoints/step-00000200/manifest.epl ] &&
    [ $tries -lt 1200 ]; do sleep 0.02; tries=$((tries + 1)); done
  sleep 0.5   # the pipe is full by then
  kill -TERM $child
  kill -TERM $child
  sleep 0.2
  kill -0 $child 2>/dev/null || fail "two signals at once are taken for two requests"
  sleep 1.2
  kill -TERM $child
  wait $child
  got=$?
  [ $got = 143 ] || fail "a second SIGTERM ended a run that hangs with $got, not 143"
  kill $reader 2>/dev/null
  expect 0 "after" "$epl" inspect stuck   # what was saved before is whole
fi

# Where the last checkpoint fails, the one before is what to go on from, and the end says so; there may be none.
if command -v prlimit >/dev/null; then
  for every in 200 1000000; do
    mkfifo said.pipe
    cat <said.pipe >said &
    reader=$!
    (exec "$epl" train m.onnx --data t.csv --data-options "$classes" --batch 8 --steps 100000000 \
      --checkpoint-every $every --out small --overwrite) >said.pipe 2>small.err &
    child=$!
    tries=0
    while ! [ -e small/checkpoints/step-00000$every/manifest.epl ] && [ $tries -lt 100 ]; do
      sleep 0.02
      tries=$((tries + 1))
    done
    prlimit --pid $child --fsize=0   # as a full disk
    sleep 0.5
    kill -TERM $child
    wait $child
    wait $reader
    if [ $every = 200 ]; then
      newest=$(ls small/checkpoints | tail -n 1 | sed 's/step-0*//')
      tr -d , <said | grep -q "interrupted: .*go on after step $newest with --resume small" ||
        fail "the end does not name step $newest: $(cat said)"
      tr -d , <said | grep -q "interrupted: $newest steps" && fail "a save on a full disk went well"
      (train --steps $((newest + 1)) --resume small) >on.json 2>/dev/null || fail "it does not go on"
    else
      grep -q "interrupted: .*there is no checkpoint to go on from" said || fail "without a checkpoint: $(cat said)"
    fi
    rm -rf said.pipe small
  done
fi

# Ended by kill -9 wherever it happens to be, and gone on with: the bits are those of the run that was not.
(train --steps 3000 --out unharmed) >unharmed.json 2>/dev/null || fail "the run that is not killed"
for moment in 0.05 0.11 0.17 0.23 0.31; do
  rm -rf killed
  (train --steps 3000 --checkpoint-every 5 --out killed) >/dev/null 2>&1 &
  child=$!
  sleep $moment
  kill -9 $child 2>/dev/null
  wait $child 2>/dev/null
  again=--overwrite
  [ -e killed/checkpoint/manifest.epl ] && again="--resume killed"
  (train --steps 3000 --out killed $again) >killed.json 2>killed.err ||
    fail "going on after kill -9 at $moment s ($again): $(cat killed.err)"
  [ "$(hash_of killed.json)" = "$(hash_of unharmed.json)" ] ||
    fail "killed at $moment s, the run that went on has other weights"
  for folder in killed/checkpoints/*; do
    [ -s $folder/manifest.epl ] || fail "killed at $moment s, half a checkpoint stays: $(ls -R killed/checkpoints)"
  done
  [ -z "$(find killed -name '*.part')" ] || fail "killed at $moment s, $(find killed -name '*.part') is left"
done

# A closed or full standard output does not end a run, and is not a success.
(train --steps 400 --out piped) 2>piped.err | head -n 1 >/dev/null
[ -s piped/trained.onnx ] || fail "a closed pipe lost the run: $(cat piped.err)"
(train --steps 5 --out full) >/dev/full 2>full.err && fail "a full standard output is taken for success"
grep -q "No space left" full.err || fail "a full standard output: $(cat full.err)"
[ -s full/trained.onnx ] || fail "a full standard output lost the run"
"$epl" inspect m.onnx >/dev/full 2>full.err && fail "inspect > /dev/full is taken for success"

# A row that cannot be trained on: the steps before it are saved, and the message says which step.
$epl template mlp --sizes 1,1 --out one.onnx >/dev/null
{ echo "x,y"; i=0; while [ $i -lt 40 ]; do echo "1,1"; i=$((i + 1)); done; echo "3e38,-3e38"; } >huge.csv
expect 8 "step 41" "$epl" train one.onnx --loss mse --data huge.csv --batch 1 --data-options '{"order": "sequential"}' \
  --steps 60 --lr 1e-3 --out huge
[ -s huge/trained.onnx ] && [ -s huge/checkpoint/manifest.epl ] || fail "a step that failed lost the run"
expect 0 "after 40 steps" "$epl" inspect huge

# Outputs are checked before the first step, and nothing is overwritten unasked.
expect 2 "holds an earlier run" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out whole
before=$(cksum whole/trained.onnx)
[ "$before" = "$(cksum whole/trained.onnx)" ] || fail "a refused run changed its folder"
expect 0 "5 steps" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out whole --overwrite
expect 0 "after 5 steps" "$epl" inspect whole
[ "$(ls whole/checkpoints)" = step-00000005 ] ||
  fail "the overwritten run's checkpoints are there: $(ls whole/checkpoints)"
mkdir -p way/trained.onnx && expect 5 "Is a directory" "$epl" train m.onnx --data t.csv --data-options "$classes" \
  --steps 5 --out way
mkdir -p way2 && echo mine >way2/checkpoint &&
  expect 5 "in the way" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out way2
[ "$(cat way2/checkpoint)" = mine ] || fail "a file that was in the way is gone"
expect 5 "cannot write" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out way3 --report \
  nowhere/report.html
expect 5 "Not a directory" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out t.csv/run
expect 2 "sim" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 --out whole --overwrite --device sim
expect 0 "after 5 steps" "$epl" inspect whole

# Two runs do not share a folder.
(train --steps 100000000 --out held) >held.json 2>/dev/null &
child=$!
wait_for held.json '"step"' 1
expect 2 "held is in use by process $child" "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 5 \
  --out held
kill -9 $child
wait $child 2>/dev/null

# Files may not grow beyond 64 KiB: checkpoints fail on the way, which is told and does not end the run; the end is an
# error.
expect 0 "" "$epl" template mlp --sizes 4,128,128,2 --out big.onnx
output=$( (ulimit -f 64; "$epl" train big.onnx --data t.csv --data-options "$classes" --steps 6 --checkpoint-every 2 \
  --out limited) 2>&1 )
got=$?
[ $got = 5 ] || fail "a limit on files ended the run with $got: $output"
case $output in *"no checkpoint after step 2"*"training goes on"*"File too large"*) ;; *) fail \
  "a limit on files: $output" ;; esac
[ ! -e limited/checkpoints/step-00000002/tensors-1.safetensors.part ] || fail "half a checkpoint stays"
[ -z "$(find limited -name '*.part')" ] || fail "a limit on files: $(find limited -name '*.part') is left"
expect 0 "7 steps" "$epl" train big.onnx --data t.csv --data-options "$classes" --steps 7 --out limited --overwrite
[ "$(ls limited/checkpoints)" = step-00000007 ] ||
  fail "folders of checkpoints that failed stay: $(ls limited/checkpoints)"

# The files beside a run that cannot be written any further are told of, once each; the trained weights are there.
output=$( (ulimit -f 16; "$epl" train m.onnx --data t.csv --data-options "$classes" --steps 900 --tensorboard --json \
  --out narrow) 2>&1 )
got=$?
[ $got = 5 ] || fail "a run whose report does not fit ended with $got"
for words in 'narrow/history.jsonl: File too large; it is not written any further"}' \
  '.epl: File too large; it is not written any further"}' 'the report failed: '; do
  [ "$(echo "$output" | grep '"event":"warning"' | grep -c "$words")" = 1 ] ||
    fail "a limit on files does not say \"$words\" once: $(echo "$output" | grep warning)"
done
expect 0 "after 900 steps" "$epl" inspect narrow

# The newest checkpoints are kept, and an older run under the same name of options goes on from any of them.
expect 0 "" "$epl" train m.onnx --data t.csv --data-options "$classes" --batch 8 --steps 10 --checkpoint-every 2 \
  --keep 3 --out kept
[ "$(ls kept/checkpoints | tr '\n' ' ')" = "step-00000006 step-00000008 step-00000010 " ] ||
  fail "kept: $(ls kept/checkpoints)"
expect 0 "wrote w.onnx" "$epl" export m.onnx --checkpoint kept/checkpoints/step-00000006 --out w.onnx
expect 0 "wrote w2.onnx" "$epl" export m.onnx --checkpoint kept --out w2.onnx
cmp -s w2.onnx kept/trained.onnx || fail "export of a run's folder is not its newest checkpoint"

# Going on under what makes another run of it is refused and says what differs; a rate may change.
go_on() { "$epl" train m.onnx --data t.csv --data-options "$classes" --steps ${until:-12} --resume kept "$@"; }
expect 2 "optimizer (--optimizer) was adamw, now it is adam" go_on --batch 8 --optimizer adam
expect 2 "data.seed (--seed) was 0, now it is 9" go_on --batch 8 --seed 9
expect 2 "loss.ignore_index was -100, now it is 1" go_on --batch 8 --ignore-index 1
expect 2 "data.batch (--batch) was 8, now it is 4" go_on --batch 4
sed 's/^0,/9,/' t.csv >other.csv
expect 2 "--resume-anyway data" "$epl" train m.onnx --data other.csv --data-options "$classes" --batch 8 --steps 12 \
  --resume kept
expect 0 "optimizer.lr was 0.001, now it is 0.002" go_on --batch 8 --lr 0.002
until=13   # and programs that read JSON lines are told as well
expect 0 '{"event":"warning","message":"kept/checkpoint: optimizer.lr was 0.002, now it is 0.003"}' go_on --batch 8 \
  --lr 0.003 --json
expect 2 "seed (--seed) was 0, now it is 9" go_on --batch 8 --lr 0.003 --seed 9
expect 0 "14 steps" "$epl" train m.onnx --data other.csv --data-options "$classes" --batch 8 --steps 14 --resume kept \
  --resume-anyway data
exit $failed
