"""The sources are what clang-format makes of them, and no line is longer than its limit.

    python tests/python/format_test.py

include/epl.h is set by hand, for its readers: only its lines are measured, like those of scripts and of CMake's files.
Generated files are as their generators write them, and left out.
A line may be as long as a raw string, a text in quotes or a file within a file that it holds.
Prints `N passed, N failed` as its last line.
"""
import io
import pathlib
import re
import subprocess
import sys
import tokenize

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("backends", "bench", "core", "frontends", "include", "samples", "tests", "tools")
SCRIPTS = (".ci", "cmake", "scripts", *FOLDERS)
BY_HAND = {TOP / "include/epl.h"}
GENERATED = {TOP / name for name in ("frontends/onnx/schema.h", "frontends/onnx/operator_table.h", "include/epl_dl.h")}
LIMIT = 120
LONG_TEXT = re.compile(r'''"[^"]{60,}|'[^']{60,}''')


def sources():
    for folder in FOLDERS:
        for path in sorted((TOP / folder).rglob("*")):
            if path.suffix in (".c", ".cc", ".h") and path.is_file() and path not in GENERATED:
                yield path


def scripts():
    yield from (TOP / name for name in ("CMakeLists.txt", "quickstart", "test"))
    for folder in SCRIPTS:
        for path in sorted((TOP / folder).rglob("*")):
            if path.is_file() and (path.suffix in (".py", ".sh", ".cmake") or path.name in ("CMakeLists.txt", "run")):
                yield path


def formatted(paths):
    """The names of those that clang-format would change."""
    tool = pathlib.Path(sys.executable).parent / "clang-format"
    done = subprocess.run([tool, "--dry-run", *paths], capture_output=True, text=True, cwd=TOP)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    lines = (line for line in done.stderr.splitlines() if "-Wclang-format-violations" in line)
    return {pathlib.Path(line.split(":", 1)[0]) for line in lines}


def lines_in_texts(source):
    """The lines of a Python file that lie in a string of several lines, descriptions of functions excepted."""
    inside, before = set(), tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING and before not in (tokenize.NEWLINE, tokenize.INDENT):
            inside.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    return inside


def long_lines(path):
    text = path.read_text()
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if len(line) > LIMIT]
    if path.suffix in (".c", ".cc", ".h"):
        return [number for number, line in lines if not re.search(r'R"\w*\(', line)]
    texts = lines_in_texts(text) if lines and path.suffix == ".py" else set()
    return [number for number, line in lines if not LONG_TEXT.search(line) and number not in texts]


def main():
    paths = list(sources())
    wrong = formatted([path for path in paths if path not in BY_HAND])
    failed = 0
    for path in paths + list(scripts()):
        name = path.relative_to(TOP)
        reasons = [f"is not as clang-format has it: .venv/bin/clang-format -i {name}"] if path in wrong else []
        reasons += [f"line {number} is longer than {LIMIT}" for number in long_lines(path)]
        for reason in reasons:
            print(f"{name}: {reason}")
        failed += bool(reasons)
    print(f"{len(paths) + len(list(scripts())) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
