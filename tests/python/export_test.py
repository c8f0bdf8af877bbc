"""What training writes back is the model that was trained: each case is trained for some steps through the C API,
exported, and the file is run by onnxruntime; its outputs must equal our own `predict`. Exported for training,
everything but the weights must be unchanged.

Prints `N passed, N failed, N skipped` as its last line.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from safetensors.numpy import load_file

import epl_api
from epl_api import INPUT, OUTPUT, PREDICT, TRAIN

TESTS = pathlib.Path(__file__).resolve().parent.parent
SHARED = TESTS.parent.parent / "shared" / "cases"
STEPS = 5


def settings_of(api, reference):
    settings = {"loss": reference["loss"], "optimizer": reference["optimizer"]}
    optimizer = next(o for o in api.describe()["optimizers"] if o["name"] == reference["optimizer"])
    for key in optimizer["options"]:
        value = reference.get(key)
        if value is not None:
            settings[f"optimizer.{key}"] = ",".join(map(json.dumps, value)) if isinstance(value,
                list) else json.dumps(value)
    if "ignore_index" in reference:
        settings["loss.ignore_index"] = reference["ignore_index"]
    return settings


def without_weights(path):
    """The file with the contents of its float initialisers taken out: what training must not touch."""
    model = onnx.load(str(path))
    for initializer in model.graph.initializer:
        if initializer.data_type == onnx.TensorProto.FLOAT:
            initializer.ClearField("raw_data")
            initializer.ClearField("float_data")
    return model.SerializeToString(deterministic=True)


def run_onnxruntime(path, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})


def check_case(api, folder, scratch):
    reference = json.loads((folder / "reference.json").read_text())
    data = load_file(str(folder / "train.safetensors"))
    batch = lambda name, step: data["target"][step] if name == "target" else data[f"input.{name}"][step]
    trainer = api.trainer(settings_of(api, reference), reference["trainable"])
    for name, array in data.items():
        if name.startswith("input."):
            api.bind(trainer, name.removeprefix("input."), array.shape[1:])
    if "target" in data:
        api.bind(trainer, "target", data["target"].shape[1:], epl_api.DTYPES[str(data["target"].dtype)])
    model = api.model(folder / "model.onnx")
    plan = api.plan(model, trainer)
    session = api.session(plan)
    names = api.ports(plan, TRAIN, INPUT)
    for step in range(STEPS):
        loss = api.step(session, [batch(name, step) for name in names])
        wanted = reference["losses"][step]
        assert abs(loss - wanted) <= 1e-4 * abs(wanted), f"step {step}: loss {loss}, reference {wanted}"

    written = scratch / "trained.onnx"
    api.call("epl_session_export_onnx", session, epl_api.text(str(written)), None)
    weights = scratch / "trained.safetensors"
    api.call("epl_session_export_safetensors", session, epl_api.text(str(weights)), None)
    to_train = scratch / "to_train.onnx"
    api.call("epl_session_export_onnx_for_training", session, epl_api.text(str(to_train)), None)
    assert without_weights(to_train) == without_weights(folder / "model.onnx"), "more than the weights has changed"
    onnx.checker.check_model(str(written), full_check=True)
    exported = {i.name: numpy_helper.to_array(i) for i in onnx.load(str(written)).graph.initializer}
    before = {i.name: numpy_helper.to_array(i) for i in onnx.load(str(folder / "model.onnx")).graph.initializer}
    for name in reference["trainable"]:
        if not reference["step0_grad_norms"].get(name):
            continue  # no gradient comes to it, or none but zero
        assert not np.array_equal(exported[name], before[name]), f"{name} has not been trained"
    for name, array in load_file(str(weights)).items():
        assert np.array_equal(array, exported[name]), f"{name} differs between ONNX and safetensors"

    # The whole of a fresh batch; where the graph ends in its loss that is what predict gives.
    inputs = {k.removeprefix("input."): a[STEPS] for k, a in data.items() if k.startswith("input.")}
    order, outputs = api.ports(plan, PREDICT, INPUT), api.ports(plan, PREDICT, OUTPUT)
    ours = api.predict(session, [inputs[name] for name in order], len(outputs))
    theirs = run_onnxruntime(written, inputs)
    for name, a, b in zip(outputs, ours, theirs):
        assert a.shape == b.shape, f"{name}: shape {a.shape}, onnxruntime {b.shape}"
        assert np.array_equal(np.isfinite(a), np.isfinite(b)), f"{name}: other elements are finite than in onnxruntime"
        assert np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True), f"{name}: other infinities"
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
        error = float(np.abs(a - b).max(initial=0)) / max(1.0, float(np.abs(b).max(initial=0)))
        assert error <= 2e-5, f"{name}: differs from onnxruntime by {error:.1e}"


def main():
    passed, failed, skipped = 0, 0, 0
    folders = sorted(p.parent for p in (TESTS / "cases").glob("*/reference.json"))
    if SHARED.is_dir():
        folders += sorted(p.parent for p in SHARED.glob("*/reference.json"))
    else:
        print("SKIP: ../shared/cases is not beside this checkout")
        skipped += 1
    api = epl_api.Api()
    for folder in folders:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                check_case(api, folder, pathlib.Path(scratch))
                passed += 1
            except Exception as error:  # any failure of any kind is this case's failure
                print(f"FAILED {folder.name}: {error}")
                failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
