#!/bin/sh
# python.sh SOURCES PREFIX BUILD OUT: wheels by pip, of the sources and of the source archive, with the library of
# PREFIX inside; installed into an environment that has nothing else, and used there without NumPy.
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
cp "$sources/LICENSE" "$out/python"
"$python" -m pip wheel --quiet --no-index "$out/python" -w "$out/wheels"
(cd "$out/python" && "$python" -c 'import sys; sys.path.insert(0, "."); import wheel; wheel.build_sdist("..")')
"$python" -m pip wheel --quiet --no-index "$out"/epl-*.tar.gz -w "$out/wheels_of_archive" \
  --config-settings library="$prefix/lib/libepl.so.1"
cmp "$out"/wheels/*.whl "$out"/wheels_of_archive/*.whl

"$python" -m venv --without-pip "$out/venv"
"$python" -m pip --python "$out/venv/bin/python" install --quiet --no-index "$out"/wheels/*.whl
cd "$out/run"
"$out/venv/bin/python" - <<'END'
import array
import pathlib
import sys

import epl

assert pathlib.Path(epl.__file__).is_relative_to(sys.prefix), epl.__file__
engine = epl.Engine()
engine.write_template("mlp", {"sizes": [4, 16, 2], "seed": 1}, "first.onnx")
trainer = epl.Trainer(engine, {"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": {"batch": 4}})
session = epl.Session(epl.Plan(epl.Model(engine, "first.onnx"), trainer))
x = epl.Tensor.create_copy(engine, epl.DTYPE_F32, [4, 4], array.array("f", [1, 0, 0, 0, 0] * 3 + [1]))
target = epl.Tensor.create_copy(engine, epl.DTYPE_I64, [4], array.array("q", [0, 1, 0, 1]))
losses = [session.step([x, target]).loss for _ in range(50)]
session.export_onnx("trained.onnx")
print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps")
assert losses[-1] < 0.1 < losses[0]
END
test -s trained.onnx
