"""Writes tests/rewrite/fixtures: what PyTorch's two exporters make of tiny models, with the count of each fused op that
the rewrites must restore (NAME.json beside NAME.onnx), and near misses that they must leave alone.

    python tests/rewrite/generate.py [NAME...]          needs requirements-fixtures.txt (PyTorch, transformers)

A NAME is that of a model below, or near_OP; without any, everything is written.

The counts follow from the model, not from what our importer happens to find: `attention`, `layer_norm`, `gelu`,
`rms_norm` count nodes of that op, `linear` counts nodes of `linear` that carry a bias. A near miss names the count that
must be found as well, zero for the op that it resembles.
"""
import json
import math
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import models  # noqa: E402
from exporting import export  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "fixtures"
ALL = {"dynamo_raw": 20, "dynamo": 18, "legacy": 17}
IDS = torch.arange(32).reshape(4, 8) % 32
MASK = torch.tensor([[1] * 8, [1] * 6 + [0] * 2, [1] * 8, [1] * 4 + [0] * 4])
PIXELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def fixtures():
    """(name, model, inputs, input names, {exporter: opset}, counts, training)."""
    decoder = {"attention": 2, "layer_norm": 5, "gelu": 2, "linear": 8}
    encoder = {"attention": 2, "layer_norm": 6, "gelu": 3, "linear": 14}
    picture = {"attention": 2, "layer_norm": 5, "gelu": 2, "linear": 13}
    grouped = {"attention": 2, "layer_norm": 0, "gelu": 0, "linear": 0, "rms_norm": 5}
    plain = {"attention": 0, "layer_norm": 0, "gelu": 0, "linear": 0}
    dynamo = {"dynamo_raw": 20, "dynamo": 18}
    # transformers' GPT-2 and LLaMA do not pass the older exporter (aten::diff in its masks); the hand-written ones do.
    for kind in ("eager", "sdpa"):
        yield f"gpt2_{kind}", models.gpt2(kind).eval(), [IDS], ["input_ids"], dynamo, decoder, False
        yield f"llama_{kind}", models.llama(kind).eval(), [IDS], ["input_ids"], dynamo, grouped, False
        yield f"bert_{kind}", models.bert(kind).eval(), [IDS, MASK], ["input_ids",
                                                                      "attention_mask"], ALL, encoder, False
        yield f"vit_{kind}", models.vit(kind).eval(), [PIXELS], ["pixel_values"], ALL, picture, False
    yield "gpt2_opset23", models.gpt2("sdpa").eval(), [IDS], ["input_ids"], {"dynamo_raw": 23}, decoder, False
    yield "gpt", models.Gpt(), [IDS], ["ids"], {**ALL, "legacy": 14}, decoder, True
    yield "gpt_sdpa", models.Gpt(attention="sdpa"), [IDS], ["ids"], ALL, decoder, True
    yield ("gpt_written", models.Gpt(norm=models.WrittenLayerNorm, gelu=models.written_gelu_tanh), [IDS], ["ids"],
           {**ALL, "legacy": 13}, decoder, True)
    yield "gpt_erf", models.Gpt(gelu=models.written_gelu_erf), [IDS], ["ids"], ALL, decoder, True
    yield "llama_plain", models.Llama(), [IDS], ["ids"], ALL, grouped, True
    x = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))
    yield "mlp", models.Mlp([12, 16, 8, 5]), [x], ["x"], {**ALL, "legacy": 13}, {**plain, "linear": 3}, True
    yield ("mlp_norm", models.Mlp([12, 16, 5], nn.GELU, norm=True), [x], ["x"], {**ALL, "legacy": 13},
           {**plain, "linear": 2, "layer_norm": 1, "gelu": 1}, True)
    # Activations that exporters take apart: Mish (the older exporter alone), LogSigmoid (both).
    yield ("mlp_mish", models.Mlp([12, 16, 5], nn.Mish), [x], ["x"], ALL,
           {**plain, "linear": 2, "mish": 1, "softplus": 0}, True)
    yield ("mlp_log_sigmoid", models.Mlp([12, 16, 5], nn.LogSigmoid), [x], ["x"], ALL,
           {**plain, "linear": 2, "softplus": 1, "sigmoid": 0, "log": 0}, True)
    # A linear over three dimensions is MatMul and Add, not Gemm, in both exporters.
    yield ("mlp_3d", models.Mlp([12, 16, 5]), [x.reshape(2, 2, 12)], ["x"], ALL, {**plain, "linear": 2}, True)
    # dynamo freezes batch norm in silence, so the residual network comes from the older exporter alone.
    yield "resnet", models.Resnet(), [PIXELS], ["pixels"], {"legacy": 17}, {**plain, "linear": 1}, True


