#!/bin/sh
# adapters.sh EPL OUT: fine-tuning with low-rank adapters and parts of a model, from the first run to what it leaves
# behind.
. "$(dirname "$0")/begin.sh"

awk 'BEGIN { print "a,b,c,d,e,f,kind"; for (i = 0; i < 200; ++i) { k = (i * i + i) % 3; printf "%g,%g,%g,%g,%g,%g,%d\n", k - 1 + (i % 7) / 9, (i % 5) / 5, (i % 11) / 11 - 0.5, (k * i) % 2, (i % 4) / 4, k == 1, k } }' >table.csv
expect 0 "wrote mlp.onnx" "$epl" template mlp --sizes 6,32,3 --out mlp.onnx
expect 0 "wrote other.onnx" "$epl" template mlp --sizes 6,32,3 --seed 9 --out other.onnx
options='--data table.csv --data-options {"classes":true} --batch 8 --lr 0.02 --seed 3'
adapters='--lora net.0 --rank 2 --lora-alpha 4 --lora-dropout 0.1 --train-only net.2.*'
job() { exec "$epl" train mlp.onnx $options $adapters --steps ${steps:-60} "$@"; }
tune() { (job "$@"); }

# A pattern, and adapters beside the first of two layers while the second is trained.
expect 0 "in 2 tensors" "$epl" train mlp.onnx $options --steps 2 --train-only 'net.2.*' --out part
expect 3 "matches no parameter; did you mean net.2.bias" "$epl" train mlp.onnx $options --train-only 'net.2.bios' \
  --out none
expect 3 "match no layer; there are 2" "$epl" train mlp.onnx $options --lora nosuch --out none
expect 2 "--rank does nothing without --lora" "$epl" train mlp.onnx $options --rank 4 --out none
expect 2 "--lora-alpha does nothing without --lora" "$epl" plan mlp.onnx --batch 8 --lora-alpha 4
expect 2 "--rank: 0 is not 1 or more" "$epl" train mlp.onnx $options --lora net.0 --rank 0 --out none
expect 2 "--lora-alpha: 0 is not above 0" "$epl" train mlp.onnx $options --lora net.0 --lora-alpha 0 --out none
expect 3 "up to 1048576 are possible" "$epl" train mlp.onnx $options --lora net.0 --rank 9223372036854775807 --out none
expect 0 "warning: an adapter with more numbers than its weight saves nothing" "$epl" plan mlp.onnx --batch 8 --lora \
  net.2 --rank 8
expect 0 "low-rank adapters: 1" "$epl" plan mlp.onnx --batch 8 $adapters
expect 0 "in 4 tensors" tune --out whole
for made in trained.onnx adapters/adapter_model.safetensors adapters/adapter_config.json; do [ -s whole/$made ] ||
  fail "no whole/$made"; done
grep -q '"net.2"' whole/adapters/adapter_config.json || fail "what is trained beside adapters is not among them"
grep -q 'net.0; rank 2, alpha 4, dropout 0.1' whole/report.html || fail "the report does not tell the adapters"

# The same bits however the work is cut, and when it is killed and goes on.
tune --json --out once >once.json || failed=1
tune --json --out cut_1 --threads 2 --ranks 2 >ranks.json || failed=1
tune --json --out cut_2 --threads 1 --micro-batches 4 >turns.json || failed=1
tune --json --out cut_3 --threads 2 --ranks 2 --micro-batches 2 >both.json || failed=1
(steps=1000000 job --out killed --checkpoint-every 20 --json >killed.json 2>/dev/null) &
child=$!
tries=0
while [ ! -s killed/checkpoint/manifest.epl ] && [ $tries -lt 600 ] &&
  kill -0 $child 2>/dev/null; do sleep 0.01; tries=$((tries + 1)); done
kill -9 $child 2>/dev/null
wait $child 2>/dev/null
reached=$("$epl" inspect killed/checkpoint --json | sed -n 's/.*"step":\([0-9]*\),.*/\1/p')
[ -n "$reached" ] && [ "$reached" -lt 1000000 ] || fail "the run was not killed in the middle"
steps=$((reached + 20)) tune --json --out never_killed >never_killed.json || failed=1
steps=$((reached + 20)) tune --json --resume killed >resumed.json || failed=1
grep -q "\"step\":$((reached + 1))," resumed.json || fail "it does not go on after step $reached"
[ -n "$(hash_of once.json)" ] || fail "no hash"
for run in ranks turns both; do
  [ "$(hash_of once.json)" = "$(hash_of $run.json)" ] ||
    fail "weights of $run differ: $(hash_of once.json) $(hash_of $run.json)"
done
[ "$(hash_of never_killed.json)" = "$(hash_of resumed.json)" ] ||
  fail "weights differ after a kill: $(hash_of never_killed.json) $(hash_of resumed.json)"
same never_killed/trained.onnx killed/trained.onnx "one was killed in the middle"
same never_killed/adapters/adapter_model.safetensors killed/adapters/adapter_model.safetensors \
  "one was killed in the middle"

