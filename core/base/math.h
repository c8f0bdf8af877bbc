// Elementary functions of our own, for numbers that the host computes and training depends on (schedules, bias
// corrections): the C library's differ between versions and processors, these are the same bits everywhere. Only +, -,
// *, / and exact scaling are used. Within 2 units in the last place.
#pragma once

#include <cstdint>

namespace epl::math {

inline constexpr double pi = 3.14159265358979323846;

double exp(double x);  // overflows to infinity, underflows to zero (gradually)
double log(double x);  // NaN below zero, -infinity at zero
double cos(double x);  // for |x| up to 1e6; NaN beyond
// By repeated squaring; the error grows with the exponent, about |exponent| half units in the last place.
double power(double base, int64_t exponent);

}  // namespace epl::math
