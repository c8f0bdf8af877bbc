# Values in files (offload.level) where things go wrong: a folder that is full, a process that is killed, one that loses
# its folder. Errors name the place, nothing is lost, and nothing is left behind.
. "$(dirname "$0")/begin.sh"

expect 0 "" "$epl" template mlp --sizes 4,128,128,2 --out m.onnx
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 64 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv
offload() {
  echo '{"offload.level": "v0", "offload.values": "states, weights, gradients, activations", "offload.folder": "'$1'"}'
}
learn() { exec "$epl" train m.onnx --data t.csv --data-options '{"classes": true}' --batch 8 --json "$@"; }
mkdir scratch

# Ended by kill -9 wherever it happens to be behind its first checkpoint, and gone on with: the bits are those of a run
# in memory. A run that has ended before is no kill: then another one is killed sooner.
(learn --steps 400 --out unharmed) >unharmed.json 2>/dev/null || fail "the run that is not killed"
kills=0
for moment in 0.09 0.02 0 0 0; do
  rm -rf killed
  (learn --steps 400 --strategy "$(offload scratch)" --checkpoint-every 20 --out killed) >/dev/null 2>&1 &
  child=$!
  tries=0
  while ! [ -e killed/checkpoint/manifest.epl ] && [ $tries -lt 1200 ]; do sleep 0.02; tries=$((tries + 1)); done
  sleep $moment
  kill -9 $child 2>/dev/null
  wait $child 2>/dev/null
  ended=$?
  [ -z "$(ls -A scratch)" ] || fail "killed at $moment s, the run has left $(ls -A scratch)"
  [ $ended = 137 ] || continue
  kills=$((kills + 1))
  (learn --steps 400 --strategy "$(offload scratch)" --resume killed) >killed.json 2>killed.err ||
    grep -q "nothing to do" killed.err || fail "going on after kill -9 at $moment s: $(cat killed.err)"
  # The last checkpoint may be that of the last step, as the process is killed on its way out.
  grep -q "nothing to do" killed.err && { kills=$((kills - 1)); continue; }
  [ -n "$(hash_of killed.json)" ] && [ "$(hash_of killed.json)" = "$(hash_of unharmed.json)" ] ||
    fail "killed at $moment s, the run that went on has other weights"
  [ $kills -lt 2 ] || break
done
[ $kills -gt 0 ] || fail "each of the runs had ended before kill -9"

# A folder that is too small is an error before the first step.
if unshare -rm sh -c 'mount -t tmpfs -o size=64k none scratch' 2>/dev/null; then
  small() { unshare -rm sh -c 'mount -t tmpfs -o size=64k none scratch && exec "$@"' sh "$@"; }
  expect 5 "No space left on device" small "$epl" train m.onnx --data t.csv --data-options '{"classes": true}' \
    --batch 8 --steps 5 --strategy "$(offload scratch)" --out full
  case $output in *"offload.folder: taking"*" bytes for values in scratch"*) ;; *) fail "a full folder: $output" ;; esac
fi
output=$( (ulimit -f 64; learn --steps 5 --strategy "$(offload scratch)" --out limited) 2>&1 )
got=$?
[ $got = 5 ] || fail "a limit on files ended the run with $got: $output"
case $output in *"offload.folder: taking"*" bytes for values in scratch: File too large"*) ;; *) fail \
  "a limit on files: $output" ;; esac
[ -z "$(ls -A scratch)" ] || fail "a run that did not begin has left $(ls -A scratch)"
expect 3 "offload.folder: making a file in nowhere" "$epl" train m.onnx --data t.csv --data-options \
  '{"classes": true}' --batch 8 --steps 5 --strategy "$(offload nowhere)" --out none
exit $failed
