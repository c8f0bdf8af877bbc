"""Makes the wheel of the package, with the library inside: by itself, and as what pip and build call (pyproject.toml).

    python3 wheel.py LIBEPL.SO OUT
    pip wheel bindings/python --config-settings library=LIBEPL.SO      else EPL_LIBRARY, else pkg-config
"""
import base64
import hashlib
import io
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'^VERSION = "(.*)"', (HERE / "epl/_raw.py").read_text(), re.MULTILINE).group(1)
METADATA = (f"Metadata-Version: 2.1\nName: epl\nVersion: {VERSION}\nRequires-Python: >=3.9\nLicense: Apache-2.0\n"
            "Summary: EPL, an embedded training engine for neural networks\n").encode()
# In a checkout the licence lies at its top, in a source archive beside this file.
LICENSE = next(path for path in (HERE / "LICENSE", HERE / "../../LICENSE") if path.exists())


def package():
    return {f"epl/{path.name}": path.read_bytes() for path in sorted((HERE / "epl").iterdir())
            if path.suffix == ".py" or path.name == "py.typed"}


def make(library, out):
    """The name of the wheel that it wrote into the folder `out`."""
    library = pathlib.Path(library).read_bytes()
    # The newest version of the C library that a symbol was taken from is the oldest that will do.
    glibc = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\b", library))
    tag = f"py3-none-manylinux_2_{glibc}_{platform.machine()}"
    info = f"epl-{VERSION}.dist-info"
    files = package()
    files["epl/libepl.so.1"] = library
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/METADATA"] = METADATA
    files[f"{info}/LICENSE"] = LICENSE.read_bytes()
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
              for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,\n"]).encode()
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    wheel = f"epl-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(out) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = (config_settings or {}).get("library") or os.environ.get("EPL_LIBRARY")
    if not library:
        asked = subprocess.run(["pkg-config", "--variable=libdir", "epl"], capture_output=True, text=True, check=False)
        library = asked.stdout.strip() and os.path.join(asked.stdout.strip(), "libepl.so.1")
    if not library:
        raise SystemExit("there is no libepl.so to put into the wheel: name it by --config-settings library=PATH or EPL_LIBRARY, or "
                         "install EPL, so that pkg-config finds it")
    return make(library, wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    top = f"epl-{VERSION}"
    files = {**package(), "PKG-INFO": METADATA, "LICENSE": LICENSE.read_bytes()}
    files.update((name, (HERE / name).read_bytes()) for name in ("pyproject.toml", "wheel.py"))
    with tarfile.open(pathlib.Path(sdist_directory) / f"{top}.tar.gz", "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return f"{top}.tar.gz"


def main():
    if len(sys.argv) != 3:
        return __doc__
    print(pathlib.Path(sys.argv[2]) / make(sys.argv[1], sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
