# Fetches NVIDIA's headers of cuBLASLt, cuDNN, NCCL and NVML for the tests that compare our declarations with them, into
# build/nvidia and build/cudnn (8 MB; the wheels of cuBLASLt, cuDNN and NCCL have hundreds of megabytes and are not
# kept). Run alone, or sourced by ./test, which goes on where there are none: the tests are then skipped.
cublas_headers_wanted=13.1.0.3
cudnn_headers_wanted=9.26.0.51

# Of the wheels' files only the headers are written, and of CCCL what the others include.
keep_nvidia() {
  "$python" - "$1" "$2" <<'END'
import glob, os, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            _, found, inside = name.partition("/include/")
            if not found or name.endswith("/") or (inside.startswith(("cccl/", "cub/", "thrust/", "cuda/"))):
                continue
            path = os.path.join(sys.argv[2], "include", inside)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(files.read(name))
END
}

keep_cudnn() { keep_nvidia "$@"; }

fetch_nvidia_headers() {
  # cuBLAS's header includes those of the runtime, of the compiler and one of CCCL.
  local wanted="nvidia-cublas==$cublas_headers_wanted nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88"
  wanted="$wanted nvidia-cuda-cccl==13.0.85 nvidia-nvml-dev==13.0.87 nvidia-nccl-cu13==2.32.3"
  # shellcheck disable=SC2086
  fetch_wheels nvidia "$wanted" "the headers of nvidia-cublas $cublas_headers_wanted, NCCL and NVML" \
    "the comparison with them is" $wanted
  # A wheel that cannot be had does not keep the others away.
  fetch_wheels cudnn "$cudnn_headers_wanted" "the headers of nvidia-cudnn-cu13 $cudnn_headers_wanted" \
    "the comparison with them is" "nvidia-cudnn-cu13==$cudnn_headers_wanted"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  . "$(dirname "$0")/setup.sh"
  . "$top/scripts/wheels.sh"
  fetch_nvidia_headers
fi