# Going on under other adapters, or with other parameters, is refused by the option's name.
expect 2 "adapters (--lora, --rank, --lora-alpha, --lora-dropout) was net.0 rank=2 alpha=4.0 dropout=0.1, now it is nothing" "$epl" train mlp.onnx $options --steps 70 --resume whole
expect 2 "now it is net.0 rank=3 " "$epl" train mlp.onnx $options --steps 70 --lora net.0 --rank 3 --train-only \
  'net.2.*' --resume whole
expect 2 "now it is net.2 rank=2 " "$epl" train mlp.onnx $options --steps 70 --lora net.2 --rank 2 --lora-alpha 4 \
  --lora-dropout 0.1 --train-only 'net.2.bias' --resume whole
expect 2 "now it is net.0 rank=2 alpha=8.0 " "$epl" train mlp.onnx $options --steps 70 --lora net.0 --rank 2 \
  --lora-alpha 8 --train-only 'net.2.*' --resume whole
expect 2 "trained (--train-only, --freeze, --train-also, --lora) was 4 parameters" "$epl" train mlp.onnx $options \
  --steps 70 --lora net.0 --rank 2 --lora-alpha 4 --lora-dropout 0.1 --resume whole
expect 2 "trained (--train-only, --freeze, --train-also, --lora) was 2 parameters" "$epl" train mlp.onnx $options \
  --optimizer sgd --steps 70 --train-only 'net.0.*' --resume part --resume-anyway optimizer
expect 3 "this model has other weights" "$epl" train other.onnx $options $adapters --steps 70 --resume whole
expect 0 "done: 70 steps" "$epl" train mlp.onnx $options $adapters --steps 70 --resume whole

# A checkpoint says what its adapters are; frozen weights are in the model's file.
expect 0 "low-rank adapters: net.0 rank=2 alpha=4.0 dropout=0.1; the weights that are not here are in the model's file" "$epl" inspect killed/checkpoint
case $("$epl" inspect killed/checkpoint) in *" net.0.weight: "*) echo \
  "FAILED: a checkpoint of adapters holds the weight beside them"; failed=1 ;; esac
expect 0 "wrote again.onnx, ready for inference" "$epl" export mlp.onnx --checkpoint killed --out again.onnx
same again.onnx killed/trained.onnx "one is from the checkpoint"
expect 0 "adapter_config.json" "$epl" export mlp.onnx --checkpoint killed/checkpoint --adapters adapters
for file in adapter_model.safetensors adapter_config.json; do same adapters/$file killed/adapters/$file \
  "one is from the checkpoint"; done
expect 0 "wrote again.safetensors" "$epl" export mlp.onnx --checkpoint killed/checkpoint --out again.safetensors
if grep -q lora_A again.safetensors; then echo "FAILED: adapters are not merged in a file of weights"; failed=1; fi
expect 3 "this model has other weights" "$epl" export other.onnx --checkpoint killed/checkpoint --out none.onnx
expect 2 "holds no low-rank adapters" "$epl" export mlp.onnx --checkpoint part/checkpoint --adapters none
expect 2 "what to write is missing: --out or --adapters" "$epl" export mlp.onnx --checkpoint part/checkpoint
"$epl" evaluate mlp.onnx --checkpoint killed --data table.csv --data-options '{"classes":true}' --json >beside.json ||
  failed=1
"$epl" evaluate killed/trained.onnx --data table.csv --data-options '{"classes":true}' --json >merged.json || failed=1
awk -v a="$(value loss beside.json)" -v b="$(value loss merged.json)" \
  'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' ||
  fail "adapters beside the weights give $(cat beside.json), in them $(cat merged.json)"
[ "$(value accuracy merged.json)" = 1.0 ] || fail "nothing was trained: $(cat merged.json)"

# Validation, schedules, smoothing and early stopping with adapters; the best checkpoint is theirs.
loss='--label-smoothing 0.1 --class-weights 1,2,1'
steps=2000 tune --held-out 0.2 --evaluate-every 10 --patience 3 $loss --schedule plateau --json --out held >held.json \
  2>held.err || { cat held.err; failed=1; }
grep -q '"ended":"stopped"' held.json || fail "it was not stopped early: $(tail -n 1 held.json)"
"$epl" evaluate mlp.onnx --checkpoint held/best --data table.csv --data-options '{"classes":true}' $loss --held-out \
  0.2 --json >best.json || failed=1
best=$(sed -n 's/.*"event":"evaluation".*"best":.*"loss":\([-0-9.e]*\),.*/\1/p' held.json | sort -g | head -n 1)
[ "$(value loss best.json)" = "$best" ] ||
  fail "the best checkpoint has loss $(value loss best.json), $best was measured"

# A run without adapters in the same folder leaves no others' there.
expect 0 "done" "$epl" train mlp.onnx $options --steps 2 --overwrite --out held
[ ! -e held/adapters ] || fail "adapters of the run before are still there"
mkdir blocked && echo text >blocked/adapters
expect 5 "blocked/adapters" tune --out blocked
exit $failed
