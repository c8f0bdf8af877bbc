// Arithmetic of floats. What is computed is rounded once, as the instruction says; what the device only approximates is
// refused.
#include <cfenv>

#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

enum : uint8_t { kRounding = 3, kFlush = 4, kSaturate = 8, kNan = 16 };

// While it lives, the processor rounds as the instruction says.
class Rounding {
 public:
  explicit Rounding(uint8_t mode) : mode_(mode & kRounding) {
    if (mode_ != 0) std::fesetround(mode_ == 1 ? FE_TOWARDZERO : mode_ == 2 ? FE_DOWNWARD : FE_UPWARD);
  }
  ~Rounding() {
    if (mode_ != 0) std::fesetround(FE_TONEAREST);
  }
  Rounding(const Rounding&) = delete;

 private:
  int mode_;
};

template <class T> T saturated(T value) { return std::isnan(value) || value < 0 ? T{0} : value > 1 ? T{1} : value; }

// The loop for whatever stands beside the plain form. Volatile: not computed before the rounding is set.
template <class T, int kOperands, auto F> void general(Warp& warp, const Instr& instr) {
  const Rounding rounding(instr.mode);
  const bool flush = (instr.mode & kFlush) != 0;
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  warp.each([&](int lane) {
    volatile T x = as<T>(a[lane]), y = kOperands > 1 ? as<T>(b[lane]) : T{0}, z = kOperands > 2 ? as<T>(c[lane]) : T{0};
    if (flush) {
      x = flushed<T>(x);
      y = flushed<T>(y);
      z = flushed<T>(z);
    }
    volatile T result = F(x, y, z);
    if (flush) result = flushed<T>(result);
    if ((instr.mode & kSaturate) != 0) result = saturated<T>(result);
    d[lane] = bits<T>(canonical(T{result}));
  });
}

template <class T, int kOperands, auto F> void plain(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  warp.each([&](int lane) {
    d[lane] = bits<T>(canonical(F(as<T>(a[lane]), kOperands > 1 ? as<T>(b[lane]) : T{0},  //
                                  kOperands > 2 ? as<T>(c[lane]) : T{0})));
  });
}

// A sum in double whose last bit is odd where it is not exact: rounding it once more is as rounding once.
double odd_sum(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double part = sum - a;
  const double rest = (a - (sum - part)) + (b - part);
  if (rest == 0 || (bits(sum) & 1) != 0) return sum;
  return std::nextafter(sum, rest > 0 ? HUGE_VAL : -HUGE_VAL);
}

// Of a half or a brain: their products are exact in double.
template <class T> T small(const std::string& op, T a, T b, T c) {
  const double x = wide(a), y = wide(b), z = wide(c);
  if (op == "add") return rounded<T>(odd_sum(x, y));
  if (op == "sub") return rounded<T>(odd_sum(x, -y));
  if (op == "mul") return rounded<T>(x * y);
  return rounded<T>(odd_sum(x * y, z));
}

enum class Small : uint8_t { add, sub, mul, fma };

template <class T, Small kOp, int kPacked> void small_loop(Warp& warp, const Instr& instr) {
  static const std::string names[] = {"add", "sub", "mul", "fma"};
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  warp.each([&](int lane) {
    uint64_t result = 0;
    for (int k = 0; k < kPacked; ++k) {
      const auto part = [&](uint64_t slot) { return T{static_cast<uint16_t>(slot >> 16 * k)}; };
      result |= uint64_t{small<T>(names[static_cast<int>(kOp)], part(a[lane]), part(b[lane]), part(c[lane])).bits}
                << 16 * k;
    }
    d[lane] = result;
  });
}

template <class T, int kPacked> Run small_run(const std::string& op) {
  if (op == "add") return small_loop<T, Small::add, kPacked>;
  if (op == "sub") return small_loop<T, Small::sub, kPacked>;
  if (op == "mul") return small_loop<T, Small::mul, kPacked>;
  return small_loop<T, Small::fma, kPacked>;
}

