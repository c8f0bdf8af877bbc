#!/bin/sh
# python.sh SOURCE LIBRARY OUT: the Python package's tests, from a wheel with the library inside, and its sample.
set -eu
for python in "$1/.venv/bin/python" "${EPL_PYTHON:-python3}" python3; do
  if "$python" -c 'import numpy; numpy.zeros(1).__dlpack__(max_version=(1, 0))' 2>/dev/null; then
    rm -rf "$3"
    mkdir -p "$3/run"
    "$python" "$1/bindings/python/wheel.py" "$2" "$3"
    # A wheel is unpacked by what installs it, and so is it here: nothing but this folder is on the path.
    "$python" -m zipfile -e "$3"/epl_engine-*.whl "$3/installed"
    cd "$3/run"
    unset EPL_LIBRARY
    export PYTHONPATH="$3/installed"
    "$python" "$1/tests/bindings/python_test.py" .
    "$python" "$1/tests/bindings/python_values_test.py" .
    "$python" "$1/tests/bindings/python_fields_test.py" .
    "$python" "$1/samples/python/first.py" | tail -1
    "$python" "$1/samples/python/second_day.py" | tail -1
    # What the page shows of both days, one piece behind the other, as its reader has it.
    awk 'BEGIN {print "import asyncio\nimport pathlib"} /^## / {on = /first training/ || /second day/}
         /^```python$/ {show = on; next} /^```/ {show = 0} show' "$1/docs/python.md" >page.py
    [ "$(wc -l <page.py)" -gt 60 ] || { echo "FAILED: the page shows less than two days" && exit 1; }
    "$python" page.py | tail -1
    if "$python" -c 'import mypy' 2>/dev/null; then  # what a type checker says of programs that use the package
      export MYPYPATH="$3/installed"
      "$python" -m mypy --strict --follow-imports=silent --cache-dir "$3/mypy" "$1/tests/bindings/python_typed.py"
      "$python" -m mypy --strict --allow-untyped-defs --allow-untyped-calls --follow-imports=silent \
        --cache-dir "$3/mypy" "$1/samples/python/first.py" "$1/samples/python/second_day.py"
    fi
    exit
  fi
done
echo "SKIP: no Python here has NumPy 2.1 or newer"
