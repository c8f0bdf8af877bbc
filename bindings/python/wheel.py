"""Makes the wheel of the package, with the library inside: by itself, and as what pip and build call (pyproject.toml).

    python3 wheel.py LIBEPL.SO OUT
    pip wheel bindings/python --config-settings library=LIBEPL.SO      else EPL_LIBRARY, else pkg-config
    python3 wheel.py --source OUT       the source archive
    python3 wheel.py --tree OUT         the package as it lies where a system has it, without the library
"""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'^VERSION = "(.*)"', (HERE / "epl/_raw.py").read_text(), re.MULTILINE).group(1)
# The package is `epl`; under this name the registry of Python has a stranger's.
NAME = "epl-engine"
STEM = f"{NAME.replace('-', '_')}-{VERSION}"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: EPL, an embedded training engine for neural networks: ONNX in, ONNX out
Author: the EPL authors
Project-URL: Homepage, https://epl.ai
License: Apache-2.0
Keywords: training,neural networks,onnx
Platform: linux
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text()}""".encode()
# In a checkout the licence lies at its top, in a source archive beside this file. A folder that was copied out of a
# checkout has none; METADATA names it all the same.
TOP = HERE.parent.parent
LICENSES = [TOP / "LICENSE"] if (TOP / "include/epl.h").exists() else [HERE / "LICENSE"]
LICENSE = {"LICENSE": path.read_bytes() for path in LICENSES if path.exists()}


def package():
    return {f"epl/{path.name}": path.read_bytes() for path in sorted((HERE / "epl").iterdir())
            if path.suffix == ".py" or path.name == "py.typed"}


def information(tag):
    """What pip knows of the package, once it is there."""
    pure = str(tag == "py3-none-any").lower()
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    files = {"WHEEL": wheel, "METADATA": METADATA, **LICENSE}
    return {f"{STEM}.dist-info/{name}": data for name, data in files.items()}


def make(library, out):
    """The name of the wheel that it wrote into the folder `out`."""
    library = pathlib.Path(library).read_bytes()
    # The newest version of the C library that a symbol was taken from is the oldest that will do.
    glibc = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\b", library))
    tag = f"py3-none-manylinux_2_{glibc}_{platform.machine()}"
    files = {**package(), "epl/libepl.so.1": library, **information(tag)}
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
              for name, data in files.items()]
    files[f"{STEM}.dist-info/RECORD"] = "\n".join([*record, f"{STEM}.dist-info/RECORD,,\n"]).encode()
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    wheel = f"{STEM}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(out) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = (config_settings or {}).get("library") or os.environ.get("EPL_LIBRARY")
    if not library and shutil.which("pkg-config"):
        asked = subprocess.run(["pkg-config", "--variable=libdir", "epl"], capture_output=True, text=True, check=False)
        library = asked.stdout.strip() and os.path.join(asked.stdout.strip(), "libepl.so.1")
    if not library:
        raise SystemExit("there is no libepl.so to put into the wheel: name it by --config-settings library=PATH or "
                         "EPL_LIBRARY, or install EPL, so that pkg-config finds it")
    if not os.path.isfile(library):
        raise SystemExit(f"{library} is not a file; it is to be the libepl.so that is put into the wheel")
    return make(library, wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    files = {**package(), "PKG-INFO": METADATA, **LICENSE}
    files.update((name, (HERE / name).read_bytes()) for name in ("README.md", "pyproject.toml", "wheel.py"))
    # Without the time in gzip's head, so that the same files give the same bytes.
    with open(pathlib.Path(sdist_directory) / f"{STEM}.tar.gz", "wb") as out, \
            gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{STEM}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return f"{STEM}.tar.gz"


def write_tree(out):
    for name, data in {**package(), **information("py3-none-any")}.items():
        path = pathlib.Path(out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def main():
    if len(sys.argv) != 3:
        return __doc__
    what, out = sys.argv[1:]
    if what == "--tree":
        write_tree(out)
    elif what == "--source":
        pathlib.Path(out).mkdir(parents=True, exist_ok=True)
        print(pathlib.Path(out) / build_sdist(out))
    else:
        print(pathlib.Path(out) / make(what, out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
