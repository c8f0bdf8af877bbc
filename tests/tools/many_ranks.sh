#!/bin/sh
# many_ranks.sh EPL OUT SECONDS: GPT-2 with its 12 layers on 64 ranks, a pipeline of four stages, whose weights are
# split over four ranks, in four copies. Planning it and going through a step in virtual time takes at most so many
# seconds of the processor; without a sanitizer it takes less than one.
. "$(dirname "$0")/begin.sh"
seconds=$3

blocks() { # FIRST LAST: what a stage with these blocks matches
  list=""
  for block in $(seq "$1" "$2"); do list="$list\"transformer.h.$block\", \"transformer.h.$block.*\", "; done
  printf '%s' "${list%, }"
}
cat >strategy.json <<END
{"pipeline.num_micro_batch": 4, "pipeline.strategy": "1F1B", "reproducible.units": 16, "scopes": [
  {"name": "a", "split": 4, "match": ["embed*", "hidden", "position*", "transformer.wte*", "transformer.wpe*",
                                      $(blocks 0 2)]},
  {"name": "b", "split": 4, "match": [$(blocks 3 5)]},
  {"name": "c", "split": 4, "match": [$(blocks 6 8)]},
  {"name": "d", "split": 4, "match": ["*"]}]}
END
# The widths are small, so that the file is: no time follows from them.
expect 0 "wrote gpt2.onnx" "$epl" template gpt2 --layers 12 --width 96 --heads 12 --context 64 --vocab 512 --out \
  gpt2.onnx
(
  ulimit -t "$seconds"
  expect 0 "ranks 48 to 63 (data 4 x split 4)" "$epl" plan gpt2.onnx --batch 16 --ranks 64 --device sim --strategy \
    strategy.json
  expect 0 "of which" "$epl" plan gpt2.onnx --batch 16 --ranks 64 --strategy strategy.json
  expect 0 "rank 48, d: " "$epl" trace gpt2.onnx --batch 16 --ranks 64 --device sim --strategy strategy.json --out \
    trace.json
  exit $failed
) || failed=1
expect 0 "wrote page.html" "$epl" plan gpt2.onnx --batch 16 --ranks 64 --strategy strategy.json --html page.html

exit $failed
