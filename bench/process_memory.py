"""The most memory that a whole process takes which trains GPT-2 124M: `epl train`, and PyTorch beside it.

    python3 bench/process_memory.py [--epl build/release/bin/epl] [--batch 4] [--context 128] [--steps 4] [--threads 2]
                                    [--python build/bench/venv/bin/python] [--work build/bench/process_memory]

Both train float32 by AdamW on the same tokens. The peak resident size is the system's (ru_maxrss of the process), so
code, file pages and libraries count. PyTorch runs eagerly with its two AdamWs, and the smaller one is the peer. Its
Python needs torch and transformers (bench/run makes such an environment). Where they are missing only `epl` is
measured, and the output says so. The last line is the ratio, if there are both.
"""
import argparse
import array
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50257
WANTED = 0.7


def write_tokens(path, samples, context):
    """A safetensors file without a library: this process stays small, because a child begins with its peak."""
    draws = random.Random(1)
    tensors = {name: array.array("q", (draws.randrange(VOCABULARY) for _ in range(samples * context)))
               for name in ("input_ids", "target")}
    header, at = {}, 0
    for name, numbers in tensors.items():
        header[name] = {"dtype": "I64", "shape": [samples, context], "data_offsets": [at, at + 8 * len(numbers)]}
        at += 8 * len(numbers)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for numbers in tensors.values():
            out.write(numbers.tobytes())


def peak_of(command, log):
    """Bytes; what the process says goes to the file `log`. The command must end well."""
    with open(log, "wb") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}: {pathlib.Path(log).read_text()[-800:]}")
    return usage.ru_maxrss * 1024


def run_epl(options, tokens):
    model, job = options.work / "model.onnx", ["--batch", options.batch, "--optimizer", "adamw", "--lr", "1e-4",
                                               "--threads", options.threads]
    peak_of([options.epl, "template", "gpt2", "--layers", LAYERS, "--width", WIDTH, "--heads", HEADS, "--context",
             options.context, "--vocab", VOCABULARY, "--out", model], options.work / "template.log")
    peak_of([options.epl, "plan", model, *job], options.work / "plan.log")
    planned = re.search(r"memory of a rank at its peak: ([\d,]+) bytes", (options.work / "plan.log").read_text())
    shutil.rmtree(options.work / "trained", ignore_errors=True)
    peak = peak_of([options.epl, "train", model, "--data", tokens, "--steps", options.steps, *job, "--out",
                    options.work / "trained"], options.work / "train.log")
    return peak, int(planned[1].replace(",", ""))


def has_peer(python):
    looked = "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in ('torch', 'transformers')))"
    return pathlib.Path(python).exists() and subprocess.run([python, "-c", looked]).returncode == 0


def train_as_peer(tokens, batch, context, threads, fused):
    """In a process of its own."""
    import torch
    from torch.nn import functional
    sys.path.insert(0, str(HERE.parent / "tests" / "python"))
    import models
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = models.gpt2("sdpa", vocab_size=VOCABULARY, n_positions=context, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True if fused else None)
    with open(tokens, "rb") as file:
        file.seek(8 + struct.unpack("<Q", file.read(8))[0])
        all_numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.int64).reshape(2, -1, batch, context)
    for ids, target in zip(*all_numbers):
        optimizer.zero_grad()
        output = model(ids)
        loss = functional.cross_entropy(output.reshape(-1, VOCABULARY), target.reshape(-1))
        loss.backward()
        optimizer.step()
        print(loss.item())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epl", default="build/release/bin/epl")
    parser.add_argument("--python", default="build/bench/venv/bin/python")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/bench/process_memory"))
    for name, value in [("batch", 4), ("context", 128), ("steps", 4), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--peer", nargs=2, metavar=("FILE", "OPTIMIZER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return train_as_peer(options.peer[0], options.batch, options.context, options.threads,
                             options.peer[1] == "fused")
    options.work.mkdir(parents=True, exist_ok=True)
    tokens = options.work / "tokens.safetensors"
    write_tokens(tokens, options.steps * options.batch, options.context)
    own, planned = run_epl(options, tokens)
    print(f"epl train: {own / 1e9:.2f} GB, of which {planned / 1e9:.2f} GB are the plan's", flush=True)
    if not has_peer(options.python):
        return print(f"PyTorch is not measured: {options.python} has no torch and transformers")
    peers = {}
    for optimizer in ("default", "fused"):
        peers[optimizer] = peak_of([options.python, HERE / "process_memory.py", "--peer", tokens, optimizer, "--batch",
                                    options.batch, "--context", options.context, "--threads", options.threads],
                                   options.work / f"torch_{optimizer}.log")
        print(f"PyTorch, {optimizer} AdamW: {peers[optimizer] / 1e9:.2f} GB", flush=True)
    print(f"ratio: {own / min(peers.values()):.2f} (wanted: at most {WANTED})")


if __name__ == "__main__":
    main()
