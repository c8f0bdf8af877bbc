// Ways to spread the work of a step: drawn from a seed, written as strategies, and made simpler one thing at a time.
// What may be drawn comes from the engine's own tables (epl_engine_describe), so that a key or a schedule that is added
// there is drawn as well.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tools/api.h"
#include "tools/json.h"

namespace epl::tools {

// Random choices that depend on the seed alone, on every machine.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  double real() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  template <class List> const auto& of(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  std::mt19937_64 engine_;
};

inline constexpr int64_t max_ranks = 8;  // of a layout that is drawn

struct Layout {
  int64_t copies = 1, split = 1, micro_batches = 1;
  int threads = 1;
  std::vector<int> cuts;             // where stages begin, in thousandths of the nodes of the forward pass
  bool engine_cuts = false;          // it finds as many stages itself
  bool experts = false;              // `split` cuts experts
  bool beside = false;               // of one stage: some nodes alone are split, over the ranks of the copies
  std::vector<int> kept;             // which nodes' results the backward pass finds, in thousandths as well
  std::map<std::string, Json> keys;  // of the strategy besides
  Json machine;                      // a table that plans are decided for, as a file has it; null: the device's own

  int64_t stages() const { return static_cast<int64_t>(cuts.size()) + 1; }
  int64_t ranks() const { return copies * split * stages(); }
  bool operator==(const Layout&) const = default;
};

// What two layouts that are compared have in common, because it decides which bits there are.
struct SameBits {
  int64_t units = 0;  // 0: the engine's own choice
  std::string level = "data";
  int64_t independent = 1;  // so many independent micro-batches in every layout; 1: as the layout says
  std::string narrow;       // amp.type, in mixed precision
};

// The names of the forward pass's nodes, in their order, which scopes match.
std::vector<std::string> forward_nodes(const Plan& plan);
// A strategy that a session can be made with; `nodes` as forward_nodes gives them.
Json strategy_of(const Layout& layout, const SameBits& common, const std::vector<std::string>& nodes);
// Sibling scopes for stages of about equally many nodes.
std::vector<int> even_cuts(int64_t stages);

// A row of a list of strategies, as in tests/cases/strategies.json: what it is called, on how many ranks, in how many
// stages and splits, whether these cut experts and stand beside copies, and the strategy's keys.
struct StrategyRow {
  std::string name;
  Layout layout;
  std::vector<std::string> optimizer = {};  // of the trainer, name=value
  double budget = 0;                        // memory.budget as a share of the peak without one; 0: no budget
  std::optional<Layout> alone = {};         // of an option: the strategy that it stands beside
  std::vector<std::string> refusals = {};   // of an option: parts of reasons for which it may be refused
};
// Throws UsageError, which names the list by its file.
std::vector<StrategyRow> parse_strategies(std::string_view list, const std::string& file);
// Each option of a list, as in tests/cases/options.json, alone and beside each of these strategies that does not say
// another word of its keys. `refused` of an option has parts of reasons for which it may be refused.
std::vector<StrategyRow> with_options(const std::vector<StrategyRow>& rows, std::string_view options,
                                      const std::string& file);

// Draws layouts whose shards of the batch divide the units.
class LayoutSource {
 public:
  // `keys`: the strategy's keys as epl_engine_describe lists them.
  explicit LayoutSource(Json keys) : keys_(std::move(keys)) {}
  Layout draw(Draws& draws, int64_t units) const;
  // The words of reproducible.level that promise the same bits and that are built.
  std::vector<std::string> levels() const;

 private:
  const Json* key(const std::string& name) const;
  void draw_values(Draws& draws, Layout& out) const;
  void leave_out_what_does_nothing(Layout& out) const;
  Json keys_;
};

// The same layout with one thing less, the largest steps first.
std::vector<Layout> simpler(const Layout& layout);

}  // namespace epl::tools
