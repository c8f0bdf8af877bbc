#!/bin/sh
# templates.sh EPL OUT: every family of `epl template` trains from the command line, and under pairs of layouts that are
# drawn it has the same bits.
. "$(dirname "$0")/begin.sh"
family() {
  name=$1 loss=$2
  shift 2
  expect 0 "wrote $name.onnx" "$epl" template "$name" "$@" --seed 3 --out "$name.onnx"
  "$epl" inspect "$name.onnx" >"$name.txt" 2>&1 || fail "$name: $(cat "$name.txt")"
  grep -qi warning "$name.txt" && fail "$name is warned of: $(cat "$name.txt")"
  output=$("$epl" fuzz-layouts --model "$name.onnx" --loss "$loss" --batch 8 --seed 1 --count 8 2>&1) ||
    fail "$name: $output"
}
family mlp softmax_cross_entropy --sizes 6,10,4
family gpt2 softmax_cross_entropy --layers 2 --width 16 --heads 2 --context 8 --vocab 32
family cnn softmax_cross_entropy --image 8 --width 4 --stages 2 --blocks 1 --classes 4
family bert softmax_cross_entropy --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --classes 4
family t5 softmax_cross_entropy --layers 1 --width 16 --heads 2 --head 8 --inner 24 --context 8 --target 6 --vocab 32
family gru softmax_cross_entropy --layers 2 --width 8 --hidden 8 --context 6 --vocab 32 --classes 4
family two_tower mse --users 12 --items 16 --width 8
# None is missing here.
for name in $("$epl" template | sed -n 's/^\([a-z_0-9]*\): .*/\1/p'); do
  [ "$name" = random ] || [ -e "$name.onnx" ] || fail "$name is not tried"
done

# Who likes what is learned, from a table.
awk 'BEGIN { print "user_id,item_id,target"
             for (i = 0; i < 192; ++i) {
               u = i % 12
               v = int(i / 12)
               printf "%d,%d,%g\n", u, v, (u - 5.5) * (v - 7.5) / 20
             } }' >likes.csv
"$epl" train two_tower.onnx --loss mse --data likes.csv \
  --data-options '{"inputs": {"user_id": "user_id", "item_id": "item_id"}}' --batch 16 --steps 400 --optimizer adam \
  --lr 0.02 --out learned --json >learned.jsonl 2>err || fail "two_tower does not train: $(cat err)"
awk -v loss="$(value loss learned.jsonl)" 'BEGIN { exit !(loss < 0.05) }' ||
  fail "two_tower does not learn: $(tail -n 3 learned.jsonl)"
exit $failed
