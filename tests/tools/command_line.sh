#!/bin/sh
# command_line.sh EPL OUT: the command line from template to export, its exit codes, and a run cut in two processes.
. "$(dirname "$0")/begin.sh"

i=0
while [ $i -lt 400 ]; do echo "line $i: the quick brown fox jumps over the lazy dog"; i=$((i + 1)); done >text.txt
{ echo "words,more"; head -n 3 text.txt | sed 's/$/,1/'; } >text.csv

expect 0 "gpt2" "$epl" template
expect 0 "wrote model.onnx" "$epl" template gpt2 --layers 1 --width 32 --heads 2 --context 16 --vocab 256 --seed 3 \
  --out model.onnx
expect 0 "wrote mlp.onnx" "$epl" template mlp --sizes 6,10,3 --out mlp.onnx
expect 0 "f32[10,6]" "$epl" inspect mlp.onnx
expect 3 "did you mean" "$epl" template gpt2 --layer 1 --out x.onnx
expect 2 "needs a value" "$epl" template gpt2 --out x.onnx --layers
expect 0 "input_ids" "$epl" inspect model.onnx
# Names of a file act on no terminal.
escapes=$source/tests/fuzz/corpus/onnx/escapes.onnx
expect 0 'x\x1b[2J' "$epl" inspect "$escapes"
expect 3 'bad\x1b[31m' "$epl" plan "$escapes" --batch 2 --loss mse
for command in inspect plan; do
  if "$epl" $command "$escapes" 2>&1 | grep -q "$(printf '\033')"; then echo "FAILED: $command prints an escape"; \
    failed=1; fi
done
# What inspect finds in a file is repeated where it matters: before a run, and for programs.
frozen=$source/tests/onnx/inference/batch_norm_dynamo.onnx
pictures="$source/tests/data/files/images"
if [ -e "$(dirname "$epl")/../lib/libepl_images.so" ]; then modes="--seed=0 --json"; else modes=""; fi \
  # the pack reads them
for json in $modes; do
  case $("$epl" train "$frozen" --data "$pictures" --data-options '{"height": 6, "width": 6, "channels": 1}' --batch 2 \
    --steps 1 $json --overwrite --out frozen 2>&1) in
    *"2 BatchNormalization node(s) are frozen"*) ;;
    *) echo "FAILED: train $json does not repeat what inspect finds"; failed=1 ;;
  esac
done
expect 0 "2 BatchNormalization node(s) are frozen" "$epl" plan "$frozen" --batch 4
# A deep model is computed again where that takes less memory.
expect 0 "wrote layers.onnx" "$epl" template gpt2 --layers 12 --width 96 --heads 4 --context 64 --vocab 3000 \
  --out layers.onnx
for type in f32 bf16; do
  expect 0 "the backward pass computes" "$epl" plan layers.onnx --batch 4 --optimizer adamw --state-type $type \
    --strategy '{"gradient_checkpoint.type": "auto"}'
done
# Long lists are cut, unless all is asked for; without a file a person is told what there is, not JSON.
expect 0 "wrote deep.onnx" "$epl" template gpt2 --layers 12 --width 16 --heads 2 --context 8 --out deep.onnx
[ "$("$epl" inspect deep.onnx | wc -l)" -lt 60 ] || fail "inspect of a deep model is long"
expect 0 "more; --all shows them" "$epl" inspect deep.onnx
[ "$("$epl" inspect deep.onnx --all | wc -l)" -gt 150 ] || fail "inspect --all is short"
case $("$epl" inspect) in "{"*) echo "FAILED: inspect without a file prints JSON"; failed=1 ;; esac
[ "$("$epl" inspect | wc -l)" -lt 130 ] || fail "inspect without a file is long"
expect 0 "bytes" "$epl" plan model.onnx --batch 4
expect 0 "\"peak_bytes\"" "$epl" plan model.onnx --batch 4 --json
# What holds the peak, and what a budget chose from.
expect 0 "kept for the backward pass: " "$epl" plan model.onnx --batch 4
expect 0 "the most bytes there have:" "$epl" plan model.onnx --batch 4
expect 0 '"kind":"kept for the backward pass"' "$epl" plan model.onnx --batch 4 --json
expect 0 '"tried":[]' "$epl" plan model.onnx --batch 4 --json
expect 0 '"outcome":"taken"' "$epl" plan model.onnx --batch 4 --strategy '{"memory.budget": "1GB"}' --json
expect 0 "planned for memory.budget:" "$epl" plan model.onnx --batch 4 --strategy '{"memory.budget": "1GB"}'
expect 4 "too many" "$epl" plan model.onnx --batch 4 --strategy '{"memory.budget": "1000"}'
# Decisions as a file.
expect 0 "wrote two.plan" "$epl" plan model.onnx --batch 4 --ranks 2 --save two.plan
expect 0 "wrote cut.plan" "$epl" plan model.onnx --batch 4 --ranks 2 --strategy '{"default": {"split": 2}}' --save \
  cut.plan
