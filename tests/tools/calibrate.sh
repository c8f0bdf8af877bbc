#!/bin/sh
# calibrate.sh EPL OUT: a machine is measured in a second, plans take the table and say so, and a damaged table is
# refused.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 64,64,64,8 --out m.onnx >/dev/null || exit 1

expect 0 "these seconds rest on the numbers of a usual processor core" "$epl" plan m.onnx --batch 32
expect 0 "wrote machine.json; plans take it by --device cpu@machine.json" "$epl" calibrate --seconds 1 --folder .
for line in products: elementwise: memory: files: "a launch:" "square products:" "off by "; do
  case $output in *"$line"*) ;; *) fail "calibrate says nothing of $line $output" ;; esac
done
for key in measured device version error error_90th core bandwidth file_bandwidth products elementwise links \
    launch_seconds; do
  grep -q "\"$key\"" machine.json || fail "the table has no $key: $(cat machine.json)"
done
[ -z "$(ls -A . | grep epl-calibrate)" ] || fail "a file is left: $(ls -A .)"

expect 0 "these seconds rest on a table measured by version " "$epl" plan m.onnx --batch 32 --ranks 2 \
  --device cpu@machine.json
case $output in *"another device"*) fail "this device is not the one measured: $output" ;; esac
expect 0 "wrote page.html" "$epl" plan m.onnx --batch 32 --device cpu@machine.json --html page.html
grep -q '"basis": *"table"' page.html || fail "the page does not say what its seconds rest on"

# The bits are those without a table.
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 32 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv
"$epl" template mlp --sizes 4,8,2 --out s.onnx >/dev/null || exit 1
learn() { "$epl" train s.onnx --data t.csv --data-options '{"classes": true}' --batch 8 --steps 5 --json "$@"; }
learn --out plain >plain.json || fail "training without a table"
learn --device cpu@machine.json --out tabled >tabled.json || fail "training by a table"
[ -n "$(hash_of plain.json)" ] && [ "$(hash_of plain.json)" = "$(hash_of tabled.json)" ] ||
  fail "a table has changed the weights"

expect 0 '"error_90th":' "$epl" calibrate --check machine.json --seconds 1 --json
[ "$(echo "$output" | grep -c '"layout":')" = 15 ] || fail "not every layout was checked: $output"
[ "$(echo "$output" | grep -c '"predicted":')" -ge 6 ] || fail "few predictions were checked: $output"

# Where something is wrong with it, the message has the file and the place.
sed 's/"core"/"cores"/' machine.json >misspelt.json
expect 3 "did you mean core?" "$epl" plan m.onnx --batch 32 --device cpu@misspelt.json
case $output in *"misspelt.json has no key "*cores*) ;; *) fail "the place in a table: $output" ;; esac
head -c 60 machine.json >cut.json
expect 3 "cut.json" "$epl" plan m.onnx --batch 32 --device cpu@cut.json
expect 3 "nowhere.json" "$epl" plan m.onnx --batch 32 --device cpu@nowhere.json
expect 3 "cut.json" "$epl" calibrate --check cut.json --seconds 1
expect 2 "has a table already" "$epl" calibrate --device cpu@machine.json
expect 2 "computes nothing" "$epl" calibrate --device sim
expect 2 "" "$epl" calibrate --seconds 90

exit $failed
