#include "tests/cuda/machine/block.h"

#include <algorithm>
#include <cfenv>
#include <numeric>

namespace epl::cuda_machine {

std::string Site::words() const { return (line == 0 ? file : file + ":" + std::to_string(line)) + " (`" + text + "`)"; }

namespace {

std::string triple(uint64_t x, uint64_t y, uint64_t z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

}  // namespace

Block::Block(Launch& launch) : launch(launch) {
  const Code& code = *launch.code;
  shared = Region(code.shared_bytes + launch.dynamic_shared, launch.races);
  // Most touches follow those of one command before: its answer is kept.
  order = [&launch, last = uint32_t{0}](const Mark& mark, const Who& who) mutable {
    if (mark.command == last && last != who.command) return true;
    if (!launch.comes_before(mark, who)) return false;
    if (mark.command != who.command) last = mark.command;
    return true;
  };
  // What no variable holds is a gap.
  std::fill_n(shared.known(), code.shared_bytes, Region::kGap);
  for (const Parameter& variable : code.shared)
    std::fill_n(shared.known() + variable.at, variable.bytes, Region::kNothing);
  const auto threads = static_cast<uint32_t>(launch.block.count());
  warps_.reserve((threads + kLanes - 1) / kLanes);
  for (uint32_t k = 0; k * kLanes < threads; ++k) warps_.emplace_back(*this, k);
}

std::string Block::name(uint64_t number) const {
  const Dimensions& grid = launch.grid;
  return "block " + triple(number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
}

std::string Block::who(uint32_t thread) const {
  const Dimensions& size = launch.block;
  return "thread " + triple(thread % size.x, thread / size.x % size.y, thread / size.x / size.y);
}

void Block::run(uint64_t number) {
  const Dimensions& grid = launch.grid;
  index = static_cast<uint32_t>(number);
  at = {static_cast<uint32_t>(number % grid.x), static_cast<uint32_t>(number / grid.x % grid.y),
        static_cast<uint32_t>(number / grid.x / grid.y)};
  ++barrier;  // it never begins again: the shared memory is the one of the block before
  shared.forget();
  const auto threads = static_cast<uint32_t>(launch.block.count());
  for (Warp& warp : warps_) warp.begin(std::min<uint32_t>(threads - warp.index * kLanes, kLanes));
  std::vector<Warp*> able;
  for (;;) {
    able.clear();
    for (Warp& warp : warps_) {
      if (warp.runs()) able.push_back(&warp);
    }
    if (!able.empty()) {
      able[(*launch.random)() % able.size()]->go(64 + (*launch.random)() % 4096);
      continue;
    }
    const bool ended = std::all_of(warps_.begin(), warps_.end(), [](const Warp& warp) {
      for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.state(lane) != Warp::State::ended) return false;
      }
      return true;
    });
    if (ended) return;
    open_barrier();
  }
}

// All threads of the block wait at one and the same barrier, or the kernel is wrong.
void Block::open_barrier() {
  const auto threads = static_cast<uint32_t>(launch.block.count());
  const Warp* first = nullptr;
  int first_lane = 0;
  uint32_t yes = 0;
  const auto waits = [&](uint32_t thread) {
    return warps_[thread / kLanes].state(static_cast<int>(thread % kLanes)) == Warp::State::at_barrier;
  };
  for (uint32_t thread = 0; thread < threads; ++thread) {
    if (!waits(thread)) continue;
    const Warp& warp = warps_[thread / kLanes];
    const int lane = static_cast<int>(thread % kLanes);
    yes += warp.vote(lane) ? 1 : 0;
    if (first == nullptr) {
      first = &warp;
      first_lane = lane;
    } else if (&warp.place(lane) != &first->place(first_lane)) {
      warp.fail(kLaunchFailed, warp.place(lane), lane,
                "waits at this barrier, and " + who(first->index * kLanes + static_cast<uint32_t>(first_lane)) +
                    " of the block at another: " + (*launch.sites)[first->place(first_lane).where].words());
    }
  }
  for (uint32_t thread = 0; thread < threads; ++thread) {
    if (!waits(thread))
      first->fail(kLaunchFailed, first->place(first_lane), first_lane,
                  "waits at a barrier that " + who(thread) + " never reached: it has ended");
  }
  ++barrier;
  for (Warp& warp : warps_) warp.release(yes);
}

bool Launch::comes_before(const Mark& mark, const Who& who) const {
  if (mark.command != who.command) return before(mark, who);
  const auto mine = known.find(who.block);
  if (mine == known.end()) return false;
  const auto seen = mine->second.find(mark.block);
  if (seen == mine->second.end()) return false;
  const bool alone = mark.many == 0 && mark.thread == seen->second.thread;
  return mark.barrier < seen->second.barrier || (alone && mark.barrier == seen->second.barrier);
}

void run(Launch& launch) {
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetenv(FE_DFL_ENV);  // whatever the caller's thread computes with
  std::vector<uint32_t> order(launch.grid.count());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), *launch.random);
  Block block(launch);
  try {
    for (const uint32_t number : order) block.run(number);
  } catch (...) {
    std::fesetenv(&before);
    throw;
  }
  std::fesetenv(&before);
}

}  // namespace epl::cuda_machine
