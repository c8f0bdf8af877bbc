// Each instruction over many values, against what the host's compiler makes of the same operation.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "tests/cuda/machine/rig.h"

namespace epl::arithmetic_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

using Bits = uint64_t;
using Meaning = std::function<Bits(Bits, Bits, Bits)>;

float f(Bits bits) {
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}
double g(Bits bits) {
  double value = 0;
  std::memcpy(&value, &bits, 8);
  return value;
}
Bits of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  return std::isnan(value) ? 0x7fffffff : bits;
}
Bits of(double value) {
  Bits bits = 0;
  std::memcpy(&bits, &value, 8);
  return bits;
}
int32_t s(Bits bits) { return static_cast<int32_t>(bits); }
uint32_t u(Bits bits) { return static_cast<uint32_t>(bits); }
int64_t sl(Bits bits) { return static_cast<int64_t>(bits); }

template <class T> T rounding(int mode, T (*op)(T, T), T a, T b) {
  volatile T x = a, y = b;
  std::fesetround(mode);
  volatile T result = op(x, y);
  std::fesetround(FE_TONEAREST);
  return result;
}

// Values that are at the edges of something, then any.
std::vector<Bits> values(int width, bool floats) {
  std::vector<Bits> made = {0,
                            1,
                            2,
                            3,
                            5,
                            7,
                            31,
                            32,
                            33,
                            63,
                            64,
                            127,
                            128,
                            255,
                            256,
                            0x7fff,
                            0x8000,
                            0xffff,
                            0x10000,
                            0x7fffffff,
                            0x80000000,
                            0xffffffff,
                            0x7fffffffffffffff,
                            0x8000000000000000,
                            ~Bits{0}};
  if (floats && width == 32) {
    for (const float value :
         {1.f, -1.f, 0.5f, 1.5f, 2.5f, -2.5f, 3.4e38f, 1e-38f, 1e-45f, 16777217.f, 65504.f, 65520.f, 1e10f})
      made.push_back(of(value));
    for (const Bits bits : {0x7f800000u, 0xff800000u, 0x7fc00001u, 0x80000001u}) made.push_back(bits);
  } else if (floats && width == 64) {
    for (const double value :
         {1., -1., 0.5, 1.5, -2.5, 1e308, 5e-324, 9.3e18, 1.8e19, 4294967295.5, 1e-46, 3.4028236e38})
      made.push_back(of(value));
    for (const Bits bits : {0x7ff0000000000000u, 0xfff0000000000000u}) made.push_back(bits);
  }
  std::mt19937_64 random(7);
  while (made.size() < 64) made.push_back(random());
  for (Bits& value : made) value &= ~Bits{0} >> (64 - width);
  return made;
}

std::string kind(const std::string& type) {  // of a register for the type
  if (type == "f32" || type == "f64") return type;
  return "b" + type.substr(type.find_first_of("0123456789"));
}
int width(const std::string& type) { return std::stoi(type.substr(type.find_first_of("0123456789"))); }

struct Row {
  std::string text;        // with d, a, b, c, and p of a predicate
  std::string d, a, b, c;  // types
  Meaning meaning;
};

// Registers d, a, b, c of the row's types; thread i has the i-th values.
std::string program(const Row& row) {
  std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 k0) {\n";
  const bool predicate = row.d == "pred";
  const std::string d = predicate ? "u32" : row.d;
  const std::string types[] = {d, row.a, row.b.empty() ? "b32" : row.b, row.c.empty() ? "b32" : row.c};
  const char* names[] = {"%d", "%a", "%b", "%c"};
  for (int k = 0; k < 4; ++k) text += ".reg ." + kind(types[k]) + " " + names[k] + ";\n";
  text += ".reg .pred %p; .reg .pred %q; .reg .b32 %i; .reg .b64 %at;\nld.param.u64 %at, [k0];\nmov.u32 %i, %tid.x;\n";
  text += "mad.wide.u32 %at, %i, 32, %at;\n";
  for (int k = 1; k < 4; ++k)
    text += "ld.global." + kind(types[k]) + " " + names[k] + ", [%at+" + std::to_string(8 * k) + "];\n";
  text += "setp.ne.u32 %q, %i, 3;\n" + row.text + (row.text.ends_with("}") ? "\n" : ";\n");
  if (predicate) text += "selp.u32 %d, 1, 0, %p;\n";
  return text + "st.global." + kind(d) + " [%at], %d;\nret;\n}\n";
}

