"""Models of opset 7 to 12: what each operator that changed since then computes, against onnxruntime, and what it
learns, against the same graph written at a new opset.

    python tests/python/opset_test.py [NAME...]

Every case is one operator between a product and the loss, y = operator(x * layer.weight). The file at the new opset is
made by onnx's version converter; where that cannot convert an operator, or gets it wrong, the case brings its own node.
Prints `N passed, N failed, N skipped` as its last line.
"""
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter
from safetensors.numpy import load_file

import epl_api
from epl_api import INPUT, OUTPUT, PREDICT, TRAIN

NEW_OPSET = 17
F = TensorProto.FLOAT
RANDOM = np.random.default_rng(7)


def case(name, opsets, shape, nodes, constants=None, modern=None, modern_constants=None, runtime=True):
    """`nodes`: (op, inputs, outputs, attributes), from h to y. `modern`: nodes of the new opset instead of the
    converter's.
    `runtime`: whether onnxruntime runs it."""
    return dict(name=name, opsets=opsets, shape=shape, nodes=nodes, constants=constants or {}, modern=modern,
                modern_constants=modern_constants or {}, runtime=runtime)


def one(op, *inputs, **attributes):
    return [(op, ["h", *inputs], ["y"], attributes)]


def vector(*values):
    return np.array(values, np.int64)


def recurrent(op, gates, direction, hidden=3, width=5):
    """Every state and the last one, of samples of unequal lengths, on [steps, batch, width]."""
    directions = 2 if direction == "bidirectional" else 1
    constants = {"layer.w": RANDOM.standard_normal((directions, gates * hidden, width), np.float32) / 2,
                 "layer.r": RANDOM.standard_normal((directions, gates * hidden, hidden), np.float32) / 2,
                 "layer.b": RANDOM.standard_normal((directions, 2 * gates * hidden), np.float32) / 2,
                 "lengths": np.array([4, 1, 6, 3], np.int32)}
    nodes = [(op, ["h", "layer.w", "layer.r", "layer.b", "lengths"], ["all", "last"],
              {"hidden_size": hidden, "direction": direction}),
             ("Add", ["all", "last"], ["y"], {})]
    return case(f"{op} {direction}", [7, 12], (6, 4, width), nodes, constants)


