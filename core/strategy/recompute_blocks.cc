#include "core/strategy/recompute_blocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/strategy/block_ways.h"

namespace epl {
namespace {

// A result that goes over more nodes belongs to no block.
constexpr int longest_way = 64;
constexpr double no_bytes_that_count = -std::numeric_limits<double>::infinity();

class Blocks {
 public:
  explicit Blocks(const RecomputeProblem& problem)
      : problem_(problem),
        nodes_(static_cast<int>(problem.nodes.size())),
        steps_(static_cast<int>(problem.steps.size())),
        producer_(problem.bytes.size(), -1),
        last_use_(problem.bytes.size(), -1),
        apart_(problem.bytes.size(), false) {}

  std::vector<RecomputeBlock> run() {
    for (int n = 0; n < nodes_; ++n) {
      for (const int v : problem_.nodes[n].outputs) producer_[v] = last_use_[v] = n;
      for (const int v : problem_.nodes[n].inputs) last_use_[v] = n;
    }
    for (size_t v = 0; v < apart_.size(); ++v) {
      if (last_use_[v] - producer_[v] > longest_way) set_apart(static_cast<int>(v));
    }
    cut();
    while (set_apart_what_steps_take_elsewhere()) cut();
    give_steps();
    for (int b = 0; b < count(); ++b) add(b);
    return std::move(made_);
  }

 private:
  int count() const { return static_cast<int>(ends_.size()); }
  int begin_of(int b) const { return b == 0 ? 0 : ends_[b - 1]; }

  // With what else the node gives, which is computed again with it.
  void set_apart(int v) {
    for (const int other : problem_.nodes[producer_[v]].outputs) apart_[other] = true;
  }

  // Behind a node whose result alone goes on. What a node gives that belongs to no block makes no difference.
  void cut() {
    std::vector<int> crossing(nodes_ + 1, 0);
    for (size_t v = 0; v < apart_.size(); ++v) {
      if (apart_[v] || last_use_[v] == producer_[v]) continue;
      ++crossing[producer_[v]];
      --crossing[last_use_[v]];
    }
    ends_.clear();
    goes_on_.clear();
    block_.assign(nodes_, 0);
    int now = 0;
    for (int n = 0; n < nodes_; ++n) {
      now += crossing[n];
      block_[n] = count();
      int own = -1, owns = 0;
      for (const int v : problem_.nodes[n].outputs) {
        if (apart_[v] || last_use_[v] == n) continue;
        own = v;
        ++owns;
      }
      if (now != owns || owns > 1) continue;
      ends_.push_back(n + 1);
      goes_on_.push_back(own);
    }
  }

  // The last block of whose results a step takes one; -1: it takes none.
  int block_of_step(int s) const {
    int last = -1;
    for (const int v : problem_.steps[s].takes) {
      if (!apart_[v]) last = std::max(last, block_[producer_[v]]);
    }
    return last;
  }
  // What comes from one block to the next alone may be taken in the turn of both, and so in that of the later one.
  int block_of_turn(int s) const {
    const int block = block_of_step(s);
    const bool comes_in_alone = block + 1 < count() && std::ranges::all_of(problem_.steps[s].takes, [&](int v) {
                                  return apart_[v] || v == goes_on_[block];
                                });
    return comes_in_alone ? block + 1 : block;
  }
  int comes_in(int b) const { return b <= 0 ? -1 : goes_on_[b - 1]; }

  // Of what a step takes of several blocks, what does not come from one to the next.
  bool set_apart_what_steps_take_elsewhere() {
    bool any = false;
    for (int s = 0; s < steps_; ++s) {
      const int block = block_of_step(s);
      for (const int v : problem_.steps[s].takes) {
        if (apart_[v] || block_[producer_[v]] == block || v == comes_in(block)) continue;
        set_apart(v);
        any = true;
      }
    }
    return any;
  }

  // Blocks have their steps one after another, the last block first. What comes later than that does not count as a
  // step of its block, but takes its results.
  void give_steps() {
    in_turn_.assign(ends_.size(), {});
    late_.assign(ends_.size(), {});
    int now = count() - 1;
    for (int s = 0; s < steps_; ++s) {
      const bool stays = std::ranges::all_of(problem_.steps[s].takes, [&](int v) {
        return apart_[v] || block_[producer_[v]] == now || v == comes_in(now);
      });
      const int block = stays ? now : block_of_turn(s);
      if (block > now) {
        late_[block].push_back(s);
      } else if (block >= 0) {
        now = block;
        in_turn_[now].push_back(s);
      }
    }
  }

  // Of results that belong to no block: by step, if they stay as long as they may, and as long as they must.
  void weigh_apart(const std::vector<int>& taken_last) {
    apart_steps_.assign(steps_ + 1, 0);
    apart_forward_.assign(nodes_ + 1, 0);
    for (size_t v = 0; v < apart_.size(); ++v) {
      if (!apart_[v]) continue;
      const double bytes = problem_.bytes[v];
      apart_all_ += bytes;
      apart_forward_[producer_[v]] += bytes;
      if (taken_last[v] < 0 || problem_.nodes[producer_[v]].may) continue;
      apart_steps_[0] += bytes;
      apart_steps_[taken_last[v] + 1] -= bytes;
    }
    for (int s = 1; s < steps_; ++s) apart_steps_[s] += apart_steps_[s - 1];
    for (int n = 1; n < nodes_; ++n) apart_forward_[n] += apart_forward_[n - 1];
  }

