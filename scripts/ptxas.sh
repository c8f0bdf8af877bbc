# Fetches NVIDIA's assembler ptxas for bench/kernels.py, which compiles every kernel for GPUs that are not there, into
# build/ptxas (37 MB). Run alone, or sourced by ./test --all, which goes on where it cannot be had: that check is then
# skipped.
ptxas_wanted=13.0.88

keep_ptxas() {
  unpack_wheels "$1" && find "$1/all" -path '*/bin/ptxas' -exec mv {} "$2/ptxas" \; && chmod +x "$2/ptxas"
}

fetch_ptxas() {
  fetch_wheels ptxas "$ptxas_wanted" "ptxas of nvidia-cuda-nvcc $ptxas_wanted" "the check is" \
    "nvidia-cuda-nvcc==$ptxas_wanted"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  . "$top/scripts/wheels.sh"
  fetch_ptxas
fi
