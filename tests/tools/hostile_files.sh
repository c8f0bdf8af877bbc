#!/bin/sh
# hostile_files.sh EPL OUT: files that are not what they should be, and disks that take nothing: each is named, with the
# exit code that fits, and nothing is left of what failed.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 2,8,3 --out m.onnx >/dev/null || exit 1
printf 'a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n' >t.csv
train() { "$epl" train m.onnx --batch 2 --steps 2 --out out --overwrite "$@"; }

# JSON that nests without end, wherever the tool reads JSON.
awk 'BEGIN { printf "{\"batch\":"; for (i = 0; i < 200000; ++i) printf "[";
             for (i = 0; i < 200000; ++i) printf "]"; print "}" }' >deep.json
for option in data-options validation-options; do
  expect 2 "nest deeper than" train --data t.csv --validation t.csv --$option deep.json
done
expect 2 "nest deeper than" "$epl" inspect t.csv --data-options deep.json
expect 2 "nest deeper than" "$epl" bench "$source/tests/cases/mlp_sgd_legacy" --strategy deep.json
expect 3 "nest deeper than" "$epl" plan m.onnx --batch 2 --strategy deep.json
expect 2 "is not JSON" train --data t.csv --data-options '{"batch": [}'
mkdir case && cp m.onnx case/model.onnx && cp deep.json case/reference.json
expect 1 "nest deeper than" "$epl" check case
expect 2 "nest deeper than" "$epl" check --strategies deep.json case
printf '{}' >case/reference.json
expect 2 "is not a JSON list" "$epl" check --strategies case/reference.json case
printf '[1]' >case/reference.json
expect 1 "not a JSON object" "$epl" check case
train --data t.csv >/dev/null 2>&1 || fail "a run"
cp deep.json out/data.json
cp out/history.jsonl history && cat deep.json >>out/history.jsonl && cat history >>out/history.jsonl
printf '{"event": 5}\n{"event": "held_out", "monitor": 3}\n[]\n' >>out/history.jsonl
"$epl" train m.onnx --batch 2 --data t.csv --resume out --steps 4 >/dev/null 2>err ||
  fail "a run whose history is damaged does not go on: $(cat err)"
expect 0 "loss" "$epl" evaluate out/trained.onnx --data t.csv
printf '{"options": {}, "reader": 5, "path": []}' >out/data.json
expect 0 "loss" "$epl" evaluate out/trained.onnx --data t.csv

# Labels that the model cannot take are found before the first step, however the file has them.
for bad in 3 -1 1.5 2e9; do
  printf 'a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n' | sed "4s/,2\$/,$bad/" >bad.csv
  rm -rf early
  shown=$bad; [ $bad = 2e9 ] && shown=2e+09
  expect 3 "bad.csv: field target, row 2 (counted from 0), holds $shown, which is not a class of 3" \
    "$epl" train m.onnx --data bad.csv --batch 1 --steps 20 --out early
  [ ! -e early/checkpoint ] || fail "$bad: there was a step"
done
# A row is that of the file, also where others are left out.
printf 'a,b,y\n1,,0\n3,4,1\n5,6,7\n7,8,0\n' >gap.csv
expect 3 "row 2 (counted from 0), holds 7" "$epl" train m.onnx --data gap.csv --data-options '{"missing": "drop"}' \
  --batch 1 --steps 2 --out early

# Tables in other encodings.
sed 's/a,b/\xe4,b/' t.csv >latin.csv
expect 3 "iconv -f WINDOWS-1252 -t UTF-8" train --data latin.csv
tr '\n' '\r' <t.csv >mac.csv
expect 3 "carriage returns alone" train --data mac.csv
{ printf '\377\376'; sed 's/./&\x00/g; s/$/\x00/' t.csv | tr '\n' '\n' | sed 's/\x00$//' ; } >utf16.csv
expect 3 "UTF-16LE; convert it to UTF-8" train --data utf16.csv
expect 3 "iconv -f" "$epl" inspect utf16.csv

# What is no plan is named as such.
expect 3 "not a plan file" "$epl" plan m.onnx --batch 4 --plan t.csv

