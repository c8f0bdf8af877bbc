// Strategies: from JSON, or key by key.
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

std::unique_ptr<epl_strategy> make_strategy(const epl_engine& engine, Strategy strategy) {
  auto made = std::make_unique<epl_strategy>();
  made->engine = engine.engine;
  made->strategy = std::move(strategy);
  return made;
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

epl_error* epl_strategy_describe(const epl_strategy* strategy, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string out;
    EPL_TRY(with_caller(const_cast<epl_strategy*>(strategy), "strategy",
                        [&]() -> Status { return out = print_strategy(strategy->strategy), Status(); }));
    return out;
  });
}
