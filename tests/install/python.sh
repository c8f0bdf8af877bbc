#!/bin/sh
# python.sh SOURCES PREFIX BUILD OUT: wheels by pip, of a folder that was copied out of the sources and of the source
# archive, with the library of PREFIX inside; installed into an environment that has nothing else, and used there
# without NumPy. The same program with the Debian package of PREFIX.
set -eu
sources=$1 prefix=$2 out=$4
python=${EPL_PYTHON:-python3}
"$python" -m pip --version >/dev/null 2>&1 && "$python" -c 'import venv, ensurepip' 2>/dev/null ||
  { echo "SKIP: $python has no pip or no venv"; exit 0; }
[ -d "$prefix/lib/pkgconfig" ] || { echo "SKIP: no Debian packages were installed"; exit 0; }
rm -rf "$out"
mkdir -p "$out/run"
unset EPL_LIBRARY PYTHONPATH
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
cp -r "$sources/bindings/python" "$out/python"
"$python" -m pip wheel --quiet --no-index "$out/python" -w "$out/wheels"
"$python" "$sources/bindings/python/wheel.py" --source "$out"
"$python" -m pip wheel --quiet --no-index "$out"/epl_engine-*.tar.gz -w "$out/wheels_of_archive" \
  --config-settings library="$prefix/lib/libepl.so.1"
"$python" - "$out"/wheels/*.whl "$out"/wheels_of_archive/*.whl <<'END'
import sys
import zipfile

copied, archived = ({name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/RECORD")}
                    for wheel in map(zipfile.ZipFile, sys.argv[1:]))
licence = [name for name in archived if name.endswith("/LICENSE")]
assert licence and archived == {**copied, **{name: archived[name] for name in licence}}, set(archived) ^ set(copied)
END
# Without a library it is said which ways there are, and nothing of Python's own.
if PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH= "$python" -m pip wheel --no-index "$out/python" -w "$out/none" \
  >"$out/log" 2>&1; then
  echo "FAILED: a wheel without a library" && exit 1
fi
grep -q 'name it by --config-settings library=PATH' "$out/log" && ! grep -q 'Traceback' "$out/log" ||
  { cat "$out/log" && exit 1; }

"$python" -m venv --without-pip "$out/venv"
"$python" -m pip --python "$out/venv/bin/python" install --quiet --no-index "$out"/wheels/*.whl
cd "$out/run"
# The program of the description, and then what it has left.
{
  awk '/^```python$/ {on = 1; next} /^```/ {if (on) exit} on' "$sources/bindings/python/README.md"
  cat <<'END'

import importlib.metadata
import pathlib
import sys

assert session.step([x, [0, 1, 0, 1]]).loss < 0.1
known = importlib.metadata.metadata("epl-engine")
assert "import epl" in known.get_payload() and known["Description-Content-Type"] == "text/markdown"
assert known.get_all("Project-URL") == ["Homepage, https://epl.ai"]
print("version", importlib.metadata.version("epl-engine"), "of", pathlib.Path(epl.__file__).parent)
assert pathlib.Path(epl.__file__).is_relative_to(sys.argv[1])
END
} >first.py
"$out/venv/bin/python" first.py "$out/venv" | tail -1
test -s trained.onnx
rm trained.onnx
PYTHONPATH="$prefix/lib/python3/dist-packages" LD_LIBRARY_PATH="$prefix/lib" "$python" first.py "$prefix" | tail -1
test -s trained.onnx
