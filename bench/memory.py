"""What T5 takes of a rank under each combination of ZeRO, recomputation, precision and offload, as planned.

    python3 bench/memory.py [--epl build/release/bin/epl] [--models base,large,3b] [--rows build/bench/memory.jsonl]
                            [--limit SECONDS] [--each SECONDS] [--table]

8 sequences of 512 tokens on each of 8 ranks, AdamW. Each combination is a call of `epl plan`, which allocates nothing.
Its result is a line of JSON in the file of --rows, so that the same command goes on where an earlier one has ended: at
its --limit, or killed. A plan that takes longer than --each is tried again by the next command. At the end, or with
--table at once, the rows become Markdown: the gigabytes (10^9) of a rank at its peak, how often these fit into those of
plain mixed precision (data parallel, float32 states), and the predicted time as a multiple of the time of that.

--models may also name files: NAME=FILE.onnx. The models of T5 are made in the folder of --rows, for which Python needs
the package onnx (bench/requirements.txt).
"""
import argparse
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time

import t5_models

RANKS, SAMPLES = 8, 8
# Small buckets: what waits for its bucket is as much memory as the bucket.
ZERO = {"off": {}, "v0": {}, "v1": {"communication.max_splits": 60}, "v2": {"communication.max_splits": 60}}
AGAIN = {"kept": {}, "computed again": {"gradient_checkpoint.type": "auto"}}
PRECISION = {"float32": ({}, []),
             "amp": ({"amp.level": "O1"}, []),
             "amp, bf16 states": ({"amp.level": "O1"}, ["--optimizer-option", "state_type=bf16"])}
OFFLOAD = {"": {}, "offload": {"offload.level": "v0", "offload.values": "states, weights"}}
PLAIN = ("off", "kept", "amp", "")
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class TooLong(Exception):
    pass


def combinations():
    return list(itertools.product(ZERO, AGAIN, PRECISION, OFFLOAD))


def planned(epl, path, combination, seconds):
    zero, again, precision, offload = combination
    keys, words = PRECISION[precision]
    strategy = {"zero.level": zero, **ZERO[zero], **AGAIN[again], **keys, **OFFLOAD[offload]}
    try:
        done = subprocess.run([epl, "plan", path, "--ranks", str(RANKS), "--batch", str(RANKS * SAMPLES), "--optimizer",
                               "adamw", *words, "--strategy", json.dumps(strategy)], capture_output=True, text=True,
                              timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TooLong from None
    if done.returncode != 0:
        return {"refused": done.stderr.strip()[-400:]}
    peak = re.search(r"memory of a rank at its peak: ([\d,]+) bytes", done.stdout)
    step = re.search(r"predicted step on .*?: ([\d.]+) (s|ms|us|ns),", done.stdout)
    if not peak or not step:
        sys.exit(f"epl plan has not said what it should for {json.dumps(strategy)}:\n{done.stdout[:2000]}")
    return {"bytes": int(peak[1].replace(",", "")), "seconds": float(step[1]) * UNITS[step[2]]}


def read_rows(file):
    """By model and combination. A line that was cut by the end of its command does not count."""
    rows = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
            rows[row["model"], tuple(row["combination"])] = row
        except (json.JSONDecodeError, KeyError):
            continue
    return rows


def add_row(file, row):
    text = file.read_text() if file.exists() else ""
    with open(file, "a") as out:
        out.write(("\n" if text and not text.endswith("\n") else "") + json.dumps(row) + "\n")


def measure(options, models, rows):
    """False: something is left to do."""
    end = time.monotonic() + options.limit
    complete = True
    for model, path in models.items():
        left = [c for c in combinations() if (model, c) not in rows]
        if left and path is None:
            path = t5_models.t5_file(options.epl, model, options.rows.parent)
        for combination in left:
            seconds = min(options.each, end - time.monotonic())
            if seconds <= 0:
                return False
            name = f"{model}, {', '.join(part for part in combination if part)}"
            began = time.monotonic()
            try:
                result = planned(options.epl, path, combination, seconds)
            except TooLong:
                print(f"{name}: not within {seconds:.0f} s", file=sys.stderr, flush=True)
                complete = False
                continue
            row = {"model": model, "combination": combination, **result,
                   "planning_seconds": round(time.monotonic() - began, 1)}
            add_row(options.rows, row)
            rows[model, combination] = row
            print(f"{name}: {json.dumps(result)}", file=sys.stderr, flush=True)
    return complete


def cell(row, plain):
    if row is None:
        return ""
    if "refused" in row:
        return "refused"
    text = f"{row['bytes'] / 1e9:.2f}"
    if plain is None or "refused" in plain:
        return text
    return f"{text} ({plain['bytes'] / row['bytes']:.1f}, {row['seconds'] / plain['seconds']:.2f})"


def table(model, rows):
    columns = list(itertools.product(PRECISION, OFFLOAD))
    plain = rows.get((model, PLAIN))
    lines = ["| `zero.level` | " + " | ".join(", ".join(part for part in c if part) for c in columns) + " |",
             "|---|" + "---|" * len(columns)]
    for again, zero in itertools.product(AGAIN, ZERO):
        cells = [cell(rows.get((model, (zero, again, *c))), plain) for c in columns]
        lines.append(f"| {zero}, {again} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best(model, rows, precisions, slowest):
    """The least memory in at most so much of the time of plain mixed precision."""
    plain = rows.get((model, PLAIN))
    if plain is None or "refused" in plain:
        return None
    able = [row for (name, combination), row in rows.items()
            if name == model and combination[2] in precisions and "bytes" in row
            and row["seconds"] <= slowest * plain["seconds"]]
    return min(able, key=lambda row: row["bytes"], default=None)


def print_tables(models, rows):
    print("GB of a rank at its peak (times less than mixed precision alone, predicted time as a multiple of its).")
    for model in models:
        done = sum((model, c) in rows for c in combinations())
        print(f"\n{'T5-' if model in t5_models.SIZES else ''}{model}, {done} of {len(combinations())} combinations:\n")
        print(table(model, rows))
        for states, precisions in (("float32", ("amp",)), ("bf16", ("amp, bf16 states",))):
            row = best(model, rows, precisions, 1.35)
            if row:
                print(f"\nThe least with {states} states in at most 1.35 of the time: "
                      f"{', '.join(part for part in row['combination'] if part)}: {cell(row, rows[model, PLAIN])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epl", default="build/release/bin/epl")
    parser.add_argument("--models", default=",".join(t5_models.SIZES))
    parser.add_argument("--rows", type=pathlib.Path, default=pathlib.Path("build/bench/memory.jsonl"))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds of the command")
    parser.add_argument("--each", type=float, default=1800, help="seconds of a plan")
    parser.add_argument("--table", action="store_true", help="print what there is, and plan nothing")
    options = parser.parse_args()
    models = {}
    for text in options.models.split(","):
        name, _, path = text.partition("=")
        if not path and name not in t5_models.SIZES:
            parser.error(f"no T5 is called {name}; there are {', '.join(t5_models.SIZES)}, and NAME=FILE.onnx")
        models[name] = path or None
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.rows)
    complete = options.table or measure(options, models, rows)
    print_tables(models, rows)
    if not complete:
        sys.exit("not everything is planned: the same command goes on")


if __name__ == "__main__":
    main()
