// Arithmetic of integers in pieces: what one instruction carries, the next one takes.
#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

enum : uint8_t { kAdd, kSub, kMadLow, kMadHigh, kTakes = 4, kGives = 8 };

template <class T> void carried(Warp& warp, const Instr& instr) {
  using Wide = unsigned __int128;
  constexpr int width = 8 * sizeof(T);
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  const uint32_t carry = (instr.mode & kTakes) != 0 ? warp.carry : 0;
  uint32_t out = 0;
  warp.each([&](int lane) {
    const T x = as<T>(a[lane]), y = as<T>(b[lane]);
    const Wide in = carry >> lane & 1;
    Wide result = 0;
    switch (instr.mode & 3) {
      case kAdd:
        result = Wide{x} + y + in;
        break;
      case kSub:
        result = Wide{x} - y - in;  // below zero: all bits above are set
        break;
      case kMadLow:
        result = Wide{static_cast<T>(Wide{x} * y)} + as<T>(c[lane]) + in;
        break;
      default:
        result = Wide{static_cast<T>(Wide{x} * y >> width)} + as<T>(c[lane]) + in;
    }
    out |= static_cast<uint32_t>(result >> width & 1) << lane;
    d[lane] = bits<T>(static_cast<T>(result));
  });
  if ((instr.mode & kGives) != 0) warp.carry = (warp.carry & ~warp.mask) | out;
}

template <uint8_t kMode> void takes(Reading& r) {
  r.instr.mode = kMode | kTakes;
  read_carry(r);
}

}  // namespace

void read_carry(Reading& r) {
  Instr& instr = r.instr;
  const std::string& op = r.text.opcode;
  if (op.starts_with("sub")) instr.mode |= kSub;
  if (op.starts_with("mad")) {
    const int part = r.which({"lo", "hi"});
    if (part == 0) r.unknown("which part of the product");
    instr.mode |= part == 1 ? kMadLow : kMadHigh;
  }
  if (r.take("cc")) instr.mode |= kGives;
  const std::string type = r.type();
  r.done();
  if (is_float(type) || (type[0] == 's' && (instr.mode & 3) == kMadHigh)) r.unknown("type ." + type);
  r.d(type), r.a(type), r.b(type);
  instr.c = instr.b;
  if ((instr.mode & 3) >= kMadLow) r.c(type);
  const auto bytes = ptx::bytes_of(type);
  if (bytes < 4) r.unknown("type ." + type);
  instr.run = bytes == 4 ? carried<uint32_t> : carried<uint64_t>;
}

void add_carries(Reads& reads) {
  reads["addc"] = takes<kAdd>;
  reads["subc"] = takes<kSub>;
  reads["madc"] = takes<0>;
}

}  // namespace epl::cuda_machine
