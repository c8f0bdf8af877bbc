// Loads, stores and atomic operations.
#include "tests/cuda/machine/decoder.h"

namespace epl::cuda_machine {
namespace {

uint64_t extended(const std::byte* from, int bytes, bool sign) {
  uint64_t value = 0;
  std::memcpy(&value, from, static_cast<size_t>(bytes));
  if (sign && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0) value |= ~uint64_t{0} << 8 * bytes;
  return value;
}

// `mode`: of integers with a sign.
void load(Warp& warp, const Instr& instr) {
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) {
    const uint64_t address = a[lane] + static_cast<uint64_t>(instr.offset);
    if (instr.strong) warp.synchronise(address, lane);
    const std::byte* from = warp.access(instr, lane, address, true, false);
    if (instr.count == 1 && instr.bytes == 4 && instr.mode == 0) {  // most are
      uint32_t value = 0;
      std::memcpy(&value, from, sizeof value);
      warp.at(instr.more[0])[lane] = value;
      return;
    }
    for (int k = 0; k < instr.count; ++k) {
      if (instr.more[k] >= 0)
        warp.at(instr.more[k])[lane] = extended(from + k * instr.bytes, instr.bytes, instr.mode != 0);
    }
  });
}

void store(Warp& warp, const Instr& instr) {
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) {
    const uint64_t address = a[lane] + static_cast<uint64_t>(instr.offset);
    if (instr.strong) warp.synchronise(address, lane);
    std::byte* to = warp.access(instr, lane, address, false, true);
    for (int k = 0; k < instr.count; ++k) std::memcpy(to + k * instr.bytes, &warp.at(instr.more[k])[lane], instr.bytes);
  });
}

std::string space_of(Reading& r) {
  static const std::vector<std::string> spaces = {"global", "shared",      "local",        "param",
                                                  "const",  "shared::cta", "param::entry", "param::func"};
  const int which = r.which(spaces);
  const std::string space = which == 0 ? "" : spaces[static_cast<size_t>(which - 1)];
  return space.substr(0, space.find(':'));
}

// What says how a cache is used changes no value.
void take_hints(Reading& r) {
  while (r.any("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
               "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B")) {
  }
}

void take_order(Reading& r) {
  while (r.any("volatile", "relaxed", "acquire", "release", "acq_rel")) r.instr.strong = true;
  r.take("weak");
  r.any("cta", "gpu", "sys", "cluster");
}

void move_memory(Reading& r, bool loads) {
  Instr& instr = r.instr;
  take_order(r);
  const std::string space = space_of(r);
  take_hints(r);
  const int vector = r.which({"v2", "v4", "v8"});
  const std::string type = r.type();
  r.done();
  instr.count = static_cast<uint8_t>(vector == 0 ? 1 : 1 << vector);
  instr.bytes = static_cast<uint8_t>(ptx::bytes_of(type));
  instr.mode = type.starts_with("s");
  const size_t value = loads ? 0 : 1;
  r.address(loads ? 1 : 0, space);
  if (vector == 0) {
    instr.more[0] = r.operand(value, type);
  } else {
    const std::vector<std::string> parts = r.parts(value);
    if (parts.size() != instr.count) r.unknown("another number of registers");
    for (size_t k = 0; k < parts.size(); ++k) instr.more[k] = parts[k] == "_" && loads ? -1 : r.named(parts[k], type);
  }
  instr.run = loads ? load : store;
}

void ld(Reading& r) { move_memory(r, true); }
void st(Reading& r) { move_memory(r, false); }

// ---- atomic operations: the old value is what they give ----

enum class Atomic : uint8_t { add, min, max, inc, dec, exch, cas, and_, or_, xor_ };
const std::vector<std::string> kAtomics = {"add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor"};

template <class T> T after(Atomic how, T old, T b, T c) {
  if constexpr (std::is_floating_point_v<T>) {
    if (how == Atomic::add) return canonical(old + b);
    return how == Atomic::exch ? b : old == b ? c : old;
  } else {
    switch (how) {
      case Atomic::add:
        return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(b));
      case Atomic::min:
        return std::min(old, b);
      case Atomic::max:
        return std::max(old, b);
      case Atomic::inc:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case Atomic::dec:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
      case Atomic::exch:
        return b;
      case Atomic::cas:
        return old == b ? c : old;
      case Atomic::and_:
        return static_cast<T>(old & b);
      case Atomic::or_:
        return static_cast<T>(old | b);
      default:
        return static_cast<T>(old ^ b);
    }
  }
}

// The lanes come in an order that nobody may rely on.
template <class T> void atomic(Warp& warp, const Instr& instr) {
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  const uint32_t turned = static_cast<uint32_t>((*warp.launch().random)() % kLanes);
  for (uint32_t k = 0; k < kLanes; ++k) {
    const auto lane = static_cast<int>((k + turned) % kLanes);
    if ((warp.mask >> lane & 1) == 0) continue;
    const uint64_t address = a[lane] + static_cast<uint64_t>(instr.offset);
    warp.synchronise(address, lane);
    std::byte* at = warp.access(instr, lane, address, true, true);
    T old{};
    std::memcpy(&old, at, sizeof old);
    const T now = after<T>(static_cast<Atomic>(instr.mode), old, as<T>(b[lane]), as<T>(c[lane]));
    std::memcpy(at, &now, sizeof now);
    if (instr.d >= 0) warp.at(instr.d)[lane] = bits<T>(old);
  }
}

void read_atomic(Reading& r, bool gives) {
  Instr& instr = r.instr;
  instr.d = -1;
  take_order(r);
  instr.strong = true;
  const std::string space = space_of(r);
  take_order(r);
  const int how = r.which(kAtomics);
  if (how == 0) r.unknown("no operation is given");
  if (r.take("noftz")) r.unknown("small floats");
  const std::string type = r.type();
  r.done();
  instr.mode = static_cast<uint8_t>(how - 1);
  instr.bytes = static_cast<uint8_t>(ptx::bytes_of(type));
  const size_t first = gives ? 1 : 0;
  if (gives && r.text.operands[0] != "_") r.d(type);
  r.address(first, space);
  if (instr.space == Space::frame || instr.space == Space::local) r.unknown("atomics of local memory");
  instr.b = r.operand(first + 1, type);
  instr.c = how - 1 == static_cast<int>(Atomic::cas) ? r.operand(first + 2, type) : instr.b;
  if (type == "f32" || type == "f64") {
    if (instr.mode != static_cast<uint8_t>(Atomic::add) && instr.mode != static_cast<uint8_t>(Atomic::exch))
      r.unknown("this operation of floats");
    instr.run = type == "f32" ? atomic<float> : atomic<double>;
  } else {
    instr.run = with_integer(r, type, []<class T>() -> Run { return atomic<T>; });
  }
}

void atom(Reading& r) { read_atomic(r, true); }
void red(Reading& r) { read_atomic(r, false); }

// Memory of the machine is always in order; who relies on that without a fence is found by the marks.
void fence(Reading& r) {
  while (r.any("gl", "cta", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release")) {
  }
  r.done();
  r.instr.run = [](Warp& warp, const Instr&) { warp.fenced |= warp.mask; };
}

void prefetch(Reading& r) {
  while (r.any("global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal")) {
  }
  r.done();
  r.instr.run = [](Warp&, const Instr&) {};
}

}  // namespace

void add_memory(Reads& reads) {
  reads["ld"] = ld;
  reads["st"] = st;
  reads["atom"] = atom;
  reads["red"] = red;
  reads["membar"] = fence;
  reads["fence"] = fence;
  reads["prefetch"] = prefetch;
}

}  // namespace epl::cuda_machine
