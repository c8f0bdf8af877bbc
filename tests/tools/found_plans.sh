#!/bin/sh
# found_plans.sh EPL OUT: epl plan finds plans and says why, and from how many devices on more of them hardly pay.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 64,64,64,8 --out m.onnx >/dev/null || exit 1

expect 0 " ms for a step, rehearsed" "$epl" plan m.onnx --batch 32 --ranks 4 --why
expect 0 "by the cost model no plan takes less than " "$epl" plan m.onnx --batch 32 --ranks 4 --why
echo "$output" | grep -q "auto.auto_parallel" && fail "--why names the key before each line: $output"
expect 0 "why: auto.auto_parallel: " "$epl" plan m.onnx --batch 32 --ranks 4 --strategy '{"auto.auto_parallel": true}'

# What was found is a strategy of its own, and its plan file is read again.
expect 0 "wrote found.plan" "$epl" plan m.onnx --batch 32 --ranks 4 --strategy '{"auto.auto_parallel": true}' \
  --save found.plan
expect 0 "the decisions are those of a plan file" "$epl" plan m.onnx --batch 32 --plan found.plan

# A model's own annotations are the strategy as it is, and all else is looked at without them.
expect 0 "wrote staged.onnx" "$epl" plan m.onnx --batch 32 --ranks 2 --annotated staged.onnx --strategy \
  '{"pipeline.num_stages": 2, "pipeline.num_micro_batch": 2}'
expect 0 "the strategy as it is takes " "$epl" plan staged.onnx --batch 32 --ranks 2 --why

expect 0 "adding devices pays up to " "$epl" plan m.onnx --batch 32 --devices 1..4
for devices in 1 2 4; do
  echo "$output" | grep -q "^ *$devices  " || fail "no line for $devices devices: $output"
done
expect 0 '"pays_up_to":' "$epl" plan m.onnx --batch 32 --devices 1,2 --json
[ "$(echo "$output" | grep -c '"devices":')" = 2 ] || fail "two lines of JSON: $output"
expect 2 "is not like 1,2,4" "$epl" plan m.onnx --batch 32 --devices 0..4
expect 2 "does nothing with --devices" "$epl" plan m.onnx --batch 32 --devices 1..4 --ranks 2
# Each number that no plan is possible for has its reason.
expect 1 "auto.auto_parallel" "$epl" plan m.onnx --batch 32 --devices 2,4 --strategy '{"default": {"split": 2}}'

# A batch has few units unless more are asked for, and numbers that are refused for that have one line together.
expect 0 "256..512  no plan is possible; with 256: " "$epl" plan m.onnx --batch 256 --devices 1,256,512
echo "$output" | grep -q "with reproducible.units = [0-9]* a step would take [0-9.]* ms by the cost model" ||
  fail "what more units would give: $output"
expect 0 '"devices":512' "$epl" plan m.onnx --batch 256 --devices 1,256,512 --json

# What does not fit the device is planned so that it does, on one rank as well.
if ! "$epl" devices | grep -q "needs the pack cuda"; then
  cat >card.json <<'END'
{"product": "A card", "capability": 8.9, "processors": 20, "memory_bytes": 300000, "bandwidth": 100e9,
 "host_bandwidth": 10e9, "products": {"f32": 1e12}}
END
  for ranks in 1 2; do
    expect 0 "the plan does not fit" "$epl" plan m.onnx --batch 256 --ranks $ranks --device cuda:card.json
    expect 0 "the plan fits" "$epl" plan m.onnx --batch 256 --ranks $ranks --device cuda:card.json \
      --strategy '{"auto.auto_parallel": true}'
  done
fi

exit $failed
