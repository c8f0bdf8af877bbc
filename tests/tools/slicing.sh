#!/bin/sh
# slicing.sh EPL OUT: files sharded over replicas, and a run that goes on under another layout with the samples it would
# have had.
. "$(dirname "$0")/begin.sh"
expect 0 "wrote mlp.onnx" "$epl" template mlp --sizes 3,8,2 --out mlp.onnx
for part in 0 1 2 3 4; do
  { echo "a,b,c,y"; i=0; while [ $i -lt 12 ]; do
    echo "$(((i * 7 + part) % 5)),$(((i + part * 3) % 4)),-$part,$(((i + part) % 2))"; i=$((i + 1)); done; } >part$part.csv
done

# train OUT ARGUMENT...: the hash of the weights.
train() {
  out=$1
  shift
  "$epl" train mlp.onnx --data 'part*.csv' --batch 4 --seed 5 --out "$out" --json "$@" >"$out.json" 2>"$out.err" ||
    fail "train $out $*: $(cat "$out.err")"
  sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$out.json"
}
sharded='{"io.slicing": true, "io.unbalanced_io_slicing": true}'
plain=$(train plain --steps 8)
sliced=$(train sliced --steps 8 --ranks 2 --strategy "$sharded")
[ -n "$plain" ] && [ "$(train alike --steps 8 --ranks 2)" = "$plain" ] || fail "ranks alone change the order"
[ "$plain" != "$sliced" ] || fail "sharding files changes nothing"
[ "$(train one --steps 8 --strategy "$sharded")" = "$plain" ] || fail "one replica has all files"

# Two processes, of which each reads its own files.
"$epl" launch -n 2 --plain -- "$epl" train mlp.onnx --data 'part*.csv' --batch 4 --seed 5 --out processes --json \
  --steps 8 --strategy "$sharded" >processes.json 2>processes.err || fail "two processes: $(cat processes.err)"
[ "$(sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' processes.json)" = "$sliced" ] ||
  fail "two processes have other samples than two ranks"

# A run of two replicas goes on with one, with four, and without the key.
train begun --steps 3 --ranks 2 --strategy "$sharded" >/dev/null
for layout in "--ranks 1" "--ranks 4" "--ranks 1 --micro-batches 2"; do
  for strategy in "$sharded" '{}'; do
    rm -rf on && cp -r begun on
    [ "$(train on --steps 8 --resume on $layout --strategy "$strategy")" = "$sliced" ] ||
      fail "a run of two replicas goes on otherwise with $layout $strategy"
  done
done

# An epoch ends with the replica that has fewest samples, 24 of them, of which a batch takes 2. --epochs counts that.
"$epl" train mlp.onnx --data 'part*.csv' --batch 4 --ranks 2 --epochs 1 --out epochs --json --strategy "$sharded" \
  --schedule linear >epochs.json 2>&1
grep -q '"event":"start".*"steps":12[,}]' epochs.json || fail "an epoch of 12 batches: $(grep start epochs.json)"

# What does not come out even is not sharded, and said.
even=$(train even --steps 8 --ranks 2 --strategy '{"io.slicing": true}')
[ "$even" = "$plain" ] || fail "five files were sharded over two replicas without being told how"
grep -q "5 files do not divide over 2 replicas" even.err even.json || fail "nobody said why files were not sharded"
dropped=$(train dropped --steps 8 --ranks 2 --strategy '{"io.slicing": true, "io.drop_last_files": true}')
[ "$dropped" != "$plain" ] && [ "$dropped" != "$sliced" ] || fail "the last file was not dropped"
expect 3 "it needs io.slicing = true" "$epl" train mlp.onnx --data 'part*.csv' --steps 1 --out wrong --strategy \
  '{"io.drop_last_files": true}'
expect 4 "no full files to shard" "$epl" train mlp.onnx --data 'part*.csv' --batch 4 --steps 1 --out wrong --ranks 2 \
  --strategy "$sharded" --held-out 0.2
exit $failed