void check_row(const Row& row) {
  SCOPED_TRACE(row.text);
  Rig rig("uninitialised=0");
  const auto floats = [](const std::string& type) { return type == "f32" || type == "f64"; };
  const std::vector<Bits> a = values(width(row.a), floats(row.a));
  const std::vector<Bits> b = values(row.b.empty() ? 32 : width(row.b), floats(row.b));
  const std::vector<Bits> c = values(row.c.empty() ? 32 : width(row.c), floats(row.c));
  void* kernel = rig.function(program(row), "k");
  const int bits = row.d == "pred" ? 32 : width(row.d);
  for (size_t turn = 0; turn < 8; ++turn) {
    std::vector<Bits> in(4 * a.size());
    for (size_t k = 0; k < a.size(); ++k) {
      in[4 * k + 1] = a[k];
      in[4 * k + 2] = b[(k * 7 + turn * 13) % b.size()];
      in[4 * k + 3] = c[(k * 11 + turn * 5) % c.size()];
    }
    const Address memory = rig.upload(in);
    rig.want(rig.launch(kernel, {.block = static_cast<unsigned>(a.size())}, memory));
    const std::vector<Bits> out = rig.download<Bits>(memory, in.size());
    for (size_t k = 0; k < a.size(); ++k) {
      const Bits mask = ~Bits{0} >> (64 - bits);
      const Bits wanted = row.meaning(in[4 * k + 1], in[4 * k + 2], in[4 * k + 3]) & mask;
      EXPECT_EQ(out[4 * k] & mask, wanted)
          << std::hex << "a " << in[4 * k + 1] << " b " << in[4 * k + 2] << " c " << in[4 * k + 3];
      if ((out[4 * k] & mask) != wanted) return;
    }
  }
}

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) check_row(row);
}

