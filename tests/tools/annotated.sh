#!/bin/sh
# annotated.sh EPL OUT: a plan that is written into its model is read again, whatever ONNX's words can say of it.
. "$(dirname "$0")/begin.sh"

# again CASE LOSS RANKS STRATEGY: the file gives the same plan, and is written as it was.
again() {
  expect 0 "wrote first.onnx" "$epl" plan "$source/tests/cases/$1/model.onnx" --loss "$2" --ranks "$3" --strategy "$4" \
    --annotated first.onnx
  echo "$output" | grep -v '^wrote\|^epl: warning' >first.txt
  expect 0 "wrote second.onnx" "$epl" plan first.onnx --loss "$2" --ranks "$3" --annotated second.onnx
  echo "$output" | grep -v '^wrote\|^epl: warning' >second.txt
  same first.txt second.txt "$1: $4"
  same first.onnx second.onnx "$1: $4"
}
for case in gpt_legacy_adamw cnn_momentum_legacy lstm_legacy_adam vit_dynamo_adamw; do
  again $case softmax_cross_entropy 2 '{"default": {"split": 2}}'
  again $case softmax_cross_entropy 4 '{"default": {"split": 2}}'
done
stages='"pipeline.num_stages": 2, "pipeline.num_micro_batch": 2'
again gpt_legacy_adamw softmax_cross_entropy 8 "{$stages, \"default\": {\"split\": 2}}"
again gpt_legacy_adamw softmax_cross_entropy 2 "{$stages, \"pipeline.strategy\": \"ZB-V\"}"
again lstm_legacy_adam softmax_cross_entropy 2 "{$stages}"  # which cut a node of the file
again gpt_legacy_adamw softmax_cross_entropy 2 '{"default": {"split": 2, "dims": {"/MatMul_1": 1}}}'
again gpt_legacy_adamw softmax_cross_entropy 4 '{"default": {"replicate": 4},
  "scopes": [{"match": "op:linear", "split": 2}], "cluster.colocate_split_and_replicate": true}'
again moe_top1_legacy_adamw output:loss 4 '{"default": {"replicate": 1},
  "scopes": [{"match": "/moe/Einsum_1*", "expert": 4}]}'

exit $failed
