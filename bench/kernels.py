#!/usr/bin/env python3
"""Compiles every kernel of the cases for several GPUs, none of which is needed, and says what each takes.

bench/kernels.py [--build FOLDER] [--out FOLDER] [--cases FOLDER...] [--sheets a100 h100 b200] [--most N] [--ptx-only]

The texts are those of `epl check --device cuda:SHEET --texts`, at the levels of bits and in mixed precision. NVRTC
(scripts/nvrtc.sh) makes PTX of them with the options that the pack uses, and ptxas (scripts/ptxas.sh) code. A text that
does not compile, PTX that a driver of CUDA 13.0 does not load (newer than 9.0) and registers that spill are errors, and
so is a case without a plan, but for the reasons that REFUSALS lists.

Written: kernels.md in --out, with registers, shared memory and occupancy of each kernel, and kernels.json with every
text. The last line counts texts: N passed, N failed.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import functools
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEWEST_PTX = (9, 0)
# Of compute capability: registers, threads, blocks and bytes of shared memory of a multiprocessor. A block takes 1 KiB
# of these for the system (CUDA C++ Programming Guide, technical specifications).
MULTIPROCESSORS = {
    80: (65536, 2048, 32, 164 << 10),
    89: (65536, 1536, 24, 100 << 10),
    90: (65536, 2048, 32, 228 << 10),
    100: (65536, 2048, 32, 228 << 10),
}
STRATEGIES = (
    ({"reproducible.level": "exact"}, "f32"),
    ({"reproducible.level": "data"}, "f32"),
    ({"reproducible.level": "run"}, "f32"),
    ({"reproducible.level": "exact", "amp.level": "O1", "amp.type": "bf16"}, "f32"),
    ({"reproducible.level": "data", "amp.level": "O1", "amp.type": "f16"}, "f32"),
    ({"reproducible.level": "exact"}, "f64"),
)
# By precision: parts of reasons for which a case may have no plan.
REFUSALS = {"f32": (), "f64": ("no kernel for cross_entropy",)}


def kind_of(line, names, refusals):
    """What a line of standard error is: something that is said beside the texts, or a case of these without a plan."""
    found = re.match(r"epl: ([^:]+): ", line)
    if not found or found[1] not in names:
        return "said"
    return "no plan" if any(part in line for part in refusals) else "WRONG: no plan"


def texts_of(epl, sheet, cases, strategy, precision):
    """The texts of all cases, and what was said where there are none."""
    command = [epl, "check", "--device", "cuda:" + sheet, "--texts", "--precision", precision]
    command += ["--strategy", json.dumps(strategy)] + cases
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit("%s ended with %d: %s" % (" ".join(command[:6]), done.returncode, done.stderr.strip()[-500:]))
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.splitlines()


class Nvrtc:
    """NVRTC by its C functions."""

    def __init__(self, folder):
        # Its second library is looked for by name alone.
        for path in glob.glob(os.path.join(folder, "libnvrtc-builtins.so.*")):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(os.path.join(folder, "libnvrtc.so.13"))

    def text(self, what, program):
        size = ctypes.c_size_t()
        getattr(self.library, what + "Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self.library, what)(program, text)
        return text.value.decode()

    def compile(self, source, options):
        """PTX, and why there is none."""
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        code = self.library.nvrtcCompileProgram(program, len(options), words)
        made = self.text("nvrtcGetPTX", program) if code == 0 else ""
        log = self.text("nvrtcGetProgramLog", program)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return made, "" if code == 0 else log.strip() or "NVRTC gave %d" % code


def version_of(ptx):
    found = re.search(r"^\.version (\d+)\.(\d+)", ptx, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def parse_ptxas(said):
    """By entry function what `ptxas -v` says of it."""
    functions, name = {}, None
    for line in said.splitlines():
        found = re.search(r"(?:Compiling entry function '|Function properties for )(\w+)", line)
        if found:
            name = found[1]
            functions.setdefault(name, {"registers": 0, "spilled": 0, "stack": 0, "shared": 0})
            continue
        if name is None:
            continue
        found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if found:
            functions[name]["stack"] = int(found[1])
            functions[name]["spilled"] = int(found[2]) + int(found[3])
        found = re.search(r"Used (\d+) registers", line)
        if found:
            functions[name]["registers"] = int(found[1])
            shared = re.search(r"(\d+) bytes smem", line)
            functions[name]["shared"] = int(shared[1]) if shared else 0
    return functions


def occupancy(capability, registers, threads, shared):
    """The share of a multiprocessor's threads that run at once, from registers, shared memory and blocks."""
    all_registers, all_threads, all_blocks, all_shared = MULTIPROCESSORS[capability]
    warps = -(-threads // 32)
    of_a_warp = -(-max(registers, 1) * 32 // 256) * 256
    blocks = min(all_blocks, all_threads // (32 * warps), all_registers // of_a_warp // warps)
    blocks = min(blocks, all_shared // (-(-shared // 128) * 128 + 1024))
    return blocks * warps * 32 / all_threads


@functools.cache
def opened_nvrtc(folder):
    return Nvrtc(folder)


def compile_one(job):
    """A text, compiled: its functions, or what is wrong."""
    nvrtc_folder, ptxas, capability, options, source = job
    ptx, wrong = opened_nvrtc(nvrtc_folder).compile(source, options)
    if wrong:
        return {}, wrong[:700]
    version = version_of(ptx)
    if version is None or version > NEWEST_PTX:
        return {}, "PTX of version %s" % (version,)
    if not ptxas:
        return {}, ""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ptx)
        command = [ptxas, "-v", "-arch=sm_%d" % capability, path, "-o", os.path.join(folder, "kernel.cubin")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        return {}, "ptxas: " + done.stdout.strip()[-700:]
    functions = parse_ptxas(done.stdout)
    spilled = ["%s spills %d bytes" % (name, f["spilled"]) for name, f in functions.items() if f["spilled"]]
    return functions, "; ".join(spilled)


def gather(o):
    """Each text once, with the launches that were seen of it, and what was said beside them."""
    texts, refused = {}, collections.Counter()
    names = {os.path.basename(os.path.normpath(case)) for case in o.cases}
    for sheet in o.sheets:
        for strategy, precision in STRATEGIES:
            lines, said = texts_of(os.path.join(o.build, "bin/epl"), sheet, o.cases, strategy, precision)
            for line in said:
                kind = kind_of(line, names, REFUSALS[precision])
                refused["%s: %s %s: %s" % (kind, json.dumps(strategy), precision, line[:200])] += 1
            for line in lines:
                options = tuple(line["options"].split())
                capability = int(re.search(r"compute_(\d+)", line["options"])[1])
                uses = texts.setdefault((capability, options, line["source"]), {})
                name = "%s: %s" % (line["op"], line["kernel"]) if line["op"] else "commands"
                uses.setdefault((line["entry"], line["threads"], line["shared_bytes"]), name)
    return texts, refused


def sample(texts, most):
    """At most so many, spread over all, in an order that is the same every time."""
    ordered = sorted(texts, key=lambda key: (len(key[2]), key))
    if not most or len(ordered) <= most:
        return ordered
    return [ordered[i * len(ordered) // most] for i in range(most)]


def table(rows):
    """For each kernel and GPU the worst of its texts."""
    worst = {}
    for row in rows:
        at = worst.setdefault((row["kernel"], row["entry"], row["capability"]), dict(row, texts=0))
        at["texts"] += 1
        for key in ("registers", "shared", "threads", "spilled", "stack"):
            at[key] = max(at[key], row[key])
        at["occupancy"] = min(at["occupancy"], row["occupancy"])
    out = ["| kernel | entry | sm | texts | threads | registers | shared bytes | stack bytes | spilled | occupancy |"]
    out.append("|---|---|---|---|---|---|---|---|---|---|")
    for (kernel, entry, capability), at in sorted(worst.items()):
        out.append(
            "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %.0f %% |"
            % (
                kernel,
                entry,
                capability,
                at["texts"],
                at["threads"],
                at["registers"],
                at["shared"],
                at["stack"],
                at["spilled"],
                100 * at["occupancy"],
            )
        )
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--out", default=str(ROOT / "build/kernels"))
    parser.add_argument("--cases", nargs="+", default=sorted(glob.glob(str(ROOT / "tests/cases/*/"))))
    parser.add_argument("--sheets", nargs="+", default=["a100", "h100", "b200"])
    parser.add_argument("--most", type=int, default=0, help="texts of each GPU; 0: all")
    parser.add_argument("--ptx-only", action="store_true", help="without ptxas")
    parser.add_argument("--nvrtc", default=str(ROOT / "build/nvrtc"))
    parser.add_argument("--ptxas", default=str(ROOT / "build/ptxas/ptxas"))
    o = parser.parse_args()
    for needed in [o.nvrtc + "/libnvrtc.so.13"] + ([] if o.ptx_only else [o.ptxas]):
        if not os.path.exists(needed):
            print("skipped: there is no %s (scripts/nvrtc.sh, scripts/ptxas.sh)" % needed)
            print("0 passed, 0 failed, 1 skipped")
            return 0
    o.cases = [case for case in o.cases if os.path.exists(os.path.join(case, "reference.json"))]
    texts, refused = gather(o)
    if len({key[0] for key in texts}) != len(o.sheets):
        print("no texts of some GPU: %s" % dict(collections.Counter(key[0] for key in texts)), *refused, sep="\n")
        return 1
    chosen = []
    for capability in sorted({key[0] for key in texts}):
        chosen += sample([key for key in texts if key[0] == capability], o.most)
    jobs = [(o.nvrtc, "" if o.ptx_only else o.ptxas) + key for key in chosen]
    rows, wrong, failed = [], [], set()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for key, (functions, why) in zip(chosen, pool.map(compile_one, jobs, chunksize=4)):
            names = sorted(set(texts[key].values()))
            if why:
                wrong.append("sm_%d, %s: %s" % (key[0], ", ".join(names), why))
                failed.add(key)
            for (entry, threads, shared), name in texts[key].items():
                if entry not in functions:
                    if not o.ptx_only and not why:
                        wrong.append("sm_%d, %s: ptxas says nothing of %s" % (key[0], name, entry))
                        failed.add(key)
                    continue
                row = dict(functions[entry], kernel=name, entry=entry, capability=key[0], threads=threads)
                row["shared"] += shared
                row["occupancy"] = occupancy(key[0], row["registers"], threads, row["shared"])
                rows.append(row)
    os.makedirs(o.out, exist_ok=True)
    for line, times in sorted(refused.items()):
        print("%s%s" % (line, " (%d times)" % times if times > 1 else ""))
    without_plan = [line for line in refused if line.startswith("WRONG")]
    for line in wrong:
        print("WRONG: " + line)
    if rows:
        pathlib.Path(o.out, "kernels.md").write_text(table(rows), encoding="utf-8")
        pathlib.Path(o.out, "kernels.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        print("registers, shared memory and occupancy: %s" % os.path.join(o.out, "kernels.md"))
    print("%d passed, %d failed" % (len(chosen) - len(failed), len(failed) + len(without_plan)))
    return 1 if wrong or without_plan else 0


if __name__ == "__main__":
    sys.exit(main())
