#!/bin/sh
# options.sh EPL OUT: what cannot be meant is said, before anything runs: numbers that are none, options without effect,
# patterns that match nothing.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 4,8,2 --out m.onnx >/dev/null || exit 1
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 32 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv

# refused CODE WORDS OPTIONS...: training with these options is refused in these words, and makes no folder.
refused() {
  code=$1 pattern=$2
  shift 2
  output=$("$epl" train m.onnx --data t.csv --data-options '{"classes": true}' --steps 4 --out run "$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || fail "$* ended with $got, not $code: $output"
  case $output in *"$pattern"*) ;; *) echo "FAILED: $* did not say \"$pattern\": $output"; failed=1 ;; esac
  [ ${#output} -lt 400 ] || fail "$* says too much: $output"
  [ $code = 2 ] && [ -e run ] && fail "$* made a folder"
}
for option in --lr --eps --weight-decay --momentum --clip --final-ratio --held-out --checkpoint-minutes --temperature; \
  do
  for value in nan inf -inf x 1e999 1,5; do refused 2 "is not a number" $option $value; done
done
refused 2 "is not a number" --lr ''
refused 2 "--clip: -1 is negative" --clip -1
refused 2 "--seed: \"-1\" is not an integer of at least 0" --seed -1
refused 2 "is not an integer" --seed 1e23
refused 2 "beyond what an integer" --seed 99999999999999999999
# The greatest of 64 bits is the seed of all that is drawn, the order of the data too.
expect 0 "" "$epl" train m.onnx --data t.csv --data-options '{"classes": true}' --batch 4 --steps 2 \
  --seed 18446744073709551615 --out seeded
expect 0 "" "$epl" train m.onnx --data t.csv --data-options '{"classes": true}' --batch 4 --steps 4 \
  --seed 18446744073709551615 --out seeded --resume seeded
refused 2 "is not an integer" --batch 1.5
for option in --batch --ranks --keep; do refused 2 "$option: 0 is not 1 or more" $option 0; done
for option in --warmup --checkpoint-every --threads --micro-batches; do refused 2 "$option: -1 is negative" $option \
  -1; done

refused 2 "--final-ratio does nothing without --schedule" --final-ratio 0.5
refused 2 "--resume-anyway does nothing without --resume" --resume-anyway data
refused 2 "--temperature does nothing without --text" --temperature 0.5
refused 2 "--sample-bytes does nothing without --text" --sample-bytes 4
refused 2 "--evaluate-every does nothing without" --evaluate-every 4
refused 2 "--context does nothing with --data" --context 8
refused 2 "--checkpoint-minutes does nothing with --checkpoint-every" --checkpoint-minutes 1 --checkpoint-every 2
refused 2 "--held-out does nothing with --validation" --held-out 0.5 --validation t.csv
refused 2 "--validation-options does nothing without --validation" --validation-options '{}'
refused 2 "sim computes no numbers" --device sim

refused 3 "\"typo.*\" matches no parameter" --freeze 'typo.*'
refused 3 "\"typo.*\" matches no parameter" --freeze 'net.0.*' --freeze 'typo.*'
refused 3 "\"net.0.bios\" matches no parameter; did you mean net.0.bias?" --no-decay '*.bias' --no-decay net.0.bios
refused 3 "[ stands for itself" --freeze 'net.[0-1].*'

output=$("$epl" evaluate m.onnx --data t.csv --data-options '{"classes": true}' --device sim 2>&1) &&
  fail "evaluate on sim: $output"
exit $failed
