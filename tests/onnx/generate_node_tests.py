"""Writes the official node tests of the installed onnx package as folders that `onnx_node_tests` reads.

Usage: generate_node_tests.py FOLDER

One folder a case: model.onnx, tolerance.txt ("rtol atol"), and set_K/input_N.pb and set_K/output_N.pb, each a
TensorProto. A case with a value that is not a tensor has its model only, as has one whose answer is drawn at random;
the reader says that it is not supported.
"""
import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


def tolerance(case):
    """(rtol, atol) of a case. They are the onnx package's own (1e-3 and 1e-7 as a rule; 2^-6, two steps, for bfloat16,
    as its runner has it), but for Attention in float16, where two steps are allowed, too: the package's answers round
    after every operation and lie up to 1.4 steps from what float64 gives, ours up to 1.8, and 1e-3 is one step.
    """
    wanted = [np.asarray(v) for _, outputs in case.data_sets or [] for v in outputs
              if isinstance(v, (np.ndarray, np.generic))]
    kinds = {str(v.dtype) for v in wanted}
    rtol = case.rtol
    if "bfloat16" in kinds:
        rtol = max(rtol, 2.0**-6)
    if "float16" in kinds and case.name.startswith("test_attention"):
        rtol = max(rtol, 2.0**-9)
    return rtol, case.atol


def is_drawn(case):
    """Whether numpy's random generator made the answer, which nobody else's dropout can give."""
    return case.name.startswith("test_training_dropout") and "zero_ratio" not in case.name


def write_set(folder, values, names, kind):
    for n, value in enumerate(values):
        if value is None or isinstance(value, (list, tuple, dict)):
            return False
        tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value))
        tensor.name = names[n] if n < len(names) else ""
        (folder / f"{kind}_{n}.pb").write_bytes(tensor.SerializeToString())
    return True


def main():
    warnings.simplefilter("ignore")
    out = pathlib.Path(sys.argv[1])
    cases = load_model_tests(kind="node")
    for case in cases:
        folder = out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        (folder / "tolerance.txt").write_text("{} {}\n".format(*tolerance(case)))
        inputs, outputs = [i.name for i in case.model.graph.input], [o.name for o in case.model.graph.output]
        for k, (given, wanted) in enumerate([] if is_drawn(case) else case.data_sets or []):
            (folder / f"set_{k}").mkdir(exist_ok=True)
            try:
                write_set(folder / f"set_{k}", given, inputs, "input")
                write_set(folder / f"set_{k}", wanted, outputs, "output")
            except Exception as error:  # a value of a type that TensorProto or numpy lacks
                print(f"{case.name}: {error}", file=sys.stderr)
    print(f"{len(cases)} cases in {out}")


if __name__ == "__main__":
    main()
