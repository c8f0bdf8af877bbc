// What the user asks: scopes over the nodes of the model, and options by key. Nothing here is a decision.
//
// JSON form: one object, config keys at the top level, `scopes` (outermost first) and `default`; see docs/strategy.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.h"

namespace epl {

enum class ScopeKind : uint8_t { replicate, split, expert };

// The dimension in which a weight or a result of a node is cut, by a glob over names of values. A negative one counts
// from the end.
struct DimPin {
  std::string value;
  int64_t dim = 0;
};

struct Scope {
  std::string name;
  ScopeKind kind = ScopeKind::replicate;
  int64_t device_count = 1;
  std::vector<std::string> match;              // globs over node names, "op:...", "param:..."
  std::set<std::string, std::less<>> sources;  // "node:...": what was made for these nodes of the model
  std::vector<DimPin> dims;                    // of a split or expert, or of what is around one
  std::vector<Scope> scopes;                   // inner scopes subdivide the devices of one copy

  // Adds a pattern of any of these kinds. A scope without any matches everything.
  void add_match(std::string_view pattern);
  bool matches_everything() const;
  std::vector<std::string> patterns() const;  // all that were added
};

struct Strategy {
  std::vector<Scope> scopes;
  Scope default_scope;
  bool has_default = false;
  Attributes config;  // only keys that were set, under their full names

  // What was set, or the key's default. The key must be one of config_keys, of that type.
  int64_t integer(std::string_view key) const;
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
};

// A config key, and whether the engine acts on it yet.
struct ConfigKey : Option {
  bool built = false;
  std::string settled = {};  // why it has its default and no other value, now and later; empty: it may have others
};
const std::vector<ConfigKey>& config_keys();

// Sets one key from text as a user writes it ("4", "true", "v2", "2GiB"). Unknown keys name the nearest known one.
Status set_config(Strategy& strategy, std::string_view key, std::string_view value);
Result<Strategy> parse_strategy(std::string_view json);
std::string_view scope_kind_name(ScopeKind kind);
std::optional<ScopeKind> scope_kind_named(std::string_view name);
std::string print_strategy(const Strategy& strategy);
// Into how many independent micro-batches a batch is cut (batch.semantics = per_micro_batch); 1: none.
int64_t independent_micro_batches(const Strategy& strategy);
// What to do where micro-batches would change the answer.
inline constexpr std::string_view make_them_independent =
    "batch.semantics = per_micro_batch, where each micro-batch is independent and the answer is another one";
// Keys and scopes that are known but not built yet: one error that lists them.
Status check_built(const Strategy& strategy);

}  // namespace epl
