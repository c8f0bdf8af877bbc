"""The sources are what clang-format makes of them, and no line is longer than its limit.

    python tests/python/format_test.py

include/epl.h is set by hand, for its readers: only its lines are measured. Lines that hold a raw string may be as long as it is.
Prints `N passed, N failed` as its last line.
"""
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("backends", "bench", "core", "frontends", "include", "samples", "tests", "tools")
BY_HAND = {TOP / "include/epl.h"}
LIMIT = 120


def sources():
    for folder in FOLDERS:
        for path in sorted((TOP / folder).rglob("*")):
            if path.suffix in (".c", ".cc", ".h") and path.is_file():
                yield path


def formatted(paths):
    """The names of those that clang-format would change."""
    tool = pathlib.Path(sys.executable).parent / "clang-format"
    done = subprocess.run([tool, "--dry-run", *paths], capture_output=True, text=True, cwd=TOP)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return {pathlib.Path(line.split(":", 1)[0]) for line in done.stderr.splitlines() if "-Wclang-format-violations" in line}


def long_lines(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if len(line) > LIMIT and not re.search(r'R"\w*\(', line):
            yield number


def main():
    paths = list(sources())
    wrong = formatted([path for path in paths if path not in BY_HAND])
    failed = 0
    for path in paths:
        reasons = ["is not as clang-format has it: .venv/bin/clang-format -i " + str(path.relative_to(TOP))] if path in wrong else []
        reasons += [f"line {number} is longer than {LIMIT}" for number in long_lines(path)]
        for reason in reasons:
            print(f"{path.relative_to(TOP)}: {reason}")
        failed += bool(reasons)
    print(f"{len(paths) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
