#!/bin/sh
# pins.sh EPL OUT: the user names the dimensions in which values of cases are cut.
. "$(dirname "$0")/begin.sh"
cases=$source/tests/cases

# pinned CASE RANKS DIMS: learns what the reference has learnt.
pinned() {
  expect 0 "pass" "$epl" check "$cases/$1" --ranks "$2" --strategy "{\"default\": {\"split\": 2, \"dims\": {$3}}}"
}
pinned gpt_legacy_adamw 2 '"blocks.*.fc.weight": 0, "blocks.*.out.weight": 1, "wte.weight": 1'
pinned gpt_legacy_adamw 4 '"blocks.0.fc.weight": 1, "blocks.1.qkv.weight": 0, "/MatMul_1": 1'
pinned cnn_momentum_legacy 2 '"*.weight": 0'
expect 0 "pass" "$epl" check "$cases/gpt_legacy_adamw" --ranks 4 --strategy \
  '{"default": {"replicate": 4, "dims": {"blocks.1.proj.weight": 0}, "scopes": [{"match": "*", "split": 4}]}}'

exit $failed
