// Logic, shifts, and what looks at single bits.
#include <bit>

#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

// and, or, xor: of numbers or of predicates.
template <int kWhich> void logic(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type);
  if (type == "pred") {
    if (r.negated(1) || r.negated(2)) r.unknown("a predicate that is negated");
    r.instr.run = [](Warp& warp, const Instr& instr) {
      const uint32_t a = warp.predicate(instr.a), b = warp.predicate(instr.b);
      warp.set_predicate(instr.d, kWhich == 0 ? a & b : kWhich == 1 ? a | b : a ^ b);
    };
    return;
  }
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    using U = std::make_unsigned_t<T>;
    return two<U, U, [](U a, U b) { return static_cast<U>(kWhich == 0 ? a & b : kWhich == 1 ? a | b : a ^ b); }>;
  });
}

void complement(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type);
  if (type == "pred") {
    r.instr.run = [](Warp& warp, const Instr& instr) { warp.set_predicate(instr.d, ~warp.predicate(instr.a)); };
    return;
  }
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    using U = std::make_unsigned_t<T>;
    return one<U, U, [](U a) { return static_cast<U>(~a); }>;
  });
}

// Shifts by more than the width give what a shift by the width would.
template <bool kLeft> void shift(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b("u32");
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return [](Warp& warp, const Instr& instr) {
      constexpr uint32_t width = 8 * sizeof(T);
      uint64_t* d = warp.at(instr.d);
      const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
      warp.each([&](int lane) {
        const auto by = static_cast<uint32_t>(b[lane]);
        const T value = as<T>(a[lane]);
        if (kLeft) {
          d[lane] = bits<T>(by >= width ? T{0} : static_cast<T>(static_cast<uint64_t>(value) << by));
        } else {
          d[lane] = bits<T>(by < width ? static_cast<T>(value >> by) : value < 0 ? static_cast<T>(-1) : T{0});
        }
      });
    };
  });
}

void funnel(Reading& r) {
  const bool left = r.which({"l", "r"}) == 1;
  const bool wraps = r.which({"wrap", "clamp"}) == 1;
  r.type();
  r.done();
  r.d("b32"), r.a("b32"), r.b("b32"), r.c("u32");
  r.instr.mode = static_cast<uint8_t>(2 * left + wraps);
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
    warp.each([&](int lane) {
      const uint64_t pair = b[lane] << 32 | (a[lane] & 0xffffffff);
      const auto by = static_cast<uint32_t>(c[lane]);
      const uint32_t n = (instr.mode & 1) != 0 ? by & 31 : by > 32 ? 32 : by;
      d[lane] = (instr.mode & 2) != 0 ? (pair << n >> 32) & 0xffffffff : (pair >> n) & 0xffffffff;
    });
  };
}

template <class T> T extract(T value, uint32_t at, uint32_t count) {
  constexpr uint32_t width = 8 * sizeof(T);
  at &= 255, count &= 255;
  if (count == 0) return 0;
  const bool sign = std::is_signed_v<T> && (value >> (std::min(at + count - 1, width - 1)) & 1) != 0;
  T result = 0;
  for (uint32_t k = 0; k < width; ++k) {
    const bool bit = k < count && at + k < width ? (value >> (at + k) & 1) != 0 : sign;
    if (bit) result = static_cast<T>(result | static_cast<T>(T{1} << k));
  }
  return result;
}

void bfe(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b("u32"), r.c("u32");
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return [](Warp& warp, const Instr& instr) {
      uint64_t* d = warp.at(instr.d);
      const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
      warp.each([&](int lane) {
        d[lane] = bits<T>(extract<T>(as<T>(a[lane]), static_cast<uint32_t>(b[lane]), static_cast<uint32_t>(c[lane])));
      });
    };
  });
}

void bfi(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type), r.c("u32");
  r.instr.e = r.operand(4, "u32");
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return [](Warp& warp, const Instr& instr) {
      constexpr uint32_t width = 8 * sizeof(T);
      uint64_t* d = warp.at(instr.d);
      const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c), *e = warp.at(instr.e);
      warp.each([&](int lane) {
        const uint32_t at = c[lane] & 255, count = e[lane] & 255;
        uint64_t value = b[lane];
        for (uint32_t k = 0; k < count && at + k < width; ++k) {
          const uint64_t bit = k < width ? a[lane] >> k & 1 : 0;
          value = (value & ~(uint64_t{1} << (at + k))) | bit << (at + k);
        }
        d[lane] = bits<T>(static_cast<T>(value));
      });
    };
  });
}

