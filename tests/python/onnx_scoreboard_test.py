"""The official ONNX node tests through the importer and the ops' own meaning: a scoreboard that may only rise.

The floor is tests/onnx/node_tests_floor.txt. Ends with `N passed, N failed` of this script: one check, that the floor holds;
the line above it is the scoreboard.
"""
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    program = TOP / "build/release-tests/bin/onnx_node_tests"
    folder = TOP / "build/onnx_node_tests"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, TOP / "tests/onnx/generate_node_tests.py", folder], check=True, stderr=subprocess.DEVNULL)
    run = subprocess.run([program, folder, "--floor", TOP / "tests/onnx/node_tests_floor.txt"], capture_output=True, text=True)
    shutil.rmtree(folder, ignore_errors=True)
    print("official node tests:", run.stdout.strip())
    print(f"{int(run.returncode == 0)} passed, {int(run.returncode != 0)} failed")
    return run.returncode


sys.exit(main())