template <class T> T least(T a, T b, bool less, bool nan) {
  if (std::isnan(a) || std::isnan(b)) {
    if (nan || (std::isnan(a) && std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
    return std::isnan(a) ? b : a;
  }
  if (a == b) return std::signbit(a) == less ? a : b;  // -0 is less than 0
  return (a < b) == less ? a : b;
}

template <class T, bool kLess> void least_loop(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  const bool flush = (instr.mode & kFlush) != 0, nan = (instr.mode & kNan) != 0;
  warp.each([&](int lane) {
    T x = as<T>(a[lane]), y = as<T>(b[lane]);
    if (flush) x = flushed(x), y = flushed(y);
    d[lane] = bits<T>(canonical(least(x, y, kLess, nan)));
  });
}

template <class T, bool kLess, int kPacked> void small_least(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  warp.each([&](int lane) {
    uint64_t result = 0;
    for (int k = 0; k < kPacked; ++k) {
      const auto part = [&](uint64_t slot) { return wide(T{static_cast<uint16_t>(slot >> 16 * k)}); };
      result |= uint64_t{rounded<T>(least(part(a[lane]), part(b[lane]), kLess, (instr.mode & kNan) != 0)).bits}
                << 16 * k;
    }
    d[lane] = result;
  });
}

template <class T> Run arithmetic(const std::string& op, bool simple) {
  const auto choose = [&]<int kOperands, auto F>() -> Run {
    return simple ? plain<T, kOperands, F> : general<T, kOperands, F>;
  };
  if (op == "add") return choose.template operator()<2, [](T a, T b, T) { return a + b; }>();
  if (op == "sub") return choose.template operator()<2, [](T a, T b, T) { return a - b; }>();
  if (op == "mul") return choose.template operator()<2, [](T a, T b, T) { return a * b; }>();
  if (op == "div") return choose.template operator()<2, [](T a, T b, T) { return a / b; }>();
  if (op == "rcp") return choose.template operator()<1, [](T a, T, T) { return T{1} / a; }>();
  if (op == "sqrt") return choose.template operator()<1, [](T a, T, T) { return std::sqrt(a); }>();
  return choose.template operator()<3, [](T a, T b, T c) { return std::fma(a, b, c); }>();
}

// Flips or clears the sign of each part of `kBits`.
template <int kBits, int kPacked, bool kFlip> void sign_loop(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t* a = warp.at(instr.a);
  uint64_t signs = 0;
  for (int k = 0; k < kPacked; ++k) signs |= uint64_t{1} << (kBits * (k + 1) - 1);
  warp.each([&](int lane) {
    uint64_t value = a[lane];
    if ((instr.mode & kFlush) != 0) value = bits(flushed(as<float>(value)));
    d[lane] = kFlip ? value ^ signs : value & ~signs;
  });
}

template <bool kFlip> Run sign_run(const std::string& type) {
  if (type == "f64") return sign_loop<64, 1, kFlip>;
  if (type == "f32") return sign_loop<32, 1, kFlip>;
  if (type.ends_with("x2")) return sign_loop<16, 2, kFlip>;
  return sign_loop<16, 1, kFlip>;
}

template <bool kLess> Run least_run(const std::string& type) {
  if (type == "f32") return least_loop<float, kLess>;
  if (type == "f64") return least_loop<double, kLess>;
  if (type == "f16") return small_least<Half, kLess, 1>;
  if (type == "bf16") return small_least<Brain, kLess, 1>;
  if (type == "f16x2") return small_least<Half, kLess, 2>;
  return small_least<Brain, kLess, 2>;
}

void read_sign(Reading& r, const std::string& type) {
  r.done();
  r.d(type), r.a(type);
  r.instr.run = r.text.opcode == "neg" ? sign_run<true>(type) : sign_run<false>(type);
}

void read_least(Reading& r, const std::string& type) {
  if (r.take("NaN")) r.instr.mode |= kNan;
  r.done();
  r.d(type), r.a(type), r.b(type);
  r.instr.run = r.text.opcode == "min" ? least_run<true>(type) : least_run<false>(type);
}

void float_op(Reading& r) { read_float(r, r.type()); }

void copysign(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type);  // the sign of a, the size of b
  r.instr.run = type == "f64" ? Run(two<double, double, [](double a, double b) { return std::copysign(b, a); }>)
                              : Run(two<float, float, [](float a, float b) { return std::copysign(b, a); }>);
}

void testp(Reading& r) {
  r.instr.mode = static_cast<uint8_t>(r.which({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  const std::string type = r.type();
  r.done();
  r.instr.d = r.operand(0, "pred");
  r.a(type);
  r.instr.bytes = type == "f64" ? 8 : 4;
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint32_t yes = 0;
    const uint64_t* a = warp.at(instr.a);
    warp.each([&](int lane) {
      const int kind = instr.bytes == 8 ? std::fpclassify(as<double>(a[lane])) : std::fpclassify(as<float>(a[lane]));
      const bool holds[] = {false,          kind != FP_NAN && kind != FP_INFINITE, kind == FP_INFINITE, kind != FP_NAN,
                            kind == FP_NAN, kind == FP_NORMAL || kind == FP_ZERO,  kind == FP_SUBNORMAL};
      yes |= static_cast<uint32_t>(holds[instr.mode]) << lane;
    });
    warp.set_predicate(instr.d, yes);
  };
}

// The device's reciprocal and quotient that it only approximates. The exact fmod begins with them, so any value within
// their bound must do: one is drawn, up to `steps` beside the right one.
float beside(Warp& warp, float value, int steps) {
  const auto drawn = static_cast<int>((*warp.launch().random)() % static_cast<uint64_t>(2 * steps + 1)) - steps;
  for (int k = 0; k < std::abs(drawn) && std::isnormal(value); ++k)
    value = std::nextafter(value, drawn > 0 ? HUGE_VALF : -HUGE_VALF);
  return canonical(value);
}

void estimate_reciprocal(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) { d[lane] = bits(beside(warp, flushed(1.0f / flushed(as<float>(a[lane]))), 1)); });
}

void estimate_quotient(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  const bool flush = (instr.mode & kFlush) != 0;
  warp.each([&](int lane) {
    float x = as<float>(a[lane]), y = as<float>(b[lane]);
    if (flush) x = flushed(x), y = flushed(y);
    // Of divisors above 2^126 the reciprocal is lost.
    const bool large = std::fabs(y) > 0x1p126f && !std::isinf(y);
    float value = large ? x * std::copysign(0.0f, y) : x / y;
    if (flush) value = flushed(value);
    d[lane] = bits(beside(warp, value, 2));
  });
}

bool read_estimate(Reading& r, const std::string& type) {
  const bool reciprocal = r.text.opcode == "rcp" && r.has("ftz");
  if (type != "f32" || !r.has("approx") || (!reciprocal && r.text.opcode != "div")) return false;
  r.take("approx");
  if (r.take("ftz")) r.instr.mode |= kFlush;
  r.done();
  r.d(type), r.a(type);
  if (!reciprocal) r.b(type);
  r.instr.run = reciprocal ? estimate_reciprocal : estimate_quotient;
  return true;
}

void approximate(Reading& r) { r.unknown("the device only approximates it, to bits that nobody promises"); }

}  // namespace

