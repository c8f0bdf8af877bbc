"""The event file of `epl train --tensorboard` is read back by TensorBoard itself, and says what the JSON lines said.

Prints `N passed, N failed` as its last line.
"""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = pathlib.Path(os.environ.get("EPL", ROOT / "build" / "release-tests" / "bin" / "epl"))


def main():
    passed = failed = 0

    def expect(what, holds):
        nonlocal passed, failed
        passed, failed = passed + bool(holds), failed + (not holds)
        if not holds:
            print(f"FAILED: {what}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "book.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 100)
        subprocess.run([EPL, "template", "gpt2", "--layers", "1", "--width", "16", "--heads", "2", "--context", "8",
                        "--vocab", "256", "--out", "m.onnx"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        lines = subprocess.run([EPL, "train", "m.onnx", "--text", "book.txt", "--batch", "4", "--steps", "12", "--clip",
                                "1", "--schedule", "cosine", "--evaluate-every", "6",
                                "--sample-bytes", "0", "--out", "run", "--tensorboard", "--json", "--strategy",
                                '{"amp.level": "O1", "amp.type": "f16"}'], cwd=folder, check=True,
                                stdout=subprocess.PIPE, text=True).stdout.splitlines()
        events = [json.loads(line) for line in lines]
        board = EventAccumulator(str(folder / "run"))
        board.Reload()
        tags = board.Tags()["scalars"]
        for field in ("loss", "learning_rate", "gradient_norm", "epoch", "loss_scale", "skipped_steps"):
            said = [(e["step"], e[field]) for e in events if e["event"] == "step"]
            read = [(s.step, s.value) for s in board.Scalars("train/" + field)] if "train/" + field in tags else []
            expect(f"train/{field}: every step, its number", len(said) == 12
                   and [s for s, _ in said] == [s for s, _ in read]
                   and all(np.float32(a) == np.float32(b) for (_, a), (_, b) in zip(said, read)))
        held_out = [s.value for s in board.Scalars("validation/loss")] if "validation/loss" in tags else []
        said = [e["loss"] for e in events if e["event"] == "evaluation"]
        expect("validation/loss: as often as it was measured", len(said) == 2
               and [np.float32(v) for v in said] == [np.float32(v) for v in held_out])
        stamps = [s.wall_time for s in board.Scalars("train/loss")]
        expect("wall times rise", stamps == sorted(stamps) and stamps[0] > 1.5e9)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    raise SystemExit(main())
