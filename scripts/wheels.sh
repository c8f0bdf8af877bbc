# What NVIDIA gives away as wheels, for tests that are skipped where it cannot be had. Sourced behind scripts/setup.sh.

# fetch_wheels NAME VERSION WHAT SKIPPED PACKAGE==VERSION...: downloads wheels, of which `keep_NAME WHEELS FOLDER` puts
# the files for tests into build/NAME, once for each VERSION. WHAT is told at the beginning, SKIPPED where there are no
# such wheels.
fetch_wheels() {
  local name=$1 version=$2 what=$3 skipped=$4 to="$top/build/$1" python="$top/.venv/bin/python" wheels
  [ "$(cat "$to/version" 2>/dev/null)" != "$version" ] || return 0
  [ -x "$python" ] || python=python3
  say "fetching $what into build/$name (optional)"
  wheels=$(mktemp -d)
  if "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" "${@:5}" \
    >"$wheels/log" 2>&1 && mkdir -p "$to" && "keep_$name" "$wheels" "$to" >>"$wheels/log" 2>&1; then
    printf '%s\n' "$version" >"$to/version"
  else
    say "  not available here: $skipped skipped and counted ($(tail -1 "$wheels/log"))"
  fi
  rm -rf "$wheels"
}

# unpack_wheels WHEELS: all of them into WHEELS/all. For keep_NAME, with the Python of fetch_wheels.
unpack_wheels() {
  local wheel
  for wheel in "$1"/*.whl; do
    "$python" -m zipfile -e "$wheel" "$1/all" || return
  done
}
