# Fetches NVIDIA's compiler NVRTC for the tests of the CUDA backend into build/nvrtc (114 MB). It needs no GPU. Run
# alone, or sourced by ./test, which goes on where it cannot be had: the tests that need it are then skipped.
nvrtc_wanted=13.0.88

fetch_nvrtc() {
  local to="$top/build/nvrtc" python="$top/.venv/bin/python" wheels
  [ "$(cat "$to/version" 2>/dev/null)" != "$nvrtc_wanted" ] || return 0
  [ -x "$python" ] || python=python3
  say "fetching nvidia-cuda-nvrtc $nvrtc_wanted into build/nvrtc (optional)"
  wheels=$(mktemp -d)
  if "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" \
    "nvidia-cuda-nvrtc==$nvrtc_wanted" >"$wheels/log" 2>&1 &&
    "$python" -m zipfile -e "$wheels"/*.whl "$wheels/all" 2>>"$wheels/log"; then
    mkdir -p "$to"
    find "$wheels/all" \( -name 'libnvrtc.so.*' -o -name 'libnvrtc-builtins.so.*' \) -exec mv {} "$to" \;
    printf '%s\n' "$nvrtc_wanted" >"$to/version"
  else
    say "  not available here: tests that compile kernels are skipped and counted ($(tail -1 "$wheels/log"))"
  fi
  rm -rf "$wheels"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  fetch_nvrtc
fi
