"""Runs the code blocks of docs/exporting.md in order, and checks that what the page promises of the files is so.

    python tests/docs/try_exporting.py [EPL]        needs tests/python/requirements-fixtures.txt

With EPL, the command line tool, every file is also inspected and trained for a few steps.
"""
import contextlib
import io
import logging
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import onnx

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = TOP / "docs" / "exporting.md"
FIXTURES = TOP / "tests" / "rewrite" / "fixtures"


def names(path):
    return {i.name for i in onnx.load(path).graph.initializer}


def check_what_optimising_loses():
    """The page's "GPT-2 keeps 27 of 28" and its kin, by the fixtures: parameters of the raw file, and those left by name."""
    told = re.findall(r"(GPT-2|BERT|LLaMA)(?: keeps)? (\d+) of (\d+)", PAGE.read_text())
    assert len(told) == 3, told
    for family, kept, of in told:
        file = {"GPT-2": "gpt2_sdpa", "BERT": "bert_sdpa", "LLaMA": "llama_sdpa"}[family]
        raw, optimised = onnx.load(FIXTURES / f"{file}_dynamo_raw.onnx"), onnx.load(FIXTURES / f"{file}_dynamo.onnx")
        parameters = {i.name for i in raw.graph.initializer if i.name.endswith((".weight", ".bias"))}
        left = parameters & {i.name for i in optimised.graph.initializer}
        assert (len(left), len(parameters)) == (int(kept), int(of)), f"{family}: {len(left)} of {len(parameters)}"
        assert 2 <= len(raw.graph.node) / len(optimised.graph.node) <= 5, family


def check_files(scope):
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


def train_files(epl, scope):
    import torch
    from safetensors.torch import save_file

    def run(*words):
        done = subprocess.run([epl, *words], capture_output=True, text=True)
        assert done.returncode == 0, f"epl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    labels = torch.randint(0, 4, (24,))
    save_file({"x": torch.randn(24, 8), "target": labels}, "x.safetensors")
    save_file({"x": torch.randn(24, 8), "labels": labels}, "labels.safetensors")
    save_file({"images": torch.randn(24, 3, 8, 8), "target": labels}, "images.safetensors")
    counts = {True: len(list(scope["model"].parameters())), False: len(list(scope["net"].parameters()))}
    for file, data, batch, more in (("mlp", "x", "4", []), ("cnn", "images", "4", []), ("any_batch", "x", "6", []),
                                    ("any_batch_legacy", "x", "6", []),
                                    ("with_loss", "labels", "4", ["--loss", "output:loss"])):
        assert "warning" not in run("inspect", f"{file}.onnx"), file
        said = run("train", f"{file}.onnx", "--data", f"{data}.safetensors", "--batch", batch, "--steps", "5", "--out",
                   file,
                   "--json", *more)
        trained = re.search(r'"trained_tensors":(\d+)', said)
        assert trained and int(trained[1]) == counts[file != "cnn"], f"{file}: {said[:300]}"


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 5, f"{len(blocks)} code blocks; this script knows five"
    epl = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else None
    check_what_optimising_loses()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        scope = {"__name__": "page"}
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, str(PAGE), "exec"), scope)
        check_files(scope)
        if epl:
            train_files(epl, scope)
    print("every block of docs/exporting.md does what the page says")


if __name__ == "__main__":
    main()
