"""measure.py DATA MODEL...: how many of the samples each ONNX file gets right, by onnxruntime."""
import sys

import onnxruntime
from safetensors.numpy import load_file

data = load_file(sys.argv[1])
target = data.pop("target")
for path in sys.argv[2:]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    right = 0
    for i in range(0, len(target), 100):
        logits = session.run(["logits"], {name: array[i:i + 100] for name, array in data.items()})[0]
        right += int((logits.argmax(1) == target[i:i + 100]).sum())
    print(f"{path}: {100 * right / len(target):.1f} % of {len(target)} right")
