#!/bin/sh
# devices.sh EPL OUT [MACHINE [NVRTC]]: what epl devices lists, and plans for GPUs that are not there. MACHINE: the
# folder of the libraries that answer as NVIDIA's; with it, what is said of GPUs, and of those that cannot be used.
# NVRTC: where the compiler is.
. "$(dirname "$0")/begin.sh"
machine=${3:-} nvrtc=${4:-}
"$epl" template mlp --sizes 4,8,2 --out m.onnx >/dev/null || exit 1
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 32 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv
mkdir -p empty

expect 0 "cpu: " "$epl" devices
for words in "sim: " "cuda:h100: NVIDIA H100 80GB HBM3, capability 9.0" "cuda:rtx4090" "cuda:FILE.json"; do
  case $output in *"$words"*) ;; *) fail "epl devices lacks \"$words\": $output" ;; esac
done
expect 0 '"name":"cuda:b200"' "$epl" devices --json
expect 0 "device cuda needs the pack cuda: there is no" "$epl" devices --packs empty
expect 3 "needs the pack cuda" "$epl" plan m.onnx --data t.csv --device cuda:h100 --packs empty
expect 3 "did you mean h100?" "$epl" plan m.onnx --data t.csv --device cuda:h10
expect 3 "cpu has no sheets" "$epl" plan m.onnx --data t.csv --device cpu:h100
expect 2 "computes no numbers" "$epl" train m.onnx --data t.csv --steps 1 --device cuda:h100 --out run
expect 2 "computes no numbers" "$epl" evaluate m.onnx --data t.csv --device cuda:h100
expect 3 "devices of this machine have numbers, as in cuda:0,2" "$epl" train m.onnx --data t.csv --steps 1 \
  --device cuda:first --out run

# With the pack, plans are made.
if "$epl" devices | grep -q "needs the pack cuda"; then
  echo "the pack cuda is not built"
  exit $failed
fi
expect 0 "the plan fits" "$epl" plan m.onnx --data t.csv --device cuda:h100
case $output in *"predicted step on simulated NVIDIA H100 80GB HBM3"*) ;; *) fail "the predicted step: $output" ;; esac
expect 0 '"fits":true' "$epl" plan m.onnx --data t.csv --device cuda:l4 --json
expect 0 "extern \\\"C\\\" __global__" "$epl" plan m.onnx --data t.csv --device cuda:h100 --stage texts
for words in '"entry":"' '"threads":' -gpu-architecture=compute_90 '"entry":"copy_rows_4"' '"entry":"reduce_ranks"'; do
  case $output in *"$words"*) ;; *) fail "the texts of a plan lack $words" ;; esac
done
expect 0 "" "$epl" plan m.onnx --data t.csv --stage texts
[ -z "$output" ] || fail "the processor compiles nothing: $output"
expect 4 "is a sheet" "$epl" trace m.onnx --data t.csv --device cuda:h100
cat >card.json <<'END'
{"product": "A card", "capability": 8.9, "processors": 20, "memory_bytes": 1000, "bandwidth": 100e9,
 "host_bandwidth": 10e9, "products": {"f32": 1e12}}
END
expect 0 "the plan does not fit" "$epl" plan m.onnx --data t.csv --device cuda:card.json
expect 0 '"fits":false' "$epl" plan m.onnx --data t.csv --device cuda:card.json --json
sed 's/"processors"/"procesors"/' card.json >wrong.json
expect 3 "did you mean processors?" "$epl" plan m.onnx --data t.csv --device cuda:wrong.json
sed 's/8.9/7.0/' card.json >old.json
expect 4 "is too old: it has compute capability 7.0" "$epl" plan m.onnx --data t.csv --device cuda:old.json

