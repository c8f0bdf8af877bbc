#include "core/backend/two_level.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/text.h"

namespace epl {
namespace {

using Kind = Collective::Kind;

class TwoLevelCommunicator final : public Communicator {
 public:
  TwoLevelCommunicator(std::unique_ptr<Communicator> flat, std::unique_ptr<Communicator> inside,
                       std::unique_ptr<Communicator> across, std::vector<int> ranks, const CostModel& cost)
      : flat_(std::move(flat)),
        inside_(std::move(inside)),
        across_(std::move(across)),
        ranks_(std::move(ranks)),
        cost_(cost) {}

  const std::string& group() const override { return flat_->group(); }
  int rank() const override { return flat_->rank(); }
  int size() const override { return flat_->size(); }

  Status run(Stream& stream, const Collective& call) override {
    return pays(call) ? run_in_levels(stream, call) : flat_->run(stream, call);
  }
  Status run_together(Stream& stream, std::span<const Collective> calls) override {
    if (std::ranges::none_of(calls, [&](const Collective& call) { return pays(call); }))
      return flat_->run_together(stream, calls);
    for (const Collective& call : calls) EPL_TRY(run(stream, call));
    return {};
  }
  Status run_on_host(Stream& stream, const Collective& call) override { return flat_->run_on_host(stream, call); }
  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    return flat_->split(name, members);
  }
  // That of the two levels follows.
  void abort(const Status& status) override { flat_->abort(status); }
  void watch(std::function<Status()> stop) override { flat_->watch(std::move(stop)); }
  void hasten(std::function<bool()> asked) override { flat_->hasten(std::move(asked)); }
  Status lost() const override { return flat_->lost(); }
  bool has(int rank) override { return flat_->has(rank); }
  void enter(const JobCall& call) override { flat_->enter(call); }
  void retire() override { flat_->retire(); }

 private:
  // Depends on what all ranks of a call agree about.
  bool pays(const Collective& call) const {
    return call.kind == Kind::all_reduce && call.count >= inside_->size() &&
           two_levels_pay(cost_, ranks_, inside_->size(), static_cast<double>(call.bytes()));
  }

  // What is left behind the last full segment goes in one level.
  Status run_in_levels(Stream& stream, const Collective& call) {
    const int64_t segment = call.count / inside_->size(), whole = segment * inside_->size();
    const auto bytes = static_cast<int64_t>(dtype_bytes(call.dtype));
    auto* const target = static_cast<std::byte*>(call.target);
    const auto* const source = static_cast<const std::byte*>(call.source);
    std::byte* const own = target ? target + inside_->rank() * segment * bytes : nullptr;
    Collective part = call;
    part.count = segment;
    part.kind = Kind::reduce_scatter;
    part.target = own;
    EPL_TRY(inside_->run(stream, part));
    part.kind = Kind::all_reduce;
    part.source = own;
    EPL_TRY(across_->run(stream, part));
    part.kind = Kind::all_gather;
    part.target = target;
    EPL_TRY(inside_->run(stream, part));
    if (whole == call.count) return {};
    Collective rest = call;
    rest.count = call.count - whole;
    rest.source = source ? source + whole * bytes : nullptr;
    rest.target = target ? target + whole * bytes : nullptr;
    return flat_->run(stream, rest);
  }

  const std::unique_ptr<Communicator> flat_;  // ends after those that are split from it
  const std::unique_ptr<Communicator> inside_, across_;
  const std::vector<int> ranks_;
  const CostModel cost_;
};

}  // namespace

int64_t ranks_inside(const Machine& machine, std::span<const int> ranks) {
  if (ranks.size() < 2) return 1;
  const Machine::Link& link = machine.link(ranks.front(), ranks.back());
  const int64_t host = machine.inside(link);
  if (host <= 1 || link.rings) return 1;
  const auto of_hosts = [&](size_t block) {
    for (size_t i = 0; i < ranks.size(); i += block) {
      if (ranks[i] / host != ranks[i + block - 1] / host) return false;
    }
    return true;
  };
  size_t inside = 1;
  while (ranks.size() % (2 * inside) == 0 && of_hosts(2 * inside)) inside *= 2;
  return static_cast<int64_t>(inside);
}

TwoLevels two_levels_of(std::span<const int> ranks, int64_t inside) {
  const int64_t size = std::ssize(ranks);
  return {.near = {inside, ranks.front(), ranks[static_cast<size_t>(inside) - 1]},
          .far = {size / inside, ranks.front(), ranks[static_cast<size_t>(size - inside)]}};
}

double two_level_seconds(const CostModel& cost, std::span<const int> ranks, int64_t inside, double bytes) {
  const auto [near, far] = two_levels_of(ranks, inside);
  const double segment = bytes / static_cast<double>(inside);
  return cost.collective(Kind::reduce_scatter, near, segment) + cost.collective(Kind::all_reduce, far, segment) +
         cost.collective(Kind::all_gather, near, segment);
}

bool two_levels_pay(const CostModel& cost, std::span<const int> ranks, int64_t inside, double bytes) {
  const RankGroup all{std::ssize(ranks), ranks.front(), ranks.back()};
  return two_level_seconds(cost, ranks, inside, bytes) < cost.collective(Kind::all_reduce, all, bytes);
}

Result<std::unique_ptr<Communicator>> in_two_levels(std::unique_ptr<Communicator> flat, std::span<const int> ranks,
                                                    const CostModel& cost) {
  const auto inside = static_cast<int>(ranks_inside(cost.machine(), ranks));
  if (inside == 1 || inside == flat->size()) return flat;
  const int block = flat->rank() / inside, at = flat->rank() % inside;
  std::vector<int> neighbours, others;
  for (int i = 0; i < inside; ++i) neighbours.push_back(block * inside + i);
  for (int i = at; i < flat->size(); i += inside) others.push_back(i);
  EPL_ASSIGN(auto near, flat->split(cat(flat->group(), ", block ", block), neighbours));
  EPL_ASSIGN(auto far, flat->split(cat(flat->group(), ", rank ", at, " of each block"), others));
  return std::unique_ptr<Communicator>(
      new TwoLevelCommunicator(std::move(flat), std::move(near), std::move(far), {ranks.begin(), ranks.end()}, cost));
}

}  // namespace epl
