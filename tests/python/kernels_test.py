"""What bench/kernels.py reads of ptxas and NVRTC, and that it finds what it looks for: registers that spill, PTX that
is too new, a text that does not compile, a case without a plan. Texts are compiled where scripts/nvrtc.sh and
scripts/ptxas.sh have put both.

Prints `N passed, N failed, N skipped` as its last line.
"""
import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("kernels", ROOT / "bench/kernels.py")
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    40 bytes stack frame, 44 bytes spill stores, 52 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 40 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 2.640 ms
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""
OPTIONS = ("--gpu-architecture=compute_90",)
PLAIN = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] = 1; }'
# Sixty-four numbers that live across a loop, with 32 registers for a thread.
SPILLING = """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* a, int n) {
  float x[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = a[i * 1024 + threadIdx.x];
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 1) % 64] + x[(i + 7) % 64];
  }
  #pragma unroll
  for (int i = 0; i < 64; ++i) a[i * 1024 + threadIdx.x] = x[i];
}"""


def compiled(source):
    nvrtc, ptxas = str(ROOT / "build/nvrtc"), str(ROOT / "build/ptxas/ptxas")
    return kernels.compile_one((nvrtc, ptxas if os.path.exists(ptxas) else "", 90, OPTIONS, source))


def main():
    read = kernels.parse_ptxas(SAID)
    checks = {
        "spills": read["one"] == {"registers": 32, "spilled": 96, "stack": 40, "shared": 4096},
        "none spills": read["two"] == {"registers": 12, "spilled": 0, "stack": 0, "shared": 0},
        "a version": kernels.version_of("//\n.version 9.1\n.target sm_90\n") == (9, 1) > kernels.NEWEST_PTX,
        "no version": kernels.version_of("x") is None,
        # By hand, from the limits of each: registers, shared memory, blocks, threads.
        "by registers": kernels.occupancy(90, 40, 256, 1024) == 6 * 256 / 2048,
        "by shared memory": kernels.occupancy(80, 32, 128, 100 << 10) == 128 / 2048,
        "by blocks": kernels.occupancy(90, 16, 32, 0) == 32 * 32 / 2048,
        "by threads": kernels.occupancy(100, 16, 1024, 0) == 1,
        "a case without a plan": kernels.kind_of("epl: mlp: no kernel for x: y", {"mlp"}, ()) == "WRONG: no plan",
        "a reason that is known": kernels.kind_of("epl: mlp: no kernel for x: y", {"mlp"}, ("for x",)) == "no plan",
        "what is said besides": kernels.kind_of("epl: the cache is full", {"mlp"}, ()) == "said",
        "a sample": kernels.sample([(90, (), "b"), (90, (), "a"), (90, (), "cc")], 2) == [(90, (), "a"), (90, (), "b")],
    }
    skipped = 0
    if os.path.exists(ROOT / "build/nvrtc/libnvrtc.so.13"):
        checks["a text compiles"] = compiled(PLAIN)[1] == ""
        checks["an error is one"] = "error" in compiled("nothing")[1]
    else:
        skipped += 2
    if os.path.exists(ROOT / "build/nvrtc/libnvrtc.so.13") and os.path.exists(ROOT / "build/ptxas/ptxas"):
        checks["registers are counted"] = compiled(PLAIN)[0]["f"]["registers"] > 0
        checks["a spill is an error"] = "f spills" in compiled(SPILLING)[1]
    else:
        skipped += 2
    failed = [name for name, holds in checks.items() if not holds]
    for name in failed:
        print("FAILED %s" % name)
    if skipped:
        print("%d checks need NVRTC and ptxas (scripts/nvrtc.sh, scripts/ptxas.sh)" % skipped)
    print("%d passed, %d failed, %d skipped" % (len(checks) - len(failed), len(failed), skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
