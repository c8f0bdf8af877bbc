"""The committed ONNX fixtures are what they claim: valid, and, for training cases, of the loss their reference starts
from.

An independent implementation (onnxruntime, numpy in float64 for the loss) computes the first loss of every case here
and of those in ../shared/cases where they are. Prints `N passed, N failed, N skipped` as its last line.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

TESTS = pathlib.Path(__file__).resolve().parent.parent
SHARED = TESTS.parent.parent / "shared" / "cases"


def log_softmax(x, axis):
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def loss_of(kind, output, target):
    """The mean losses as 04-quality defines them, in float64."""
    output = output.astype(np.float64)
    if kind == "softmax_cross_entropy":
        axis = 1 if output.ndim > 2 and output.shape[:1] + output.shape[2:] == target.shape else -1
        logs = log_softmax(output, axis)
        picked = np.take_along_axis(logs, np.expand_dims(np.where(target < 0, 0, target), axis), axis).squeeze(axis)
        return -picked[target != -100].sum() / (target != -100).sum()
    if kind == "mse":
        return ((output - target) ** 2).mean()
    if kind == "bce_with_logits":
        return (np.maximum(output, 0) - output * target + np.log1p(np.exp(-np.abs(output)))).mean()
    return float(output)


def check_case(folder):
    """None if all is well, a reason to skip as a str, or raises."""
    reference = json.loads((folder / "reference.json").read_text())
    model = onnx.load(str(folder / "model.onnx"))
    onnx.checker.check_model(model)
    data = load_file(str(folder / "train.safetensors"))
    names = {i.name for i in model.graph.initializer}
    lost = [n for n in reference["trainable"] if n not in names]
    assert not lost, f"parameters that the file lacks: {lost}"
    assert len(reference["losses"]) == len(next(iter(data.values())))
    if reference["torch_mode"] == "train" and reference["batchnorm"]:
        return "onnxruntime does not run batch norm in training mode"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    inputs = {i.name: data[f"input.{i.name}"][0] for i in session.get_inputs()}
    output = session.run(None, inputs)[0]
    got = loss_of(reference["loss"], output, data["target"][0] if "target" in data else None)
    assert abs(got - reference["losses"][0]) <= 1e-4 * abs(got), f"first loss {got}, reference {reference['losses'][0]}"
    return None


def check_fixture(path):
    onnx.checker.check_model(onnx.load(str(path)))
    counts = json.loads(path.with_suffix(".json").read_text())["find"]
    assert counts and all(isinstance(n, int) for n in counts.values())


def main():
    passed, failed, skipped = 0, 0, 0
    folders = sorted(p.parent for p in (TESTS / "cases").glob("*/reference.json"))
    if SHARED.is_dir():
        folders += sorted(p.parent for p in SHARED.glob("*/reference.json"))
    else:
        print("SKIP: ../shared/cases is not beside this checkout")
        skipped += 1
    work = [(f.name, check_case, f) for f in folders]
    work += [(f.name, check_fixture, f) for f in sorted((TESTS / "rewrite" / "fixtures").glob("*.onnx"))]
    for name, check, path in work:
        try:
            reason = check(path)
        except Exception as error:  # any failure of any kind is this file's failure
            print(f"FAILED {name}: {error}")
            failed += 1
            continue
        if reason:
            print(f"SKIP: {name}: {reason}")
            skipped += 1
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
