// What a process can do for a job that has lost another one: the processes do not come together any more, but the state
// that one of them has by itself is not lost.
#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/shown.h"
#include "core/runtime/session_rank.h"

namespace epl {

int Session::keeper() const {
  if (lost_.ok() || lost_.rank() < 0 || processes_.empty()) return -1;
  const size_t gone = process_of(static_cast<int>(lost_.rank()));
  for (size_t p = 0; p < processes_.size(); ++p) {
    const int first = processes_[p], end = p + 1 < processes_.size() ? processes_[p + 1] : world();
    const auto is_of_it = [&](int rank) { return rank >= first && rank < end; };
    const auto has_all = [&](const StateSlot& slot) {
      const Result<Held> held = this->held(slot.name);
      return held.ok() && std::ranges::all_of(held->holders, [&](const std::vector<int>& holders) {
               return std::ranges::any_of(holders, is_of_it);
             });
    };
    if (p != gone && std::ranges::all_of(plan_->state().slots(), has_all)) return first;
  }
  return -1;
}

Status Session::await_leave(int rank, const Stop& stop) {
  constexpr std::chrono::milliseconds slice(10);
  Communicator* const own = ranks_.front()->world.get();
  Communicator* const world = own == nullptr && !before_.empty() ? before_.front().get() : own;
  if (world == nullptr) return {};
  world->hasten([] { return true; });
  while (world->has(rank)) {
    EPL_TRY(stop.check());
    std::this_thread::sleep_for(slice);
  }
  return {};
}

void Session::leave() {
  disconnect();
  before_.clear();
}

Result<Tensor> Session::state_here(std::string_view name) const {
  if (!whole_here_)
    return error(Code::state_lost, "the last step failed while the weights of this process were changing");
  EPL_ASSIGN(const Held held, this->held(name));
  Tensor whole(held.slot->type);
  for (const std::vector<int>& holders : held.holders) {
    const auto local = std::ranges::find_if(holders, [&](int rank) { return is_local(rank); });
    if (local == holders.end())
      return error(Code::peer_failed, "this process does not have all of ", shown_plain(name, 200));
    const Rank& rank = *ranks_[static_cast<size_t>(*local - options_.first_rank)];
    EPL_TRY(rank.store.gather(*rank.stream, *held.slot, whole));
  }
  return whole;
}

}  // namespace epl