[ -n "$machine" ] || exit $failed
# gpu SETTINGS COMMAND...: with the machine for tests as the driver.
gpu() {
  settings=$1
  shift
  EPL_TEST_MACHINE="$settings" LD_LIBRARY_PATH="$machine:$nvrtc" "$@"
}
expect 0 "0: NVIDIA H100 80GB HBM3, capability 9.0, 132 processors" gpu devices=h100,h100,a100 "$epl" devices
for words in "of which " "are free" "18 NVLinks" "driver 580.65.06, for CUDA 13.0" "1: NVIDIA H100" "2: NVIDIA A100" \
  "0 and 1 are joined by NVLink" "0 and 2 are joined by a PCIe host bridge" "libcuda.so.1 (the NVIDIA driver): found" \
  "libcublasLt.so.13 (cuBLASLt, NVIDIA's matrix products): found" "libnvidia-ml.so.1"; do
  case $output in *"$words"*) ;; *) fail "epl devices lacks \"$words\": $output" ;; esac
done
expect 0 '"joined":[{"one":0,"other":1,"by":"NVLink"}]' gpu devices=h100,h100 "$epl" devices --json

# Errors of a new user: no GPU for this process, an old driver, an old GPU.
expect 0 "this process sees no GPU" gpu devices= "$epl" devices
case $output in *CUDA_VISIBLE_DEVICES*"epl plan --device"*) ;; *) fail "no GPU: $output" ;; esac
expect 4 "this process sees no GPU" gpu devices= "$epl" plan m.onnx --data t.csv --device cuda
expect 4 "version 12.4) is too old" gpu driver=12040 "$epl" plan m.onnx --data t.csv --device cuda
case $output in *"driver 580 or later"*) ;; *) fail "an old driver: $output" ;; esac
expect 0 "libcuda.so.1 (the NVIDIA driver): unusable" gpu driver=12040 "$epl" devices
expect 4 "Tesla V100-SXM2-16GB is too old" gpu devices=v100 "$epl" plan m.onnx --data t.csv --device cuda

expect 4 "there is no GPU 2; this process sees 2" gpu devices=h100,h100 "$epl" plan m.onnx --data t.csv --device cuda:2
expect 3 "numbers with commas" "$epl" plan m.onnx --data t.csv --device cuda:0,,1
expect 3 "cpu is one alone" "$epl" plan m.onnx --data t.csv --device cpu:0

# The plan of the GPU that is there says what the plan by its sheet says.
[ -n "$nvrtc" ] || exit $failed
gpu devices=h100 "$epl" plan m.onnx --data t.csv --device cuda --json >here.json || fail "a plan on the machine"
"$epl" plan m.onnx --data t.csv --device cuda:h100 --json >sheet.json || fail "a plan by a sheet"
[ "$(value peak_bytes here.json)" = "$(value peak_bytes sheet.json)" ] || fail "the peaks of both plans differ"

# Kernels stay for later runs, which compile only what is damaged. A compiled one is another file under its name.
rm -rf cache
expect 0 "" gpu devices=h100 "$epl" train m.onnx --data t.csv --steps 1 --device cuda --kernel-cache kernels --out run
ls -i kernels | sort >before.txt
[ "$(wc -l <before.txt)" -ge 5 ] || fail "few kernels were kept: $(cat before.txt)"
damaged=$(ls kernels | sed -n 2p)
: >kernels/$damaged
expect 0 "" gpu devices=h100 "$epl" train m.onnx --data t.csv --steps 1 --device cuda --kernel-cache kernels --out run2
ls -i kernels | sort >after.txt
[ "$(comm -23 before.txt after.txt | wc -l)" = 1 ] || fail "kernels were compiled again: $(cat before.txt after.txt)"
[ -s kernels/$damaged ] || fail "a damaged kernel was not replaced"
[ ! -e cache ] || fail "the user's folder was written to: $(ls cache)"
expect 0 "not kept in" gpu devices=h100 "$epl" plan m.onnx --data t.csv --device cuda --kernel-cache t.csv/kernels
expect 0 "" gpu devices=h100 "$epl" plan m.onnx --data t.csv --device cuda --kernel-cache none
exit $failed
