// Comparisons, and what chooses by their answers.
#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

enum class Compare : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
const std::vector<std::string> kNames = {"eq",  "ne",  "lt",  "le",  "gt",  "ge", "equ", "neu", "ltu",
                                         "leu", "gtu", "geu", "num", "nan", "lo", "ls",  "hi",  "hs"};

// Comparisons of floats are false with a NaN, but those with a `u`, and `ne` is false too.
template <class T, Compare kHow> bool holds(T a, T b) {
  bool nan = false;
  if constexpr (std::is_floating_point_v<T>) nan = std::isnan(a) || std::isnan(b);
  if constexpr (kHow == Compare::num) return !nan;
  if constexpr (kHow == Compare::nan) return nan;
  if constexpr (kHow >= Compare::equ) {
    if (nan) return true;
  } else {
    if (nan) return false;
  }
  if constexpr (kHow == Compare::eq || kHow == Compare::equ) return a == b;
  if constexpr (kHow == Compare::ne || kHow == Compare::neu) return a != b;
  if constexpr (kHow == Compare::lt || kHow == Compare::ltu) return a < b;
  if constexpr (kHow == Compare::le || kHow == Compare::leu) return a <= b;
  if constexpr (kHow == Compare::gt || kHow == Compare::gtu) return a > b;
  return a >= b;
}

// `mode`: how the answer joins another predicate (1: and, 2: or, 3: xor), 4: which is negated first, 8: flush.
template <class T, Compare kHow> void compare(Warp& warp, const Instr& instr) {
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  uint32_t yes = 0;
  warp.each([&](int lane) {
    T x{}, y{};
    if constexpr (std::is_same_v<T, double> || std::is_integral_v<T>) {
      x = as<T>(a[lane]), y = as<T>(b[lane]);
    } else {
      x = as<T>(a[lane]), y = as<T>(b[lane]);
      if ((instr.mode & 8) != 0) x = flushed(x), y = flushed(y);
    }
    yes |= static_cast<uint32_t>(holds<T, kHow>(x, y)) << lane;
  });
  uint32_t no = ~yes;
  if ((instr.mode & 3) != 0) {
    const uint32_t c = warp.predicate(instr.c) ^ ((instr.mode & 4) != 0 ? ~0u : 0u);
    const auto join = [&](uint32_t p) { return (instr.mode & 3) == 1 ? p & c : (instr.mode & 3) == 2 ? p | c : p ^ c; };
    yes = join(yes), no = join(no);
  }
  if (instr.d2 >= 0) warp.set_predicate(instr.d2, no);
  if (instr.d >= 0) warp.set_predicate(instr.d, yes);
}

template <class T, Compare kHow> void compare_small(Warp& warp, const Instr& instr) {
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  uint32_t yes = 0;
  warp.each([&](int lane) {
    yes |= static_cast<uint32_t>(holds<double, kHow>(wide(as<T>(a[lane])), wide(as<T>(b[lane])))) << lane;
  });
  warp.set_predicate(instr.d, yes);
}

template <class T> Run compared(Reading& r, int how) {
  const auto run = []<Compare kHow>() -> Run {
    if constexpr (std::is_arithmetic_v<T>) {
      return compare<T, kHow>;
    } else {
      return compare_small<T, kHow>;
    }
  };
  switch (static_cast<Compare>(how)) {
    case Compare::eq:
      return run.template operator()<Compare::eq>();
    case Compare::ne:
      return run.template operator()<Compare::ne>();
    case Compare::lt:
      return run.template operator()<Compare::lt>();
    case Compare::le:
      return run.template operator()<Compare::le>();
    case Compare::gt:
      return run.template operator()<Compare::gt>();
    case Compare::ge:
      return run.template operator()<Compare::ge>();
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    r.unknown("this comparison of integers");
  } else {
    switch (static_cast<Compare>(how)) {
      case Compare::equ:
        return run.template operator()<Compare::equ>();
      case Compare::neu:
        return run.template operator()<Compare::neu>();
      case Compare::ltu:
        return run.template operator()<Compare::ltu>();
      case Compare::leu:
        return run.template operator()<Compare::leu>();
      case Compare::gtu:
        return run.template operator()<Compare::gtu>();
      case Compare::geu:
        return run.template operator()<Compare::geu>();
      case Compare::num:
        return run.template operator()<Compare::num>();
      default:
        return run.template operator()<Compare::nan>();
    }
  }
}

void setp(Reading& r) {
  Instr& instr = r.instr;
  int how = r.which(kNames);
  if (how == 0) r.unknown("no comparison is given");
  --how;
  if (how > static_cast<int>(Compare::nan))
    how = static_cast<int>(Compare::lt) + how - static_cast<int>(Compare::nan) - 1;
  const int join = r.which({"and", "or", "xor"});
  if (r.take("ftz")) instr.mode |= 8;
  const std::string type = r.type();
  r.done();
  const std::vector<std::string> results = r.parts(0);
  instr.d = results[0] == "_" ? -1 : r.named(results[0], "pred");
  if (results.size() > 1 && results[1] != "_") instr.d2 = r.named(results[1], "pred");
  r.a(type), r.b(type);
  if (join != 0) {
    instr.mode |= static_cast<uint8_t>(join);
    if (r.negated(3)) instr.mode |= 4;
    r.c("pred");
  }
  if (type == "f16" || type == "bf16") {
    if (instr.mode != 0 || instr.d2 >= 0 || instr.d < 0) r.unknown("this form for ." + type);
    instr.run = type == "f16" ? compared<Half>(r, how) : compared<Brain>(r, how);
  } else if (type == "f32") {
    instr.run = compared<float>(r, how);
  } else if (type == "f64") {
    instr.run = compared<double>(r, how);
  } else {
    instr.run = with_integer(r, type, [&]<class T>() -> Run { return compared<T>(r, how); });
  }
}

void selp(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type), r.c("pred");
  if (r.negated(3)) r.unknown("a predicate that is negated");
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
    const uint32_t first = warp.predicate(instr.c);
    warp.each([&](int lane) { d[lane] = (first >> lane & 1) != 0 ? a[lane] : b[lane]; });
  };
}

void slct(Reading& r) {
  if (r.take("ftz")) r.unknown("flushing");
  const std::string type = r.type(), sign = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type), r.c(sign);
  r.instr.mode = sign == "f32";
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
    warp.each([&](int lane) {
      const bool first = instr.mode != 0 ? as<float>(c[lane]) >= 0 : as<int32_t>(c[lane]) >= 0;
      d[lane] = first ? a[lane] : b[lane];
    });
  };
}

}  // namespace

void add_comparisons(Reads& reads) {
  reads["setp"] = setp;
  reads["selp"] = selp;
  reads["slct"] = slct;
}

}  // namespace epl::cuda_machine