TEST(MachineArithmetic, OfIntegers) {
  check_rows({
      {"add.s32 %d, %a, %b", "s32", "s32", "s32", "", [](Bits a, Bits b, Bits) { return u(a) + u(b); }},
      {"add.s64 %d, %a, %b", "s64", "s64", "s64", "", [](Bits a, Bits b, Bits) { return a + b; }},
      {"add.s16 %d, %a, %b", "s16", "s16", "s16", "", [](Bits a, Bits b, Bits) { return a + b; }},
      {"sub.s32 %d, %a, %b", "s32", "s32", "s32", "", [](Bits a, Bits b, Bits) { return u(a) - u(b); }},
      {"mul.lo.s32 %d, %a, %b", "s32", "s32", "s32", "", [](Bits a, Bits b, Bits) { return u(a) * u(b); }},
      {"mul.lo.s64 %d, %a, %b", "s64", "s64", "s64", "", [](Bits a, Bits b, Bits) { return a * b; }},
      {"mul.wide.s32 %d, %a, %b", "s64", "s32", "s32", "",
       [](Bits a, Bits b, Bits) { return static_cast<Bits>(int64_t{s(a)} * s(b)); }},
      {"mul.wide.u32 %d, %a, %b", "u64", "u32", "u32", "", [](Bits a, Bits b, Bits) { return Bits{u(a)} * u(b); }},
      {"mul.wide.u16 %d, %a, %b", "u32", "u16", "u16", "", [](Bits a, Bits b, Bits) { return a * b; }},
      {"mul.hi.u32 %d, %a, %b", "u32", "u32", "u32", "", [](Bits a, Bits b, Bits) { return Bits{u(a)} * u(b) >> 32; }},
      {"mul.hi.s64 %d, %a, %b", "s64", "s64", "s64", "",
       [](Bits a, Bits b, Bits) { return static_cast<Bits>(static_cast<__int128>(sl(a)) * sl(b) >> 64); }},
      {"mul.hi.u64 %d, %a, %b", "u64", "u64", "u64", "",
       [](Bits a, Bits b, Bits) { return static_cast<Bits>(static_cast<unsigned __int128>(a) * b >> 64); }},
      {"mad.lo.s32 %d, %a, %b, %c", "s32", "s32", "s32", "s32",
       [](Bits a, Bits b, Bits c) { return u(a) * u(b) + u(c); }},
      {"mad.wide.s32 %d, %a, %b, %c", "s64", "s32", "s32", "s64",
       [](Bits a, Bits b, Bits c) { return static_cast<Bits>(int64_t{s(a)} * s(b)) + c; }},
      {"div.s32 %d, %a, %b", "s32", "s32", "s32", "",
       [](Bits a, Bits b, Bits) { return s(b) == 0 ? ~Bits{0} : static_cast<Bits>(int64_t{s(a)} / s(b)); }},
      {"div.u64 %d, %a, %b", "u64", "u64", "u64", "", [](Bits a, Bits b, Bits) { return b == 0 ? ~Bits{0} : a / b; }},
      {"rem.s32 %d, %a, %b", "s32", "s32", "s32", "",
       [](Bits a, Bits b, Bits) { return s(b) == 0 ? a : static_cast<Bits>(int64_t{s(a)} % s(b)); }},
      {"rem.u64 %d, %a, %b", "u64", "u64", "u64", "", [](Bits a, Bits b, Bits) { return b == 0 ? a : a % b; }},
      {"min.s32 %d, %a, %b", "s32", "s32", "s32", "", [](Bits a, Bits b, Bits) { return s(a) < s(b) ? a : b; }},
      {"max.u64 %d, %a, %b", "u64", "u64", "u64", "", [](Bits a, Bits b, Bits) { return a > b ? a : b; }},
      {"neg.s64 %d, %a", "s64", "s64", "", "", [](Bits a, Bits, Bits) { return 0 - a; }},
      {"abs.s32 %d, %a", "s32", "s32", "", "", [](Bits a, Bits, Bits) { return s(a) < 0 ? 0 - a : a; }},
      {"sad.u32 %d, %a, %b, %c", "u32", "u32", "u32", "u32",
       [](Bits a, Bits b, Bits c) { return (a < b ? b - a : a - b) + c; }},
      {"dp2a.lo.u32.u32 %d, %a, %b, %c", "u32", "u32", "u32", "u32",
       [](Bits a, Bits b, Bits c) { return (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff) + c; }},
      {"dp2a.hi.s32.u32 %d, %a, %b, %c", "s32", "s32", "u32", "s32",
       [](Bits a, Bits b, Bits c) {
         return static_cast<Bits>(static_cast<int16_t>(a) * static_cast<int64_t>(b >> 16 & 0xff) +
                                  static_cast<int16_t>(a >> 16) * static_cast<int64_t>(b >> 24 & 0xff)) +
                c;
       }},
  });
}

// Sums and products in pieces of 32 bits; the registers are used twice.
TEST(MachineArithmetic, WithCarries) {
  const std::string halves = "{ .reg .b32 %x<6>; mov.b64 {%x0,%x1}, %a; mov.b64 {%x2,%x3}, %b; ",
                    whole = " mov.b64 %d, {%x4,%x5}; }";
  const auto text = [&](const std::string& middle) { return halves + middle + whole; };
  check_rows({
      {text("add.cc.u32 %x4, %x0, %x2; addc.u32 %x5, %x1, %x3;"), "b64", "b64", "b64", "",
       [](Bits a, Bits b, Bits) { return a + b; }},
      {text("sub.cc.s32 %x4, %x0, %x2; subc.cc.s32 %x5, %x1, %x3;"), "b64", "b64", "b64", "",
       [](Bits a, Bits b, Bits) { return a - b; }},
      {text("mad.lo.cc.u32 %x4, %x0, %x2, %x1; madc.hi.u32 %x5, %x0, %x2, 0;"), "b64", "b64", "b64", "",
       [](Bits a, Bits b, Bits) { return Bits{u(a)} * u(b) + (a >> 32); }},
      {"{ .reg .b64 %x; add.cc.s64 %x, %a, %b; addc.u64 %d, %a, 0; }", "b64", "b64", "b64", "",
       [](Bits a, Bits b, Bits) { return a + (a + b < a ? 1 : 0); }},
  });
}

