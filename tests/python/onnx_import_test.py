"""What is committed for the ONNX importer against the onnx package: our table of field numbers is the official
schema's, and the models are what generate_data.py writes. (The official node tests are node_test.py.)

Prints `N passed, N failed, N skipped` as its last line.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ONNX = ROOT / "tests" / "onnx"


def run(*words):
    """None if the command succeeds, else the end of what it said."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    sys.stdout.write("".join(line + "\n" for line in done.stdout.splitlines()[-3:]))
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def schema_is_fresh():
    return run(sys.executable, ROOT / "frontends" / "onnx" / "generate_schema.py", "--check")


def data_is_fresh():
    return run(sys.executable, ONNX / "generate_data.py", "--check")


def main():
    passed, failed = 0, 0
    for check in (schema_is_fresh, data_is_fresh):
        wrong = check()
        if wrong:
            print(f"FAIL {check.__name__}: {wrong}")
        failed += wrong is not None
        passed += wrong is None
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
