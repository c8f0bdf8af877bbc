"""Low-rank adapters against numpy and onnxruntime: small models with a weight in every position that can have one are
trained through the C API. The exported adapters, merged by numpy into the file that was trained, must give in
onnxruntime what the library's own merged file gives and what it predicts with the adapters beside the weights; nothing
but adapted weights may differ from the file.

Prints `N passed, N failed, N skipped` as its last line.
"""
import ctypes as c
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import epl_api

BATCH, STEPS, ALPHA = 8, 25, 6.0
# Name: shape of a sample, nodes from "x" to "h" as (operator, inputs, attributes), weights with their shapes, which of
# them are [in, out], rank.
CASES = {
    "gemm_transposed": ([6], [("Gemm", ["x", "layer.weight", "layer.bias"], {"transB": 1})],
                        {"layer.weight": (5, 6), "layer.bias": (5,)}, [], 2),
    "gemm_scaled": ([6], [("Gemm", ["x", "layer.weight", "layer.bias"], {"alpha": 0.5, "beta": 2.0})],
                    {"layer.weight": (6, 5), "layer.bias": (5,)}, ["layer"], 2),
    "rank_above_the_matrix": ([6], [("Gemm", ["x", "layer.weight"], {"transB": 1})], {"layer.weight": (5, 6)}, [], 9),
    "matmul": ([3, 6], [("MatMul", ["x", "layer.weight"], {})], {"layer.weight": (6, 5)}, ["layer"], 2),
    "matmul_of_a_transpose": ([3, 6],
                              [("Transpose", ["layer.weight"], {"perm": [1, 0]}), ("MatMul", ["x", "0"], {}),
                               ("Add", ["1", "layer.bias"], {})],
                              {"layer.weight": (5, 6), "layer.bias": (5,)}, [], 2),
    "used_twice": ([3, 6], [("MatMul", ["x", "layer.weight"], {}), ("Tanh", ["0"], {}), ("MatMul", ["1",
        "layer.weight"], {})], {"layer.weight": (6, 6)}, ["layer"], 2),
    "conv": ([3, 8, 7], [("Conv", ["x", "layer.weight", "layer.bias"], {"strides": [2, 1], "pads": [1, 0, 2, 1],
        "dilations": [1, 2]})],
             {"layer.weight": (4, 3, 3, 2), "layer.bias": (4,)}, [], 2),
    "conv_of_a_line": ([3, 9], [("Conv", ["x", "layer.weight"], {"pads": [1, 1]})], {"layer.weight": (4, 3, 3)}, [], 2),
    "conv_in_same_size": ([3, 8, 8], [("Conv", ["x", "layer.weight"], {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
                          {"layer.weight": (4, 3, 3, 3)}, [], 2),
}


def write_model(path, sample, nodes, weights, random, half):
    element, tensor_type = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    made = [helper.make_node(op, ["n" + i if i.isdigit() else i for i in inputs], [f"n{n}"], name=f"/layer/{op}_{n}",
                             **attributes)
            for n, (op, inputs, attributes) in enumerate(nodes)]
    made += [helper.make_node("Flatten", [f"n{len(nodes) - 1}"], ["flat"]),
             helper.make_node("Gemm", ["flat", "head.weight"], ["y"], name="/head/Gemm", transB=1)]
    values = {name: random.normal(0, 0.4, shape).astype(element) for name, shape in weights.items()}
    probe = helper.make_graph(made[:-1], "probe", [helper.make_tensor_value_info("x", tensor_type, [1, *sample])],
                              [helper.make_tensor_value_info("flat", tensor_type, None)],
                              [numpy_helper.from_array(v, k) for k, v in values.items()])
    opset = dict(opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    flat = onnxruntime.InferenceSession(helper.make_model(probe, **opset).SerializeToString(),
                                        providers=["CPUExecutionProvider"])
    width = flat.run(None, {"x": np.zeros([1, *sample], element)})[0].shape[1]
    values["head.weight"] = random.normal(0, 0.3, (3, width)).astype(element)
    graph = helper.make_graph(made, "net", [helper.make_tensor_value_info("x", tensor_type, [BATCH, *sample])],
                              [helper.make_tensor_value_info("y", tensor_type, [BATCH, 3])],
                              [numpy_helper.from_array(v, k) for k, v in values.items()])
    onnx.save(helper.make_model(graph, **opset), str(path))


class AdapterOptions(c.Structure):
    _fields_ = [("struct_size", c.c_uint64), ("rank", c.c_int64), ("alpha", c.c_double), ("dropout", c.c_double)]


def train(api, path, rank, x, target):
    trainer = api.make("trainer", "epl_trainer_create", api.engine)
    for key, value in {"optimizer": "adamw", "optimizer.lr": "0.03"}.items():
        api.call("epl_trainer_set", trainer, epl_api.text(key), epl_api.text(value))
    api.call("epl_trainer_add_adapter", trainer, epl_api.text("layer"),
             c.byref(AdapterOptions(c.sizeof(AdapterOptions), rank, ALPHA, 0)))
    session = api.session(api.plan(api.model(path), trainer))
    losses = [api.step(session, [x, target]) for _ in range(STEPS)]
    assert losses[-1] < 0.9 * losses[0], f"nothing was trained: {losses[0]} to {losses[-1]}"
    return session


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None,
        {"x": x})[0].astype(np.float64)


def initializers(model):
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def check(api, case, half, scratch):
    sample, nodes, weights, turned, rank = CASES[case]
    random = np.random.default_rng(4)
    write_model(scratch / "m.onnx", sample, nodes, weights, random, half)
    x = random.normal(0, 1, (BATCH, *sample)).astype(np.float16 if half else np.float32)
    session = train(api, scratch / "m.onnx", rank, x, np.arange(BATCH) % 3)
    api.call("epl_session_export_onnx", session, epl_api.text(str(scratch / "trained.onnx")), None)
    api.call("epl_session_export_adapters", session, epl_api.text(str(scratch / "adapters")), None)
    small = load_file(str(scratch / "adapters" / "adapter_model.safetensors"))
    config = json.loads((scratch / "adapters" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (rank, ALPHA, ["layer"]), config
    assert sorted(small) == [f"base_model.model.layer.lora_{half_of_it}.weight" for half_of_it in "AB"], sorted(small)
    down, up = (small[name].astype(np.float64) for name in sorted(small))
    base, trained = onnx.load(str(scratch / "m.onnx")), onnx.load(str(scratch / "trained.onnx"))
    before = run(base, x)
    weight = next(i for i in base.graph.initializer if i.name == "layer.weight")
    old = numpy_helper.to_array(weight)
    added = up.reshape(up.shape[0], rank) @ down.reshape(rank, -1) * (ALPHA / rank)
    added = added.T if "layer" in turned else added.reshape(old.shape)
    weight.CopyFrom(numpy_helper.from_array((old.astype(np.float64) + added).astype(old.dtype), "layer.weight"))
    wanted = initializers(base)
    for name, value in initializers(trained).items():
        tolerance = (1e-3 if half else 1e-6) if name == "layer.weight" else 0
        assert value.dtype == wanted[name].dtype, name
        assert np.abs(value.astype(np.float64) - wanted[name]).max() <= tolerance, f"{name} differs"
    ours, merged = run(trained, x), run(base, x)
    beside = api.predict(session, [x], 1)[0].astype(np.float64)
    moved, tolerance = np.abs(ours - before).max(), 2e-2 if half else 2e-5
    assert moved > 0.1, f"the adapters change the outputs by {moved:.1e} only"
    for name, other in {"numpy's merged file": merged, "predict": beside}.items():
        assert np.abs(ours - other).max() <= tolerance, f"{name} differs by {np.abs(ours - other).max():.1e}"


def main():
    passed, failed = 0, 0
    api = epl_api.Api()
    for case in CASES:
        for half in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    check(api, case, half, pathlib.Path(scratch))
                    passed += 1
                except Exception as error:  # any failure of any kind is this case's failure
                    print(f"FAILED {case}{' in float16' if half else ''}: {error}")
                    failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