def graph_of(nodes, inputs, initialisers, outputs, opset=17):
    """A ModelProto over float inputs {name: shape}; outputs are names of any shape."""
    graph = helper.make_graph(
        nodes, "near_miss", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in initialisers.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def near_miss_attention(change):
    """softmax(q k^T * scale) v over [2, 2, 4, 8], with one thing wrong."""
    shape = [2, 2, 4, 4]
    weights_of = {"q": [2, 2, 4, 4], "k": [2, 2, 4, 4], "v": [2, 2, 4, 4]}
    initialisers = {"scale": np.float32(0.5)}
    outputs = {"y": shape}
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
             helper.make_node("MatMul", ["q", "kt"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["scaled"])]
    softmax_axis = -2 if change == "axis" else -1
    last = "scaled"
    if change == "between":
        nodes.append(helper.make_node("Relu", [last], ["r"]))
        last = "r"
    if change == "row_scale":
        initialisers["scale"] = np.linspace(0.1, 0.4, 4, dtype=np.float32).reshape(1, 1, 4, 1)
    if change == "fill":  # so moderate that scores may be near it
        initialisers["hidden"] = np.float32(-1e4)
        initialisers["keep"] = np.tri(4, dtype=bool)
        nodes.append(helper.make_node("Where", ["keep", last, "hidden"], ["w"]))
        last = "w"
    nodes.append(helper.make_node("Softmax", [last], ["p"], axis=softmax_axis))
    if change == "shown":
        outputs["p"] = shape
    last = "p"
    if change == "after":
        nodes.append(helper.make_node("Mul", [last, "gate"], ["gated"]))
        initialisers["gate"] = np.linspace(0.5, 1.0, 4, dtype=np.float32)
        last = "gated"
    nodes.append(helper.make_node("MatMul", [last, "v"], ["y"]))
    return graph_of(nodes, weights_of, initialisers, outputs)


def near_miss_layer_norm(change):
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + bias over [4, 8], with one thing wrong."""
    axis = {"axes": 0} if change == "axes" else {}
    initialisers = {"eps": np.float32(1e-5), "two": np.float32(2), "scale": np.linspace(0.5, 1.5, 8, dtype=np.float32),
                    "bias": np.linspace(-1, 1, 8, dtype=np.float32)}
    if change == "big_eps":
        initialisers["eps"] = np.linspace(0.1, 0.2, 4, dtype=np.float32).reshape(4, 1)
    if change == "cubed":
        initialisers["two"] = np.float32(3)
    second_axis = 0 if axis else 1
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
             helper.make_node("Sub", ["x", "mean"], ["c"]),
             helper.make_node("Pow", ["c", "two"], ["c2"]),
             helper.make_node("ReduceMean", ["c2"], ["var"], axes=[second_axis], keepdims=1)]
    if change == "eps_outside":
        nodes += [helper.make_node("Sqrt", ["var"], ["root"]), helper.make_node("Add", ["root", "eps"], ["d"])]
    else:
        nodes += [helper.make_node("Add", ["var", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["d"])]
    numerator = "x" if change == "uncentred" else "c"
    nodes += [helper.make_node("Div", [numerator, "d"], ["n"]), helper.make_node("Mul", ["n", "scale"], ["ns"]),
              helper.make_node("Add", ["ns", "bias"], ["y"])]
    return graph_of(nodes, {"x": [4, 8]}, initialisers, {"y": [4, 8]})


def near_miss_gelu(change):
    """x * 0.5 * (1 + erf(x / sqrt(2))), or the tanh form, with one thing wrong."""
    f = np.float32
    if change.startswith("tanh"):
        initialisers = {"three": f(2 if change == "tanh_square" else 3),
                        "a": f(0.05 if change == "tanh_coefficient" else 0.044715),
                        "b": f(math.sqrt(2 / math.pi)), "one": f(1), "half": f(0.5)}
        nodes = [helper.make_node("Pow", ["x", "three"], ["x3"]), helper.make_node("Mul", ["x3", "a"], ["ax3"]),
                 helper.make_node("Add", ["x", "ax3"], ["s"]), helper.make_node("Mul", ["s", "b"], ["sb"]),
                 helper.make_node("Tanh", ["sb"], ["t"]), helper.make_node("Add", ["t", "one"], ["t1"]),
                 helper.make_node("Mul", ["x", "half"], ["xh"]),
                 helper.make_node("Mul", ["xh", "t1"], ["y"])]
        return graph_of(nodes, {"x": [4, 8]}, initialisers, {"y": [4, 8]})
    initialisers = {"root": f(1.5 if change == "erf_root" else math.sqrt(2)), "one": f(2 if change == "erf_one" else 1),
                    "half": f(0.5)}
    factor = "z" if change == "erf_other" else "x"
    nodes = [helper.make_node("Div", ["x", "root"], ["d"]), helper.make_node("Erf", ["d"], ["e"]),
             helper.make_node("Add", ["e", "one"], ["e1"]), helper.make_node("Mul", [factor, "e1"], ["m"]),
             helper.make_node("Mul", ["m", "half"], ["y"])]
    return graph_of(nodes, {"x": [4, 8], "z": [4, 8]}, initialisers, {"y": [4, 8]})


def near_miss_linear(change):
    """x[2, 4, 8] w[8, 6] + bias, with a bias that is not one, or a product that is needed on its own."""
    w = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
    bias = {"rows": (4, 1), "matrix": (4, 6), "shown": (6,), "twice": (6,)}[change]
    initialisers = {"w": w, "bias": np.linspace(-1, 1, math.prod(bias), dtype=np.float32).reshape(bias)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "bias"], ["y"])]
    outputs = {"y": [2, 4, 6]}
    if change == "shown":
        outputs["m"] = [2, 4, 6]
    if change == "twice":
        nodes.append(helper.make_node("Mul", ["m", "y"], ["z"]))
        outputs = {"z": [2, 4, 6]}
    return graph_of(nodes, {"x": [2, 4, 8]}, initialisers, outputs)


def near_miss_mish(change):
    """x * tanh(softplus(x)) of two different x, with a sigmoid for the tanh, or with a softplus needed on its own."""
    nodes = [helper.make_node("Softplus", ["z" if change == "other" else "x"], ["s"]),
             helper.make_node("Sigmoid" if change == "sigmoid" else "Tanh", ["s"], ["t"]),
             helper.make_node("Mul", ["x", "t"], ["y"])]
    outputs = {"y": [4, 8], "s": [4, 8]} if change == "shown" else {"y": [4, 8]}
    return graph_of(nodes, {"x": [4, 8], "z": [4, 8]}, {}, outputs)


def near_miss_softplus(change):
    """log(sigmoid(x)) with a tanh for the sigmoid, with a sum between them, or with a sigmoid needed on its own."""
    nodes = [helper.make_node("Tanh" if change == "tanh" else "Sigmoid", ["x"], ["s"]),
             *([helper.make_node("Add", ["s", "one"], ["s1"])] if change == "between" else []),
             helper.make_node("Log", ["s1" if change == "between" else "s"], ["y"])]
    outputs = {"y": [4, 8], "s": [4, 8]} if change == "shown" else {"y": [4, 8]}
    return graph_of(nodes, {"x": [4, 8]}, {"one": np.float32(1)} if change == "between" else {}, outputs)


NEAR_MISSES = {
    "attention": (near_miss_attention, ["axis", "between", "shown", "after", "row_scale", "fill"]),
    "layer_norm": (near_miss_layer_norm, ["axes", "eps_outside", "uncentred", "big_eps", "cubed"]),
    "gelu": (near_miss_gelu, ["erf_root", "erf_one", "erf_other", "tanh_square", "tanh_coefficient"]),
    "linear": (near_miss_linear, ["rows", "matrix", "shown", "twice"]),
    "mish": (near_miss_mish, ["other", "sigmoid", "shown"]),
    "softplus": (near_miss_softplus, ["tanh", "between", "shown"]),
}


def write(name, model, about):
    onnx.save_model(model, str(OUT / f"{name}.onnx"))
    (OUT / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    wanted = sys.argv[1:]
    known = []
    for name, model, inputs, input_names, exporters, counts, training in fixtures():
        known.append(name)
        if wanted and name not in wanted:
            continue
        models.randomise(model, 7)
        for how, opset in exporters.items():
            model.train(training)
            proto = export(model, inputs, how, opset, input_names, training=training)
            write(f"{name}_{how}", proto, {"model": name, "exporter": how, "opset": opset, "find": counts})
            print(f"{name}_{how}: {len(proto.graph.node)} nodes")
    for op, (make, changes) in NEAR_MISSES.items():
        known.append(f"near_{op}")
        if wanted and f"near_{op}" not in wanted:
            continue
        for change in changes:
            write(f"near_{op}_{change}", make(change),
                  {"model": f"near miss of {op}: {change}", "exporter": "hand", "opset": 17, "find": {op: 0}})
    print(sum(f.stat().st_size for f in OUT.iterdir()), "bytes")
    if unknown := set(wanted) - set(known):
        sys.exit(f"no fixture {', '.join(sorted(unknown))}; there are {', '.join(known)}")


if __name__ == "__main__":
    main()
