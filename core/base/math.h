// Elementary functions of our own, for numbers that training depends on: what the host computes (schedules, bias
// corrections), what is folded at import, and float64 elementwise. The C library's functions differ between versions
// and processors. These give the same bits everywhere, because they use only +, -, *, /, square roots, fused
// multiply-add and exact scaling. Within 4 units in the last place (exp, log and cos: 2; erf: 8), with the special
// cases of IEEE 754.
#pragma once

#include <cstdint>
#include <limits>

namespace epl::math {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double pi = 3.14159265358979323846;

double exp(double x);  // overflows to infinity, underflows to zero (gradually)
double expm1(double x);
double log(double x);  // NaN below zero, -infinity at zero
double log1p(double x);
double pow(double x, double y);
double erf(double x);
double sigmoid(double x);

double sin(double x);  // of any finite angle
double cos(double x);
double tan(double x);
double asin(double x);
double acos(double x);
double atan(double x);
double atan2(double y, double x);

double sinh(double x);
double cosh(double x);
double tanh(double x);
double asinh(double x);
double acosh(double x);
double atanh(double x);

// By repeated squaring; the error grows with the exponent, about |exponent| half units in the last place.
double power(double base, int64_t exponent);

}  // namespace epl::math
