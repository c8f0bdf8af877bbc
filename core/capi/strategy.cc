// Strategies: from JSON, from a model's file, or call by call.
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

std::unique_ptr<epl_strategy> make_strategy(const epl_engine& engine, Strategy strategy) {
  auto made = std::make_unique<epl_strategy>();
  made->engine = engine.engine;
  made->strategy = std::move(strategy);
  return made;
}

Result<Scope*> find_scope(epl_strategy& strategy, int64_t number) {
  if (number < 0 || number >= static_cast<int64_t>(strategy.scopes.size()))
    return invalid("there is no scope ", number, "; add_scope has given ", strategy.scopes.size());
  Scope* at = nullptr;
  for (const int64_t step : strategy.scopes[static_cast<size_t>(number)]) {
    if (step == EPL_SCOPE_DEFAULT) {
      at = &strategy.strategy.default_scope;
    } else {
      at = &(at ? at->scopes : strategy.strategy.scopes)[static_cast<size_t>(step)];
    }
  }
  return at;
}

Result<int64_t> add_scope(epl_strategy& strategy, int64_t outer, Scope scope) {
  std::vector<int64_t> way;
  strategy.scopes.reserve(strategy.scopes.size() + 1);  // nothing fails once the scope is in its place
  if (outer == EPL_SCOPE_DEFAULT) {
    if (strategy.strategy.has_default) return invalid("the strategy has a default already");
    way = {EPL_SCOPE_DEFAULT};
    strategy.strategy.default_scope = std::move(scope);
    strategy.strategy.has_default = true;
  } else {
    std::vector<Scope>* siblings = &strategy.strategy.scopes;
    if (outer != EPL_SCOPE_TOP) {
      EPL_ASSIGN(Scope * found, find_scope(strategy, outer));
      siblings = &found->scopes;
      way = strategy.scopes[static_cast<size_t>(outer)];
    }
    way.push_back(static_cast<int64_t>(siblings->size()));
    siblings->push_back(std::move(scope));
  }
  strategy.scopes.push_back(std::move(way));
  return static_cast<int64_t>(strategy.scopes.size()) - 1;
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_strategy_create(const epl_engine* engine, epl_strategy** strategy) {
  return giving(strategy, "strategy", [&]() -> Result<std::unique_ptr<epl_strategy>> {
    EPL_REQUIRE(engine);
    return make_strategy(*engine, {});
  });
}

epl_error* epl_strategy_parse(const epl_engine* engine, const char* json, size_t json_length, epl_strategy** strategy) {
  return giving(strategy, "strategy", [&]() -> Result<std::unique_ptr<epl_strategy>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(json);
    EPL_ASSIGN(Strategy parsed, parse_strategy(json_text));
    return make_strategy(*engine, std::move(parsed));
  });
}

epl_error* epl_strategy_of_model(const epl_model* model, int64_t ranks, epl_strategy** strategy) {
  return giving(strategy, "strategy", [&]() -> Result<std::unique_ptr<epl_strategy>> {
    EPL_REQUIRE(model);
    if (ranks < 1) return invalid("ranks is ", ranks);
    EPL_ASSIGN(const std::string json, model->model->strategy(ranks));
    if (json.empty()) return error(Code::not_found, "the model's file does not say how to spread it");
    EPL_ASSIGN(Strategy parsed, parse_strategy(json));
    auto made = std::make_unique<epl_strategy>();
    made->engine = model->engine;
    made->strategy = std::move(parsed);
    return made;
  });
}

void epl_strategy_destroy(epl_strategy* strategy) { destroy(strategy); }

epl_error* epl_strategy_set(epl_strategy* strategy, const char* key, size_t key_length, const char* value,
                            size_t value_length) {
  return guarded([&] {
    return with_caller(strategy, "strategy", [&]() -> Status {
      EPL_TEXT_ARGUMENT(key);
      EPL_TEXT_ARGUMENT(value);
      return set_config(strategy->strategy, key_text, value_text);
    });
  });
}

epl_error* epl_strategy_add_scope(epl_strategy* strategy, int64_t outer, int32_t kind, int64_t device_count,
                                  const char* name, size_t name_length, int64_t* scope) {
  return guarded([&] {
    return with_caller(strategy, "strategy", [&]() -> Status {
      EPL_REQUIRE(scope);
      EPL_TEXT_ARGUMENT(name);
      if (kind < EPL_SCOPE_REPLICATE || kind > EPL_SCOPE_EXPERT)
        return invalid("kind is ", kind, "; a scope replicates, splits or holds experts, ", EPL_SCOPE_REPLICATE, " to ",
                       EPL_SCOPE_EXPERT);
      if (device_count < 1) return invalid("device_count is ", device_count, "; a scope has a device at least");
      Scope made{.name = std::string(name_text), .kind = static_cast<ScopeKind>(kind), .device_count = device_count};
      EPL_ASSIGN(*scope, add_scope(*strategy, outer, std::move(made)));
      return {};
    });
  });
}

epl_error* epl_strategy_add_match(epl_strategy* strategy, int64_t scope, const char* pattern, size_t pattern_length) {
  return guarded([&] {
    return with_caller(strategy, "strategy", [&]() -> Status {
      EPL_TEXT_ARGUMENT(pattern);
      EPL_ASSIGN(Scope * found, find_scope(*strategy, scope));
      found->add_match(pattern_text);
      return {};
    });
  });
}

epl_error* epl_strategy_pin_dim(epl_strategy* strategy, int64_t scope, const char* value, size_t value_length,
                                int32_t dim) {
  return guarded([&] {
    return with_caller(strategy, "strategy", [&]() -> Status {
      EPL_TEXT_ARGUMENT(value);
      EPL_ASSIGN(Scope * found, find_scope(*strategy, scope));
      if (value_text.empty()) return invalid("a pin names no value");
      found->dims.push_back({std::string(value_text), dim});
      return {};
    });
  });
}

epl_error* epl_strategy_describe(const epl_strategy* strategy, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string out;
    EPL_TRY(with_caller(const_cast<epl_strategy*>(strategy), "strategy",
                        [&]() -> Status { return out = print_strategy(strategy->strategy), Status(); }));
    return out;
  });
}