expect 0 "decide the same" "$epl" plan --diff two.plan two.plan
expect 1 "tensor: [-, -]; in the second [-, split]: transformer.h.0.mlp.c_fc.weight" "$epl" plan \
  --diff two.plan cut.plan
expect 0 "the decisions are those of a plan file" "$epl" plan model.onnx --batch 4 --plan cut.plan
expect 3 "another number of ranks: 2 there, 4 here" "$epl" plan model.onnx --batch 4 --ranks 4 --plan two.plan
expect 3 "another train graph" "$epl" plan model.onnx --batch 8 --plan two.plan
expect 3 "another model" "$epl" plan mlp.onnx --batch 4 --plan two.plan
sed 's/in main/in post/' two.plan >changed.plan
expect 3 "damaged" "$epl" plan model.onnx --batch 4 --plan changed.plan
expect 0 "" "$epl" train model.onnx --text text.txt --batch 4 --steps 2 --threads 2 --plan cut.plan --out planned
# A page, and what ranks did in a step: with data, without, and in virtual time.
expect 0 "predicted step on simulated cpu_core" "$epl" plan model.onnx --batch 4 --ranks 2
expect 0 "wrote plan.html" "$epl" plan model.onnx --batch 4 --ranks 2 --html plan.html
grep -q '"what":"all_reduce","over":"data"' plan.html || fail "plan.html does not say what moves"
grep -q '"held":{"' plan.html || fail "plan.html does not say what holds the memory"
grep -q '"roofline":{"flops":' plan.html || fail "plan.html does not say what bounds a stage"
grep -q '"links":\[{"name":"any ranks"' plan.html || fail "plan.html does not say what goes over links"
grep -q '/\*EPL_' plan.html && fail "a part of plan.html is missing"
grep -q 'function drawRoofline' plan.html || fail "plan.html does not draw rooflines"
expect 0 "roofline of the kernels of a step" "$epl" plan model.onnx --batch 4
expect 0 "link-capacity bound of a step: " "$epl" plan model.onnx --batch 4 --ranks 2
grep -q '"largest":\[{"name":' plan.html || fail "plan.html does not list the largest values"
expect 0 "recorded " "$epl" trace model.onnx --text text.txt --batch 4 --ranks 2 --threads 2 --steps 2
grep -q '"name":"post"' trace.json || fail "trace.json has no call of the update"
grep -q '"cat":"waiting"' trace.json || fail "trace.json does not say who waits"
expect 0 "% waiting" "$epl" trace model.onnx --batch 4 --ranks 2 --device sim --before 0 --out virtual.json
expect 0 "% computing" "$epl" trace model.onnx --batch 4 --out alone.json
expect 0 '"first_step_seconds":' "$epl" trace model.onnx --batch 4 --before 3 --json --out alone.json
"$epl" trace model.onnx --batch 4 --before 0 --json --out alone.json >alone
grep -q '"step_seconds":\[\]' alone && ! grep -q first_step_seconds alone || fail "trace says of no step how long it took"
expect 3 "did you mean" "$epl" plan model.onnx --batch 4 --strategy '{"pipeline.num_micro_batchs": 2}'
expect 0 "not trained: 12 parameters, from " "$epl" plan model.onnx --batch 4 --freeze 'transformer.h.*'
# A text that is shorter than a batch is still sampled from; a model that leaves the length open says which was taken.
head -c 1200 text.txt >short.txt
expect 0 "what the model writes after >>>" "$epl" train model.onnx --text short.txt --batch 16 --held-out 0.1 --steps \
  2 --sample-bytes 4 --out short
expect 0 "wrote open.onnx" "$epl" template gpt2 --layers 1 --width 16 --heads 2 --context 48 --vocab 256 --sequence \
  symbolic --out open.onnx
expect 3 "64 were taken: --context N says otherwise" "$epl" train open.onnx --text text.txt --steps 2 --out open
expect 2 "" "$epl" train model.onnx
expect 2 "" "$epl" dance
expect 3 "no optimizer" "$epl" train model.onnx --text text.txt --optimizer adamx --out run

# A table, an optimizer of few options, and its checkpoint, from which the state tells the optimizer.
{ echo "a,b,c,d,e,f,kind"; i=0; while [ $i -lt 40 ]; do echo "$((i % 7)),0.5,-1,$((i % 3)),2e-1,\"1\",$((i % 3))"; \
  i=$((i + 1)); done; } >table.csv
expect 0 "40 samples" "$epl" inspect table.csv
expect 0 "" "$epl" train mlp.onnx --data table.csv --data-options '{"classes": true}' --batch 10 --steps 6 --optimizer \
  rmsprop --optimizer-option alpha=0.9 --out tabled
