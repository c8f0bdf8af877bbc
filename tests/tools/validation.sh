#!/bin/sh
# validation.sh EPL OUT: held-out data, metrics, early stopping and labels out of range, as a person uses them.
. "$(dirname "$0")/begin.sh"

# 103 rows of three kinds, which a number tells apart; and a copy whose 98th label is not a class.
awk 'BEGIN { print "a,b,c,d,kind"; for (i = 0; i < 103; ++i) { k = (i * i + i) % 3; printf "%g,%g,%g,%g,%d\n", k - 1 + (i % 7) / 9, (i % 5) / 5, (i % 11) / 11 - 0.5, (k * i) % 2, k } }' >table.csv
awk -F, -v OFS=, 'NR == 99 { $5 = 3 } { print }' table.csv >wrong.csv
classes='{"classes": true}'
expect 0 "wrote mlp.onnx" "$epl" template mlp --sizes 4,12,3 --seed 2 --out mlp.onnx

# Every sample counts, whatever the batch.
for batch in 1 7 32 51 103 200; do   # of 51 one is left for the last
  "$epl" evaluate mlp.onnx --data table.csv --data-options "$classes" --batch $batch --metrics \
    'accuracy, top_k(k=2), f1, perplexity' --json >batch$batch.json 2>&1 || { cat batch$batch.json; failed=1; }
  cmp -s batch1.json batch$batch.json || fail "batch $batch gives $(cat batch$batch.json), not $(cat batch1.json)"
done
grep -q '"samples":103.*"top_k(k=2)":0' batch1.json || fail "not all samples: $(cat batch1.json)"

# A share of a table is held out, and the same again by evaluate.
"$epl" train mlp.onnx --data table.csv --data-options "$classes" --held-out 0.2 --epochs 8 --lr 0.02 --batch 16 \
  --metrics 'accuracy, top_k(k=2)' --json --out held >held.json 2>held.err || { cat held.err; failed=1; }
[ "$(grep -c '"event":"evaluation"' held.json)" = 8 ] || fail "not a measurement for each of 8 epochs"
grep -q '"event":"held_out","samples":21,"share":0.2' held.json || fail "what is held out is not told"
"$epl" evaluate held/trained.onnx --data table.csv --data-options "$classes" --held-out 0.2 --batch 5 --json \
  >again.json || failed=1
for name in loss accuracy; do
  [ "$(value $name again.json)" = "$(value $name held.json)" ] ||
    fail "$name is $(value $name again.json) again, $(value $name held.json) in training"
done

# A rate that is too high never gets better: training stops, and the best weights stay.
expect 0 "no better loss in 3 measurements" "$epl" train mlp.onnx --data table.csv --data-options "$classes" \
  --validation table.csv --steps 400 --optimizer sgd --lr 60 --evaluate-every 5 --patience 3 --out stopped
case $output in *"the best weights, of step 5, are in stopped/best"*) ;; *) echo \
  "FAILED: which weights were best is not told: $output"; failed=1 ;; esac
case $output in *"measured after step 5: loss "*" (the best so far)"*"measured after step 10: "*) ;; *) echo \
  "FAILED: a log has no line for each measurement: $output"; failed=1 ;; esac
grep -q "The best weights are those of step 5 (loss " stopped/report.html ||
  fail "the report does not say which weights were best"
"$epl" train mlp.onnx --data table.csv --data-options "$classes" --held-out 0.3 --steps 60 --lr 0.05 --optimizer sgd \
  --schedule plateau --schedule-option patience=0 --schedule-option factor=0.5 --schedule-option threshold=0.9 \
  --evaluate-every 10 --monitor accuracy --json --out plateau >plateau.json || failed=1
[ "$(value learning_rate plateau.json)" != 0.05 ] || fail "a plateau did not lower the rate"

# A run that goes on is told what it is measured on or by otherwise than before; numbers of other data do not count
# against those of this.
head -n 60 table.csv >some.csv
on() { "$epl" train mlp.onnx --data table.csv --data-options "$classes" --evaluate-every 2 --metrics accuracy "$@"; }
expect 0 "" on --validation table.csv --steps 4 --out seen
expect 0 '"message":"--monitor was loss, now it is accuracy"' on --validation table.csv --monitor accuracy --steps 6 \
  --resume seen --json
expect 0 'file was \"table.csv\", now it is \"some.csv\"; which weights' on --validation some.csv --monitor accuracy \
  --steps 8 --resume seen --json
case $output in *"--monitor was"*) echo "FAILED: a monitor that is the same is told: $output"; failed=1 ;; esac
case $output in *'"best":true'*) ;; *) echo "FAILED: the first number of other data is not the best so far: $output"; \
  failed=1 ;; esac
expect 0 '"event":"done"' on --validation some.csv --monitor accuracy --steps 10 --resume seen --json
case $output in *'"event":"warning"'*) echo "FAILED: nothing has changed, and a warning is given: $output"; failed=1 \
  ;; esac

# What needs held-out data says so; what does not fit is named before the first step.
expect 2 "needs data that is not trained on" "$epl" train mlp.onnx --data table.csv --data-options "$classes" \
  --patience 3 --out none
expect 2 "needs data that is not trained on" "$epl" train mlp.onnx --data table.csv --data-options "$classes" \
  --schedule plateau --out none
expect 2 "one of them" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --held-out 0.2 --validation \
  table.csv --out none
expect 3 "did you mean accuracy?" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --held-out 0.2 \
  --metrics acuracy --out none
expect 3 "targets here are class indices" "$epl" evaluate mlp.onnx --data table.csv --data-options "$classes" \
  --metrics mae
expect 3 "has no \"f1\"" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --held-out 0.2 --monitor f1 \
  --out none
expect 3 "row 97 (counted from 0), holds 3, which is not a class of 3" "$epl" train mlp.onnx --data wrong.csv \
  --data-options "$classes" --out none
expect 3 "wrong.csv" "$epl" evaluate mlp.onnx --data wrong.csv --data-options "$classes"
expect 3 "schedule step has no option \"final_ratio\"" "$epl" train mlp.onnx --data table.csv \
  --data-options "$classes" --schedule step --schedule-option step_size=5 --final-ratio 0.1 --out none
expect 0 "" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --steps 5 --label-smoothing 0.1 \
  --class-weights 1,2,0.5 --out weighted
expect 3 "there are 3 classes" "$epl" train mlp.onnx --data table.csv --data-options "$classes" --steps 5 \
  --class-weights 1,2 --out none
exit $failed
