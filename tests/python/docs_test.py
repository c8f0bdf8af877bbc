"""What the pages say to type works: every command of README.md's and docs/training.md's shell blocks runs in a clean
folder, beside files with the names that the pages give them. Only what takes long is made smaller, and what needs a
model of one's own is left to tests of its own.

Prints `N passed, N failed` as its last line.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from readers_test import write_png  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = pathlib.Path(os.environ.get("EPL", ROOT / "build" / "release-tests" / "bin" / "epl"))
# samples/03_finetune, with what it downloads; a case's folder; what becomes of it is shown by a test of its own.
OTHERS = ("model.onnx --data train.safetensors", "bert.onnx", "CASE_DIR")


def blocks(page, fence):
    return re.findall(rf"```{fence}\n(.*?)```", (ROOT / page).read_text(), re.S)


def commands(page):
    """The lines of shell blocks that call epl, without their comments, and smaller."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            if not line.startswith("epl ") or any(other in line for other in OTHERS):
                continue
            line = re.sub(r"--steps (\d+)", lambda m: f"--steps {int(m[1]) // 100}", line)
            line = re.sub(r"--epochs (\d+)", "--epochs 2", line).replace("--layers 4 --width 256 --heads 8",
                "--layers 1 --width 16 --heads 2")
            yield shlex.split(line, comments=True)[1:]


def write_files(folder):
    rng = np.random.default_rng(0)
    table = re.search(r"awk '.*?' >iris.csv", (ROOT / "docs/training.md").read_text(), re.S)
    subprocess.run(table[0], shell=True, check=True, cwd=folder)
    (folder / "table.csv").write_text("\n".join(["a,b,c,d,kind",
                                                 *(",".join(map(str, [*rng.random(4).round(3), i % 3]))
                                                   for i in range(60))]) + "\n")
    (folder / "book.txt").write_text("".join(f"{i}: the quick brown fox jumps over the lazy dog\n" for i in range(400)))
    images, labels = rng.random((40, 64)).astype(np.float32), rng.integers(0, 10, 40)
    # As the page writes them.
    scope = {"numpy": np, "images": images, "labels": labels, "safetensors": type(sys)("safetensors")}
    scope["safetensors"].numpy = type(sys)("numpy")
    scope["safetensors"].numpy.save_file = save_file
    written = next(block for block in blocks("docs/training.md", "python") if "savez" in block)
    os.chdir(folder)
    exec(written, scope)
    np.savez("other.npz", images=images, labels=labels)
    np.save("table.npy", np.concatenate([images, labels[:, None].astype(np.float32)], 1))
    np.save("v.npy", images[:20])
    np.save("w.npy", labels[:20])
    for name in ("train", "test", "rows"):
        save_file({"x": rng.random((30, 4)).astype(np.float32), "target": rng.integers(0, 3, 30)},
                  f"{name}.safetensors")
    save_file({"x": rng.random((30, 4)).astype(np.float32), "target": rng.integers(0, 2, (30, 3)).astype(np.float32)},
              "tags.safetensors")
    for kind in ("daisy", "rose"):
        (folder / "flowers" / kind).mkdir(parents=True)
        for i in range(8):
            write_png(folder / "flowers" / kind / f"{i}.png", rng.integers(0, 256, (70, 80, 3), dtype=np.uint8))
    for name, sizes in (("digits", "64,16,10"), ("mlp", "4,8,3"), ("clf", "4,8,3"), ("tags", "4,8,3")):
        subprocess.run([EPL, "template", "mlp", "--sizes", sizes, "--out", name + ".onnx"], check=True,
                       stdout=subprocess.DEVNULL)
    weight = numpy_helper.from_array((rng.standard_normal((3 * 64 * 64, 2)) / 200).astype(np.float32), "head.weight")
    graph = helper.make_graph([helper.make_node("Flatten", ["x"], ["flat"]),
                               helper.make_node("MatMul", ["flat", "head.weight"], ["y"])], "net",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 64, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")


def main():
    passed = failed = 0
    packs = (EPL.parent.parent / "lib" / "libepl_images.so").exists()
    for page in ("README.md", "docs/training.md"):
        with tempfile.TemporaryDirectory() as name:
            write_files(pathlib.Path(name))
            seen = 0
            for words in commands(page):
                if "flowers" in words and "net.onnx" in words and not packs:
                    continue
                ran = subprocess.run([EPL, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
                seen += 1
                passed, failed = passed + (ran.returncode == 0), failed + (ran.returncode != 0)
                if ran.returncode != 0:
                    print(f"FAILED: {page}: epl {shlex.join(words)}: {ran.stderr.strip()[-300:]}")
            os.chdir(ROOT)
            if seen < 8:
                failed += 1
                print(f"FAILED: {page}: only {seen} commands were found")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    raise SystemExit(main())
