"""The interface against the recorded baseline, by libabigail: what programs were built against still holds.

    python3 compare.py LIBEPL.SO     compares; a struct may have grown at its end, and functions may be new
    python3 compare.py --record      writes the baseline again, tests/abi/epl-0.1.abi

What is compared is a library of empty functions that the header declares, with debug information, which libepl.so is
shipped without; and that libepl.so has every function of the baseline.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
BASELINE = HERE / "epl-0.1.abi"
sys.path.insert(0, str(TOP / "cmake/interface"))
import header  # noqa: E402
import test_inputs  # noqa: E402

# Lines of a report that say where a change is, and nothing about what it is.
WHERE = re.compile(r"""\s*(\w+\ changes\ summary:\ .*|\d+\ functions?\ with\ some\ indirect\ sub-type\ changes?:
                       |\[C\]\ 'function\ .*'.*\ has\ some\ indirect\ sub-type\ changes:
                       |parameter\ \d+\ of\ type\ '.*'\ has\ sub-type\ changes:|in\ (pointed\ to|unqualified\ underlying)\ type\ .*
                       |underlying\ type\ 'struct\ .*'.*\ changed:|\d+\ data\ member\ insertions?:)?\s*""", re.VERBOSE)
SIZE = re.compile(r"\s*type size changed from (\d+) to (\d+) \(in bits\)")
INSERTION = re.compile(r"\s*'.*', at offset (\d+) \(in bits\).*")


def empty_library(text, folder):
    """Of a header; libabigail reads it out of the compiled file."""
    interface = header.Reader(text).read()
    (folder / "epl.h").write_text(text)
    (folder / "epl_empty.c").write_text("\n".join(test_inputs.empty_library(interface)) + "\n")
    names = "".join(f"{f.name};" for f in interface.functions)
    (folder / "epl.map").write_text(f"EPL_1 {{ global: {names} local: *; }};\n")
    library = folder / "libepl.so.1"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-g", "-O0", "-fPIC", "-shared", f"-I{folder}",
                    f"-Wl,--version-script={folder}/epl.map", "-Wl,-soname,libepl.so.1", "epl_empty.c", "-o", library],
                   check=True, cwd=folder)
    return library


def broken(baseline, library):
    """The lines of libabigail's report that programs must not see; none where the interface has only grown."""
    done = subprocess.run(["abidiff", "--no-added-syms", baseline, library], capture_output=True, text=True)
    if done.returncode & 3:  # it could not compare
        return [done.stderr or done.stdout]
    lines, size = [], 0
    for line in done.stdout.splitlines():
        grown, inserted = SIZE.fullmatch(line), INSERTION.fullmatch(line)
        if grown and int(grown.group(2)) >= int(grown.group(1)):
            size = int(grown.group(1))
        elif not WHERE.fullmatch(line) and not (inserted and int(inserted.group(1)) >= size > 0):
            lines.append(line)
    return lines


def record(library, baseline):
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", baseline, library],
                   check=True)


def check_that_it_sees(text, folder):
    """Breaks the header, and lets it grow."""
    baseline = folder / "now.abi"
    record(empty_library(text, folder), baseline)
    last = re.search(r"  int64_t nanoseconds;[^\n]*\n} epl_metrics;", text).group()
    first = re.search(r"  double loss;[^\n]*\n", text).group()
    init = re.search(r"#define EPL_METRICS_INIT [^\n]*", text).group()
    longer = init.replace("0}", "0, 0}")
    destroy = re.search(r"EPL_API[^;]*\bepl_store_address\([^;]*;\n", text).group()
    argument = "epl_tensor_dim(const epl_tensor* tensor, int32_t dim)"
    cases = [
        ("nothing", {}, False),
        ("a function more", {destroy: destroy + destroy.replace("epl_store_address", "epl_store_more")}, False),
        ("a field more", {last: last.replace("} epl", "  int64_t more;\n} epl"), init: longer}, False),
        ("a field in between", {first: "  int64_t more;\n" + first, init: longer}, True),
        ("another type of a field", {first: first.replace("double", "int64_t")}, True),
        ("a function less", {destroy: ""}, True),
        ("another type of an argument", {argument: argument.replace("int32_t", "int64_t")}, True),
    ]
    for what, changes, wanted in cases:
        changed = text
        for before, after in changes.items():
            assert changed.count(before) == 1, before
            changed = changed.replace(before, after)
        lines = broken(baseline, empty_library(changed, folder))
        if bool(lines) != wanted:
            return f"{what}: {'not seen' if wanted else lines}"
    return ""


def main():
    if len(sys.argv) != 2:
        return __doc__
    if not shutil.which("abidiff"):
        print("SKIP: abidiff (Debian's abigail-tools) is not installed")
        return 0
    text = (TOP / "include/epl.h").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if sys.argv[1] == "--record":
            record(empty_library(text, folder), BASELINE)
            return 0
        blind = check_that_it_sees(text, folder)
        if blind:
            return f"this comparison is blind: {blind}"
        lines = broken(BASELINE, empty_library(text, folder))
    if lines:
        return "\n".join(["Programs built with tests/abi/epl-0.1.abi would break:", *lines,
                          "Before 1.0 that may be right: python3 tests/abi/compare.py --record"])
    exported = set(re.findall(r" T (epl_\w+)@@EPL_1", subprocess.run(
        ["nm", "-D", "--defined-only", sys.argv[1]], capture_output=True, text=True, check=True).stdout))
    missing = set(re.findall(r"<elf-symbol name='(epl_\w+)'", BASELINE.read_text())) - exported
    if missing or not exported:
        return f"{sys.argv[1]} lacks {', '.join(sorted(missing)) or 'every function'}"
    print(f"{len(exported)} functions; nothing of the baseline is gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
