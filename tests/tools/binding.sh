#!/bin/sh
# binding.sh EPL OUT: what the command line says when inputs, sizes and fields do not fit, each time with what helps.
. "$(dirname "$0")/begin.sh"
expect 0 "wrote" "$epl" template mlp --sizes 6,10,3 --out mlp.onnx
{ echo "a,b,c,d,e,f,kind"; i=0; while [ $i -lt 40 ]; do echo "$((i % 7)),0.5,-1,$((i % 3)),2e-1,1,$((i % 3))"; \
  i=$((i + 1)); done; } >table.csv
{ echo "i,a,b,c,d,e,f,kind"; i=0; while [ $i -lt 40 ]; do echo "$i,$((i % 7)),0.5,-1,$((i % 3)),2e-1,1,$((i % 3))"; \
  i=$((i + 1)); done; } >indexed.csv
classes='{"classes": true}'

# Names that the model does not have are errors, with and without data.
expect 3 "did you mean batch?" "$epl" plan mlp.onnx --symbol bacth=8
expect 3 "did you mean batch?" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --symbol bacth=8 \
  --steps 1 --out o
expect 3 "no such input" "$epl" plan mlp.onnx --batch-dim y=0
expect 3 "no such input" "$epl" plan mlp.onnx --value rate=16000
expect 2 "NAME=D is expected" "$epl" plan mlp.onnx --batch-dim x=-2
expect 2 "is not a number" "$epl" plan mlp.onnx --value x=much
# An option that may be repeated takes one value each time.
expect 0 "f32[10,6]" "$epl" inspect --symbol batch=4 mlp.onnx
# What --symbol names is bound by it, the rest by --batch.
expect 0 "batch: 16 samples" "$epl" plan mlp.onnx --batch 16
expect 0 "batch: 4 samples" "$epl" plan mlp.onnx --batch 16 --symbol batch=4
expect 0 "each of 2 copies computes all of it" "$epl" plan mlp.onnx --batch 16 --batch-dim x=-1,target=-1 --ranks 2 --symbol \
  batch=16
expect 3 "power of two" "$epl" plan mlp.onnx --batch 33 --micro-batches 3

# Shapes. The model leaves every size of x open but one, and names none: symbols are called by their positions.
cp "$source/tests/onnx/data/nameless.onnx" . || exit 1
# zeros SHAPE BYTES: an array of NumPy.
zeros() {
  printf '\223NUMPY\001\000\166\000'
  printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1), }"
  head -c "$2" /dev/zero
}
zeros "8, 3, 12, 16" 18432 >x.npy
zeros "8, 2" 64 >t.npy
arrays='{"input": "x", "target": "t.npy"}'
for command in plan trace "inspect --kernels"; do
  expect 3 "x[2] and x[3] of input x, which is f32[x[0],3,x[2],x[3]]. Give them as in --shape x=8,3,64,64" "$epl" $command \
    nameless.onnx --loss mse
  expect 0 "" "$epl" $command nameless.onnx --loss mse --shape x=8,3,64,64
done
expect 0 "batch: 2 samples" "$epl" plan nameless.onnx --loss mse --shape x=2,3,12,16
expect 0 "batch: 8 samples" "$epl" plan nameless.onnx --loss mse --shape 'x=?,3,12,16'
expect 0 "batch: 4 samples" "$epl" plan nameless.onnx --loss mse --shape 'x=?,?,12,16' --batch 4
expect 0 "batch: 4 samples" "$epl" plan nameless.onnx --loss mse --shape 'x=?,3,12,?' --symbol 'x[3]=16' --symbol 'x[0]=4'
expect 0 "4 of 4 initialisers can be trained (x: f32[2,3,12,16])" "$epl" inspect nameless.onnx --loss mse --shape \
  x=2,3,12,16
expect 3 "input x has 4 dimensions, f32[x[0],3,x[2],x[3]]" "$epl" plan nameless.onnx --shape x=2,3,12
expect 3 "dimension 1 of input x is fixed at 3 in the file" "$epl" plan nameless.onnx --shape x=2,4,12,12
expect 3 "has no input y. There are: x" "$epl" plan nameless.onnx --shape y=2,3
expect 3 "has a --shape already" "$epl" plan nameless.onnx --shape x=2,3,4,4 --shape x=2,3,4,4
expect 3 "is 5 by another option" "$epl" plan nameless.onnx --shape x=2,3,4,4 --symbol 'x[2]=5'
expect 3 "--batch says 3 samples" "$epl" plan nameless.onnx --shape x=2,3,4,4 --batch 3
expect 3 "is fixed at 3" "$epl" plan nameless.onnx --symbol 'x[1]=3'
expect 3 "bind it by this name" "$epl" plan mlp.onnx --symbol 'x[0]=3'
expect 2 "NAME=2,3,48 is expected" "$epl" plan nameless.onnx --shape x=2,-3,4,4
expect 2 "NAME=2,3,48 is expected" "$epl" plan nameless.onnx --shape 2,3,4,4
expect 0 "" "$epl" train nameless.onnx --data x.npy --data-options "$arrays" --loss mse --shape \
  x=2,3,12,16 --steps 2 --out shaped
