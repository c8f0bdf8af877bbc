// Dropout by counter: a draw depends on the seed, the step, the node's name and the element's position in the global
// batch.
#include <cmath>

#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/program.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/philox.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, as random_key has it
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

constexpr std::string_view text = R"text(
extern "C" __global__ void dropout(const Memory* x, const long long* own, const long long* step, Memory* y,
                                   unsigned char* mask, long long n, long long hash, long long threshold,
                                   long long scale_bits, long long run, long long stride, long long full) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= n) return;
  // Which element of the global batch it is.
  const long long runs = full ? 1 : step[4], units = full ? 1 : step[3];
  const long long of_run = n / runs, unit = of_run / (units > 0 ? units : 1);
  const long long number = of_run > 0 && t / of_run < runs ? t / of_run : runs - 1;
  const long long first = full ? 0 : (step[2] + number * step[5]) * unit;
  const long long i = first + t - number * of_run;
  const long long element = own ? *own + i / run * stride + i % run : i;
  const unsigned long long key = random_key(step[0], step[1], hash);
  const bool kept = (random_bits(key, element) >> 8) >= (unsigned)threshold;
  y[t] = rounded(kept ? loaded(x[t]) * number_of(scale_bits) : 0);
  if (mask) mask[t] = kept;
}
)text";

Result<Kernel> dropout(const Query& q) {
  EPL_TRY(require(q.has_output(0), "an unused result"));
  const double ratio = q.number("ratio");
  // The CPU's kernel has it as float32.
  const DType type = q.in(0).dtype, computed = type == DType::f32 ? DType::f32 : DType::f64;
  int64_t scale_bits = 0;
  store_double(computed, &scale_bits, 0, 1 / (1 - ratio));
  const std::string_view number_function =
      computed == DType::f32
          ? "inline Wide number_of(long long bits) { return __builtin_bit_cast(float, (int)bits); }\n"
          : "inline Wide number_of(long long bits) { return __builtin_bit_cast(double, bits); }\n";
  const int64_t n = q.in(0).elements();
  Kernel kernel;
  kernel.aliases = {{0, 0}};
  if (n == 0) return kernel;
  const bool own = q.has(1);
  kernel.launches.push_back(launch_threads(
      program({"backends/cuda/text/random.cuh", half_file}, cat(number_functions(type), number_function, text)),
      "dropout", n,
      {input(0), own ? input(1) : Argument{}, step_block(), output(0), q.has_output(1) ? output(1) : Argument{},
       number(n), number(static_cast<int64_t>(name_hash(q.key))),
       number(static_cast<int64_t>(std::ceil(ratio * 16777216.0))), number(scale_bits),
       number(own ? q.integer("run") : 1), number(own ? q.integer("stride") : 0),
       number(q.find(draws_in_full) && q.flag(draws_in_full))}));
  return kernel;
}

}  // namespace

Rows dropout_rows() { return {{"dropout", "dropout_philox", float_types, dropout}}; }

}  // namespace epl::cuda
