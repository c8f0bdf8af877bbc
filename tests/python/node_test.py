"""The official ONNX node tests as two scoreboards: the ops' own meaning (the program `onnx_node_tests`), and the C
API's `predict` with the kernels that it chooses.

    python tests/python/node_test.py [--list] [NAME...]     with names: those alone, through `predict`

A test passes, fails (a wrong answer, a crash, or an error that is not "unsupported"), or is not supported, with the
engine's reason. Node tests pass shapes and axes as inputs; an engine with fixed memory needs them as constants, so
where the file as it is is not supported, its int64 inputs of at most one dimension become initialisers and it is tried
again. None may fail, and the numbers that pass may only rise: node_floors.txt holds the last ones. Tolerances are those
of tests/onnx/generate_node_tests.py.
Prints `N passed, N failed, N skipped` of `predict`, and of the other board what fails, as its last line.
"""
import collections
import contextlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

import epl_api
from epl_api import INPUT, OUTPUT, PREDICT

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
GENERATOR = TOP / "tests/onnx/generate_node_tests.py"
REFERENCE = TOP / "build/release-tests/bin/onnx_node_tests"
FLOORS = HERE / "node_floors.txt"  # a line each: the board and its number

sys.path.insert(0, str(GENERATOR.parent))
from generate_node_tests import tolerance  # noqa: E402


def collect():
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        from onnx.backend.test.case.node import collect_testcases
        return collect_testcases(None)


def plain(value):
    """A numpy array of what the test suite keeps as array, scalar or TensorProto; sequences and the like as they
    are."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def with_constants(model, inputs):
    """The model with its shape-like inputs made initialisers; None if there are none."""
    baked = [n for n, a in inputs.items() if isinstance(a, np.ndarray) and a.dtype == np.int64 and a.ndim <= 1]
    if not baked or len(baked) == len(inputs):
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [i for i in copy.graph.input if i.name not in baked]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(numpy_helper.from_array(inputs[n], n) for n in baked)
    return copy


def predict(api, model, inputs):
    loaded = api.model_bytes(model.SerializeToString())
    plan = api.plan(loaded, None)
    session = api.session(plan)
    outputs = api.ports(plan, PREDICT, OUTPUT)
    return api.predict(session, [inputs[name] for name in api.ports(plan, PREDICT, INPUT)], len(outputs))


def difference(case, got, wanted):
    """What differs, or None. NaN equals NaN."""
    rtol, atol = tolerance(case)
    if len(got) != len(wanted):
        return f"{len(got)} outputs, {len(wanted)} wanted"
    for i, (a, b) in enumerate(zip(got, wanted)):
        if a.shape != b.shape:
            return f"output {i} has shape {a.shape}, wanted {b.shape}"
        if a.dtype != b.dtype:
            return f"output {i} is {a.dtype}, wanted {b.dtype}"
        if not np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True):
            return f"output {i} differs by up to {np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64)))}"
    return None


def verdict(error):
    """An operator we lack, or a shape that depends on data, is not supported; any other error is a failure."""
    if error.code == epl_api.UNSUPPORTED or "must be known when the model is bound" in str(error):
        return "skipped", str(error)
    return "failed", str(error)


def run_case(api, case):
    """(`passed` | `failed` | `skipped`, reason)."""
    names = [i.name for i in case.model.graph.input]
    if "training" in case.name:
        return "skipped", "predict means inference: batch statistics and dropout are off"
    for inputs, outputs in case.data_sets:
        inputs, outputs = [plain(v) for v in inputs], [plain(v) for v in outputs]
        for value in [*inputs, *outputs]:
            if not isinstance(value, np.ndarray) or str(value.dtype) not in epl_api.DTYPES:
                return "skipped", f"type {getattr(value, 'dtype', type(value).__name__)}"
        named = dict(zip(names, inputs))
        try:
            got = predict(api, case.model, named)
        except epl_api.EplError as error:
            copy = with_constants(case.model, named)
            if copy is None:
                return verdict(error)
            try:
                got = predict(api, copy, named)
            except epl_api.EplError as again:
                return verdict(again)
        wrong = difference(case, got, outputs)
        if wrong:
            return "failed", wrong
    return "passed", ""


def work(first):
    """Runs the cases from `first` on, one line each; the parent starts another where a crash ends this one."""
    api = epl_api.Api()
    cases = collect()
    for i in range(first, len(cases)):
        print(f"{i}\tbegun\t{cases[i].name}", flush=True)
        try:
            result, reason = run_case(api, cases[i])
        except Exception as error:  # of this script or of numpy: a failure like any other
            result, reason = "failed", repr(error)
        print(f"{i}\t{result}\t" + " ".join(reason.split()), flush=True)


def run_all():
    """name -> (result, reason), surviving crashes of the library."""
    results, names, first = {}, {}, 0
    while True:
        child = subprocess.Popen([sys.executable, __file__, "--work", str(first)], stdout=subprocess.PIPE, text=True)
        last, ended = None, True
        for line in child.stdout:
            index, result, rest = line.rstrip("\n").split("\t", 2)
            last = int(index)
            if result == "begun":
                names[last], ended = rest, False
            else:
                results[names[last]], ended = (result, rest), True
        code = child.wait()
        if code == 0:
            return results
        if last is None:
            raise SystemExit(f"the worker ended with {code} before its first test")
        if not ended:
            results[names[last]] = ("failed", f"the library crashed ({code})")
        first = last + 1


def reference_board():
    """(passed, failed) of the ops' own meaning, or None where the program is not built."""
    if not REFERENCE.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, GENERATOR, folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        run = subprocess.run([REFERENCE, folder, "--failed"], capture_output=True, text=True)
    lines = run.stdout.splitlines()
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) not supported", lines[-1] if lines else "")
    if not counts:
        raise SystemExit(f"onnx_node_tests ended with {run.returncode} and without its counts")
    for line in lines:
        if line.startswith("FAILED"):
            print(line[:300])
    return int(counts[1]), int(counts[2])


def below_floor(board, passed):
    """1 if fewer pass than before, else 0."""
    floor = dict(line.split() for line in FLOORS.read_text().splitlines())[board]
    print(f"scoreboard of {board}: {passed} official node tests pass; the number before was {floor}")
    if passed > int(floor):
        print(f"write {passed} to {FLOORS.name}")
    if passed < int(floor):
        print("FAILED: the number may only rise")
    return int(passed < int(floor))


def main():
    if "--work" in sys.argv:
        return work(int(sys.argv[sys.argv.index("--work") + 1]))
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    if wanted:
        api = epl_api.Api()
        for case in collect():
            if any(word in case.name for word in wanted):
                print(case.name, *run_case(api, case))
        return 0
    results = run_all()
    count = collections.Counter(result for result, _ in results.values())
    for name, (result, reason) in sorted(results.items()):
        if result == "failed" or "--list" in sys.argv:
            print(f"{result.upper()} {name}: {reason[:300]}")
    reasons = collections.Counter(reason.split(":")[-1].strip()[:90] for result, reason in results.values()
                                  if result == "skipped")
    for reason, n in reasons.most_common(40):
        print(f"SKIP: {n:4d} {reason}")
    failed, skipped = count["failed"] + below_floor("predict", count["passed"]), count["skipped"]
    reference = reference_board()
    if reference is None:
        print(f"SKIP: {REFERENCE.name} is not built")
        skipped += 1
    else:
        failed += reference[1] + below_floor("meaning", reference[0])
    print(f"{count['passed']} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
