"""The committed field numbers of the ONNX schema are those of the installed onnx package.

Prints `N passed, N failed, N skipped` as its last line.
"""
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent

code = subprocess.run([sys.executable, str(TOP / "frontends/onnx/generate_schema.py"), "--check"]).returncode
print(f"{int(code == 0)} passed, {int(code != 0)} failed, 0 skipped")
sys.exit(int(code != 0))
