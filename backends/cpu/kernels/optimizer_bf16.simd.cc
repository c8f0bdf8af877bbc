// See optimizer_bf16.h. The formulas are those of core/base/update_step.h, with a vector as the number.
#include "backends/cpu/kernels/optimizer_bf16.h"

#include "backends/cpu/kernels/philox.simd.h"
#include "backends/cpu/simd_math.h"

namespace epl::cpu::EPL_SIMD {
namespace {

using U = hn::RebindToUnsigned<F>;
using H = hn::Rebind<uint16_t, F>;
constexpr U u32;
constexpr H u16;
constexpr int tile = 512;  // draws kept at a time
static_assert(tile % draws::at_once == 0 && tile % lanes == 0);

struct Vector {
  V value;
};
HWY_INLINE Vector operator+(Vector a, Vector b) { return {hn::Add(a.value, b.value)}; }
HWY_INLINE Vector operator-(Vector a, Vector b) { return {hn::Sub(a.value, b.value)}; }
HWY_INLINE Vector operator*(Vector a, Vector b) { return {hn::Mul(a.value, b.value)}; }
HWY_INLINE Vector operator/(Vector a, Vector b) { return {hn::Div(a.value, b.value)}; }
HWY_INLINE Vector all(double a) { return {set(static_cast<float>(a))}; }
HWY_INLINE Vector operator*(double a, Vector b) { return all(a) * b; }
HWY_INLINE Vector operator/(double a, Vector b) { return all(a) / b; }
HWY_INLINE Vector operator+(Vector a, double b) { return a + all(b); }
HWY_INLINE Vector operator-(double a, Vector b) { return all(a) - b; }
HWY_INLINE Vector root(Vector a) { return {hn::Sqrt(a.value)}; }

HWY_INLINE V widened(hn::Vec<H> halves) { return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, halves))); }

// bf16_at_random of core/base/random_rounding.h, with draws below 2^16.
HWY_INLINE hn::Vec<H> rounded(V value, hn::Vec<U> draw) {
  const auto bits = hn::BitCast(u32, value);
  const auto up = hn::ShiftRight<16>(hn::Add(bits, draw));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40));
  return hn::TruncateTo(u16, hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(value)), quiet, up));
}

// `words`: of the elements from `at` on.
template <class Step>
HWY_INLINE void advance(const Step& step, const Vector* scalars, const RoundedUpdate& u, int64_t at,
                        const uint32_t* words) {
  Vector parameter{hn::LoadU(f32, u.parameter + at)}, states[Step::states];
  for (int k = 0; k < Step::states; ++k) states[k].value = widened(hn::LoadU(u16, u.states[k] + at));
  const auto beside = hn::Mul(hn::BitCast(u32, parameter.value), hn::Set(u32, 0x9E3779B1));
  const auto draws = hn::Xor(hn::LoadU(u32, words), hn::Xor(beside, hn::ShiftRight<16>(beside)));
  step(parameter, Vector{hn::LoadU(f32, u.gradient + at)}, states, scalars);
  hn::StoreU(parameter.value, f32, u.parameter_new + at);
  for (int k = 0; k < Step::states; ++k) {
    const auto draw = k == 0 ? hn::And(draws, hn::Set(u32, 0xffff)) : hn::ShiftRight<16>(draws);
    hn::StoreU(rounded(states[k].value, draw), u16, u.states_new[k] + at);
  }
}

template <class T> void copy(const T* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

// The last elements, which are fewer than a vector has.
template <class Step>
void advance_rest(const Step& step, const Vector* scalars, const RoundedUpdate& u, int64_t at, int64_t n,
                  const uint32_t* words) {
  float parameter[lanes] = {}, gradient[lanes] = {};
  uint16_t states[2][lanes] = {};
  copy(u.parameter + at, parameter, n);
  copy(u.gradient + at, gradient, n);
  RoundedUpdate rest{};
  rest.parameter = parameter;
  rest.parameter_new = parameter;
  rest.gradient = gradient;
  for (int k = 0; k < Step::states; ++k) {
    copy(u.states[k] + at, states[k], n);
    rest.states[k] = rest.states_new[k] = states[k];
  }
  advance(step, scalars, rest, 0, words);
  copy(parameter, u.parameter_new + at, n);
  for (int k = 0; k < Step::states; ++k) copy(states[k], u.states_new[k] + at, n);
}

template <class Step> void run(const Step& step, const RoundedUpdate& u) {
  Vector scalars[Step::scalars];
  for (int i = 0; i < Step::scalars; ++i) scalars[i] = {set(u.scalars[i])};
  alignas(64) uint32_t words[tile + lanes];
  for (int64_t done = 0; done < u.n;) {
    const uint64_t element = u.element + static_cast<uint64_t>(done);
    const auto skip = static_cast<int64_t>(element % 4);
    const int64_t count = u.n - done < tile - skip ? u.n - done : tile - skip;
    for (int64_t drawn = 0; drawn < skip + count; drawn += draws::at_once)
      draws::draw_blocks(u.key, element / 4 + static_cast<uint64_t>(drawn / 4), words + drawn);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) advance(step, scalars, u, done + i, words + skip + i);
    if (i < count) advance_rest(step, scalars, u, done + i, count - i, words + skip + i);
    done += count;
  }
}

}  // namespace

template <class Step> RoundedLoop<Step> rounded_loop() { return run<Step>; }
template RoundedLoop<update::Momentum> rounded_loop();
template RoundedLoop<update::Rmsprop> rounded_loop();
template RoundedLoop<update::Adagrad> rounded_loop();
template RoundedLoop<update::Adam> rounded_loop();
template RoundedLoop<update::Adamw> rounded_loop();

}  // namespace epl::cpu::EPL_SIMD
