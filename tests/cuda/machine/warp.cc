// How the lanes of a warp diverge and reconverge. Those who go on are the ones deepest in calls, and of these the ones
// furthest back: so lanes that took different ways reconverge where the ways do.
#include "tests/cuda/machine/warp.h"

#include <algorithm>

#include "tests/cuda/machine/block.h"

namespace epl::cuda_machine {
namespace {

// Bytes of local memory that the function and what it calls may need.
uint32_t stack_of(const Code& code, std::vector<const Code*>& path) {
  if (std::find(path.begin(), path.end(), &code) != path.end()) return 1 << 16;  // it calls itself
  path.push_back(&code);
  uint32_t most = 0;
  for (const Code* callee : code.callees) most = std::max(most, stack_of(*callee, path));
  path.pop_back();
  return code.frame + most;
}

}  // namespace

Warp::Warp(Block& block, uint32_t index) : index(index), block(block) {
  std::vector<const Code*> path;
  const Code& code = *block.launch.code;
  stack_ = (stack_of(code, path) + 15) / 16 * 16;
  file_.resize(static_cast<size_t>(code.registers) * kLanes);
  local_.resize(static_cast<size_t>(stack_) * kLanes);
  local_known_.resize(local_.size());
}

void Warp::begin(uint32_t threads) {
  std::fill(local_known_.begin(), local_known_.end(), uint8_t{0});
  ++sync;
  fenced = 0;
  any_ = false;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    static_cast<Frame&>(lanes_[lane]) = {.code = block.launch.code};
    lanes_[lane].state = lane < threads ? State::runs : State::ended;
    lanes_[lane].callers.clear();
  }
}

Launch& Warp::launch() const { return block.launch; }

bool Warp::runs() const {
  return std::any_of(std::begin(lanes_), std::end(lanes_),
                     [](const Lane& lane) { return lane.state == State::runs || lane.state == State::at_warp_sync; });
}

Dimensions Warp::thread(int lane) const {
  const Dimensions& size = block.launch.block;
  const uint32_t t = index * kLanes + static_cast<uint32_t>(lane);
  return {t % size.x, t / size.x % size.y, t / size.x / size.y};
}

void Warp::fail(Result code, const Instr& instr, int lane, const std::string& what) const {
  const Launch& launch = block.launch;
  throw Fault(code, "kernel '" + launch.code->name + "', " + block.name(block.index) + ", " +
                        block.who(index * kLanes + static_cast<uint32_t>(lane)) + ", " +
                        (*launch.sites)[instr.where].words() + ": " + what);
}

void Warp::use(const Frame& frame) {
  now_ = frame;
  registers_ = file_.data() + static_cast<size_t>(frame.base) * kLanes;
  constants_ = const_cast<uint64_t*>(frame.code->constants.data());
}

uint32_t Warp::beside(const Frame& frame, State state) const {
  uint32_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes_[lane].state == state && static_cast<const Frame&>(lanes_[lane]) == frame) lanes |= 1u << lane;
  }
  return lanes;
}

bool Warp::pick() {
  const Lane* best = nullptr;
  const uint32_t from = any_ ? static_cast<uint32_t>((*block.launch.random)() % kLanes) : 0;
  for (uint32_t k = 0; k < kLanes; ++k) {
    const Lane& lane = lanes_[(from + k) % kLanes];
    if (lane.state != State::runs) continue;
    if (best == nullptr || (!any_ && (lane.callers.size() > best->callers.size() ||
                                      (lane.callers.size() == best->callers.size() && lane.pc < best->pc))))
      best = &lane;
  }
  any_ = false;
  if (best == nullptr) {
    if (reconverge()) return pick();
    for (const Lane& lane : lanes_) {
      if (lane.state == State::at_warp_sync) stuck();
    }
    return false;
  }
  use(*best);
  active_ = beside(now_, State::runs);
  limit_ = UINT32_MAX;
  for (const Lane& lane : lanes_) {
    if (lane.state == State::runs && lane.code == now_.code && lane.base == now_.base && lane.pc > now_.pc)
      limit_ = std::min(limit_, lane.pc);
  }
  return true;
}