void read_float(Reading& r, const std::string& type) {
  const std::string& op = r.text.opcode;
  if (!is_float(type)) r.unknown("type ." + type);
  if (read_estimate(r, type)) return;
  if (r.any("approx", "full")) approximate(r);
  if (r.take("ftz")) r.instr.mode |= kFlush;
  if (r.any("relu", "xorsign", "oob")) r.unknown("a modifier of it");
  if (op == "neg" || op == "abs") return read_sign(r, type);
  if (op == "min" || op == "max") return read_least(r, type);
  const int rounding = r.which({"rn", "rz", "rm", "rp"});
  if (r.take("sat")) r.instr.mode |= kSaturate;
  const bool is_small = type.find("16") != std::string::npos;
  if (rounding == 0 && !is_small) r.unknown("no rounding is given, so it may be fused with another or not");
  if (rounding > 1) r.instr.mode |= static_cast<uint8_t>(rounding - 1);
  r.done();
  r.d(type), r.a(type);
  if (op != "rcp" && op != "sqrt") r.b(type);
  if (op == "fma" || op == "mad") r.c(type);
  if (type == "f32") {
    r.instr.run = arithmetic<float>(op, r.instr.mode == 0);
  } else if (type == "f64") {
    r.instr.run = arithmetic<double>(op, r.instr.mode == 0);
  } else {
    if (r.instr.mode != 0 || op == "div" || op == "rcp" || op == "sqrt") r.unknown("this form for ." + type);
    r.instr.run = type == "f16"     ? small_run<Half, 1>(op)
                  : type == "bf16"  ? small_run<Brain, 1>(op)
                  : type == "f16x2" ? small_run<Half, 2>(op)
                                    : small_run<Brain, 2>(op);
  }
}

void add_floats(Reads& reads) {
  for (const char* name : {"fma", "rcp", "sqrt"}) reads[name] = float_op;
  reads["copysign"] = copysign;
  reads["testp"] = testp;
  for (const char* name : {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"}) reads[name] = approximate;
}

}  // namespace epl::cuda_machine
