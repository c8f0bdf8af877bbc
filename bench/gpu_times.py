"""How long training steps take on a GPU: the stage `times` of bench/gpu.

A row is a model of `epl template` at one size, with random weights and data, in float32, with AdamW. `epl trace` trains
it: steps that nothing slows down, and then steps whose instructions are stamped on the GPU, which give the seconds of
every op. Where Python has torch, bench/gpu_peer.py trains a model of the same sizes beside it.
"""

import array
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import struct
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

# family, options of the template, batch, what is counted, how many of these a sample has
# The tiny ones are for rehearsals.
ROWS = {
    "gpt2-tiny": ("gpt2", {"layers": 2, "width": 32, "heads": 2, "context": 32, "vocab": 256}, 2, "tokens", 32),
    "bert-tiny": ("bert", {"layers": 1, "width": 32, "heads": 2, "context": 16, "vocab": 64}, 2, "tokens", 16),
    "residual-tiny": (
        "cnn",
        {"channels": 3, "image": 16, "width": 4, "stages": 2, "blocks": 1, "classes": 10},
        2,
        "images",
        1,
    ),
    "gpt2-small": ("gpt2", {"layers": 4, "width": 256, "heads": 4, "context": 256, "vocab": 8192}, 8, "tokens", 256),
    "gpt2-124M": ("gpt2", {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocab": 50257}, 8, "tokens", 1024),
    "bert-base": (
        "bert",
        {"layers": 12, "width": 768, "heads": 12, "context": 128, "vocab": 30522},
        32,
        "tokens",
        128,
    ),
    "residual-18": (
        "cnn",
        {"channels": 3, "image": 224, "width": 64, "stages": 4, "blocks": 2, "classes": 1000},
        32,
        "images",
        1,
    ),
}
DEFAULT = ["gpt2-small", "gpt2-124M", "bert-base", "residual-18"]


def write_tensors(path, fields):
    """A file of safetensors; a field is (name, type, shape, bytes)."""
    head, at = {}, 0
    for name, dtype, shape, data in fields:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in fields:
            file.write(data)


def integers(draw, name, shape, most):
    count = 1
    for size in shape:
        count *= size
    return name, "I64", shape, array.array("q", draw.choices(range(most), k=count)).tobytes()


def write_data(path, family, o, batch):
    """One batch, which every step takes."""
    draw = random.Random(1)
    if family == "cnn":
        shape = [batch, o["channels"], o["image"], o["image"]]
        pixels = array.array("f", (draw.random() for _ in range(batch * o["channels"] * o["image"] ** 2)))
        fields = [("image", "F32", shape, pixels.tobytes()), integers(draw, "target", [batch], o["classes"])]
    else:
        shape = [batch, o["context"]]
        fields = [integers(draw, "input_ids", shape, o["vocab"])]
        if family == "bert":
            fields += [integers(draw, "attention_mask", shape, 1), integers(draw, "target", [batch], 2)]
            ones = array.array("q", [1] * (batch * o["context"])).tobytes()
            fields[1] = ("attention_mask", "I64", shape, ones)
        else:
            fields.append(integers(draw, "target", shape, o["vocab"]))
    write_tensors(path, fields)


def table_of(trace, steps):
    """Seconds of a step by op and kernel, and by node; how long the GPU was busy, and from the first to the last."""
    by_kernel, by_node = collections.defaultdict(lambda: [0.0, 0, 0.0, 0.0]), collections.Counter()
    busy, first, last = 0.0, float("inf"), 0.0
    for event in trace["traceEvents"]:
        if event["ph"] != "X" or event["cat"] in ("call", "waiting") or event["pid"] != 0:
            continue
        args, seconds = event.get("args", {}), event["dur"] * 1e-6
        op = args.get("op") or event["cat"]
        row = by_kernel[(op, args.get("kernel", ""))]
        row[0] += seconds / steps
        row[1] += 1
        row[2] += args.get("flops", 0) / steps if args.get("kernel") else 0
        row[3] += args.get("bytes", 0) / steps
        by_node[event["name"] + " (" + op + ")"] += seconds / steps
        busy += seconds
        first, last = min(first, event["ts"] * 1e-6), max(last, event["ts"] * 1e-6 + seconds)
    rows = [
        {"op": op, "kernel": kernel, "seconds": s, "launches": n / steps, "flops": f, "bytes": b}
        for (op, kernel), (s, n, f, b) in sorted(by_kernel.items(), key=lambda item: -item[1][0])
    ]
    return rows, by_node.most_common(30), busy / steps, (last - first) / steps


def print_table(row):
    step = row["seconds"]
    print(
        "  %s: %.2f ms a step, %.0f %s/s; first step after %.1f s; peak %.2f GB; the GPU busy %.2f ms, idle %.1f %%"
        % (
            row["row"],
            step * 1e3,
            row["rate"],
            row["unit"],
            row["first_step_seconds"],
            row["peak_bytes"] / 1e9,
            row["busy_seconds"] * 1e3,
            100 * max(0.0, 1 - row["busy_seconds"] / step),
        )
    )
    print("    %9s %6s %6s %9s %9s  op (kernel)" % ("ms", "share", "calls", "GFLOP/s", "GB/s"))
    for k in row["kernels"][:22]:
        seconds = max(k["seconds"], 1e-9)
        share = 100 * seconds / max(row["busy_seconds"], 1e-9)
        rates = (k["flops"] / seconds / 1e9, k["bytes"] / seconds / 1e9)
        name = "%s (%s)" % (k["op"], k["kernel"])
        print("    %9.3f %5.1f%% %6.0f %9.0f %9.0f  %s" % ((seconds * 1e3, share, k["launches"]) + rates + (name,)))
    sys.stdout.flush()


class Times:
    def __init__(self, bench):
        self.bench, self.o = bench, bench.o
        self.epl = os.path.join(self.o.build, "bin/epl")

    def file(self, name, end):
        return os.path.join(self.o.out, "times", name + end)

    def write(self, name):
        """The model and the data of a row; None, or why there is none."""
        family, options, batch, _, _ = ROWS[name]
        words = [w for key, value in options.items() for w in ("--" + key, str(value))]
        command = [self.epl, "template", family] + words + ["--out", self.file(name, ".onnx")]
        code, text, _ = self.bench.run("template " + name, command, 120)
        write_data(self.file(name, ".safetensors"), family, options, batch)
        return None if code == 0 else text.strip()[-200:]

    def row(self, name, limit):
        _, _, batch, unit, each = ROWS[name]
        o = self.o
        command = [self.epl, "trace", self.file(name, ".onnx"), "--data", self.file(name, ".safetensors"), "--json"]
        # The first step is that of a machine that has compiled nothing yet.
        command += ["--kernel-cache", "none"]
        command += ["--batch", str(batch), "--device", o.device, "--before", str(o.times_steps + 1), "--steps", "2"]
        code, text, _ = self.bench.run("times " + name, command + ["--out", self.file(name, ".json")], limit)
        row = {"row": name, "exit": code, "unit": unit, "batch": batch}
        for line in text.splitlines():
            if line.startswith("{") and "step_seconds" in line:
                row.update(json.loads(line))
        if "step_seconds" not in row:
            row["error"] = text.strip()[-300:]
            return row
        row["seconds"] = sorted(row["step_seconds"][1:])[(len(row["step_seconds"]) - 1) // 2]
        row["rate"] = batch * each / row["seconds"]
        with open(self.file(name, ".json")) as file:
            trace = json.load(file)
        row["kernels"], row["nodes"], row["busy_seconds"], row["recorded_seconds"] = table_of(trace, 2)
        return row

    def peer(self, name, limit):
        family, options, batch, _, _ = ROWS[name]
        asked = {"family": family, "batch": batch, "steps": self.o.times_steps + 1, **options}
        command = [sys.executable, str(HERE / "gpu_peer.py"), json.dumps(asked)]
        code, text, _ = self.bench.run("peer " + name, command, limit)
        for line in text.splitlines():
            if line.startswith("{"):
                return json.loads(line)
        return {"exit": code, "error": text.strip()[-200:]}

    def all(self):
        os.makedirs(os.path.join(self.o.out, "times"), exist_ok=True)
        until = time.monotonic() + min(self.o.times_seconds, self.bench.left())
        rows = self.bench.results["stages"]["times"] = []
        # Models are written side by side; steps are measured alone.
        pool = concurrent.futures.ThreadPoolExecutor(2)
        written = {name: pool.submit(self.write, name) for name in self.o.rows}
        for name in self.o.rows:
            reason = written[name].result()
            left = until - time.monotonic()
            if reason or left < 5:
                print("  %s: %s" % (name, reason or "no time left"), flush=True)
                self.bench.wrong.append("times " + name)
                continue
            row = self.row(name, min(left, self.o.row_seconds))
            rows.append(row)
            if "error" in row:
                print("  %s: %s" % (name, row["error"]), flush=True)
                self.bench.wrong.append("times " + name)
            else:
                print_table(row)
                if not row["peak_bytes"] <= row["planned_peak_bytes"]:
                    print("    more than the %.2f GB that were planned" % (row["planned_peak_bytes"] / 1e9), flush=True)
                    self.bench.wrong.append("memory, times " + name)
            self.bench.save()
            left = until - time.monotonic()
            if left < 5:
                continue
            row["peer"] = self.peer(name, min(left, 60))
            if "seconds" in row["peer"] and "seconds" in row:
                seconds = row["peer"]["seconds"]
                print(
                    "    %s: %.2f ms a step, peak %.2f GB; we take %.2f times as long"
                    % (row["peer"]["peer"], seconds * 1e3, row["peer"]["peak_bytes"] / 1e9, row["seconds"] / seconds),
                    flush=True,
                )
            else:
                print("    no peer:", row["peer"].get("error", "")[-160:], flush=True)
            self.bench.save()
        for name in self.o.rows:
            for end in (".onnx", ".safetensors", ".json"):
                if os.path.exists(self.file(name, end)):
                    os.unlink(self.file(name, end))
