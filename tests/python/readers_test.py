"""Every reader trains the same: one set of samples as csv, tsv, npy, npz, compressed npz, safetensors and images gives
the same weights, held out the same samples, and measures the same on a file of its own; what it measures is what
onnxruntime predicts.

Prints `N passed, N failed` as its last line.
"""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import zlib

import numpy as np
import onnxruntime
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = pathlib.Path(os.environ.get("EPL", ROOT / "build" / "release-tests" / "bin" / "epl"))


def write_png(path, pixels):
    """Three channels of bytes, as PNG's specification says: a filter byte before each line, and a checksum behind each
    chunk."""
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines))
                     + chunk(b"IEND", b""))


def write_tables(folder, part, x, y):
    names = np.array(["ant", "bee", "cat"])
    head = [f"c{i}" for i in range(x.shape[1])] + ["kind"]
    for suffix, between in ((".csv", ","), (".tsv", "\t")):
        rows = [between.join([*(repr(float(v)) for v in row), names[k]]) for row, k in zip(x, y)]
        (folder / (part + suffix)).write_text("\n".join([between.join(head), *rows]) + "\n")
    np.savez(folder / (part + ".npz"), x=x, target=y)
    np.savez_compressed(folder / (part + "_packed.npz"), x=x.astype(np.float64), target=y.astype(np.uint8))
    save_file({"x": x, "target": y.astype(np.int32)}, folder / (part + ".safetensors"))
    np.save(folder / (part + ".npy"), x)
    np.save(folder / (part + "_labels.npy"), y)


def main():
    passed = failed = 0

    def expect(what, holds):
        nonlocal passed, failed
        passed, failed = passed + bool(holds), failed + (not holds)
        if not holds:
            print(f"FAILED: {what}")

    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def train(model, out, *options):
            ran = subprocess.run([EPL, "train", model, "--lr", "0.02", "--overwrite", "--json", "--out", out, *options],
                                 cwd=folder, capture_output=True, text=True)
            events = [json.loads(line) for line in ran.stdout.splitlines()]
            if ran.returncode != 0:
                print(ran.stderr.strip())
                return None
            last = [e for e in events if e["event"] == "evaluation"][-1]
            return {"hash": events[-1]["weights_hash"], "samples": last["samples"], "loss": last["loss"],
                    "accuracy": last["accuracy"]}

        def predicted(out, feed, y):
            scores = onnxruntime.InferenceSession(folder / out / "trained.onnx").run(None, feed)[0].astype(np.float64)
            shifted = scores - scores.max(1, keepdims=True)
            loss = (np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]).mean()
            return loss, (scores.argmax(1) == y).mean()

        y = {"train": rng.integers(0, 3, 61), "test": rng.integers(0, 3, 23)}
        x = {part: (rng.standard_normal((len(k), 5)) + k[:, None]).astype(np.float32) for part, k in y.items()}
        for part in y:
            write_tables(folder, part, x[part], y[part])
        subprocess.run([EPL, "template", "mlp", "--sizes", "5,7,3", "--out", "m.onnx"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        files = {".csv": [], ".tsv": [], ".npz": [], "_packed.npz": [], ".safetensors": [],
                 ".npy": ["--data-options", '{"target": "train_labels.npy"}']}
        own = {".npy": ["--validation-options", '{"target": "test_labels.npy"}']}
        first = held = None
        for suffix, options in files.items():
            got = train("m.onnx", "run", "--data", "train" + suffix, *options, "--validation", "test" + suffix,
                        *own.get(suffix, []), "--epochs", "4")
            first = first or got
            expect(f"{suffix}: the weights and numbers of the first reader: {got} {first}", got is not None
                   and got == first)
            got = train("m.onnx", "part", "--data", "train" + suffix, *options, "--held-out", "0.3", "--epochs", "4")
            held = held or got
            expect(f"{suffix}: the same samples are held out: {got} {held}", got is not None and got == held
                   and got["samples"] == 18)
        loss, accuracy = predicted("run", {"x": x["test"]}, y["test"])
        expect(f"what is measured is what onnxruntime predicts: {first} {loss} {accuracy}", first
               and abs(first["loss"] - loss) < 1e-6 and abs(first["accuracy"] - accuracy) < 1e-12)

        # Images, and the same pixels as an array.
        pixels = {part: rng.integers(0, 256, (n, 12, 12, 3), dtype=np.uint8)
                  for part, n in (("shown", 24), ("kept", 11))}
        kinds = {part: np.sort(rng.integers(0, 4, len(p))) for part, p in pixels.items()}
        for part, all_pixels in pixels.items():
            for i, (one, kind) in enumerate(zip(all_pixels, kinds[part])):
                (folder / part / f"kind{kind}").mkdir(parents=True, exist_ok=True)
                write_png(folder / part / f"kind{kind}" / f"{i:03}.png", one)
            np.savez(folder / (part + "_array.npz"),
                     pixels=(all_pixels.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32), target=kinds[part])
        model = ROOT / "tests" / "cases" / "cnn_momentum_legacy" / "model.onnx"
        if (EPL.parent.parent / "lib" / "libepl_images.so").exists():
            for way, shown, kept in (("a file of its own", "--validation", "kept"), ("a share", "--held-out", None)):
                as_files = train(model, "images", "--data", "shown", "--data-options", '{"input": "pixels"}', shown,
                                 kept or "0.25", "--epochs", "3")
                as_array = train(model, "array", "--data", "shown_array.npz", shown, kept and "kept_array.npz"
                                 or "0.25", "--epochs", "3")
                expect(f"images are what their pixels are, with {way}: {as_files} {as_array}", as_files is not None
                       and as_files == as_array)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    raise SystemExit(main())
