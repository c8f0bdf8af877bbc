"""The models that `epl template` writes are what they claim: valid, of the right function, and with PyTorch's initial
weights.

onnx checks the file, onnxruntime runs it, and PyTorch-like formulas in numpy say what the models compute. Gradients of
a step are those that small differences of the same formulas give. Prints `N passed, N failed, N skipped` as its last
line.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import epl_api
import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = pathlib.Path(os.environ.get("EPL", ROOT / "build" / "release-tests" / "bin" / "epl"))


try:
    epl = epl_api.Api()
except epl_api.EplError:
    epl = None  # nothing has been built, as main() says


def write(folder, family, **options):
    path = pathlib.Path(folder) / "model.onnx"
    words = [w for k, v in options.items() for w in (f"--{k}", v if isinstance(v, str) else json.dumps(v))]
    subprocess.run([EPL, "template", family, *words, "--out", path], check=True, stdout=subprocess.DEVNULL)
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    return model, {k: v.astype(np.float64) for k, v in weights.items() if v.dtype == np.float32}, path


def run(path, **inputs):
    options = onnxruntime.SessionOptions()  # its optimiser folds a batch norm that trains into a convolution
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


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


def cross_entropy(scores, target):
    scores, target = scores.reshape(-1, scores.shape[-1]), target.reshape(-1)
    scores = scores - scores.max(-1, keepdims=True)
    return (np.log(np.exp(scores).sum(-1)) - scores[np.arange(len(target)), target]).mean()


def squares(scores, target):
    return ((scores - target) ** 2).mean()


def check_training(path, function, w, inputs, target, loss):
    """The loss of the first step, the gradients that it went down, and that further steps go down."""
    if epl is None:
        return
    trainer = epl.trainer({"optimizer": "sgd", "optimizer.lr": 1.0, "loss": loss}, list(w))
    for name, value in inputs.items():
        epl.bind(trainer, name, value.shape)
    epl.bind(trainer, "target", target.shape, epl_api.DTYPES[str(target.dtype)])
    session = epl.session(epl.plan(epl.model(path), trainer))
    batch = [*inputs.values(), target]
    said = epl.step(session, batch)
    judge = cross_entropy if loss == "softmax_cross_entropy" else squares
    np.testing.assert_allclose(said, judge(function(w, **inputs), target), rtol=2e-5)
    rng, step = np.random.default_rng(5), 1e-7  # small, for the kinks of a ReLU
    for name, before in w.items():
        after = epl.array(epl.make("tensor", "epl_session_get", session, epl_api.text(name), None))
        gradient = before - after
        flat, largest = before.reshape(-1), np.abs(gradient).max()
        for i in {int(np.abs(gradient).argmax()), *map(int, rng.integers(0, flat.size, 2))}:
            kept, losses = flat[i], []
            for change in (step, -step):
                flat[i] = kept + change
                losses.append(judge(function(w, **inputs), target))
            flat[i] = kept
            slope = (losses[0] - losses[1]) / (2 * step)
            assert abs(gradient.reshape(-1)[i] - slope) < 2e-4 * largest + 2e-6, \
                f"{name}[{i}]: gradient {gradient.reshape(-1)[i]}, by differences {slope}"


def check_classifier(folder, family, function, options, inputs, target, loss="softmax_cross_entropy", buffers=()):
    """The file, what onnxruntime says of it, and a step of training."""
    model, w, path = write(folder, family, seed=5, **options)
    expected = function(w, **inputs)
    np.testing.assert_allclose(run(path, **inputs), expected, atol=1e-4 * np.abs(expected).max())
    assert len({v.tobytes() for v in w.values() if v.ndim > 1}) == sum(v.ndim > 1 for v in w.values()), "equal weights"
    trained = {name: value for name, value in w.items() if value.ndim and not name.endswith(tuple(buffers) or "\0")}
    fixed = {name: value for name, value in w.items() if name not in trained}
    check_training(path, lambda own, **given: function({**own, **fixed}, **given), trained, inputs, target, loss)
    return w


def convolution(x, weight, stride):
    pad, size = weight.shape[2] // 2, weight.shape[2]
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bchwij,ocij->bohw", windows, weight)


def check_cnn(folder):
    stages, blocks = 2, 2

    def cnn(w, image):
        def convolved(name, norm, x, stride):
            x = convolution(x, w[name + ".weight"], stride)
            mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
            scale, shift = (w[f"{norm}.{each}"].reshape(1, -1, 1, 1) for each in ("weight", "bias"))
            return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift

        x = np.maximum(convolved("conv1", "bn1", image, 1), 0)
        x = x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max((3, 5))
        for stage in range(stages):
            for i in range(blocks):
                name, stride = f"layer{stage + 1}.{i}", 2 if stage and not i else 1
                y = np.maximum(convolved(name + ".conv1", name + ".bn1", x, stride), 0)
                y = convolved(name + ".conv2", name + ".bn2", y, 1)
                other = name + ".downsample"
                x = np.maximum(y + (convolved(other + ".0", other + ".1", x, stride)
                                    if other + ".0.weight" in w else x), 0)
        return x.mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"]

    rng = np.random.default_rng(2)
    w = check_classifier(folder, "cnn", cnn, {"image": 8, "width": 4, "stages": stages, "blocks": blocks, "classes": 5},
                         {"image": rng.standard_normal((6, 3, 8, 8)).astype(np.float32)}, rng.integers(0, 5, 6),
                         buffers=("running_mean", "running_var"))
    assert w["layer2.0.conv1.weight"].shape == (8, 4, 3, 3)
    assert sum(name.endswith("downsample.0.weight") for name in w) == 1
    for name, value in w.items():  # He et al. 2015
        expected = math.sqrt(2 / (value.shape[0] * value[0, 0].size)) if value.ndim == 4 else 1
        assert value.ndim < 4 or abs(value.std() / expected - 1) < 5 / math.sqrt(2 * value.size), name


def check_bert(folder):
    layers, heads = 2, 3

    def bert(w, input_ids, attention_mask):
        def norm(name, x):
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

        def linear(name, x):
            return x @ w[name + ".weight"].T + w[name + ".bias"]

        e = "bert.embeddings."
        x = norm(e + "LayerNorm", w[e + "word_embeddings.weight"][input_ids] + w[e + "position_embeddings.weight"])
        for layer in range(layers):
            h = f"bert.encoder.layer.{layer}"
            q, k, v = (linear(f"{h}.attention.self.{part}", x).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
                       for part in ("query", "key", "value"))
            scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
            scores = np.exp(np.where(attention_mask[:, None, None] != 0, scores, -1e30))
            y = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
            x = norm(h + ".attention.output.LayerNorm", linear(h + ".attention.output.dense", y) + x)
            y = linear(h + ".intermediate.dense", x)
            y = y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
            x = norm(h + ".output.LayerNorm", linear(h + ".output.dense", y) + x)
        return linear("classifier", np.tanh(linear("bert.pooler.dense", x[:, 0])))

    rng = np.random.default_rng(3)
    there = (np.arange(10) < np.array([[10], [4], [7], [1]])).astype(np.int64)
    options = {"layers": layers, "width": 24, "heads": heads, "context": 10, "vocab": 50, "classes": 3}
    w = check_classifier(folder, "bert", bert, options,
                         {"input_ids": rng.integers(0, 50, (4, 10)), "attention_mask": there}, rng.integers(0, 3, 4))
    for name, value in w.items():
        assert value.ndim < 2 or abs(value.std() / 0.02 - 1) < 5 / math.sqrt(2 * value.size), name


def check_t5(folder):
    layers, heads = 2, 3

    def t5(w, input_ids, decoder_input_ids):
        def norm(name, x):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[name + ".weight"]

        def bucket(distance, both):  # of key minus query
            count = 16 if both else 32
            first = count if both and distance > 0 else 0
            far = abs(distance) if both else max(-distance, 0)
            if far < count // 2:
                return first + far
            far = math.log(far / (count // 2)) / math.log(128 / (count // 2)) * (count - count // 2)
            return first + min(count // 2 + int(far), count - 1)

        def bias(side, n):
            table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
            buckets = [[bucket(k - q, side == "encoder") for k in range(n)] for q in range(n)]
            return table[np.array(buckets)].transpose(2, 0, 1)

        def attend(name, kind, x, memory=None, scores_more=0):
            h = norm(name + ".layer_norm", x)
            memory = h if memory is None else memory
            q, k, v = ((of @ w[f"{name}.{kind}.{part}.weight"].T).reshape(*of.shape[:2], heads, -1).transpose(0, 2, 1, 3)
                       for part, of in (("q", h), ("k", memory), ("v", memory)))
            scores = np.exp(q @ k.swapaxes(-1, -2) + scores_more)
            y = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
            return x + y @ w[f"{name}.{kind}.o.weight"].T

        def feed(name, x):
            h = norm(name + ".layer_norm", x) @ w[name + ".DenseReluDense.wi.weight"].T
            return x + np.maximum(h, 0) @ w[name + ".DenseReluDense.wo.weight"].T

        x = w["shared.weight"][input_ids]
        for layer in range(layers):
            x = attend(f"encoder.block.{layer}.layer.0", "SelfAttention", x, None, bias("encoder", x.shape[1]))
            x = feed(f"encoder.block.{layer}.layer.1", x)
        memory = norm("encoder.final_layer_norm", x)
        x = w["shared.weight"][decoder_input_ids]
        n = x.shape[1]
        causal = bias("decoder", n) + np.where(np.tril(np.ones((n, n), bool)), 0, -np.inf)
        for layer in range(layers):
            x = attend(f"decoder.block.{layer}.layer.0", "SelfAttention", x, None, causal)
            x = attend(f"decoder.block.{layer}.layer.1", "EncDecAttention", x, memory)
            x = feed(f"decoder.block.{layer}.layer.2", x)
        return norm("decoder.final_layer_norm", x) / math.sqrt(x.shape[-1]) @ w["shared.weight"].T

    rng = np.random.default_rng(7)
    options = {"layers": layers, "width": 18, "heads": heads, "head": 5, "inner": 20, "context": 40, "target": 7,
               "vocab": 30}
    w = check_classifier(folder, "t5", t5, options,
                         {"input_ids": rng.integers(0, 30, (4, 40)), "decoder_input_ids": rng.integers(0, 30, (4, 7))},
                         rng.integers(0, 30, (4, 7)))
    for name, value in w.items():
        if name.endswith("q.weight"):
            assert abs(value.std() * math.sqrt(18 * 5) - 1) < 5 / math.sqrt(2 * value.size), name


def check_gru(folder):
    layers, hidden = 2, 7

    def gru(w, input_ids):
        def sigmoid(x):
            return 1 / (1 + np.exp(-x))

        xs = w["embedding.weight"][input_ids].transpose(1, 0, 2)
        for layer in range(layers):
            of = [w[f"gru.{layer}.{part}"][0] for part in ("weight_ih", "weight_hh", "bias")]
            h, states = np.zeros((xs.shape[1], hidden)), []
            for x in xs:  # gates: update, reset, new
                wz, wr, wn = np.split(x @ of[0].T + of[2][:3 * hidden], 3, 1)
                rz, rr, rn = np.split(h @ of[1].T + of[2][3 * hidden:], 3, 1)
                z = sigmoid(wz + rz)
                h = (1 - z) * np.tanh(wn + sigmoid(wr + rr) * rn) + z * h
                states.append(h)
            xs = np.stack(states)
        return xs[-1] @ w["fc.weight"].T + w["fc.bias"]

    rng = np.random.default_rng(4)
    w = check_classifier(folder, "gru", gru, {"layers": layers, "width": 6, "hidden": hidden, "context": 5, "vocab": 20,
                                              "classes": 3}, {"input_ids": rng.integers(0, 20, (6, 5))},
                         rng.integers(0, 3, 6))
    for name, value in w.items():
        assert name.startswith("embedding") or np.abs(value).max() <= 1 / math.sqrt(hidden), name


def check_two_tower(folder):
    def two_tower(w, user_id, item_id):
        return (w["user.weight"][user_id] * w["item.weight"][item_id]).sum(-1)

    rng = np.random.default_rng(6)
    w = check_classifier(folder, "two_tower", two_tower, {"users": 30, "items": 20, "width": 8},
                         {"user_id": rng.integers(0, 30, 12), "item_id": rng.integers(0, 20, 12)},
                         rng.standard_normal(12).astype(np.float32), "mse")
    assert w["user.weight"].shape == (30, 8) and w["item.weight"].shape == (20, 8)


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
                           (["cnn", "--image", "1"], "image"), (["cnn", "--stages", "9"], "stages"),
                           (["bert", "--width", "10"], "no multiple"), (["gru", "--hidden", "0"], "hidden"),
                           (["two_tower", "--users", "0"], "users"), (["gpt3"], "gpt3"),
                           (["random", "--blocks", "65"], "blocks"), (["gpt2", "--depth", "3"], "depth")):
        done = subprocess.run([EPL, "template", *words, "--out", pathlib.Path(folder) / "no.onnx"], capture_output=True,
                              text=True)
        assert done.returncode != 0 and message in done.stderr, f"{words}: {done.stderr}"
        assert not list(pathlib.Path(folder).iterdir()), f"{words} left a file"


def main():
    checks = [("gpt2 fixed", check_gpt2, ("fixed", 24)), ("gpt2 symbolic", check_gpt2, ("symbolic", 17)),
              ("gpt2 symbolic, whole context", check_gpt2, ("symbolic", 24)),
              ("mlp relu", check_mlp, ("relu", lambda x: np.maximum(x, 0))), ("mlp tanh", check_mlp, ("tanh", np.tanh)),
              ("mlp gelu", check_mlp, ("gelu", lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))),
              ("cnn", check_cnn, ()), ("bert", check_bert, ()), ("t5", check_t5, ()), ("gru", check_gru, ()),
              ("two_tower", check_two_tower, ()), ("random", check_random, ()), ("seeds", check_seed, ()),
              ("errors", check_errors, ())]
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
