#!/bin/sh
# meaning.sh EPL OUT: data that is measured on means what the data meant that was trained on: columns in another order,
# classes that are missing, another kind of file. Several inputs, one of them a column of texts.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 4,12,3 --seed 2 --out mlp.onnx >/dev/null || exit 1

# Flowers of three kinds, by name; every ninth lacks a value.
rows() {
  awk -v n="$1" -v seed="$2" 'BEGIN { print "a,b,c,d,kind"; split("rose lily daisy", names, " ")
    for (i = 0; i < n; ++i) { k = (i + int(i / 3) * seed) % 3; b = i % 9 == 4 ? "" : (i % 5) / 5 + k; printf "%g,%s,%g,%g,%s\n", k - 1 + (i % 7) / 9, b, (i % 11) / 11 - 0.5, (k * i) % 2, names[k + 1] } }'
}
rows 120 1 >train.csv
rows 40 2 >test.csv
awk -F, -v OFS=, '{ print $5, $4, $3, $2, $1 }' test.csv >turned.csv   # another order of columns
tr , '\t' <test.csv >test.tsv
grep -v daisy test.csv >two.csv                                         # daisy is class 0: the others would move up
sed 's/lily/tulip/' test.csv >tulip.csv
cut -d, -f1,2,4,5 test.csv >lacks.csv
train() { "$epl" train mlp.onnx --data train.csv --data-options '{"missing": "mean"}' --epochs 6 --lr 0.02 --batch 16 \
  --overwrite --json "$@"; }
measured() { sed -n 's/.*"event":"evaluation".*"loss":\([-0-9.e]*\).*"accuracy":\([-0-9.e]*\).*/\1 \2/p' "$1" |
  tail -n 1; }
for name in test.csv turned.csv test.tsv; do
  train --validation $name --out run >$name.json 2>$name.err || fail "training with $name: $(cat $name.err)"
  [ -n "$(measured $name.json)" ] && [ "$(measured $name.json)" = "$(measured test.csv.json)" ] ||
    fail "$name gives $(measured $name.json), test.csv $(measured test.csv.json)"
done
train --validation two.csv --out run >two.json 2>two.err || fail "a validation file without one class: $(cat two.err)"
expect 3 '"tulip" is none of the classes that were given. There are: daisy, lily, rose.' train --validation tulip.csv \
  --out run
expect 3 'there is no column "c"' train --validation lacks.csv --out run

# evaluate reads a file as the run did whose model or checkpoint it is given: a class that is not there moves no number.
train --validation two.csv --out run >two.json 2>two.err
best() { "$epl" evaluate "$@" --json 2>/dev/null | sed 's/.*"loss":\([-0-9.e]*\).*"accuracy":\([-0-9.e]*\).*/\1 \2/'; }
for how in "run/trained.onnx" "mlp.onnx --checkpoint run" "mlp.onnx --checkpoint run/checkpoint" \
  "run/trained.onnx --data-options run/data.json"; do
  [ "$(best $how --data two.csv)" = "$(measured two.json)" ] ||
    fail "evaluate $how gives $(best $how --data two.csv), the run $(measured two.json)"
done
[ "$(best run/trained.onnx --data two.csv --data-options '{"missing": "mean"}')" != "$(measured two.json)" ] ||
  fail "numbering the classes anew makes no difference: the test is blind"
expect 0 "read as in training" "$epl" evaluate run/trained.onnx --data two.csv

# What an array's targets are called says nothing of another file in the same folder.
cp "$source/tests/data/files/f32.npy" x.npy && cp x.npy v.npy && cp "$source/tests/data/files/labels.npy" y.npy
expect 2 "its targets are not those of x.npy" "$epl" train mlp.onnx --data x.npy --data-options '{"target": "y.npy"}' \
  --validation v.npy --batch 2 --out arrays
expect 0 "kind: 3 classes, in this order: daisy, lily, rose" "$epl" inspect train.csv --data-options \
  '{"missing": "mean"}'

# Several inputs of a model that computes its own loss; a column of names is a vector of class numbers there.
model=$source/tests/cases/mlp_own_loss_sgd/model.onnx
awk 'BEGIN { print "label,p,q,r,s,t,u,v,w,z"; split("ant bee cat dog", names, " "); for (i = 0; i < 64; ++i) { printf "%s", names[i % 3 + 1]; for (j = 0; j < 9; ++j) printf ",%g", (i * (j + 2)) % 7 / 7; print "" } }' >many.csv
loss=$("$epl" inspect "$model" --json | sed 's/.*"outputs":\[{"name":"\([^"]*\)".*/\1/')
expect 0 "labels: i64[8] from label" "$epl" train "$model" --data many.csv --data-options \
  '{"inputs": {"labels": "label", "x": "?"}, "target": null}' --loss "output:$loss" --held-out 0.25 --steps 20 --out \
    several
exit $failed