  void add(int b) {
    if (b == 0) {
      std::vector<int> taken_last(apart_.size(), -1);
      for (int s = 0; s < steps_; ++s) {
        for (const int v : problem_.steps[s].takes) taken_last[v] = s;
      }
      weigh_apart(taken_last);
    }
    RecomputeBlock block;
    block.begin = begin_of(b);
    block.end = ends_[b];
    double least = std::numeric_limits<double>::infinity(), apart = least;
    for (const int s : in_turn_[b]) {
      least = std::min(least, problem_.steps[s].bytes);
      apart = std::min(apart, apart_steps_[s]);
    }
    if (in_turn_[b].empty()) least = apart = 0;
    block.steps = least + apart_all_;
    block.least_steps = least + apart;
    block.forward = apart_forward_[block.end - 1];
    block.ways = known(of_block(b, least));
    made_.push_back(std::move(block));
  }

  // With numbers of its own for results, in their order.
  BlockProblem of_block(int b, double least) const {
    BlockProblem out;
    std::map<int, int> number;
    const auto name = [&](int v) {
      const auto [at, fresh] = number.emplace(v, static_cast<int>(number.size()));
      if (fresh) out.own.bytes.push_back(problem_.bytes[v]);
      return at->second;
    };
    const auto names = [&](const std::vector<int>& all) {
      std::vector<int> named;
      for (const int v : all) {
        if (!apart_[v]) named.push_back(name(v));
      }
      return named;
    };
    const int in = comes_in(b);
    if (in >= 0) out.in = name(in);
    for (int n = begin_of(b); n < ends_[b]; ++n) {
      const RecomputeProblem::Node& node = problem_.nodes[n];
      const bool apart = std::ranges::any_of(node.outputs, [&](int v) { return apart_[v]; });
      out.own.nodes.push_back({node.seconds, node.may && !apart, names(node.inputs), names(node.outputs)});
    }
    if (goes_on_[b] >= 0) out.out = name(goes_on_[b]);
    for (const int s : in_turn_[b])
      out.own.steps.push_back({problem_.steps[s].bytes - least, names(problem_.steps[s].takes)});
    for (const int s : late_[b]) out.own.steps.push_back({no_bytes_that_count, names(problem_.steps[s].takes)});
    if (in < 0) return out;
    for (const auto* steps : {&in_turn_[b - 1], &late_[b - 1]}) {
      for (const int s : *steps) {
        if (std::ranges::find(problem_.steps[s].takes, in) != problem_.steps[s].takes.end())
          out.in_is_taken_before = true;
      }
    }
    return out;
  }

  // Blocks that are alike are searched once.
  std::shared_ptr<const BlockWays> known(const BlockProblem& block) {
    std::vector<double> text = {static_cast<double>(block.in), static_cast<double>(block.out),
                                static_cast<double>(block.in_is_taken_before)};
    const auto list = [&](const std::vector<int>& all) {
      text.push_back(static_cast<double>(all.size()));
      text.insert(text.end(), all.begin(), all.end());
    };
    for (const RecomputeProblem::Node& node : block.own.nodes) {
      text.insert(text.end(), {node.seconds, static_cast<double>(node.may)});
      list(node.inputs);
      list(node.outputs);
    }
    for (const RecomputeProblem::Step& step : block.own.steps) {
      text.push_back(step.bytes);
      list(step.takes);
    }
    text.insert(text.end(), block.own.bytes.begin(), block.own.bytes.end());
    std::shared_ptr<const BlockWays>& ways = known_[text];
    if (!ways) ways = std::make_shared<const BlockWays>(ways_of(block));
    return ways;
  }

  const RecomputeProblem& problem_;
  const int nodes_, steps_;
  std::vector<int> producer_, last_use_;  // of results, among nodes
  std::vector<bool> apart_;               // results that belong to no block
  std::vector<int> ends_, goes_on_;       // by block; -1: nothing goes on
  std::vector<int> block_;                // by node
  std::vector<std::vector<int>> in_turn_, late_;
  double apart_all_ = 0;
  std::vector<double> apart_steps_, apart_forward_;
  std::map<std::vector<double>, std::shared_ptr<const BlockWays>> known_;
  std::vector<RecomputeBlock> made_;
};

}  // namespace

std::vector<RecomputeBlock> blocks_of(const RecomputeProblem& problem) {
  return problem.nodes.empty() ? std::vector<RecomputeBlock>() : Blocks(problem).run();
}

int different_blocks(const std::vector<RecomputeBlock>& blocks) {
  std::set<const BlockWays*> all;
  for (const RecomputeBlock& block : blocks) all.insert(block.ways.get());
  return static_cast<int>(all.size());
}

}  // namespace epl
