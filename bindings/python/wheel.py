"""Makes a wheel of the package with the library inside.

    python3 wheel.py LIBEPL.SO OUT
"""
import base64
import hashlib
import pathlib
import platform
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def main():
    if len(sys.argv) != 3:
        return __doc__
    library = pathlib.Path(sys.argv[1]).read_bytes()
    version = re.search(r'^VERSION = "(.*)"', (HERE / "epl/_raw.py").read_text(), re.MULTILINE).group(1)
    # The newest version of the C library that a symbol was taken from is the oldest that will do.
    glibc = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\b", library))
    tag = f"py3-none-manylinux_2_{glibc}_{platform.machine()}"
    info = f"epl-{version}.dist-info"
    files = {f"epl/{path.name}": path.read_bytes() for path in sorted((HERE / "epl").glob("*.py"))}
    files["epl/libepl.so.1"] = library
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: epl\nVersion: {version}\nRequires-Python: >=3.9\nLicense: Apache-2.0\n"
        "Summary: EPL, an embedded training engine for neural networks\n").encode()
    files[f"{info}/LICENSE"] = (HERE / "../../LICENSE").read_bytes()
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
              for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,\n"]).encode()
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"epl-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