expect 3 "the data gives f32[8,3,12,16] for that input" "$epl" train nameless.onnx --data x.npy --data-options \
  "$arrays" --loss mse --shape 'x=?,3,12,17' --steps 2 --out other
expect 0 "loss" "$epl" evaluate nameless.onnx --data x.npy --data-options "$arrays" --loss mse --shape \
  x=4,3,12,16 --checkpoint shaped
expect 0 "wrote" "$epl" export nameless.onnx --loss mse --shape x=2,3,12,16 --checkpoint shaped --out trained.onnx
# The checkpoint knows what it was trained with.
expect 0 "wrote" "$epl" export nameless.onnx --loss mse --checkpoint shaped --out taken.onnx
same trained.onnx taken.onnx "sizes of options and of the checkpoint"
awk 'BEGIN { for (i = 0; i < 300; ++i) printf "line %d of %d\n", i, i % 7 }' >lines.txt
"$epl" template gpt2 --layers 1 --sequence symbolic --context 16 --width 16 --heads 2 --out symbolic.onnx >/dev/null
expect 0 "" "$epl" train symbolic.onnx --text lines.txt --context 16 --batch 4 --steps 3 --out symbolic
expect 0 "wrote again.onnx" "$epl" export symbolic.onnx --checkpoint symbolic/checkpoint --out again.onnx
same again.onnx symbolic/trained.onnx "an export and what train wrote"
expect 0 "wrote again.onnx" "$epl" export symbolic.onnx --symbol sequence=8 --checkpoint symbolic --out again.onnx

# An input of which the file says its type alone: --shape gives it its dimensions, and so does data.
cp "$source/tests/onnx/data/rankless.onnx" . || exit 1
for command in plan trace "inspect --kernels"; do
  expect 3 "the number of dimensions of input x. Give them as in --shape x=8,64" "$epl" $command rankless.onnx --loss mse
  expect 0 "" "$epl" $command rankless.onnx --loss mse --shape x=8,3,12,16
done
expect 0 "x: f32[...]" "$epl" inspect rankless.onnx
expect 0 "4 of 4 initialisers can be trained" "$epl" inspect rankless.onnx
expect 0 "4 of 4 initialisers can be trained (x: f32[2,3,12,16])" "$epl" inspect rankless.onnx --loss mse --shape \
  x=2,3,12,16
expect 0 "batch: 2 samples" "$epl" plan rankless.onnx --loss mse --shape x=2,3,12,16
expect 0 "batch: 4 samples" "$epl" plan rankless.onnx --loss mse --shape 'x=?,3,12,16' --batch 4
expect 3 "dimension 1 of input x, which is f32[?,?,?,?]. Give them as in --shape x=8,64,12,16" "$epl" plan \
  rankless.onnx --loss mse --shape 'x=?,?,12,16'
expect 0 "" "$epl" train rankless.onnx --data x.npy --data-options "$arrays" --loss mse --steps 2 --out by_data
expect 0 "" "$epl" train rankless.onnx --data x.npy --data-options "$arrays" --loss mse --shape 'x=?,3,12,16' \
  --steps 2 --out by_shape
expect 3 "the data gives f32[8,3,12,16] for that input" "$epl" train rankless.onnx --data x.npy --data-options \
  "$arrays" --loss mse --shape 'x=?,3,12,17' --steps 2 --out other
expect 0 "wrote" "$epl" export rankless.onnx --loss mse --shape x=2,3,12,16 --checkpoint by_shape --out ranked.onnx

# Fields that do not fit.
expect 3 "no field of the data for input x; there are X, target" "$epl" train mlp.onnx --data table.csv --data-options \
  '{"classes": true, "input": "X"}' --steps 1 --out o
expect 3 "an index column does not count" "$epl" train mlp.onnx --data indexed.csv --data-options "$classes" --steps 1 \
  --out o
expect 3 "{\"batch\": 0}" "$epl" train mlp.onnx --data table.csv --data-options '{"classes": true, "batch": 0}' \
  --steps 1 --out o
expect 0 "i64[8] from kind" "$epl" train mlp.onnx --data table.csv --steps 1 --out o \
  # a column of integers is classes for this loss

# An input called target: --loss-target names what the loss compares with, and the field of the data.
cp "$source/tests/onnx/data/target_input.onnx" . || exit 1
{ echo "a,b,c,kind"; i=0; while [ $i -lt 40 ]; do echo "$((i % 7)),0.5,-1,$((i % 2))"; i=$((i + 1)); done; } >clash.csv
inputs='{"classes": true, "inputs": {"x": ["a", "b"], "target": "c"}}'
expect 3 'two fields of the data are called "target"' "$epl" train target_input.onnx --data clash.csv --data-options \
  "$inputs" --steps 1 --out refused
expect 0 "label: i64[8] from kind" "$epl" train target_input.onnx --data clash.csv --data-options "$inputs" \
  --loss-target label --held-out 0.2 --steps 2 --out clash
expect 0 "loss" "$epl" evaluate target_input.onnx --data clash.csv --data-options "$inputs" --loss-target label \
  --checkpoint clash

# The loss inside the graph.
expect 3 "nor does a node of its graph" "$epl" plan mlp.onnx --loss-output nothing
exit $failed
