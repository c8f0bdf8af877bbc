#!/bin/sh
# check_processes.sh EPL OUT: a case in several processes has the numbers and the bits of one process, under every kind
# of strategy, and what is wrong is said once.
. "$(dirname "$0")/begin.sh"
cases=$source/tests/cases
export TMPDIR="$out"

# same_in PROCESSES ARGUMENTS...: as many processes as the case has ranks, or fewer, find what one process finds.
same_in() {
  count=$1
  shift
  "$epl" check "$@" --ranks 4 --json >one.json || fail "$*: $(cat one.json)"
  "$epl" check "$@" --ranks $((4 / count)) --processes $count --json >several.json ||
    fail "$* in $count processes: $(cat several.json)"
  [ "$(hash_of several.json)" = "$(hash_of one.json)" ] || fail "$* in $count processes has other bits"
  [ "$(value loss_error several.json)" = "$(value loss_error one.json)" ] || fail "$*: another loss in $count processes"
  [ "$(value processes several.json)" = $count ] || fail "$* ran in other processes: $(cat several.json)"
}
same_in 2 "$cases/mlp_sgd_legacy"
same_in 4 "$cases/gpt_legacy_adamw" --strategy '{"default": {"split": 2}}'
same_in 2 "$cases/resnet_adamw"
same_in 4 "$cases/gpt_legacy_adamw" --strategy \
  '{"pipeline.num_stages": 2, "pipeline.num_micro_batch": 2, "pipeline.strategy": "ZB-H1"}'
same_in 2 "$cases/moe_top1_legacy_adamw" --strategy '{"default": {"expert": 2}}'

# The ranks of a strategy are given to as many processes as divide them; what is refused is refused.
cat >list.json <<END
[{"name": "alone"}, {"name": "two copies", "ranks": 2}, {"name": "split of 4", "ranks": 4, "split": 4},
 {"name": "2 stages, split of 2", "ranks": 4, "stages": 2, "split": 2},
 {"name": "too many", "ranks": 2, "strategy": {"pipeline.num_micro_batch": 64, "batch.semantics": "per_micro_batch"}}]
END
expect 0 "4 passed, 1 refused, 0 failed" "$epl" check "$cases/mlp_bce_momentum" --strategies list.json --processes 4
"$epl" check "$cases/mlp_bce_momentum" --strategies list.json --processes 4 --json >lines.json
[ "$(grep -o '"processes":[0-9]*' lines.json | tr -d '\n')" = '"processes":2"processes":4"processes":4' ] ||
  fail "strategies ran in other processes: $(cat lines.json)"

# Each strategy with the bits that it has on the CPU, which is the device here; and other pairs by another phase.
bce=$cases/mlp_bce_momentum
expect 0 "4 passed, 1 refused, 0 failed" "$epl" check "$bce" --strategies list.json --exact
expect 0 "mlp_bce_momentum: two copies" "$epl" check "$bce" --strategies list.json --every 5 --phase 4
expect 0 "mlp_bce_momentum: alone" "$epl" check "$bce" --strategies list.json --every 5
case $output in *"1 passed, 0 refused, 0 failed"*) ;; *) fail "one pair of five: $output" ;; esac
expect 2 "--exact does nothing without --strategies" "$epl" check "$bce" --exact

# An option is refused where its strategy is, or for a reason that its list names; else it is a failure.
echo '[]' >none.json
echo '[{"name": "narrow", "optimizer": {"state_type": "bf16"}}]' >narrow.json
echo '[{"name": "narrow", "optimizer": {"state_type": "bf16"}, "refused": ["keeps no states"]}]' >listed.json
echo '[{"name": "offload", "strategy": {"offload.level": "v0"}}]' >offload.json
echo '[{"name": "too many", "ranks": 2, "strategy": {"pipeline.num_micro_batch": 64, "batch.semantics":
  "per_micro_batch"}}]' >many.json
mlp=$cases/mlp_sgd_legacy
expect 1 "0 passed, 0 refused, 1 failed" "$epl" check "$mlp" --strategies none.json --options narrow.json
expect 0 "0 passed, 1 refused, 0 failed" "$epl" check "$mlp" --strategies none.json --options listed.json
expect 0 "1 passed, 1 refused, 0 failed" "$epl" check "$mlp" --strategies many.json --options offload.json

# A wrong answer is one, and is said once; so is what cannot be read.
cp -r "$cases/mlp_sgd_legacy" wrong &&
  sed 's/^  1.683006432950935,/  9.683006432950935,/' wrong/reference.json >changed && mv changed wrong/reference.json
expect 1 'FAIL  wrong' "$epl" check wrong --processes 2
[ "$(echo "$output" | wc -l)" = 1 ] || fail "a wrong answer is said more than once: $output"
expect 1 'FAIL  nowhere: ' "$epl" check nowhere --processes 2
expect 2 'exclude each other' "$epl" check wrong --processes 2 --layouts
expect 2 'epl check --processes 2 starts them itself' "$epl" launch -n 2 --plain -- epl check wrong
[ -z "$(ls -d epl-* 2>/dev/null)" ] || fail "folders are left: $(ls -d epl-*)"
exit $failed