void Warp::stuck() const {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes_[lane].state != State::at_warp_sync) continue;
    const Instr& instr = place(lane);
    std::string others;
    for (int other = 0; other < kLanes; ++other) {
      if (static_cast<const Frame&>(lanes_[other]) == lanes_[lane] && lanes_[other].state == State::at_warp_sync)
        continue;
      others = "lane " + std::to_string(other) +
               (lanes_[other].state == State::ended ? " has ended"
                                                    : " waits at " + (*block.launch.sites)[place(other).where].words());
    }
    fail(kLaunchFailed, instr, lane, "waits for lanes of its warp that never come: " + others);
  }
  std::abort();
}

void Warp::stand(uint32_t lanes, uint32_t pc) {
  for (; lanes != 0; lanes &= lanes - 1) lanes_[std::countr_zero(lanes)].pc = pc;
}

void Warp::go(uint64_t turn) {
  Launch& launch = block.launch;
  if (launch.steps > launch.limit)
    fail(kLaunchFailed, lanes_[0].code->instructions.front(), 0,
         "does not end: " + std::to_string(launch.steps) + " instructions were carried out");
  const uint64_t end = launch.steps + turn;
  while (pick()) {
    if (!carry_on(end)) {
      any_ = true;
      return;
    }
  }
}

// False: the turn is over.
bool Warp::carry_on(uint64_t end) {
  Launch& launch = block.launch;
  const Instr* const code = now_.code->instructions.data();
  for (;;) {
    if (now_.pc >= limit_ || launch.steps == end) {
      stand(active_, now_.pc);
      return launch.steps != end;
    }
    ++launch.steps;
    const Instr& instr = code[now_.pc];
    mask = active_;
    if (instr.guard >= 0) {
      const uint32_t holds = predicate(instr.guard);
      mask &= instr.guard_not ? ~holds : holds;
      if (mask == 0) {
        ++now_.pc;
        continue;
      }
    }
    launch.instructions += static_cast<uint64_t>(std::popcount(mask));
    if (instr.flow == Flow::plain) {
      instr.run(*this, instr);
      ++now_.pc;
    } else if (!flow(instr)) {
      return true;
    }
  }
}

// Whether the same lanes go on at once.
bool Warp::flow(const Instr& instr) {
  switch (instr.flow) {
    case Flow::branch:
      return branch(instr);
    case Flow::warp:
      return arrive(instr);
    default:
      break;
  }
  stand(active_ & ~mask, now_.pc + 1);
  switch (instr.flow) {
    case Flow::table:
      jump(instr);
      break;
    case Flow::call:
      call(instr);
      break;
    case Flow::leave:
      leave();
      break;
    case Flow::exit:
      each([&](int lane) { lanes_[lane].state = State::ended; });
      break;
    default:
      wait(instr);
  }
  return false;
}

bool Warp::branch(const Instr& instr) {
  if (mask == active_) {
    now_.pc = instr.target;
    return true;
  }
  stand(mask, instr.target);
  stand(active_ & ~mask, now_.pc + 1);
  return false;
}

void Warp::jump(const Instr& instr) {
  const uint64_t* index = at(instr.a);
  each([&](int lane) {
    const auto to = static_cast<uint32_t>(index[lane]);
    if (to >= instr.targets.size()) fail(kLaunchFailed, instr, lane, "jumps by " + std::to_string(to));
    lanes_[lane].pc = instr.targets[to];
  });
}

void Warp::call(const Instr& instr) {
  const Code& callee = *instr.callee;
  const Frame frame = {
      .code = &callee, .base = now_.base + now_.code->registers, .local = now_.local + now_.code->frame};
  const size_t registers = static_cast<size_t>(frame.base + callee.registers) * kLanes;
  if (file_.size() < registers) file_.resize(registers);
  each([&](int lane) {
    if (frame.local + callee.frame > stack_) fail(kLaunchFailed, instr, lane, "calls itself too often");
    const size_t mine = static_cast<size_t>(lane) * stack_;
    std::fill_n(local_known_.begin() + static_cast<std::ptrdiff_t>(mine + frame.local), callee.frame, uint8_t{0});
    for (const Pass& pass : instr.passed) {
      std::copy_n(&local_[mine + now_.local + pass.from], pass.bytes, &local_[mine + frame.local + pass.to]);
      std::copy_n(&local_known_[mine + now_.local + pass.from], pass.bytes,
                  &local_known_[mine + frame.local + pass.to]);
    }
    lanes_[lane].callers.push_back(now_);
    ++lanes_[lane].callers.back().pc;
    static_cast<Frame&>(lanes_[lane]) = frame;
  });
}