TEST(MachineArithmetic, OfBits) {
  const auto funnel = [](Bits a, Bits b) { return b << 32 | a; };
  check_rows({
      {"and.b32 %d, %a, %b", "b32", "b32", "b32", "", [](Bits a, Bits b, Bits) { return a & b; }},
      {"or.b64 %d, %a, %b", "b64", "b64", "b64", "", [](Bits a, Bits b, Bits) { return a | b; }},
      {"xor.b16 %d, %a, %b", "b16", "b16", "b16", "", [](Bits a, Bits b, Bits) { return a ^ b; }},
      {"not.b32 %d, %a", "b32", "b32", "", "", [](Bits a, Bits, Bits) { return ~a; }},
      {"shl.b32 %d, %a, %b", "b32", "b32", "b32", "", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : a << b; }},
      {"shl.b64 %d, %a, %b", "b64", "b64", "b32", "", [](Bits a, Bits b, Bits) { return b > 63 ? 0 : a << b; }},
      {"shr.u32 %d, %a, %b", "b32", "b32", "b32", "", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : a >> b; }},
      {"shr.s32 %d, %a, %b", "s32", "s32", "b32", "",
       [](Bits a, Bits b, Bits) { return static_cast<Bits>(s(a) >> (b > 31 ? 31 : b)); }},
      {"shr.s64 %d, %a, %b", "s64", "s64", "b32", "",
       [](Bits a, Bits b, Bits) { return static_cast<Bits>(sl(a) >> (b > 63 ? 63 : b)); }},
      {"shf.l.wrap.b32 %d, %a, %b, %c", "b32", "b32", "b32", "b32",
       [&](Bits a, Bits b, Bits c) { return funnel(a, b) << (c & 31) >> 32; }},
      {"shf.r.clamp.b32 %d, %a, %b, %c", "b32", "b32", "b32", "b32",
       [&](Bits a, Bits b, Bits c) { return funnel(a, b) >> (c > 32 ? 32 : c); }},
      {"bfe.u32 %d, %a, %b, 5", "b32", "b32", "b32", "",
       [](Bits a, Bits b, Bits) { return (b & 255) > 31 ? 0 : a >> (b & 255) & 31; }},
      {"bfe.s32 %d, %a, 3, 7", "s32", "s32", "", "",
       [](Bits a, Bits, Bits) { return static_cast<Bits>(static_cast<int32_t>(u(a) << 22) >> 25); }},
      {"bfi.b32 %d, %a, %b, 4, 8", "b32", "b32", "b32", "",
       [](Bits a, Bits b, Bits) { return (b & ~Bits{0xff0}) | (a & 0xff) << 4; }},
      {"prmt.b32 %d, %a, %b, 0x6420", "b32", "b32", "b32", "",
       [](Bits a, Bits b, Bits) { return (a & 255) | (a >> 16 & 255) << 8 | (b & 255) << 16 | (b >> 16 & 255) << 24; }},
      {"lop3.b32 %d, %a, %b, %c, 0xCA", "b32", "b32", "b32", "b32",
       [](Bits a, Bits b, Bits c) { return (a & b) | (~a & c); }},
      {"popc.b64 %d, %a", "b32", "b64", "", "", [](Bits a, Bits, Bits) { return Bits(__builtin_popcountll(a)); }},
      {"clz.b32 %d, %a", "b32", "b32", "", "",
       [](Bits a, Bits, Bits) { return a == 0 ? 32 : Bits(__builtin_clz(u(a))); }},
      {"brev.b32 %d, %a", "b32", "b32", "", "",
       [](Bits a, Bits, Bits) {
         Bits turned = 0;
         for (int k = 0; k < 32; ++k) turned |= (a >> k & 1) << (31 - k);
         return turned;
       }},
      {"bfind.u32 %d, %a", "b32", "b32", "", "",
       [](Bits a, Bits, Bits) { return a == 0 ? ~Bits{0} : Bits(31 - __builtin_clz(u(a))); }},
  });
}

