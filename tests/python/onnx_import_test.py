"""The ONNX importer against the onnx package: our table of field numbers is the official schema's, the committed models are
what generate_data.py writes, and the official node tests pass in the importer's own scoreboard (tests/onnx/node_tests.cc).

Prints `N passed, N failed, N skipped` as its last line.
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ONNX = ROOT / "tests" / "onnx"
SCOREBOARD = ROOT / "build" / "release-tests" / "bin" / "onnx_node_tests"


def run(*words):
    """None if the command succeeds, else the end of what it said."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    sys.stdout.write("".join(line + "\n" for line in done.stdout.splitlines()[-3:]))
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def schema_is_fresh():
    return run(sys.executable, ROOT / "frontends" / "onnx" / "generate_schema.py", "--check")


def data_is_fresh():
    return run(sys.executable, ONNX / "generate_data.py", "--check")


def node_tests_pass():
    with tempfile.TemporaryDirectory() as folder:
        return run(sys.executable, ONNX / "generate_node_tests.py", folder) or run(SCOREBOARD, folder, "--floor", ONNX / "node_tests_floor.txt")


def main():
    passed, failed, skipped = 0, 0, 0
    for check in (schema_is_fresh, data_is_fresh, node_tests_pass):
        if check is node_tests_pass and not SCOREBOARD.exists():
            print(f"SKIP: {SCOREBOARD.name} is not built")
            skipped += 1
            continue
        wrong = check()
        if wrong:
            print(f"FAIL {check.__name__}: {wrong}")
        failed += wrong is not None
        passed += wrong is None
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
