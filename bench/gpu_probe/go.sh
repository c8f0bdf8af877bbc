set -o pipefail
cd .gpu; date
python3 -c "import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.nccl.version())"
kit/bench/gpu --build kit/build --out $OUT --seconds ${1:-150} --conformance-seconds 60 --cases-seconds 60 --case-seconds 40 2>&1 | tee $OUT/bench.txt
date
sp=$(python3 -c "import nvidia,os;print(list(nvidia.__path__)[0])")
inc=$(dirname $(find -L $sp -name cudnn.h | head -1)); lib=$(dirname $(find -L $sp -name 'libcudnn.so.9' | head -1)); rt=$(dirname $(find -L $sp /usr/local/cuda -name cuda_runtime_api.h 2>/dev/null | head -1))
gcc deviceprop.c -I$inc -I$rt -L$lib -l:libcudnn.so.9 -Wl,-rpath,$lib -o /tmp/dp && LD_LIBRARY_PATH=$lib:$(dirname $(find -L $sp -name 'libcublasLt.so.13' | head -1)) timeout 60 /tmp/dp $OUT/deviceprop.json
timeout 100 python3 -u probe.py $OUT/probe.json
find -L $sp /usr/lib /usr/local -name 'libcuda.so*' -o -name 'libnvrtc.so*' -o -name 'libcublasLt.so*' -o -name 'libnccl.so*' -o -name 'libnvidia-ml.so*' 2>/dev/null | head -20
date
