"""Writes what is generated from include/epl.h.

    python3 cmake/interface            every committed output again: the listing of the interface, docs/api.md, the raw
                                       layers of the bindings
    python3 cmake/interface --check    fails, and names them, where committed outputs are not what the header says
    python3 cmake/interface --list     their names
    python3 cmake/interface FOLDER     what tests are built with, into FOLDER

header.py reads the header, rules.py says what it must tell, model.py is what comes out of it. Each other file writes
one output. Settings are those of core/capi/options.json, which options.py reads.
"""
import pathlib
import sys

import abi
import api_page
import conformance
import cpp_wrapper
import dl_header
import go_raw
import header
import java_raw
import python_objects
import python_raw
import rust_sys
import settings_cpp
import settings_go
import settings_java
import settings_python
import settings_rust
import test_inputs

TOP = pathlib.Path(__file__).resolve().parents[2]
COMMITTED = (abi, api_page, cpp_wrapper, dl_header, go_raw, java_raw, python_objects, python_raw, rust_sys,
             settings_cpp, settings_go, settings_java, settings_python, settings_rust)
REFRESH = "python3 cmake/interface"


def texts(modules, interface):
    for module in modules:
        for name, lines in module.outputs(interface):
            yield name, "".join(line.rstrip() + "\n" for line in lines)


def stale(interface, top=TOP):
    return [name for name, text in texts(COMMITTED, interface)
            if not (top / name).exists() or (top / name).read_text() != text]


def main(arguments):
    try:
        interface = header.read(TOP / "include/epl.h")
    except header.HeaderError as error:
        return str(error)
    if arguments == ["--check"]:
        names = stale(interface)
        return f"{', '.join(names)}: stale, include/epl.h says something else. Refresh: {REFRESH}" if names else 0
    if arguments == ["--list"]:
        print("\n".join(name for name, _ in texts(COMMITTED, interface)))
        return 0
    if len(arguments) > 1 or arguments[:1] == ["--help"]:
        return __doc__
    folder, modules = (pathlib.Path(arguments[0]), [test_inputs, conformance]) if arguments else (TOP, COMMITTED)
    for name, text in texts(modules, interface):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
