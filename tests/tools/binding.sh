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

# Fields that do not fit.
expect 3 "no field of the data for input x; there are X, target" "$epl" train mlp.onnx --data table.csv --data-options \
  '{"classes": true, "input": "X"}' --steps 1 --out o
expect 3 "an index column does not count" "$epl" train mlp.onnx --data indexed.csv --data-options "$classes" --steps 1 \
  --out o
expect 3 "{\"batch\": 0}" "$epl" train mlp.onnx --data table.csv --data-options '{"classes": true, "batch": 0}' \
  --steps 1 --out o
expect 0 "i64[8] from kind" "$epl" train mlp.onnx --data table.csv --steps 1 --out o \
  # a column of integers is classes for this loss

# The loss inside the graph.
expect 3 "nor does a node of its graph" "$epl" plan mlp.onnx --loss-output nothing
exit $failed
