"""Runs the code blocks of docs/exporting.md in order, and checks that what the page promises of the files is so.

    python tests/docs/try_exporting.py        needs tests/python/requirements-fixtures.txt
"""
import logging
import os
import pathlib
import re
import tempfile
import warnings

import onnx

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "exporting.md"


def names(path):
    return {i.name for i in onnx.load(path).graph.initializer}


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 5, f"{len(blocks)} code blocks; this script knows five"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scope = {"__name__": "page"}
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), scope)
        parameters = {name for name, _ in scope["model"].named_parameters()}
        for file in ("mlp.onnx", "any_batch.onnx", "any_batch_legacy.onnx"):
            assert parameters <= names(file), f"{file} lost {parameters - names(file)}"
        assert {f"body.{n}" for n in parameters} <= names("with_loss.onnx")
        for file in ("any_batch.onnx", "any_batch_legacy.onnx"):
            assert onnx.load(file).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch", file
        assert not onnx.load("with_loss.onnx").graph.output[0].type.tensor_type.shape.dim
        cnn = onnx.load("cnn.onnx").graph
        assert {n for n, _ in scope["net"].named_parameters()} <= names("cnn.onnx")
        norm = next(n for n in cnn.node if n.op_type == "BatchNormalization")
        assert any(a.name == "training_mode" and a.i == 1 for a in norm.attribute) and len(norm.output) == 3
        assert any(n.op_type == "Dropout" for n in cnn.node)
        os.chdir("/")
    print("every block of docs/exporting.md does what the page says")


if __name__ == "__main__":
    main()