# A secret that others may read is not taken without a word; one that is mistyped is not repeated.
echo word >others && chmod 644 others
expect 0 "others than its owner may read this secret" "$epl" launch -n 1 --secret-file others -- true
chmod 600 others
expect 0 "" "$epl" launch -n 1 --secret-file others -- true
"$epl" launch -n 1 --secret-file others -- true 2>&1 | grep -q warning && fail "a good secret is warned of"
digits=5049a0ffc3d2e1b05049a0ffc3d2e1b0
for id in epl_id-1:$digits:127.0.0.1:1 EPL-ID-1:$digits:127.0.0.1:1 tcp://epl-id-1:$digits:127.0.0.1:1 $digits \
  file://epl-id-1:$digits:127.0.0.1:1 epl-id-1:${digits}x:127.0.0.1:1 epl-id-1$digits:127.0.0.1:1; do
  output=$(EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=$id train --data t.csv --join-timeout 0.2 2>&1)
  [ $? -ne 0 ] || fail "$id is taken for a rendezvous"
  case $output in *${digits#????????????????????}*) fail "a secret is repeated: $output" ;; esac
done
[ ! -e "epl-id-1:$digits:127.0.0.1:1" ] || fail "a folder is called like a secret"

# A process that takes itself for another one, and a rendezvous of an earlier run, are the user's to mend.
rm -rf meet
for turn in 1 2; do
  EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=file://$PWD/meet EPL_SECRET=word train --data t.csv \
    --join-timeout 0.2 >/dev/null 2>err
  got=$?
  [ $got = 3 ] || fail "turn $turn: exit code $got: $(cat err)"
done
grep -q "this rendezvous is of an earlier run" err || fail "it says what else: $(cat err)"
rm -rf meet
export EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=file://$PWD/meet EPL_SECRET=word
"$epl" train m.onnx --data t.csv --batch 2 --steps 2 --out twice --join-timeout 30 >/dev/null 2>&1 &
first=$!
for _ in $(seq 200); do [ -e twice/.epl.lock ] && break; sleep 0.1; done
expect 2 "two of them have rank 0" "$epl" train m.onnx --data t.csv --batch 2 --steps 2 --out twice --join-timeout 30
kill $first
wait $first
unset EPL_RANK EPL_WORLD_SIZE EPL_RENDEZVOUS EPL_SECRET

# Processes that do not see one folder are told so before the first step.
mkdir host0 host1
words="train ../m.onnx --data ../t.csv --batch 2 --steps 4 --out out"
"$epl" launch -n 2 -- sh -c "cd host\$EPL_RANK && exec $epl $words" >/dev/null 2>err
[ $? = 2 ] || fail "two folders: $(cat err)"
grep -q "process 1 does not see the folder out of process 0" err || fail "two folders: $(cat err)"
[ ! -e host0/out/checkpoint ] || fail "they have trained"

# A full disk: exit code 5, and nothing is left of the checkpoints that failed.
cat >full.sh <<'EOF'
epl=$1
mkdir -p tiny && mount -t tmpfs -o size=1200k tmpfs tiny 2>/dev/null || exit 77
"$epl" template mlp --sizes 2,64,64,3 --out wide.onnx >/dev/null
"$epl" train wide.onnx --data t.csv --steps 400 --batch 4 --checkpoint-every 2 --keep 400 --out tiny/run \
  >/dev/null 2>err
code=$?
[ $code = 5 ] || { echo "exit code $code: $(tail -n 3 err)"; exit 1; }
for folder in tiny/run/checkpoints/*; do
  [ -f "$folder/manifest.epl" ] || { echo "$folder is left over: $(ls "$folder")"; exit 1; }
done
[ -z "$(find tiny -name '*.part')" ] || { echo "left over: $(find tiny -name '*.part')"; exit 1; }
"$epl" train wide.onnx --data t.csv --steps 402 --batch 4 --resume tiny/run --out other >/dev/null 2>err ||
  { echo "the newest checkpoint is not whole: $(cat err)"; exit 1; }
cat /dev/zero >tiny/rest 2>/dev/null
for words in "plan wide.onnx --batch 2 --html tiny/x.html" "plan wide.onnx --batch 2 --save tiny/x.plan" \
  "plan wide.onnx --batch 2 --annotated tiny/x.onnx" "template mlp --sizes 9,99,9 --out tiny/x.onnx" \
  "trace wide.onnx --batch 2 --out tiny/x.json" "export wide.onnx --checkpoint other --out tiny/x.onnx" \
  "export wide.onnx --checkpoint other --out tiny/x.safetensors" "completion bash >tiny/x" \
  "train wide.onnx --data t.csv --batch 2 --steps 2 --report tiny/x.html --out third"; do
  before=$(ls tiny)
  eval "$epl $words" >/dev/null 2>err
  code=$?
  case $words in *completion*) rm -f tiny/x ;; esac
  [ $code = 5 ] || { echo "epl $words: exit code $code: $(cat err)"; exit 1; }
  [ "$(ls tiny)" = "$before" ] || { echo "epl $words left $(ls tiny)"; exit 1; }
done
EOF
unshare -rm sh full.sh "$epl" >said 2>&1
case $? in
  0) ;;
  77) echo "a full disk was not tried: nothing can be mounted here" ;;
  *) grep -q "unshare" said && echo "a full disk was not tried: $(cat said)" || fail "a full disk: $(cat said)" ;;
esac
exit $failed
