"""Writes the official node tests of the installed onnx package as folders that `onnx_node_tests` reads.

Usage: generate_node_tests.py FOLDER

One folder a case: model.onnx, tolerance.txt ("rtol atol"), and set_K/input_N.pb and set_K/output_N.pb, each a TensorProto.
A case with a value that is no tensor has its model only; the reader says that it is not supported.
"""
import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


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
        (folder / "tolerance.txt").write_text(f"{case.rtol} {case.atol}\n")
        inputs, outputs = [i.name for i in case.model.graph.input], [o.name for o in case.model.graph.output]
        for k, (given, wanted) in enumerate(case.data_sets or []):
            (folder / f"set_{k}").mkdir(exist_ok=True)
            try:
                write_set(folder / f"set_{k}", given, inputs, "input")
                write_set(folder / f"set_{k}", wanted, outputs, "output")
            except Exception as error:  # a value of a type that TensorProto or numpy lacks
                print(f"{case.name}: {error}", file=sys.stderr)
    print(f"{len(cases)} cases in {out}")


main()