TEST(MachineArithmetic, OfFloats) {
  check_rows({
      {"add.rn.f32 %d, %a, %b", "f32", "f32", "f32", "", [](Bits a, Bits b, Bits) { return of(f(a) + f(b)); }},
      {"sub.rn.f32 %d, %a, %b", "f32", "f32", "f32", "", [](Bits a, Bits b, Bits) { return of(f(a) - f(b)); }},
      {"mul.rn.f32 %d, %a, %b", "f32", "f32", "f32", "", [](Bits a, Bits b, Bits) { return of(f(a) * f(b)); }},
      {"fma.rn.f32 %d, %a, %b, %c", "f32", "f32", "f32", "f32",
       [](Bits a, Bits b, Bits c) { return of(std::fma(f(a), f(b), f(c))); }},
      {"div.rn.f32 %d, %a, %b", "f32", "f32", "f32", "", [](Bits a, Bits b, Bits) { return of(f(a) / f(b)); }},
      {"sqrt.rn.f32 %d, %a", "f32", "f32", "", "", [](Bits a, Bits, Bits) { return of(std::sqrt(f(a))); }},
      {"rcp.rn.f32 %d, %a", "f32", "f32", "", "", [](Bits a, Bits, Bits) { return of(1.0f / f(a)); }},
      {"add.rz.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         return of(rounding<float>(FE_TOWARDZERO, [](float x, float y) { return x + y; }, f(a), f(b)));
       }},
      {"mul.rm.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         return of(rounding<float>(FE_DOWNWARD, [](float x, float y) { return x * y; }, f(a), f(b)));
       }},
      {"mul.rn.ftz.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         const auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x; };
         return of(flush(flush(f(a)) * flush(f(b))));
       }},
      {"add.rn.sat.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         const float sum = f(a) + f(b);
         return std::isnan(sum) || sum < 0 ? 0
                                           : of(sum > 1    ? 1.f
                                                : sum == 0 ? std::fabs(sum) * std::copysign(1.f, sum)
                                                           : sum);
       }},
      {"min.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         if (f(a) == 0 && f(b) == 0) return std::signbit(f(a)) ? a : b;
         return of(std::fmin(f(a), f(b)));
       }},
      {"max.NaN.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) {
         if (std::isnan(f(a)) || std::isnan(f(b))) return Bits{0x7fffffff};
         if (f(a) == 0 && f(b) == 0) return std::signbit(f(a)) ? b : a;
         return of(std::fmax(f(a), f(b)));
       }},
      {"neg.f32 %d, %a", "f32", "f32", "", "", [](Bits a, Bits, Bits) { return a ^ 0x80000000; }},
      {"abs.f64 %d, %a", "f64", "f64", "", "", [](Bits a, Bits, Bits) { return a & ~(Bits{1} << 63); }},
      {"copysign.f32 %d, %a, %b", "f32", "f32", "f32", "",
       [](Bits a, Bits b, Bits) { return (a & 0x80000000) | (b & 0x7fffffff); }},
      {"fma.rn.f64 %d, %a, %b, %c", "f64", "f64", "f64", "f64",
       [](Bits a, Bits b, Bits c) { return of(std::fma(g(a), g(b), g(c))); }},
      {"div.rn.f64 %d, %a, %b", "f64", "f64", "f64", "", [](Bits a, Bits b, Bits) { return of(g(a) / g(b)); }},
      {"sqrt.rn.f64 %d, %a", "f64", "f64", "", "", [](Bits a, Bits, Bits) { return of(std::sqrt(g(a))); }},
  });
}