void Warp::leave() {
  each([&](int index) {
    Lane& lane = lanes_[index];
    if (lane.callers.empty()) {
      lane.state = State::ended;
      return;
    }
    const Frame caller = lane.callers.back();
    lane.callers.pop_back();
    const size_t mine = static_cast<size_t>(index) * stack_;
    for (const Pass& pass : caller.code->instructions[caller.pc - 1].given) {
      std::copy_n(&local_[mine + now_.local + pass.from], pass.bytes, &local_[mine + caller.local + pass.to]);
      std::copy_n(&local_known_[mine + now_.local + pass.from], pass.bytes,
                  &local_known_[mine + caller.local + pass.to]);
    }
    static_cast<Frame&>(lane) = caller;
  });
}

void Warp::wait(const Instr& instr) {
  const uint32_t votes = instr.mode == 0 ? 0 : predicate(instr.a) ^ (instr.offset != 0 ? ~0u : 0u);
  each([&](int lane) {
    lanes_[lane].pc = now_.pc;
    lanes_[lane].state = State::at_barrier;
    lanes_[lane].vote = (votes >> lane & 1) != 0;
  });
}

void Warp::release(uint32_t votes) {
  const auto threads = static_cast<uint32_t>(block.launch.block.count());
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes_[lane].state != State::at_barrier) continue;
    const Instr& instr = place(lane);
    use(lanes_[lane]);
    mask = 1u << lane;
    if (instr.mode == 1) at(instr.d)[lane] = votes;
    if (instr.mode == 2) set_predicate(instr.d, votes == threads ? ~0u : 0u);
    if (instr.mode == 3) set_predicate(instr.d, votes > 0 ? ~0u : 0u);
    lanes_[lane].state = State::runs;
    ++lanes_[lane].pc;
  }
}

// An instruction of the whole warp: it is carried out when all lanes that it names are there.
bool Warp::arrive(const Instr& instr) {
  const uint64_t* named = at(instr.e);
  const uint32_t there = alive();
  const uint32_t first = static_cast<uint32_t>(named[std::countr_zero(mask)]) & there;
  bool same = true;
  each([&](int lane) {
    same = same && (static_cast<uint32_t>(named[lane]) & there) == first;
    if ((named[lane] >> lane & 1) == 0) fail(kLaunchFailed, instr, lane, "is not among the lanes that it names");
  });
  if (same && first == mask && mask == active_) {
    instr.run(*this, instr);
    ++now_.pc;
    return true;
  }
  stand(active_ & ~mask, now_.pc + 1);
  each([&](int lane) {
    lanes_[lane].pc = now_.pc;
    lanes_[lane].state = State::at_warp_sync;
  });
  const uint32_t came = mask;
  for (uint32_t left = came; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (lanes_[lane].state == State::at_warp_sync) together(instr, static_cast<uint32_t>(named[lane]));
  }
  return false;
}

// Who has ended is not waited for.
uint32_t Warp::alive() const {
  uint32_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) lanes |= static_cast<uint32_t>(lanes_[lane].state != State::ended) << lane;
  return lanes;
}

bool Warp::reconverge() {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes_[lane].state != State::at_warp_sync) continue;
    use(lanes_[lane]);
    if (together(place(lane), static_cast<uint32_t>(at(place(lane).e)[lane]))) return true;
  }
  return false;
}

bool Warp::together(const Instr& instr, uint32_t members) {
  const uint32_t there = alive();
  members &= there;
  if ((beside(now_, State::at_warp_sync) & members) != members) return false;
  mask = members;
  const uint64_t* named = at(instr.e);
  each([&](int lane) {
    if ((static_cast<uint32_t>(named[lane]) & there) != members)
      fail(kLaunchFailed, instr, lane, "names other lanes than those that name it");
  });
  instr.run(*this, instr);
  each([&](int lane) {
    lanes_[lane].state = State::runs;
    lanes_[lane].pc = now_.pc + 1;
  });
  return true;
}

}  // namespace epl::cuda_machine
