"""Names of a model that the engine uses itself: an input, a weight, an output or a value in between may have any of
them, and what is trained is the same, bit by bit.

    python tests/python/names_test.py

Prints `N passed, N failed, N skipped` as its last line.
"""
import re
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import epl_api
from epl_api import INPUT, TRAIN

F = TensorProto.FLOAT
PLACES = ("input", "weight", "value", "output")
RANDOM = np.random.default_rng(5)
WEIGHT, X, TARGET = (RANDOM.standard_normal(s).astype(np.float32) for s in ((3, 2), (4, 3), (4, 2)))


def model_of(names):
    nodes = [helper.make_node("MatMul", [names["input"], names["weight"]], [names["value"]], name="product"),
             helper.make_node("Tanh", [names["value"]], [names["output"]], name="last")]
    graph = helper.make_graph(nodes, "main", [helper.make_tensor_value_info(names["input"], F, [4, 3])],
                              [helper.make_tensor_value_info(names["output"], F, [4, 2])],
                              [numpy_helper.from_array(WEIGHT, names["weight"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def trained(api, names, keys):
    """Losses of three steps, the weights after them, and the text of the train step's graph."""
    trainer = api.trainer({"loss": "mse", "optimizer": "adamw", "optimizer.lr": "0.05", "clip_norm": "1", **keys},
                          [names["weight"]])
    plan = api.plan(api.model_bytes(model_of(names).SerializeToString()), trainer)
    session = api.session(plan)
    given = {names["input"]: X, keys.get("loss.target", "target"): TARGET}
    losses = [api.step(session, [given[name] for name in api.ports(plan, TRAIN, INPUT)]) for _ in range(3)]
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        api.call("epl_session_export_safetensors", session, epl_api.text(file.name), None)
        weights = load_file(file.name)
    return losses, weights[names["weight"]], plan


def own_names(text):
    """Of values that the engine has added to the model's."""
    found = set(re.findall(r"[A-Za-z_][A-Za-z0-9_.:/]*", text))
    return sorted(n for n in found if not re.fullmatch(r"[fiu]\d+|bool", n))


def main():
    api = epl_api.Api()
    plain = {"input": "x", "weight": "w.weight", "value": "h", "output": "y"}
    losses, weights, plan = trained(api, plain, {})
    names = own_names(api.printed(plan, "graph")) + ["target", "loss", "gradient_norm", "lr", "step", "seed", "rank"]
    passed = failed = 0
    for name in sorted(set(names) - set(plain.values())):
        for place in PLACES:
            keys = {"loss.target": "labels"} if name == "target" and place in ("input", "weight") else {}
            try:
                got, updated, _ = trained(api, {**plain, place: name}, keys)
                assert got == losses, f"losses {got}, as {plain[place]} {losses}"
                assert np.array_equal(updated, weights), "other weights"
                passed += 1
            except epl_api.EplError as error:  # an input that has the name of a weight's own state
                said = "rename it in the model" in str(error)
                passed, failed = passed + said, failed + (not said)
                if not said:
                    print(f"FAILED {place} {name}: {str(error)[:300]}")
            except Exception as error:  # any failure of any other kind is this name's failure
                print(f"FAILED {place} {name}: {type(error).__name__} {str(error)[:300]}")
                failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