// _Float16 and __bf16 round once, as the device does; the host's compiler has the first.
TEST(MachineArithmetic, OfSmallFloats) {
  const auto half = [](Bits bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    _Float16 value;
    std::memcpy(&value, &narrow, 2);
    return value;
  };
  const auto of_half = [](_Float16 value) -> Bits {
    uint16_t bits = 0;
    std::memcpy(&bits, &value, 2);
    return value != value ? 0x7fff : bits;
  };
  const auto brain = [](Bits bits) { return f((bits & 0xffff) << 16); };
  // Exact in double where the exponents are near; elsewhere the small one only breaks ties.
  const auto of_brain = [](float value) -> Bits {
    if (std::isnan(value)) return 0x7fff;
    const Bits bits = of(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  check_rows({
      {"add.rn.f16 %d, %a, %b", "b16", "b16", "b16", "",
       [&](Bits a, Bits b, Bits) { return of_half(static_cast<_Float16>(float(half(a)) + float(half(b)))); }},
      {"mul.rn.f16 %d, %a, %b", "b16", "b16", "b16", "",
       [&](Bits a, Bits b, Bits) { return of_half(static_cast<_Float16>(float(half(a)) * float(half(b)))); }},
      {"cvt.f32.f16 %d, %a", "f32", "b16", "", "", [&](Bits a, Bits, Bits) { return of(float(half(a))); }},
      {"cvt.rn.f16.f32 %d, %a", "b16", "f32", "", "",
       [&](Bits a, Bits, Bits) { return of_half(static_cast<_Float16>(f(a))); }},
      {"cvt.rn.bf16.f32 %d, %a", "b16", "f32", "", "", [&](Bits a, Bits, Bits) { return of_brain(f(a)); }},
      {"mul.rn.bf16 %d, %a, %b", "b16", "b16", "b16", "",
       [&](Bits a, Bits b, Bits) {
         const double exact = double{brain(a)} * double{brain(b)};
         const auto near = static_cast<float>(exact);  // of 16 bits: exact unless it is subnormal or infinite
         return double{near} == exact || !std::isfinite(near) || std::isnan(near) ? of_brain(near) : of_brain(near);
       }},
      {"setp.lt.f16 %p, %a, %b", "pred", "b16", "b16", "",
       [&](Bits a, Bits b, Bits) { return Bits(half(a) < half(b)); }},
  });
}

// A sum that rounds differently in two steps: 1 + 2^-11 + a little is above the middle.
TEST(MachineArithmetic, OfSmallFloatsIsRoundedOnce) {
  const Row fused = {"fma.rn.f16 %d, %a, %b, %c", "b16", "b16", "b16", "b16", {}};
  Rig rig;
  // 2^-11 * (1 + 2^-10) + 1: just above the middle of 1 and the next.
  const std::vector<Bits> in = {0, 0x1000, 0x3c01, 0x3c00};
  const Address memory = rig.upload(in);
  rig.want(rig.launch(rig.function(program(fused), "k"), {.block = 1}, memory));
  EXPECT_EQ(rig.download<Bits>(memory, 1)[0] & 0xffff, 0x3c01u);
}

TEST(MachineArithmetic, OfComparisons) {
  check_rows({
      {"setp.lt.s32 %p, %a, %b", "pred", "s32", "s32", "", [](Bits a, Bits b, Bits) { return Bits(s(a) < s(b)); }},
      {"setp.hi.u32 %p, %a, %b", "pred", "u32", "u32", "", [](Bits a, Bits b, Bits) { return Bits(a > b); }},
      {"setp.ge.s64 %p, %a, %b", "pred", "s64", "s64", "", [](Bits a, Bits b, Bits) { return Bits(sl(a) >= sl(b)); }},
      {"setp.eq.b16 %p, %a, %b", "pred", "b16", "b16", "", [](Bits a, Bits b, Bits) { return Bits(a == b); }},
      {"setp.lt.f32 %p, %a, %b", "pred", "f32", "f32", "", [](Bits a, Bits b, Bits) { return Bits(f(a) < f(b)); }},
      {"setp.ne.f32 %p, %a, %b", "pred", "f32", "f32", "",
       [](Bits a, Bits b, Bits) { return Bits(f(a) < f(b) || f(a) > f(b)); }},
      {"setp.geu.f64 %p, %a, %b", "pred", "f64", "f64", "", [](Bits a, Bits b, Bits) { return Bits(!(g(a) < g(b))); }},
      {"setp.nan.f32 %p, %a, %b", "pred", "f32", "f32", "",
       [](Bits a, Bits b, Bits) { return Bits(std::isnan(f(a)) || std::isnan(f(b))); }},
      {"setp.gt.and.f32 %p, %a, %b, %q", "pred", "f32", "f32", "",
       [](Bits a, Bits b, Bits) { return Bits(a != 3 && f(a) > f(b)); }},
      {"selp.b32 %d, %a, %b, %q", "b32", "b32", "b32", "", [](Bits a, Bits b, Bits) { return a == 3 ? b : a; }},
      {"slct.b32.s32 %d, %a, %b, %c", "b32", "b32", "b32", "s32",
       [](Bits a, Bits b, Bits c) { return s(c) >= 0 ? a : b; }},
  });
}

TEST(MachineArithmetic, OfConversions) {
  const auto whole = [](double value, double least, double most) -> Bits {
    if (std::isnan(value)) return 0;
    return static_cast<Bits>(static_cast<int64_t>(value <= least ? least : value >= most ? most : value));
  };
  check_rows({
      {"cvt.s64.s32 %d, %a", "s64", "s32", "", "", [](Bits a, Bits, Bits) { return static_cast<Bits>(int64_t{s(a)}); }},
      {"cvt.u32.u16 %d, %a", "u32", "u16", "", "", [](Bits a, Bits, Bits) { return a; }},
      {"cvt.s32.s8 %d, %a", "s32", "b32", "", "",
       [](Bits a, Bits, Bits) { return static_cast<Bits>(int64_t{static_cast<int8_t>(a)}); }},
      {"cvt.sat.u8.s32 %d, %a", "b32", "s32", "", "",
       [](Bits a, Bits, Bits) { return static_cast<Bits>(s(a) < 0     ? 0
                                                         : s(a) > 255 ? 255
                                                                      : s(a)); }},
      {"cvt.rn.f32.s32 %d, %a", "f32", "s32", "", "", [](Bits a, Bits, Bits) { return of(static_cast<float>(s(a))); }},
      {"cvt.rn.f32.u64 %d, %a", "f32", "u64", "", "", [](Bits a, Bits, Bits) { return of(static_cast<float>(a)); }},
      {"cvt.rn.f32.s64 %d, %a", "f32", "s64", "", "", [](Bits a, Bits, Bits) { return of(static_cast<float>(sl(a))); }},
      {"cvt.rn.f64.u64 %d, %a", "f64", "u64", "", "", [](Bits a, Bits, Bits) { return of(static_cast<double>(a)); }},
      {"cvt.rzi.s32.f32 %d, %a", "s32", "f32", "", "",
       [&](Bits a, Bits, Bits) { return whole(std::trunc(double{f(a)}), -2147483648., 2147483647.); }},
      {"cvt.rni.u32.f64 %d, %a", "u32", "f64", "", "",
       [&](Bits a, Bits, Bits) { return std::isnan(g(a)) ? 0x80000000 : whole(std::nearbyint(g(a)), 0, 4294967295.); }},
      {"cvt.rmi.f32.f32 %d, %a", "f32", "f32", "", "", [](Bits a, Bits, Bits) { return of(std::floor(f(a))); }},
      {"cvt.rni.f64.f64 %d, %a", "f64", "f64", "", "", [](Bits a, Bits, Bits) { return of(std::nearbyint(g(a))); }},
      {"cvt.rn.f32.f64 %d, %a", "f32", "f64", "", "", [](Bits a, Bits, Bits) { return of(static_cast<float>(g(a))); }},
      {"cvt.f64.f32 %d, %a", "f64", "f32", "", "", [](Bits a, Bits, Bits) { return of(static_cast<double>(f(a))); }},
      {"cvt.sat.f32.f32 %d, %a", "f32", "f32", "", "",
       [](Bits a, Bits, Bits) { return std::isnan(f(a)) || f(a) < 0 ? 0
                                       : f(a) > 1                   ? of(1.f)
                                                                    : a; }},
  });
}

// What is not known is refused when the module is loaded, by its name.
TEST(MachineArithmetic, NothingIsGuessed) {
  for (const auto& [text, type] :
       std::vector<std::pair<std::string, std::string>>{{"ex2.approx.f32 %d, %a", "f32"},
                                                        {"add.f32 %d, %a, %b", "f32"},
                                                        {"div.full.f32 %d, %a, %b", "f32"},
                                                        {"mad.hi.cc.s32 %d, %a, %b, %a", "s32"},
                                                        {"frobnicate.b32 %d, %a", "b32"},
                                                        {"vote.all.pred %p, %q", "b32"},
                                                        {"mul.lo.frob.s32 %d, %a, %b", "s32"},
                                                        {"mov.u32 %d, %clock", "b32"}}) {
    Rig rig;
    const std::string ptx = program({text, type, type, type, type, {}});
    void* module = nullptr;
    EXPECT_EQ(rig.call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str())), 218) << text;
    EXPECT_NE(rig.findings().find(text), std::string::npos) << rig.findings();
  }
}

}  // namespace
}  // namespace epl::arithmetic_test
