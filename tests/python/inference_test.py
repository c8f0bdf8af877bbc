"""A trained file predicts: models with batch norm and dropout, as both exporters of PyTorch leave them in a file for
training, are trained through the C API and run by onnxruntime, with and without its optimisations, in a batch and one
sample at a time.

Prints `N passed, N failed, N skipped` as its last line.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import epl_api
from epl_api import EVALUATE, INPUT, OUTPUT, PREDICT, TRAIN

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES, STEPS = 48, 30


def data():
    random = np.random.default_rng(5)
    x = random.normal(1.5, 2.0, (SAMPLES, 1, 6, 6)).astype(np.float32)
    target = (x[:, 0, 0, 0] > 1.5).astype(np.int64) + (x[:, 0, 1:, 1:].mean((1, 2)) > 1.5)
    return {"x": x, "target": target.astype(np.int64)}


def session_of(api, path, batch):
    """A session that trains the file on batches of that size; with its order of inputs and outputs."""
    trainer = api.make("trainer", "epl_trainer_create", api.engine)
    for key, value in {"optimizer": "adamw", "optimizer.lr": "0.01"}.items():
        api.call("epl_trainer_set", trainer, epl_api.text(key), epl_api.text(value))
    api.bind(trainer, "x", (batch, 1, 6, 6))
    plan = api.plan(api.model(path), trainer)
    return plan, api.session(plan)


def evaluate(api, path, batch, rows):
    plan, session = session_of(api, path, batch)
    names = api.ports(plan, EVALUATE, INPUT)
    return np.mean([api.evaluate(session, [rows[n][i:i + batch] for n in names]) for i in range(0, SAMPLES, batch)])


def cross_entropy(logits, target):
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(target)), target]).mean())


def run(path, level, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = [o.name for o in session.get_outputs()]
    assert outputs == ["logits"], f"outputs are {outputs}"
    return session.run(None, {"x": x})[0], np.concatenate([session.run(None, {"x": x[i:i + 1]})[0]
                                                           for i in range(len(x))])


def check(api, fixture, scratch):
    rows = data()
    plan, session = session_of(api, fixture, SAMPLES)
    names = api.ports(plan, TRAIN, INPUT)
    losses = [api.step(session, [rows[n] for n in names]) for _ in range(STEPS)]
    assert losses[-1] < 0.8 * losses[0], f"nothing was trained: {losses[0]} to {losses[-1]}"
    trained, to_train = scratch / "trained.onnx", scratch / "to_train.onnx"
    api.call("epl_session_export_onnx", session, epl_api.text(str(trained)), None)
    api.call("epl_session_export_onnx_for_training", session, epl_api.text(str(to_train)), None)
    onnx.checker.check_model(str(trained), full_check=True)

    own = api.predict(session, [rows["x"]], len(api.ports(plan, PREDICT, OUTPUT)))[0]
    loss = api.evaluate(session, [rows[n] for n in names])
    for level in (onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
                  onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
        together, one_by_one = run(trained, level, rows["x"])
        assert np.abs(together - one_by_one).max() <= 1e-5, f"{level}: a sample alone differs by {np.abs(together - one_by_one).max():.1e}"
        assert np.abs(together - own).max() <= 2e-5, f"{level}: onnxruntime differs from predict by {np.abs(together - own).max():.1e}"
        assert abs(cross_entropy(one_by_one, rows["target"]) - loss) <= 1e-5 * loss, f"{level}: the loss differs"
    for path, batch in ((trained, SAMPLES), (trained, 1), (to_train, SAMPLES)):
        again = evaluate(api, path, batch, rows)
        assert abs(again - loss) <= 1e-5 * loss, f"{path.name} read again, batch {batch}: loss {again}, {loss} before"

    describe = lambda path: api.described_model(path)
    assert describe(trained)["ready_for_inference"] and describe(trained)["training_parts"] == ""
    for path in (fixture, to_train):
        parts = describe(path)["training_parts"]
        wanted = {"batch_norm_dynamo": ""}.get(fixture.stem, "2 BatchNormalization in training mode"
                                               if "norm" in fixture.stem else "2 Dropout in training mode")
        assert parts == wanted, f"{path.name}: \"{parts}\""


def main():
    passed, failed = 0, 0
    api = epl_api.Api()
    for fixture in sorted((HERE.parent / "onnx" / "inference").glob("*.onnx")):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                check(api, fixture, pathlib.Path(scratch))
                passed += 1
            except Exception as error:  # any failure of any kind is this fixture's failure
                print(f"FAILED {fixture.name}: {error}")
                failed += 1
    if passed + failed < 5:
        print(f"FAILED: {passed + failed} fixtures were found, there are 5")
        failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
