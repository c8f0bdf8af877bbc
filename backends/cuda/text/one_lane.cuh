// Highway's operations with vectors of one lane, as far as our sources use them: so that the text of the CPU's vector
// kernels is the text of the GPU's, and the bits are the same. Where x86's instructions have a rule of their own for
// NaN or zeros, that rule stands here.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace hwy::one_lane {

template <class T> struct Tag {
  using Type = T;
};
template <class T> using ScalableTag = Tag<T>;
template <class D> using TFromD = typename D::Type;
template <class D> using Vec = typename D::Type;
template <class V> using DFromV = Tag<V>;
template <class D> using Mask = bool;
template <class D> using Half = D;
template <class T> struct SignedOf;
template <> struct SignedOf<float> {
  using Type = int32_t;
};
template <> struct SignedOf<double> {
  using Type = int64_t;
};
template <class T> using MakeSigned = typename SignedOf<T>::Type;
template <class D> using RebindToSigned = Tag<MakeSigned<TFromD<D>>>;
template <class T, class D> using Rebind = Tag<T>;
template <class V> using VecArg = V;
template <class D> constexpr int MaxLanes(D) { return 1; }

template <class D> inline TFromD<D> Set(D, TFromD<D> value) { return value; }
template <class T> inline T Zero(Tag<T>) { return T(0); }
template <class To, class From> inline To BitCast(Tag<To>, From x) { return std::bit_cast<To>(x); }

// Integers wrap.
inline int32_t Add(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }
inline int64_t Add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
inline int32_t Sub(int32_t a, int32_t b) { return int32_t(uint32_t(a) - uint32_t(b)); }
inline int64_t Sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
inline int32_t And(int32_t a, int32_t b) { return a & b; }
inline int64_t And(int64_t a, int64_t b) { return a & b; }
inline int32_t AndNot(int32_t a, int32_t b) { return ~a & b; }
template <int n> inline int32_t ShiftLeft(int32_t a) { return int32_t(uint32_t(a) << n); }
template <int n> inline int64_t ShiftLeft(int64_t a) { return int64_t(uint64_t(a) << n); }
template <int n, class T> inline T ShiftRight(T a) { return a >> n; }  // of the sign too
inline float And(float a, float b) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(a) & std::bit_cast<int32_t>(b));
}
inline double And(double a, double b) {
  return std::bit_cast<double>(std::bit_cast<int64_t>(a) & std::bit_cast<int64_t>(b));
}
inline float Or(float a, float b) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(a) | std::bit_cast<int32_t>(b));
}
inline double Or(double a, double b) {
  return std::bit_cast<double>(std::bit_cast<int64_t>(a) | std::bit_cast<int64_t>(b));
}
inline float Xor(float a, float b) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(a) ^ std::bit_cast<int32_t>(b));
}
inline double Xor(double a, double b) {
  return std::bit_cast<double>(std::bit_cast<int64_t>(a) ^ std::bit_cast<int64_t>(b));
}
inline float SignBit(Tag<float>) { return -0.0f; }
inline double SignBit(Tag<double>) { return -0.0; }

inline float Add(float a, float b) { return a + b; }
inline double Add(double a, double b) { return a + b; }
inline float Sub(float a, float b) { return a - b; }
inline double Sub(double a, double b) { return a - b; }
inline float Mul(float a, float b) { return a * b; }
inline double Mul(double a, double b) { return a * b; }
inline float Div(float a, float b) { return a / b; }
inline double Div(double a, double b) { return a / b; }
inline float Sqrt(float a) { return ::sqrtf(a); }
inline double Sqrt(double a) { return ::sqrt(a); }
inline float MulAdd(float a, float b, float c) { return ::fmaf(a, b, c); }
inline double MulAdd(double a, double b, double c) { return ::fma(a, b, c); }
inline float NegMulAdd(float a, float b, float c) { return ::fmaf(-a, b, c); }
inline double NegMulAdd(double a, double b, double c) { return ::fma(-a, b, c); }
inline float MulSub(float a, float b, float c) { return ::fmaf(a, b, -c); }
inline double MulSub(double a, double b, double c) { return ::fma(a, b, -c); }
inline float Neg(float a) { return Xor(a, -0.0f); }
inline double Neg(double a) { return Xor(a, -0.0); }
inline float Abs(float a) { return ::fabsf(a); }
inline double Abs(double a) { return ::fabs(a); }
inline float CopySign(float a, float b) { return ::copysignf(a, b); }
inline double CopySign(double a, double b) { return ::copysign(a, b); }
inline float Floor(float a) { return ::floorf(a); }
inline double Floor(double a) { return ::floor(a); }
inline float Ceil(float a) { return ::ceilf(a); }
inline double Ceil(double a) { return ::ceil(a); }
inline float Round(float a) { return ::rintf(a); }
inline double Round(double a) { return ::rint(a); }
// The second operand where either is NaN, and of two zeros.
template <class T> inline T Max(T a, T b) { return a > b ? a : b; }
template <class T> inline T Min(T a, T b) { return a < b ? a : b; }

template <class T> inline bool Eq(T a, T b) { return a == b; }
template <class T> inline bool Lt(T a, T b) { return a < b; }
template <class T> inline bool Le(T a, T b) { return a <= b; }
template <class T> inline bool Gt(T a, T b) { return a > b; }
template <class T> inline bool Ge(T a, T b) { return a >= b; }
inline bool And(bool a, bool b) { return a && b; }
inline bool Or(bool a, bool b) { return a || b; }
inline bool Xor(bool a, bool b) { return a != b; }
inline bool Not(bool a) { return !a; }
template <class T> inline T IfThenElse(bool m, T a, T b) { return m ? a : b; }
template <class T> inline T IfThenElseZero(bool m, T a) { return m ? a : T(0); }
template <class T> inline T IfThenZeroElse(bool m, T a) { return m ? T(0) : a; }

template <class To, class From> inline To ConvertTo(Tag<To>, From x) { return To(x); }
template <class To, class From> inline To PromoteTo(Tag<To>, From x) { return To(x); }
template <class To, class From> inline To DemoteTo(Tag<To>, From x) { return To(x); }
template <class D, class V> inline V LowerHalf(D, V x) { return x; }
template <class D, class V> inline V UpperHalf(D, V x) { return x; }
template <class D, class V> inline V Combine(D, V, V low) { return low; }

template <class T> inline T Load(Tag<T>, const T* p) { return *p; }
template <class T> inline T LoadU(Tag<T>, const T* p) { return *p; }
template <class T> inline T MaskedLoad(bool m, Tag<T>, const T* p) { return m ? *p : T(0); }
template <class T> inline void Store(T v, Tag<T>, T* p) { *p = v; }
template <class T> inline void StoreU(T v, Tag<T>, T* p) { *p = v; }
template <class T> inline void BlendedStore(T v, bool m, Tag<T>, T* p) {
  if (m) *p = v;
}
template <class D> inline bool FirstN(D, uint64_t n) { return n > 0; }
template <class T> inline T GetLane(T v) { return v; }

}  // namespace hwy::one_lane
