"""The models that `epl template` writes are what they claim: valid, of the right function, and with PyTorch's initial
weights.

onnx checks the file, onnxruntime runs it, and PyTorch-like formulas in numpy say what GPT-2 and the MLP compute. Prints
`N passed, N failed, N skipped` as its last line.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = pathlib.Path(os.environ.get("EPL", ROOT / "build" / "release-tests" / "bin" / "epl"))


def write(folder, family, **options):
    path = pathlib.Path(folder) / "model.onnx"
    words = [w for k, v in options.items() for w in (f"--{k}", v if isinstance(v, str) else json.dumps(v))]
    subprocess.run([EPL, "template", family, *words, "--out", path], check=True, stdout=subprocess.DEVNULL)
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    return model, {k: v.astype(np.float64) for k, v in weights.items() if v.dtype == np.float32}, path


def run(path, **inputs):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)[0]


def gpt2(w, ids, layers, heads):
    """GPT-2 in float64; names of Hugging Face."""
    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def linear(name, x):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    batch, length = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:length]
    future = np.triu(np.ones((length, length), bool), 1)
    for layer in range(layers):
        h = f"transformer.h.{layer}"
        parts = np.split(linear(h + ".attn.c_attn", norm(h + ".ln_1", x)), 3, axis=-1)
        q, k, v = (p.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for p in parts)
        scores = np.where(future, -np.inf, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + linear(h + ".attn.c_proj", y)
        y = linear(h + ".mlp.c_fc", norm(h + ".ln_2", x))
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + linear(h + ".mlp.c_proj", y)
    return norm("transformer.ln_f", x) @ w["transformer.wte.weight"].T


def check_gpt2(folder, sequence, length):
    layers, width, heads = 3, 60, 5
    model, w, path = write(folder, "gpt2", layers=layers, width=width, heads=heads, context=24, vocab=101,
                           sequence=sequence, seed=7)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 101, (2, length))
    np.testing.assert_allclose(run(path, input_ids=ids), gpt2(w, ids, layers, heads), atol=2e-5)
    for name, value in w.items():
        if value.ndim < 2:
            if name.endswith(".bias"):
                assert not value.any(), name
            continue
        expected = 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02
        n = value.size
        close = abs(value.std() / expected - 1) < 5 / math.sqrt(2 * n)
        assert close, f"{name}: deviation {value.std()}, not {expected}"
        assert abs(value.mean()) < 5 * expected / math.sqrt(n), f"{name}: mean {value.mean()}"
        assert abs((value ** 4).mean() / expected ** 4 - 3) < 5 * math.sqrt(96 / n) + 0.05, f"{name} is not normal"
    shared = {v.tobytes() for v in w.values() if v.ndim == 2}
    assert len(shared) == sum(v.ndim == 2 for v in w.values()), "two weights got the same numbers"


def check_mlp(folder, activation, function):
    sizes = [23, 40, 31, 6]
    _, w, path = write(folder, "mlp", sizes=sizes, activation=activation, seed=3)
    x = np.random.default_rng(1).standard_normal((4, 23)).astype(np.float32)
    expected = x.astype(np.float64)
    for layer in (0, 2, 4):
        weight = w[f"net.{layer}.weight"]
        bound = 1 / math.sqrt(weight.shape[1])
        assert np.abs(weight).max() <= bound and np.abs(weight).max() > 0.95 * bound
        expected = expected @ weight.T + w[f"net.{layer}.bias"]
        expected = function(expected) if layer < 4 else expected
    np.testing.assert_allclose(run(path, x=x), expected, atol=2e-5)


def check_random(folder):
    """Any seed is a valid model with finite scores of 4 classes or more, and seeds differ in structure."""
    structures = set()
    for seed in range(1, 41):
        model, _, path = write(folder, "random", seed=seed)
        structures.add(tuple(n.op_type for n in model.graph.node))
        rng = np.random.default_rng(seed)
        inputs = {}
        for port in model.graph.input:
            dims = [d.dim_value or 3 for d in port.type.tensor_type.shape.dim]
            integers = port.type.tensor_type.elem_type == onnx.TensorProto.INT64
            inputs[port.name] = rng.integers(0, 4, dims) if integers else rng.standard_normal(dims).astype(np.float32)
        scores = run(path, **inputs)
        assert np.isfinite(scores).all() and scores.shape[0] == 3 and scores.shape[-1] >= 4, f"seed {seed}"
    assert len(structures) > 35, f"{len(structures)} structures of 40 seeds"
    model = write(folder, "random", seed=3, blocks=12, mixes="false")[0]
    assert len({n.name.split(".")[0] for n in model.graph.node}) >= 12
    plain = [write(folder, "random", seed=s, mixes="false")[0] for s in range(40)]
    assert not any(n.op_type == "BatchNormalization" for m in plain for n in m.graph.node)


def check_seed(folder):
    """The same seed writes the same bytes, another one other weights."""
    files = []
    for seed in (1, 1, 2):
        path = write(folder, "gpt2", layers=1, width=8, heads=2, context=4, vocab=16, seed=seed)[2]
        files.append(path.read_bytes())
    assert files[0] == files[1] and files[0] != files[2]


def check_errors(folder):
    for words, message in ((["gpt2", "--width", "10"], "no multiple"), (["gpt2", "--layers", "0"], "layers"),
                           (["mlp", "--sizes", "[3]"], "sizes"), (["mlp", "--activation", "sine"], "sine"),
                           (["gpt3"], "gpt3"), (["random", "--blocks", "65"], "blocks"), (["gpt2", "--depth", "3"], "depth")):
        done = subprocess.run([EPL, "template", *words, "--out", pathlib.Path(folder) / "no.onnx"], capture_output=True,
                              text=True)
        assert done.returncode != 0 and message in done.stderr, f"{words}: {done.stderr}"
        assert not list(pathlib.Path(folder).iterdir()), f"{words} left a file"


def main():
    checks = [("gpt2 fixed", check_gpt2, ("fixed", 24)), ("gpt2 symbolic", check_gpt2, ("symbolic", 17)),
              ("gpt2 symbolic, whole context", check_gpt2, ("symbolic", 24)),
              ("mlp relu", check_mlp, ("relu", lambda x: np.maximum(x, 0))), ("mlp tanh", check_mlp, ("tanh", np.tanh)),
              ("mlp gelu", check_mlp, ("gelu", lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))),
              ("random", check_random, ()), ("seeds", check_seed, ()), ("errors", check_errors, ())]
    if not EPL.exists():
        print(f"SKIP: no {EPL.name} has been built in {EPL.parent.parent.name}")
        print(f"0 passed, 0 failed, {len(checks)} skipped")
        return 0
    passed, failed = 0, 0
    for name, check, arguments in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(folder, *arguments)
                passed += 1
            except Exception as error:  # any failure of any kind is this check's failure
                print(f"FAILED {name}: {error}")
                failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
