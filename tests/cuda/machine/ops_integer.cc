// Arithmetic of integers.
#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Twice =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T> T low(T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
template <class T> T high(T a, T b) {
  return static_cast<T>(static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b) >> 8 * sizeof(T));
}
template <class T> T sum(T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b)); }

// Where the dividend does not fit or the divisor is 0 the device gives these.
template <class T> T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<Unsigned<T>>(a));
  return static_cast<T>(a / b);
}
template <class T> T remainder_of(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <class F> void binary(Reading& r, F&& run) {
  const std::string type = r.type();
  r.instr.run = with_integer(r, type, run);
  r.done();
  r.d(type), r.a(type), r.b(type);
}

void add(Reading& r) {
  if (r.has("cc")) return read_carry(r);
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run { return two<T, T, sum<T>>; });
  r.done();
  r.d(type), r.a(type), r.b(type);
}

void sub(Reading& r) {
  if (r.has("cc")) return read_carry(r);
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return two<T, T,
               [](T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b)); }>;
  });
  r.done();
  r.d(type), r.a(type), r.b(type);
}

std::string doubled(Reading& r, const std::string& type) {
  if (type.size() != 3 || (type.substr(1) != "16" && type.substr(1) != "32")) r.unknown("type ." + type);
  return type.substr(0, 1) + (type.substr(1) == "16" ? "32" : "64");
}

void mul(Reading& r) {
  const int part = r.which({"lo", "hi", "wide"});
  const std::string type = r.type();
  if (part == 0) return read_float(r, type);
  r.done();
  r.d(part == 3 ? doubled(r, type) : type), r.a(type), r.b(type);
  r.instr.run = with_integer(r, type, [&]<class T>() -> Run {
    if constexpr (sizeof(T) == 1) {
      r.unknown("bytes");
    } else if (part == 1) {
      return two<T, T, low<T>>;
    } else if (part == 2) {
      return two<T, T, high<T>>;
    } else if constexpr (sizeof(T) < 8) {
      return two<T, Twice<T>, [](T a, T b) { return static_cast<Twice<T>>(static_cast<Twice<T>>(a) * b); }>;
    } else {
      r.unknown("128 bits");
    }
  });
}

void mad(Reading& r) {
  if (r.has("cc")) return read_carry(r);
  const int part = r.which({"lo", "hi", "wide"});
  const std::string type = r.type();
  if (part == 0) return read_float(r, type);
  r.done();
  const std::string sum_type = part == 3 ? doubled(r, type) : type;
  r.d(sum_type), r.a(type), r.b(type), r.c(sum_type);
  r.instr.run = with_integer(r, type, [&]<class T>() -> Run {
    if constexpr (sizeof(T) == 1) {
      r.unknown("bytes");
    } else if (part == 1) {
      return three<T, T, T, [](T a, T b, T c) { return sum<T>(low<T>(a, b), c); }>;
    } else if (part == 2) {
      return three<T, T, T, [](T a, T b, T c) { return sum<T>(high<T>(a, b), c); }>;
    } else if constexpr (sizeof(T) < 8) {
      using W = Twice<T>;
      return three<T, W, W, [](T a, T b, W c) { return sum<W>(static_cast<W>(static_cast<W>(a) * b), c); }>;
    } else {
      r.unknown("128 bits");
    }
  });
}

void div(Reading& r) {
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.done();
  r.d(type), r.a(type), r.b(type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run { return two<T, T, quotient<T>>; });
}

void rem(Reading& r) {
  binary(r, []<class T>() -> Run { return two<T, T, remainder_of<T>>; });
}

template <bool kLess> void least(Reading& r) {
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.done();
  r.d(type), r.a(type), r.b(type);
  r.instr.run = with_integer(
      r, type, []<class T>() -> Run { return two<T, T, [](T a, T b) { return (a < b) == kLess ? a : b; }>; });
}

void negate(Reading& r) {
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.done();
  r.d(type), r.a(type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return one<T, T, [](T a) { return static_cast<T>(0 - static_cast<Unsigned<T>>(a)); }>;
  });
}

void absolute(Reading& r) {
  const std::string type = r.type();
  if (is_float(type)) return read_float(r, type);
  r.done();
  r.d(type), r.a(type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return one<T, T, [](T a) { return a < 0 ? static_cast<T>(0 - static_cast<Unsigned<T>>(a)) : a; }>;
  });
}

void sad(Reading& r) {
  const std::string type = r.type();
  r.done();
  r.d(type), r.a(type), r.b(type), r.c(type);
  r.instr.run = with_integer(r, type, []<class T>() -> Run {
    return three<T, T, T, [](T a, T b, T c) {
      const auto apart = a < b ? static_cast<Unsigned<T>>(b) - static_cast<Unsigned<T>>(a)
                               : static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b);
      return sum<T>(static_cast<T>(apart), c);
    }>;
  });
}

// The two halves of a times two bytes of b, and c.
template <class A, class B, class R, bool kHigh> R halves_by_bytes(uint32_t a, uint32_t b, R c) {
  const uint32_t bytes = kHigh ? b >> 16 : b;
  const auto product = [&](uint32_t half, uint32_t byte) {
    return static_cast<R>(static_cast<A>(half)) * static_cast<R>(static_cast<B>(byte));
  };
  return sum<R>(sum<R>(product(a & 0xffff, bytes & 0xff), product(a >> 16, bytes >> 8 & 0xff)), c);
}
template <bool kHigh> Run halves(bool a_signed, bool b_signed) {
  if (a_signed && b_signed) return three<uint32_t, int32_t, int32_t, halves_by_bytes<int16_t, int8_t, int32_t, kHigh>>;
  if (a_signed) return three<uint32_t, int32_t, int32_t, halves_by_bytes<int16_t, uint8_t, int32_t, kHigh>>;
  if (b_signed) return three<uint32_t, int32_t, int32_t, halves_by_bytes<uint16_t, int8_t, int32_t, kHigh>>;
  return three<uint32_t, uint32_t, uint32_t, halves_by_bytes<uint16_t, uint8_t, uint32_t, kHigh>>;
}

void dp2a(Reading& r) {
  const int half = r.which({"lo", "hi"});
  const std::string a = r.type(), b = r.type();
  r.done();
  const std::string type = a == "u32" && b == "u32" ? "u32" : "s32";
  r.d(type), r.a(a), r.b(b), r.c(type);
  r.instr.run = half == 2 ? halves<true>(a == "s32", b == "s32") : halves<false>(a == "s32", b == "s32");
}

}  // namespace

void add_integers(Reads& reads) {
  reads["add"] = add;
  reads["sub"] = sub;
  reads["mul"] = mul;
  reads["mad"] = mad;
  reads["div"] = div;
  reads["rem"] = rem;
  reads["min"] = least<true>;
  reads["max"] = least<false>;
  reads["neg"] = negate;
  reads["abs"] = absolute;
  reads["sad"] = sad;
  reads["dp2a"] = dp2a;
}

}  // namespace epl::cuda_machine
