// What moves values: between registers, from special registers, and addresses between spaces.
#include "tests/cuda/machine/block.h"
#include "tests/cuda/machine/decoder.h"

namespace epl::cuda_machine {
namespace {

void copy(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) { d[lane] = a[lane]; });
}

const std::vector<std::string> kSpecial = {"%tid.x",
                                           "%tid.y",
                                           "%tid.z",
                                           "%ntid.x",
                                           "%ntid.y",
                                           "%ntid.z",
                                           "%ctaid.x",
                                           "%ctaid.y",
                                           "%ctaid.z",
                                           "%nctaid.x",
                                           "%nctaid.y",
                                           "%nctaid.z",
                                           "%laneid",
                                           "%lanemask_eq",
                                           "%lanemask_lt",
                                           "%lanemask_le",
                                           "%lanemask_gt",
                                           "%lanemask_ge",
                                           "%dynamic_smem_size",
                                           "%warpid"};

uint64_t special_value(const Warp& warp, int which, int lane) {
  const Launch& launch = warp.block.launch;
  const Dimensions here[] = {warp.thread(lane), launch.block, warp.block.at, launch.grid};
  if (which < 12) {
    const Dimensions& of = here[which / 3];
    return which % 3 == 0 ? of.x : which % 3 == 1 ? of.y : of.z;
  }
  const uint32_t mine = 1u << lane;
  const uint64_t rest[] = {
      static_cast<uint64_t>(lane), mine,      mine - 1, mine | (mine - 1), ~(mine | (mine - 1)), ~(mine - 1),
      launch.dynamic_shared,       warp.index};
  return rest[which - 12];
}

void special(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  warp.each([&](int lane) { d[lane] = special_value(warp, instr.mode, lane) & 0xffffffff; });
}

// Several narrow registers into a wide one, the first into its lowest bits, and back.
void join(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const int width = instr.bytes * 8;
  warp.each([&](int lane) {
    uint64_t value = 0;
    for (int k = 0; k < instr.count; ++k)
      value |= (warp.at(instr.more[k])[lane] & (~uint64_t{0} >> (64 - width))) << k * width;
    d[lane] = value;
  });
}

void part(Warp& warp, const Instr& instr) {
  const uint64_t* a = warp.at(instr.a);
  const int width = instr.bytes * 8;
  warp.each([&](int lane) {
    const uint64_t value = a[lane];
    for (int k = 0; k < instr.count; ++k) {
      if (instr.more[k] >= 0) warp.at(instr.more[k])[lane] = value >> k * width & (~uint64_t{0} >> (64 - width));
    }
  });
}

void mov_vector(Reading& r, const std::string& type) {
  Instr& instr = r.instr;
  const size_t vector = r.text.operands[0].starts_with("{") ? 0 : 1;
  const std::vector<std::string> parts = r.parts(vector);
  const int64_t bytes = ptx::bytes_of(type) / static_cast<int64_t>(parts.size());
  instr.bytes = static_cast<uint8_t>(bytes);
  instr.count = static_cast<uint8_t>(parts.size());
  for (size_t k = 0; k < parts.size(); ++k)
    instr.more[k] = parts[k] == "_" ? -1 : r.named(parts[k], "b" + std::to_string(bytes * 8));
  if (vector == 0) {
    r.a(type);
    instr.run = part;
  } else {
    r.d(type);
    instr.run = join;
  }
}

void mov(Reading& r) {
  const std::string type = r.type();
  r.done();
  const std::string& from = r.text.operands.at(1);
  if (from.starts_with("{") || r.text.operands[0].starts_with("{")) return mov_vector(r, type);
  r.d(type);
  if (type == "pred") {
    r.a(type);
    r.instr.run = [](Warp& warp, const Instr& instr) { warp.set_predicate(instr.d, warp.predicate(instr.a)); };
    return;
  }
  for (size_t k = 0; k < kSpecial.size(); ++k) {
    if (from == kSpecial[k]) {
      r.instr.mode = static_cast<uint8_t>(k);
      r.instr.run = special;
      return;
    }
  }
  if (r.decoder().is_register(from) || !r.decoder().is_symbol(from)) {
    r.a(type);
    r.instr.run = copy;
    return;
  }
  r.decoder().symbol(r, from);
  if (r.instr.space == Space::frame) {
    r.instr.run = [](Warp& warp, const Instr& instr) {
      uint64_t* d = warp.at(instr.d);
      const uint64_t* a = warp.at(instr.a);
      warp.each([&](int lane) { d[lane] = a[lane] + static_cast<uint64_t>(instr.offset) + warp.local(); });
    };
    return;
  }
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t* a = warp.at(instr.a);
    warp.each([&](int lane) { d[lane] = a[lane] + static_cast<uint64_t>(instr.offset); });
  };
}

uint64_t window_of(Reading& r, const std::string& space) {
  if (space == "shared") return kSharedWindow;
  if (space == "local") return kLocalWindow;
  if (space == "param") return kParameterWindow;
  if (space == "global" || space == "const") return 0;
  r.unknown("space ." + space);
}

void cvta(Reading& r) {
  const bool to = r.take("to");
  static const std::vector<std::string> spaces = {"global", "shared", "local", "const", "param"};
  const int which = r.which(spaces);
  if (which == 0) r.unknown("no space is given");
  const uint64_t window = window_of(r, spaces[static_cast<size_t>(which - 1)]);
  r.type();
  r.done();
  r.d("u64");
  if (!r.decoder().is_register(r.text.operands.at(1))) {
    r.decoder().symbol(r, r.text.operands[1]);
    if (r.instr.space == Space::frame) r.unknown("a local variable's name");
  } else {
    r.a("u64");
  }
  r.instr.offset += static_cast<int64_t>(to ? 0 - window : window);
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    const uint64_t* a = warp.at(instr.a);
    warp.each([&](int lane) { d[lane] = a[lane] + static_cast<uint64_t>(instr.offset); });
  };
}

void isspacep(Reading& r) {
  static const std::vector<std::string> spaces = {"global", "shared", "local", "const", "param"};
  const int which = r.which(spaces);
  if (which == 0) r.unknown("no space is given");
  if (which == 4) r.unknown("constants are not told from the rest");
  r.done();
  r.instr.d = r.operand(0, "pred");
  r.a("u64");
  r.instr.offset = static_cast<int64_t>(window_of(r, spaces[static_cast<size_t>(which - 1)]));
  r.instr.run = [](Warp& warp, const Instr& instr) {
    const uint64_t* a = warp.at(instr.a);
    uint32_t yes = 0;
    warp.each([&](int lane) {
      yes |= static_cast<uint32_t>((a[lane] & ~(kWindowSize - 1)) >> 56 == static_cast<uint64_t>(instr.offset) >> 56)
             << lane;
    });
    warp.set_predicate(instr.d, yes);
  };
}

}  // namespace

void add_moves(Reads& reads) {
  reads["mov"] = mov;
  reads["cvta"] = cvta;
  reads["isspacep"] = isspacep;
}

}  // namespace epl::cuda_machine
