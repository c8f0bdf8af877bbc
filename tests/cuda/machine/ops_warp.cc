// What lanes of a warp do together, barriers, and where a function goes on.
#include "tests/cuda/machine/decoder.h"

namespace epl::cuda_machine {
namespace {

enum : uint8_t { kUp, kDown, kButterfly, kIndex };

void shuffle(Warp& warp, const Instr& instr) {
  uint64_t values[kLanes];
  std::memcpy(values, warp.at(instr.a), sizeof values);
  const uint64_t *b = warp.at(instr.b), *c = warp.at(instr.c);
  uint64_t* d = warp.at(instr.d);
  uint32_t within = 0;
  warp.each([&](int lane) {
    const auto by = static_cast<int>(b[lane] & 31), clamp = static_cast<int>(c[lane] & 31);
    const auto segment = static_cast<int>(c[lane] >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment);
    int from = 0;
    bool good = false;
    switch (instr.mode) {
      case kUp:
        from = lane - by, good = from >= most;
        break;
      case kDown:
        from = lane + by, good = from <= most;
        break;
      case kButterfly:
        from = lane ^ by, good = from <= most;
        break;
      default:
        from = (lane & segment) | (by & ~segment), good = from <= most;
    }
    if (!good) from = lane;
    within |= static_cast<uint32_t>(good) << lane;
    if ((warp.mask >> from & 1) == 0)
      warp.fail(kLaunchFailed, instr, lane,
                "takes the value of lane " + std::to_string(from) + ", which does not take part");
    d[lane] = values[from];
  });
  if (instr.d2 >= 0) warp.set_predicate(instr.d2, within);
}

void shfl(Reading& r) {
  if (!r.take("sync")) r.unknown("without .sync it means nothing since compute capability 7.0");
  const int mode = r.which({"up", "down", "bfly", "idx"});
  if (mode == 0) r.unknown("no mode is given");
  r.instr.mode = static_cast<uint8_t>(mode - 1);
  r.type();
  r.done();
  const std::vector<std::string> results = r.parts(0);
  r.instr.d = r.named(results[0], "b32");
  if (results.size() > 1) r.instr.d2 = r.named(results[1], "pred");
  r.a("b32"), r.b("b32"), r.c("b32");
  r.instr.e = r.operand(4, "b32");
  r.instr.flow = Flow::warp;
  r.instr.run = shuffle;
}

void vote(Reading& r) {
  if (!r.take("sync")) r.unknown("without .sync it means nothing since compute capability 7.0");
  const int mode = r.which({"all", "any", "uni", "ballot"});
  if (mode == 0) r.unknown("no mode is given");
  r.instr.mode = static_cast<uint8_t>(mode | (r.negated(1) ? 16 : 0));
  const std::string type = r.type();
  r.done();
  r.d(type);
  r.a("pred");
  r.instr.e = r.operand(2, "b32");
  r.instr.flow = Flow::warp;
  r.instr.run = [](Warp& warp, const Instr& instr) {
    const uint32_t yes = (warp.predicate(instr.a) ^ ((instr.mode & 16) != 0 ? ~0u : 0u)) & warp.mask;
    const int mode = instr.mode & 15;
    if (mode == 4) {
      uint64_t* d = warp.at(instr.d);
      warp.each([&](int lane) { d[lane] = yes; });
    } else {
      const bool holds = mode == 1 ? yes == warp.mask : mode == 2 ? yes != 0 : yes == 0 || yes == warp.mask;
      warp.set_predicate(instr.d, holds ? ~0u : 0u);
    }
  };
}

// Numbers of all lanes as one.
void redux(Reading& r) {
  if (!r.take("sync")) r.unknown("without .sync");
  const int how = r.which({"add", "min", "max", "and", "or", "xor"});
  const std::string type = r.type();
  r.done();
  if (how == 0 || is_float(type)) r.unknown("this operation");
  r.instr.mode = static_cast<uint8_t>(how | (type == "s32" ? 16 : 0));
  r.d(type), r.a(type);
  r.instr.e = r.operand(2, "b32");
  r.instr.flow = Flow::warp;
  r.instr.run = [](Warp& warp, const Instr& instr) {
    const uint64_t* a = warp.at(instr.a);
    uint32_t sum = 0;
    bool first = true;
    warp.each([&](int lane) {
      const auto x = static_cast<uint32_t>(a[lane]);
      const bool less = (instr.mode & 16) != 0 ? static_cast<int32_t>(x) < static_cast<int32_t>(sum) : x < sum;
      switch (instr.mode & 15) {
        case 1:
          sum += x;
          break;
        case 2:
          sum = first || less ? x : sum;
          break;
        case 3:
          sum = first || !less ? x : sum;
          break;
        case 4:
          sum = first ? x : sum & x;
          break;
        case 5:
          sum |= x;
          break;
        default:
          sum ^= x;
      }
      first = false;
    });
    uint64_t* d = warp.at(instr.d);
    const uint64_t slot = (instr.mode & 16) != 0 ? bits(static_cast<int32_t>(sum)) : bits(sum);
    warp.each([&](int lane) { d[lane] = slot; });
  };
}

void activemask(Reading& r) {
  r.type();
  r.done();
  r.d("b32");
  r.instr.run = [](Warp& warp, const Instr& instr) {
    uint64_t* d = warp.at(instr.d);
    warp.each([&](int lane) { d[lane] = warp.mask; });
  };
}

// bar.sync 0, bar.red.OP d, 0, p, bar.warp.sync; `mode` is how a reduction gives its answer.
void bar(Reading& r) {
  Instr& instr = r.instr;
  if (r.text.opcode == "barrier") r.take("cta");
  if (r.take("warp")) {
    if (!r.take("sync")) r.unknown("no .sync");
    r.done();
    instr.e = r.operand(0, "b32");
    instr.flow = Flow::warp;
    instr.run = [](Warp& warp, const Instr&) { ++warp.sync; };
    return;
  }
  const int what = r.which({"sync", "red"});
  if (what == 0) r.unknown("it neither waits nor reduces");
  r.take("aligned");
  size_t first = 0;
  if (what == 2) {
    instr.mode = static_cast<uint8_t>(r.which({"popc", "and", "or"}));
    const std::string type = r.type();
    r.d(type);
    first = 1;
  }
  r.done();
  if (r.text.operands.at(first) != "0") r.unknown("a barrier other than 0");
  if (what == 1 && r.operands() > 1) r.unknown("a barrier of some of the threads");
  if (what == 2) {
    if (r.operands() != 3) r.unknown("a barrier of some of the threads");
    instr.a = r.operand(2, "pred");
    instr.offset = r.negated(2);
  }
  instr.flow = Flow::barrier;
}

void bra(Reading& r) {
  r.take("uni");
  r.done();
  r.instr.flow = Flow::branch;
  r.instr.target = r.decoder().label(r, r.text.operands.at(0));
}

void brx(Reading& r) {
  if (!r.take("idx")) r.unknown("no .idx");
  r.take("uni");
  r.done();
  r.instr.flow = Flow::table;
  r.instr.a = r.operand(0, "u32");
  r.instr.targets = r.decoder().table(r, r.text.operands.at(1));
}

void call(Reading& r) {
  r.take("uni");
  r.done();
  r.instr.flow = Flow::call;
  r.decoder().call(r);
}

void ret(Reading& r) {
  r.take("uni");
  r.done();
  r.instr.flow = Flow::leave;
}

void exit(Reading& r) {
  r.done();
  r.instr.flow = Flow::exit;
}

void trap(Reading& r) {
  r.done();
  r.instr.run = [](Warp& warp, const Instr& instr) {
    warp.fail(kIllegalInstruction, instr, std::countr_zero(warp.mask), "the kernel ends itself");
  };
}

void nothing(Reading& r) {
  while (r.any("u32")) {
  }
  r.done();
  r.instr.run = [](Warp&, const Instr&) {};
}

}  // namespace

void add_warp(Reads& reads) {
  reads["shfl"] = shfl;
  reads["vote"] = vote;
  reads["redux"] = redux;
  reads["activemask"] = activemask;
  reads["bar"] = bar;
  reads["barrier"] = bar;
}

void add_flow(Reads& reads) {
  reads["bra"] = bra;
  reads["brx"] = brx;
  reads["call"] = call;
  reads["ret"] = ret;
  reads["exit"] = exit;
  reads["trap"] = trap;
  reads["nanosleep"] = nothing;
}

}  // namespace epl::cuda_machine
