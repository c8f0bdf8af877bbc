"""What each combination of ZeRO, recomputation, precision and offload takes, as planned: a Markdown table.

    python3 bench/memory.py [--epl build/release/bin/epl] MODEL -- OPTION...

The options behind `--` are those of `epl plan`, such as --ranks 8 --batch 64 --optimizer adamw. A row is a level of
ZeRO, with and without recomputation; a column is a precision, and whether states and weights lie in files. A cell has
the gigabytes (10^9) of a rank at its peak and the predicted time, as a multiple of that of the first cell. Nothing is
allocated, so models of any size can be planned; for each cell the model is read and planned once.
"""
import argparse
import json
import re
import subprocess
import sys

# Small buckets: what waits for its bucket is as much memory as the bucket.
LEVELS = {"off": {}, "v0": {}, "v1": {"communication.max_splits": 60}, "v2": {"communication.max_splits": 60}}
ROWS = [(f"{level}{', computed again' if again else ''}",
         {"zero.level": level, **keys, **({"gradient_checkpoint.type": "auto"} if again else {})})
        for again in (False, True) for level, keys in LEVELS.items()]
COLUMNS = [("float32", {}, []),
           ("amp", {"amp.level": "O1"}, []),
           ("amp, bf16 states", {"amp.level": "O1"}, ["--optimizer-option", "state_type=bf16"]),
           ("amp, offload", {"amp.level": "O1", "offload.level": "v0", "offload.values": "states, weights"}, [])]


def planned(options, strategy, more):
    done = subprocess.run([options.epl, "plan", options.model, *options.of_plan, *more, "--strategy",
                           json.dumps(strategy)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{json.dumps(strategy)}: {done.stderr.strip()}")
    peak = re.search(r"memory of a rank at its peak: ([\d,]+) bytes", done.stdout)[1]
    number, unit = re.search(r"predicted step on .*?: ([\d.]+) (s|ms|us),", done.stdout).groups()
    return int(peak.replace(",", "")), float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epl", default="build/release/bin/epl")
    parser.add_argument("model")
    parser.add_argument("of_plan", nargs="*")
    options = parser.parse_args()
    first = None
    print("| `zero.level` | " + " | ".join(name for name, _, _ in COLUMNS) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    for name, row in ROWS:
        cells = []
        for _, column, more in COLUMNS:
            peak, seconds = planned(options, {**row, **column}, more)
            first = first or seconds
            cells.append(f"{peak / 1e9:.2f} ({seconds / first:.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