expect 0 "wrote tabled.onnx" "$epl" export mlp.onnx --checkpoint tabled/checkpoint --out tabled.onnx
cmp -s tabled.onnx tabled/trained.onnx || fail "export of a table's training differs from what train wrote"
expect 3 "did you mean" "$epl" train mlp.onnx --data table.csv --data-options '{"clases": true}' --batch 10 --steps 6 \
  --overwrite --out tabled
expect 3 'column "words" holds texts' "$epl" inspect text.csv
# The same without being told that integers are classes, and with their names.
expect 0 "" "$epl" train mlp.onnx --data table.csv --batch 10 --steps 6 --optimizer rmsprop --optimizer-option \
  alpha=0.9 --out untold
cmp -s untold/trained.onnx tabled/trained.onnx || fail "classes that were not told differ from those that were"
sed 's/,0$/,red/; s/,1$/,green/; s/,2$/,blue/; s/^/7,/; 1s/^7,/id,/' table.csv | tr , '\t' >named.TSV
expect 0 "3 classes, in this order: blue, green, red" "$epl" inspect named.TSV
expect 0 "3 classes, in this order: blue, green, red" "$epl" train mlp.onnx --data named.TSV --data-options \
  '{"ignore": "id"}' --batch 10 --steps 2 --out named
grep -q '"green"' named/data.json || fail "data.json does not name the classes"
cp text.csv words.h5
expect 3 "which is HDF5. EPL reads csv" "$epl" train mlp.onnx --data words.h5 --overwrite --out named
mkfifo pipe.csv
expect 3 "not a regular file" "$epl" inspect pipe.csv
expect 3 "alpha" "$epl" train mlp.onnx --data table.csv --data-options '{"classes": true}' --steps 6 --optimizer sgd \
  --optimizer-option alpha=0.9 --overwrite --out tabled
expect 2 "NAME=VALUE" "$epl" train mlp.onnx --data table.csv --steps 6 --optimizer-option alpha --overwrite --out tabled

trainer() { exec "$epl" train model.onnx --text text.txt --batch 4 --seed 7 --optimizer adamw --lr 0.01 --schedule \
  cosine --warmup 2 --clip 1 --steps 20 --sample-bytes 4 --json "$@"; }
train() { (trainer "$@"); }
train --out whole >whole.json || fail "training"
for made in whole/trained.onnx whole/report.html whole/checkpoint/manifest.epl; do
  [ -s "$made" ] || fail "no $made"
done
grep -q '"event":"baselines"' whole.json || fail "no baselines"
[ "$(grep -c '"event":"step"' whole.json)" = 20 ] || fail "not a line for each step"

# Two threads and four micro-batches give the same bits.
train --out turns --threads 2 --micro-batches 4 >turns.json || failed=1
# A process that is killed after its tenth step's checkpoint, and another that goes on.
trainer --out cut --checkpoint-every 10 >cut.json & \
  # exec: the child is the process that trains, not a shell around it
child=$!
tries=0
while [ ! -s cut/checkpoint/manifest.epl ] && [ $tries -lt 600 ] &&
  kill -0 $child 2>/dev/null; do sleep 0.05; tries=$((tries + 1)); done
kill -9 $child 2>/dev/null
wait $child 2>/dev/null
train --out cut --resume cut/checkpoint >resumed.json || fail "resuming"
for run in turns resumed; do
  [ -n "$(hash_of whole.json)" ] && [ "$(hash_of whole.json)" = "$(hash_of $run.json)" ] ||
    fail "weights of $run differ: $(hash_of whole.json) $(hash_of $run.json)"
done

expect 0 "loss" "$epl" evaluate model.onnx --text text.txt --batch 4 --checkpoint whole/checkpoint
expect 0 "after 20 steps" "$epl" inspect whole/checkpoint
expect 0 "wrote again.onnx" "$epl" export model.onnx --checkpoint whole/checkpoint --out again.onnx
cmp -s again.onnx whole/trained.onnx || fail "export differs from what train wrote"
expect 0 "wrote again.safetensors" "$epl" export model.onnx --checkpoint whole/checkpoint --out again.safetensors
expect 0 "wrote on.onnx, to train on" "$epl" export model.onnx --checkpoint whole/checkpoint --out on.onnx \
  --for-training
expect 2 "holds weights alone" "$epl" export model.onnx --checkpoint whole/checkpoint --out on.safetensors \
  --for-training
expect 0 "ready for inference" "$epl" inspect whole/trained.onnx
expect 0 "for training: 2 BatchNormalization in training mode" "$epl" inspect \
  "$source/tests/onnx/inference/batch_norm_legacy.onnx"
expect 2 ".onnx or .safetensors" "$epl" export model.onnx --checkpoint whole/checkpoint --out again.bin
printf 'x' | dd of=whole/checkpoint/manifest.epl bs=1 seek=20 conv=notrunc 2>/dev/null
expect 3 "damaged checkpoint" "$epl" inspect whole/checkpoint
head -c 1000 model.onnx >cut.onnx
expect 3 "cut.onnx" "$epl" inspect cut.onnx
exit $failed
