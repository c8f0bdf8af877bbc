# Fetches NVIDIA's assembler ptxas for bench/kernels.py, which compiles every kernel for GPUs that are not there, into
# build/ptxas (37 MB). Run alone, or sourced by ./test --all, which goes on where it cannot be had: that check is then
# skipped.
ptxas_wanted=13.0.88

fetch_ptxas() {
  local to="$top/build/ptxas" python="$top/.venv/bin/python" wheels
  [ "$(cat "$to/version" 2>/dev/null)" != "$ptxas_wanted" ] || return 0
  [ -x "$python" ] || python=python3
  say "fetching ptxas of nvidia-cuda-nvcc $ptxas_wanted into build/ptxas (optional)"
  wheels=$(mktemp -d)
  if "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" \
    "nvidia-cuda-nvcc==$ptxas_wanted" >"$wheels/log" 2>&1 &&
    "$python" -m zipfile -e "$wheels"/*.whl "$wheels/all" 2>>"$wheels/log"; then
    mkdir -p "$to"
    find "$wheels/all" -path '*/bin/ptxas' -exec mv {} "$to/ptxas" \;
    chmod +x "$to/ptxas" && printf '%s\n' "$ptxas_wanted" >"$to/version"
  else
    say "  not available here: the check is skipped and counted ($(tail -1 "$wheels/log"))"
  fi
  rm -rf "$wheels"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  fetch_ptxas
fi
