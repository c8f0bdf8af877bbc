#include "backends/cuda/reduce.h"

namespace epl::cuda {
namespace {

// Elements as they are stored, and how two of them are added and compared: as in backends/cpu/reduce.simd.cc.
constexpr const char* head = R"(
typedef long long i64;
struct Half { unsigned short bits; };
struct Bfloat { unsigned short bits; };
__device__ float value(Half x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ float value(Bfloat x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ float value(float x) { return x; }
__device__ double value(double x) { return x; }
__device__ i64 value(i64 x) { return x; }
__device__ Half narrow(float x, Half) { Half y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
__device__ Bfloat narrow(float x, Bfloat) {
  const unsigned bits = __float_as_uint(x), rounded = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
  Bfloat y; y.bits = (unsigned short)((x != x ? quiet : rounded) >> 16); return y;
}
__device__ float narrow(float x, float) { return x; }
__device__ double narrow(double x, double) { return x; }
__device__ i64 narrow(i64 x, i64) { return x; }
template <class T> __device__ T sum(T a, T b) { return narrow(value(a) + value(b), a); }
template <> __device__ i64 sum(i64 a, i64 b) { return (i64)((unsigned long long)a + (unsigned long long)b); }
template <class T> __device__ T max_of(T a, T b) { return (value(a) > value(b) || value(a) != value(a)) ? a : b; }
template <class T> __device__ T min_of(T a, T b) { return (value(a) < value(b) || value(a) != value(a)) ? a : b; }
)";

const char* element_text(int32_t dtype) {
  switch (dtype) {
    case EPL_PACK_F32:
      return "float";
    case EPL_PACK_F64:
      return "double";
    case EPL_PACK_F16:
      return "Half";
    case EPL_PACK_BF16:
      return "Bfloat";
    case EPL_PACK_I64:
      return "i64";
    default:
      return nullptr;
  }
}

// "sum(sum(s0[i],s1[i]),s2[i])": the tree over ranks [first, first + ranks).
std::string tree(const char* combine, int first, int ranks) {
  if (ranks == 1) return cat("s", first, "[i]");
  int left = 1;
  while (2 * left < ranks) left *= 2;
  return cat(combine, "(", tree(combine, first, left), ",", tree(combine, first + left, ranks - left), ")");
}

}  // namespace

Result<Launch> reduction_launch(const ReductionShape& shape) {
  const char* element = element_text(shape.dtype);
  if (element == nullptr) return invalid("a type that cannot be reduced");
  const char* const words[] = {"sum", "max_of", "min_of"};
  std::string source = cat(head, "extern \"C\" __global__ void reduce_ranks(");
  for (int r = 0; r < shape.ranks; ++r) source += cat("const ", element, "* s", r, ",");
  for (int t = 0; t < shape.targets; ++t) source += cat(element, "* t", t, ",");
  source += cat("i64 n){for(i64 i=(i64)blockIdx.x*blockDim.x+threadIdx.x;i<n;i+=(i64)gridDim.x*blockDim.x){const ",
                element, " y=", tree(words[shape.reduction], 0, shape.ranks), ";");
  for (int t = 0; t < shape.targets; ++t) source += cat("t", t, "[i]=y;");
  source += "}}\n";
  return over_elements(std::move(source), "reduce_ranks", shape.count);
}

Status reduce_ranks(GpuStream& stream, const epl_pack_reduction& reduction) {
  EPL_ASSIGN(const Launch how, reduction_launch({.ranks = reduction.ranks,
                                                 .targets = reduction.target_count,
                                                 .count = reduction.count,
                                                 .dtype = reduction.dtype,
                                                 .reduction = reduction.reduction}));
  std::vector<uint64_t> values;
  for (int r = 0; r < reduction.ranks; ++r) values.push_back(reinterpret_cast<uint64_t>(reduction.sources[r]));
  for (int t = 0; t < reduction.target_count; ++t) values.push_back(reinterpret_cast<uint64_t>(reduction.targets[t]));
  values.push_back(static_cast<uint64_t>(reduction.count));
  EPL_ASSIGN(const Function function, stream.gpu->function(how.source, how.entry, 0));
  return stream.launch(function, how, values);
}

}  // namespace epl::cuda
