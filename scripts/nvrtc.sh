# Fetches NVIDIA's compiler NVRTC and the headers of the driver for the tests of the CUDA backend into build/nvrtc (120
# MB). They need no GPU. Run alone, or sourced by ./test, which goes on where they cannot be had: the tests that need
# them are then skipped.
nvrtc_wanted=13.0.88
cuda_headers_wanted=13.0.96

fetch_nvrtc() {
  local to="$top/build/nvrtc" python="$top/.venv/bin/python" wheels
  [ "$(cat "$to/version" 2>/dev/null)" != "$nvrtc_wanted $cuda_headers_wanted" ] || return 0
  [ -x "$python" ] || python=python3
  say "fetching nvidia-cuda-nvrtc $nvrtc_wanted into build/nvrtc (optional)"
  wheels=$(mktemp -d)
  if "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" \
    "nvidia-cuda-nvrtc==$nvrtc_wanted" "nvidia-cuda-runtime==$cuda_headers_wanted" >"$wheels/log" 2>&1 &&
    for wheel in "$wheels"/*.whl; do "$python" -m zipfile -e "$wheel" "$wheels/all" 2>>"$wheels/log"; done; then
    mkdir -p "$to/include"
    find "$wheels/all" -path '*/include/*.h' \( -name 'cuda.h' -o -name 'nvrtc.h' \) -exec mv {} "$to/include" \;
    find "$wheels/all" \( -name 'libnvrtc.so.*' -o -name 'libnvrtc-builtins.so.*' \) -exec mv {} "$to" \;
    printf '%s\n' "$nvrtc_wanted $cuda_headers_wanted" >"$to/version"
  else
    say "  not available here: tests that compile kernels are skipped and counted ($(tail -1 "$wheels/log"))"
  fi
  rm -rf "$wheels"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  fetch_nvrtc
fi