ALL = [7, 8, 9, 10, 11, 12]
CASES = [
    case("Squeeze", [7, 11, 12], (4, 1, 3, 1), one("Squeeze", axes=[1, 3])),
    case("Squeeze all", [7, 12], (4, 1, 3, 1), one("Squeeze")),
    case("Unsqueeze", [7, 11, 12], (4, 3), one("Unsqueeze", axes=[1, 3])),
    *[case(op, [7, 11, 12], (4, 3, 5), one(op, axes=[1], keepdims=keep))
      for op, keep in [("ReduceSum", 1), ("ReduceMean", 0), ("ReduceMax", 1), ("ReduceMin", 0), ("ReduceProd", 1),
                       ("ReduceL1", 0), ("ReduceL2", 1),
                       ("ReduceSumSquare", 0), ("ReduceLogSumExp", 1)]],
    case("ReduceSum all", [7, 12], (4, 3),
         [("ReduceSum", ["h"], ["s"], {"keepdims": 0}), ("Mul", ["h", "s"], ["y"], {})]),
    case("Split", [7, 11, 12], (4, 7), [("Split", ["h"], ["a", "y"], {"axis": 1, "split": [3, 4]})]),
    case("Split even", [7, 12], (4, 6), [("Split", ["h"], ["y", "b", "c"], {"axis": 1})]),
    case("Pad", [7, 9, 10], (4, 3, 5), one("Pad", pads=[0, 1, 2, 0, 0, 3], mode="constant", value=0.5)),
    case("Pad reflect", [7, 10], (4, 3, 5), one("Pad", pads=[0, 0, 2, 0, 0, 3], mode="reflect")),
    case("Pad edge", [7, 10], (4, 3, 5), one("Pad", pads=[0, 1, 1, 0, 0, 1], mode="edge")),
    case("Pad 11", [11, 12], (4, 3), one("Pad", "pads", "value"),
         {"pads": vector(0, 1, 0, 2), "value": np.float32(0.25)}),
    case("Slice", [7, 8, 9], (4, 3, 6), one("Slice", starts=[0, 1], ends=[2, 1000], axes=[1, 2])),
    case("Slice first axes", [7, 9], (4, 3, 6), one("Slice", starts=[0, -2], ends=[4, 3])),
    case("Slice 10", [10, 11, 12], (4, 6), one("Slice", "starts", "ends", "axes", "steps"),
         {"starts": vector(5), "ends": vector(-100), "axes": vector(1), "steps": vector(-2)}),
    case("TopK", [7, 9], (4, 6), [("TopK", ["h"], ["y", "i"], {"k": 3, "axis": 1})],
         modern=[("TopK", ["h", "k"], ["y", "i"], {"axis": 1})],
         modern_constants={"k": vector(3)}),
    case("TopK 10", [10], (4, 6), [("TopK", ["h", "k"], ["y", "i"], {})], {"k": vector(2)}),
    case("TopK 11", [11, 12], (4, 6), [("TopK", ["h", "k"], ["y", "i"], {"largest": 0})], {"k": vector(2)}),
    case("Clip", [7, 9, 10], (4, 6), one("Clip", min=-0.5, max=0.75)),
    case("Clip above", [7, 10], (4, 6), one("Clip", max=0.5)),
    case("Clip 11", [11, 12], (4, 6), one("Clip", "", "high"), {"high": np.float32(0.5)}),
    *[case(f"{op} axis {axis}", opsets, (4, 3, 5),
           [(op, ["h"], ["s"], {} if axis is None else {"axis": axis}), ("Mul", ["s", "layer.scale"], ["y"], {})],
           {"layer.scale": RANDOM.standard_normal((4, 3, 5), np.float32)})
      for op in ("Softmax", "LogSoftmax")
      for axis, opsets in [(None, ALL), (0, [7, 11]), (1, [7, 11]), (2, ALL), (-1, [11, 12])]],
    case("Softmax of maps", [7, 12], (4, 3, 1, 1), one("Softmax", axis=1)),
    case("Hardmax", [7, 11, 12], (4, 3, 5), [("Hardmax", ["h"], ["s"], {}), ("Mul", ["s", "h"], ["y"], {})],
         modern=[("Flatten", ["h"], ["f"], {}), ("Hardmax", ["f"], ["m"], {}), ("Reshape", ["m", "shape"], ["s"], {}),
                 ("Mul", ["s", "h"], ["y"], {})],
         modern_constants={"shape": vector(4, 3, 5)}),
    case("Dropout", ALL[:5], (4, 6), one("Dropout", ratio=0.3)),
    *[case(f"Dropout that drops {opset}", [opset], (4, 6), [("Dropout", ["h"], ["y", "mask"], {"ratio": 0.3})],
           modern=[("Dropout", ["h", "ratio", "yes"], ["y", "mask"], {})],
           modern_constants={"ratio": np.float32(0.3), "yes": np.array(True)})
      for opset in (7, 9, 10, 11)],
    case("Dropout 12", [12], (4, 6), one("Dropout", "ratio"), {"ratio": np.float32(0.3)}),
    case("Upsample nearest", [7, 8], (2, 3, 4, 5), one("Upsample", scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"),
         modern=one("Resize", "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor"),
         modern_constants={"scales": np.array([1, 1, 2, 3], np.float32)}),
    case("Upsample linear", [9], (2, 3, 4, 5), one("Upsample", "scales", mode="linear"),
         {"scales": np.array([1, 1, 2, 1.5], np.float32)},
         modern=one("Resize", "", "scales", mode="linear", coordinate_transformation_mode="asymmetric")),
    case("Resize up", [10], (2, 3, 4, 5), one("Resize", "scales", mode="nearest"),
         {"scales": np.array([1, 1, 2, 1.3], np.float32)},
         modern=one("Resize", "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor")),
    case("Resize down", [10], (2, 3, 4, 5), one("Resize", "scales", mode="nearest"),
         {"scales": np.array([1, 1, 0.6, 0.5], np.float32)},
         modern=one("Resize", "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="ceil")),
    case("Resize linear", [10], (2, 3, 4, 5), one("Resize", "scales", mode="linear"),
         {"scales": np.array([1, 1, 0.6, 2], np.float32)},
         modern=one("Resize", "", "scales", mode="linear", coordinate_transformation_mode="asymmetric")),
    case("Resize 11", [11, 12], (2, 3, 4, 5),
         one("Resize", "roi", "scales", mode="linear", coordinate_transformation_mode="half_pixel"),
         {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}),
    case("BatchNormalization", ALL, (4, 3, 5),
         one("BatchNormalization", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", epsilon=1e-3),
         {"bn.weight": np.array([1, 2, -1], np.float32), "bn.bias": np.array([0, 0.5, 1], np.float32),
          "bn.running_mean": np.array([0.1, -0.2, 0.3], np.float32),
          "bn.running_var": np.array([1.5, 0.7, 1], np.float32)}),
    case("BatchNormalization spatial", [7, 8], (4, 3, 5),
         one("BatchNormalization", "bn.weight", "bn.bias", "bn.mean", "bn.var", spatial=1),
         {"bn.weight": np.ones(3, np.float32), "bn.bias": np.ones(3, np.float32), "bn.mean": np.ones(3, np.float32),
          "bn.var": np.ones(3, np.float32)},
         modern=one("BatchNormalization", "bn.weight", "bn.bias", "bn.mean", "bn.var")),
    case("BatchNormalization that learns", [7, 8, 9, 11, 12], (4, 3, 5),
         [("BatchNormalization", ["h", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
           ["y", "m", "v", "saved_m", "saved_v"], {"momentum": 0.8})],
         {"bn.weight": np.array([1, 2, -1], np.float32), "bn.bias": np.array([0, 0.5, 1], np.float32),
          "bn.running_mean": np.array([0.1, -0.2, 0.3], np.float32),
          "bn.running_var": np.array([1.5, 0.7, 1], np.float32)},
         modern=[("BatchNormalization", ["h", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
                  ["y", "m", "v"],
                  {"momentum": 0.8, "training_mode": 1})], runtime=False),
    *[case(f"Gemm {n}", ALL, (4, 6), one("Gemm", "fc.weight", "fc.bias", alpha=0.5, beta=2.0, transB=1),
           {"fc.weight": RANDOM.standard_normal((3, 6), np.float32),
            "fc.bias": RANDOM.standard_normal(bias, np.float32)})
      for n, bias in enumerate([(3,), (1, 3), (4, 1), (1,), ()])],
    *[case(op, ALL, (4, 3, 5), one(op, "layer.other"), {"layer.other": RANDOM.standard_normal((3, 1), np.float32) + 3})
      for op in ("Add", "Sub", "Mul", "Div")],
    case("Pow", ALL, (4, 3), [("Abs", ["h"], ["a"], {}), ("Pow", ["a", "two"], ["y"], {})],
         {"two": np.array([2, 3, 1.5], np.float32)}),
    case("PRelu", [7, 9], (4, 3, 5), one("PRelu", "layer.slope"),
         {"layer.slope": RANDOM.standard_normal((3, 1), np.float32)}),
    case("Cast", ALL, (4, 3), [("Cast", ["h"], ["d"], {"to": TensorProto.DOUBLE}), ("Cast", ["d"], ["y"], {"to": F})]),
    case("Flatten", ALL, (4, 3, 5), one("Flatten", axis=1)),
    case("Concat", ALL, (4, 3), [("Concat", ["h", "h"], ["y"], {"axis": 1})]),
    case("Gather", ALL, (4, 6), one("Gather", "at", axis=1), {"at": vector(2, 0, 5)}),
    case("Scatter", [9, 10], (4, 6), [("Scatter", ["h", "at", "values"], ["y"], {"axis": 1})],
         {"at": np.array([[1], [0], [5], [2]], np.int64), "values": np.ones((4, 1), np.float32)},
         modern=[("ScatterElements", ["h", "at", "values"], ["y"], {"axis": 1})]),
    case("AveragePool", [7, 10, 11], (2, 3, 6, 6),
         one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])),
    case("AveragePool counted", [7, 11], (2, 3, 6, 6),
         one("AveragePool", kernel_shape=[3, 3], auto_pad="SAME_UPPER", count_include_pad=1)),
    case("MaxPool", [7, 8, 10, 12], (2, 3, 6, 6),
         one("MaxPool", kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 2])),
    case("Conv", [7, 11], (2, 3, 6, 6), one("Conv", "conv.weight", "conv.bias", pads=[1, 1, 1, 1], strides=[2, 2]),
         {"conv.weight": RANDOM.standard_normal((4, 3, 3, 3), np.float32), "conv.bias": np.ones(4, np.float32)}),
    *[case(f"ConvTranspose {auto}", [7, 11], (2, 3, 4, 5),
           one("ConvTranspose", "conv.weight", auto_pad=auto, strides=[2, 3], kernel_shape=[3, 4]),
           {"conv.weight": RANDOM.standard_normal((3, 4, 3, 4), np.float32)})
           for auto in ("SAME_UPPER", "SAME_LOWER", "VALID")],
    case("DepthToSpace", [7, 11], (2, 8, 2, 3), one("DepthToSpace", blocksize=2)),
    case("Shrink", [9, 12], (4, 6), one("Shrink", lambd=0.3, bias=0.1)),
    *[recurrent(op, gates, direction) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
      for direction in ("forward", "reverse", "bidirectional")],
]


def model_of(c, opset, nodes, constants):
    made = [helper.make_node("Mul", ["x", "layer.weight"], ["h"], name="first")]
    made += [helper.make_node(op, inputs, outputs, name=f"node{k}", **attributes)
             for k, (op, inputs, outputs, attributes) in enumerate(nodes)]
    weight = 1 + np.arange(np.prod(c["shape"][1:]), dtype=np.float32).reshape(c["shape"][1:]) / 10
    arrays = {"layer.weight": weight, **constants}
    used = {name for node in made for name in node.input}
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items() if n in used]
    inputs = [helper.make_tensor_value_info("x", F, c["shape"])]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in stored]  # as files of IR 3 must
    graph = helper.make_graph(made, "main", inputs, [helper.make_tensor_value_info("y", F, None)], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if opset < 9 else 6)


def run_onnxruntime(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


def run_ours(api, model, x):
    loaded = api.model_bytes(model.SerializeToString())
    plan = api.plan(loaded, None)
    return api.predict(api.session(plan), [x], len(api.ports(plan, PREDICT, OUTPUT)))[0]


def trained(api, model, x, target):
    """Losses of three steps and the weights after them."""
    weights = [t.name for t in model.graph.initializer if t.data_type == F
               and (t.name.startswith(("layer.", "fc.")) or t.name.endswith(".weight"))]
    trainer = api.trainer({"loss": "mse", "optimizer": "sgd", "optimizer.lr": "0.05"}, weights)
    loaded = api.model_bytes(model.SerializeToString())
    plan = api.plan(loaded, trainer)
    session = api.session(plan)
    given = {"x": x, "target": target}
    losses = [api.step(session, [given[name] for name in api.ports(plan, TRAIN, INPUT)]) for _ in range(3)]
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        api.call("epl_session_export_safetensors", session, epl_api.text(file.name), None)
        return losses, load_file(file.name)


def new_model(c, old):
    if c["modern"]:
        return model_of(c, NEW_OPSET, c["modern"], {**c["constants"], **c["modern_constants"]})
    copy = onnx.ModelProto()
    copy.CopyFrom(old)
    names = {t.name for t in copy.graph.initializer}
    kept = [i for i in copy.graph.input if i.name not in names]
    copy.ir_version = 6
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return version_converter.convert_version(copy, NEW_OPSET)


def run_case(api, c, opset):
    old = model_of(c, opset, c["nodes"], c["constants"])
    x = np.random.default_rng(3).standard_normal(c["shape"], np.float32)
    got = run_ours(api, old, x)
    wanted = run_onnxruntime(old, x) if c["runtime"] else got
    assert got.shape == wanted.shape, f"shape {got.shape}, onnxruntime {wanted.shape}"
    assert np.allclose(got, wanted, rtol=2e-5, atol=2e-6), f"differs from onnxruntime by {np.abs(got - wanted).max()}"
    new = new_model(c, old)
    again = run_ours(api, new, x)
    assert np.array_equal(got, again), f"differs from itself at opset {NEW_OPSET} by {np.abs(got - again).max()}"
    target = np.random.default_rng(4).standard_normal(got.shape).astype(np.float32)
    (losses, weights), (new_losses, new_weights) = trained(api, old, x, target), trained(api, new, x, target)
    assert losses == new_losses, f"losses {losses}, at opset {NEW_OPSET} {new_losses}"
    start = {t.name: numpy_helper.to_array(t) for t in old.graph.initializer}
    assert not np.array_equal(weights["layer.weight"], start["layer.weight"]), "layer.weight has not been trained"
    for name, array in weights.items():
        assert np.array_equal(array, new_weights[name]), f"{name} is trained to other numbers than at opset {NEW_OPSET}"


def main():
    api = epl_api.Api()
    wanted = sys.argv[1:]
    passed = failed = 0
    for c in CASES:
        for opset in c["opsets"]:
            label = f"{c['name']}, opset {opset}"
            if wanted and not any(label.startswith(w) for w in wanted):
                continue
            try:
                run_case(api, c, opset)
                passed += 1
            except Exception as error:  # any failure of any kind is this case's failure
                print(f"FAILED {label}: {type(error).__name__} {str(error)[:300]}")
                failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
