# Fetches NVIDIA's compiler NVRTC and the headers of the driver for the tests of the CUDA backend into build/nvrtc (120
# MB). They need no GPU. Run alone, or sourced by ./test, which goes on where they cannot be had: the tests that need
# them are then skipped.
nvrtc_wanted=13.0.88
cuda_headers_wanted=13.0.96

keep_nvrtc() {
  unpack_wheels "$1" && mkdir -p "$2/include" &&
    find "$1/all" -path '*/include/*.h' \( -name 'cuda.h' -o -name 'nvrtc.h' \) -exec mv {} "$2/include" \; &&
    find "$1/all" \( -name 'libnvrtc.so.*' -o -name 'libnvrtc-builtins.so.*' \) -exec mv {} "$2" \;
}

fetch_nvrtc() {
  fetch_wheels nvrtc "$nvrtc_wanted $cuda_headers_wanted" "nvidia-cuda-nvrtc $nvrtc_wanted" \
    "tests that compile kernels are" "nvidia-cuda-nvrtc==$nvrtc_wanted" "nvidia-cuda-runtime==$cuda_headers_wanted"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  . "$top/scripts/wheels.sh"
  fetch_nvrtc
fi