void permute(Reading& r) {
  r.type();
  r.done();  // without the named modes
  r.d("b32"), r.a("b32"), r.b("b32"), r.c("b32");
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
    warp.each([&](int lane) {
      const uint64_t all = b[lane] << 32 | (a[lane] & 0xffffffff);
      uint64_t value = 0;
      for (int k = 0; k < 4; ++k) {
        const uint64_t how = c[lane] >> 4 * k & 15;
        uint64_t byte = all >> 8 * (how & 7) & 255;
        if ((how & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
        value |= byte << 8 * k;
      }
      d[lane] = value;
    });
  };
}

void lop3(Reading& r) {
  r.type();
  r.done();
  r.d("b32"), r.a("b32"), r.b("b32"), r.c("b32");
  r.instr.mode = static_cast<uint8_t>(std::stoi(r.text.operands.at(4), nullptr, 0));
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
    warp.each([&](int lane) {
      const uint64_t x = a[lane], y = b[lane], z = c[lane];
      uint64_t value = 0;
      for (int k = 0; k < 8; ++k) {
        if ((instr.mode >> k & 1) != 0) value |= ((k & 4) ? x : ~x) & ((k & 2) ? y : ~y) & ((k & 1) ? z : ~z);
      }
      d[lane] = value & 0xffffffff;
    });
  };
}

void popc(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d("u32"), r.a(type);
  r.instr.run = type == "b64" ? Run(one<uint64_t, uint32_t, [](uint64_t a) { return uint32_t(std::popcount(a)); }>)
                              : Run(one<uint32_t, uint32_t, [](uint32_t a) { return uint32_t(std::popcount(a)); }>);
}

void clz(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d("u32"), r.a(type);
  r.instr.run = type == "b64" ? Run(one<uint64_t, uint32_t, [](uint64_t a) { return uint32_t(std::countl_zero(a)); }>)
                              : Run(one<uint32_t, uint32_t, [](uint32_t a) { return uint32_t(std::countl_zero(a)); }>);
}

template <class T> T reversed(T a) {
  T value = 0;
  for (size_t k = 0; k < 8 * sizeof(T); ++k) value = static_cast<T>(value << 1 | (a >> k & 1));
  return value;
}

void brev(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type);
  r.instr.run = type == "b64" ? Run(one<uint64_t, uint64_t, reversed<uint64_t>>)
                              : Run(one<uint32_t, uint32_t, reversed<uint32_t>>);
}

// Where the highest bit is that differs from the sign; all ones where there is none.
template <class T, bool kShift> uint32_t found_bit(T a) {
  using U = std::make_unsigned_t<T>;
  const auto value = static_cast<U>(a < 0 ? ~a : a);
  if (value == 0) return ~0u;
  const auto at = static_cast<uint32_t>(8 * sizeof(T) - 1 - static_cast<size_t>(std::countl_zero(value)));
  return kShift ? static_cast<uint32_t>(8 * sizeof(T) - 1 - at) : at;
}

void bfind(Reading& r) {
  const bool shift = r.take("shiftamt");
  const std::string type = r.type();
  r.done();
  r.d("u32"), r.a(type);
  r.instr.run = with_integer(r, type, [&]<class T>() -> Run {
    if constexpr (sizeof(T) < 4) {
      r.unknown("type ." + type);
    } else {
      return shift ? Run(one<T, uint32_t, found_bit<T, true>>) : Run(one<T, uint32_t, found_bit<T, false>>);
    }
  });
}

}  // namespace

void add_bits(Reads& reads) {
  reads["and"] = logic<0>;
  reads["or"] = logic<1>;
  reads["xor"] = logic<2>;
  reads["not"] = complement;
  reads["shl"] = shift<true>;
  reads["shr"] = shift<false>;
  reads["shf"] = funnel;
  reads["bfe"] = bfe;
  reads["bfi"] = bfi;
  reads["prmt"] = permute;
  reads["lop3"] = lop3;
  reads["popc"] = popc;
  reads["clz"] = clz;
  reads["brev"] = brev;
  reads["bfind"] = bfind;
}

}  // namespace epl::cuda_machine
