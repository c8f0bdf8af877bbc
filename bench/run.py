"""Alternates our engine and PyTorch on the rows of rows.py, prints a table and writes JSON. Started by bench/run.

    bench/run [--rows mlp,gpt] [--repeats 3] [--threads 2] [--quick] [--out build/bench/results.json]

For each row: PyTorch's four settings (eager or compiled, default or fused AdamW) are tried once and the one with the
best median step is the peer; then the peer and `epl check` run in turn, a process each, `repeats` times (short rows
four times as often: a shared machine changes its speed from one to the next). A figure is the median over the counted
steps of all runs, all but the first two of each; the spread is the 10th to the 90th percentile. Only the ratio of one
run of this script means something: machines differ. --quick leaves the compiled modes out. Above the table stand the
processor and what it has of AVX2, AVX-512, bf16 and AMX, and `wanted` is the ratio that such a processor should reach.
The JSON is written behind each row, so what is measured stays if the run is ended.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent
from rows import ROWS  # noqa: E402


def last_json(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 and not lines:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-800:]}")
    return json.loads(lines[-1])


def run_peer(row, mode, optimizer, threads):
    return last_json([sys.executable, HERE / "peer_torch.py", row, "--mode", mode, "--optimizer", optimizer,
                      "--threads", str(threads)])


def run_epl(epl, case, threads):
    result = last_json([pathlib.Path(epl).resolve(), "check", case, "--threads", str(threads), "--json"])
    if not result["pass"] and not as_near_as_the_peer(result,
                                                      json.loads((pathlib.Path(case) / "reference.json").read_text())):
        raise RuntimeError(f"epl check {case}: {result}")
    return result


def as_near_as_the_peer(result, reference):
    """Within ten times PyTorch's own float32 error, which `epl check` grants the losses alone: with batch norm over few
    positions, and with Adam's first steps on biases that start at zero, float32 is nowhere near its 1e-3."""
    own = reference["float32_errors"]
    limits = {"loss": 1e-4, "gradient": 1e-3, "parameter": 1e-3}
    return all(result.get(f"{k}_error", math.inf) <= max(limit, 10 * own[k]) for k, limit in limits.items())


def spread(values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return statistics.median(values), at(0.1), at(0.9)


def readable(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "unknown")
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return {"cpu": name, "cores": text.count("processor\t"), "avx2": "avx2" in flags, "avx512": "avx512f" in flags,
            "bf16": "avx512_bf16" in flags, "amx": "amx_tile" in flags}


def machine_text(there):
    levels = [text for key, text in [("avx2", "AVX2"), ("avx512", "AVX-512"), ("bf16", "bf16"), ("amx", "AMX")]
              if there[key]]
    return f"{there['cores']} cores of {there['cpu']}: {', '.join(levels) or 'none of the levels'}"


def compare(name, options, epl):
    case = TOP / "build" / "bench" / name
    reference = case / "reference.json"
    if not reference.exists() or "loss" not in json.loads(reference.read_text()).get("float32_errors", {}):
        print(f"{name}: exporting", flush=True)
        subprocess.run([sys.executable, HERE / "export.py", name, case], cwd=HERE, check=True,
                       stdout=subprocess.DEVNULL)
    modes = [("eager", "default"), ("eager", "fused")]
    if not options.quick:
        modes += [("compiled", "default"), ("compiled", "fused")]
    tried = {}
    for mode, optimizer in modes:
        tried[mode, optimizer] = run_peer(name, mode, optimizer, options.threads)
        print(f"{name}: torch {mode}, {optimizer} AdamW: "
              f"{readable(statistics.median(tried[mode, optimizer]['seconds']))} a step, "
              f"first after {tried[mode, optimizer]['first_step_seconds']:.1f} s", flush=True)
    best = min(tried, key=lambda k: statistics.median(tried[k]["seconds"]))
    peer, ours, results = [], [], []
    for _ in range(options.repeats * ROWS[name].runs):
        result = run_epl(epl, case, options.threads)
        results.append(result)
        ours += result["step_seconds"][2:]  # as the peer counts them
        peer += run_peer(name, *best, options.threads)["seconds"]
    ours_median, peer_median = spread(ours), spread(peer)
    row = {"row": name, "title": ROWS[name].title, "peer_mode": f"{best[0]}, {best[1]} AdamW",
           "epl_seconds": ours_median,
           "peer_seconds": peer_median, "ratio": peer_median[0] / ours_median[0],
           "wanted": ROWS[name].wanted_wide if machine()["avx512"] else ROWS[name].wanted,
           "epl_planned_peak_bytes": results[-1].get("planned_peak_bytes"), "loss_error": results[-1].get("loss_error"),
           "peer_peak_rss_bytes": tried[best]["peak_rss_bytes"],
           "peer_first_step_seconds": {f"{m}": tried[m, o]["first_step_seconds"] for m, o in tried},
           "peer_tried": {f"{m}, {o}": statistics.median(tried[m, o]["seconds"]) for m, o in tried}}
    print(f"{name}: epl {readable(ours_median[0])}, torch {readable(peer_median[0])}, ratio {row['ratio']:.2f}",
          flush=True)
    return row


def table(rows):
    lines = ["| work | epl (10th to 90th) | PyTorch best (10th to 90th) | its setting | ratio | wanted |",
             "|---|---|---|---|---|---|"]
    for r in rows:
        e, p = r["epl_seconds"], r["peer_seconds"]
        lines.append(f"| {r['title']} | {readable(e[0])} ({readable(e[1])} to {readable(e[2])}) | "
                     f"{readable(p[0])} ({readable(p[1])} to {readable(p[2])}) | {r['peer_mode']} | {r['ratio']:.2f} "
                     f"| {r['wanted']} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--epl", default=str(TOP / "build" / "release" / "bin" / "epl"))
    parser.add_argument("--out", default=str(TOP / "build" / "bench" / "results.json"))
    options = parser.parse_args()
    pathlib.Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.rows.split(","):
        rows.append(compare(name, options, options.epl))
        pathlib.Path(options.out).write_text(json.dumps({"machine": machine(), "threads": options.threads,
                                                         "rows": rows}, indent=1) + "\n")
    print(f"{machine_text(machine())}; float32, {options.threads} threads\n")
    print(table(rows))
    print("\nratios: " + ", ".join(f"{r['row']} {r['ratio']:.2f} of {r['wanted']}" for r in rows))


if __name__ == "__main__":
    main()
