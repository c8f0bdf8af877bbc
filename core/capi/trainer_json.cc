// A trainer as JSON: what epl_trainer_parse reads and epl_trainer_describe gives.
#include "core/base/json.h"
#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

// A number or a truth is one in JSON as well, if the text of that means the same.
Json value_json(const std::string& text) {
  auto read = parse_json(text);
  const bool plain = read.ok() && (read->is_boolean() || read->is_number()) && !text.starts_with(' ');
  return plain ? *std::move(read) : Json(text);
}

// As epl_trainer_set takes it.
Result<std::string> value_text(const Json& value, std::string_view key) {
  if (value.is_string()) return value.text();
  if (value.is_boolean() || value.is_number()) return print_json(value);
  if (!value.is_array())
    return invalid("key ", shown(key), " of a trainer is ", excerpt(print_json(value), 80),
                   "; a text, a number, true or false is expected");
  std::string list;
  for (const Json& one : value) {
    EPL_ASSIGN(const std::string text, value_text(one, key));
    list += cat(list.empty() ? "" : ",", text);
  }
  return list;
}

Status wrong(std::string_view key, const Json& value, std::string_view expected) {
  return invalid("key ", shown(key), " of a trainer is ", excerpt(print_json(value), 80), "; ", expected,
                 " is expected");
}

// A pattern or a list of them.
Result<std::vector<std::string>> patterns_of(std::string_view key, const Json& value) {
  std::vector<std::string> out;
  if (value.is_string()) return std::vector<std::string>{value.text()};
  if (!value.is_array()) return wrong(key, value, "a list of patterns");
  for (const Json& one : value) {
    if (!one.is_string()) return wrong(key, one, "a pattern");
    out.push_back(one.text());
  }
  return out;
}

Status read_groups(const Json& groups, epl_trainer& trainer) {
  if (!groups.is_array()) return wrong("groups", groups, "a list of objects");
  for (const Json& one : groups) {
    const Json* match = one.find("match");
    if (match == nullptr) return wrong("groups", one, "an object with \"match\"");
    epl_trainer::Group group;
    EPL_ASSIGN(group.patterns, patterns_of("match", *match));
    for (const auto& [key, value] : one.items()) {
      if (key == "match") continue;
      EPL_ASSIGN(const std::string text, value_text(value, key));
      EPL_TRY(set_group_key(group, key, text));
    }
    trainer.groups.push_back(std::move(group));
  }
  return {};
}

Status read_adapters(const Json& adapters, epl_trainer& trainer) {
  if (!adapters.is_array()) return wrong("adapters", adapters, "a list of objects");
  for (const Json& one : adapters) {
    AdapterSpec spec;
    const Json* match = one.find("match");
    if (match == nullptr || !match->is_string()) return wrong("adapters", one, "an object with \"match\", a pattern");
    spec.pattern = match->text();
    for (const auto& [key, value] : one.items()) {
      if (key == "match") continue;
      if (key == "rank" && value.is_int64()) {
        spec.rank = value.get<int64_t>();
      } else if (key == "alpha" && value.is_number()) {
        spec.alpha = value.get<double>();
      } else if (key == "dropout" && value.is_number()) {
        spec.dropout = value.get<double>();
      } else if (key == "rank" || key == "alpha" || key == "dropout") {
        return wrong(key, value, "a number");
      } else {
        return unknown_option(key, {"match", "rank", "alpha", "dropout"}, "an adapter");
      }
    }
    EPL_TRY(check_adapter(spec));
    trainer.adapters.push_back(std::move(spec));
  }
  return {};
}

Status read_symbols(const Json& symbols, epl_trainer& trainer) {
  if (!symbols.is_object()) return wrong("symbols", symbols, "an object of sizes");
  for (const auto& [name, size] : symbols.items()) {
    if (!size.is_int64()) return wrong(cat("symbols.", name), size, "a size");
    EPL_TRY(bind_symbol(trainer, name, size.get<int64_t>()));
  }
  return {};
}

Status read_input(const std::string& name, const Json& input, epl_trainer& trainer) {
  if (!input.is_object()) return wrong(cat("inputs.", name), input, "an object with \"dims\"");
  int32_t dtype = EPL_DTYPE_NONE;
  std::vector<int64_t> dims;
  bool has_dims = false;
  for (const auto& [key, value] : input.items()) {
    if (key == "dtype") {
      const auto type = value.is_string() ? parse_dtype(value.text()) : std::nullopt;
      if (!type) return wrong(cat("inputs.", shown_plain(name, 200), ".dtype"), value, "an element type");
      dtype = dtype_constant(*type);
    } else if (key == "dims") {
      has_dims = value.is_array();
      for (const Json& dim : has_dims ? value : Json::array()) {
        has_dims = has_dims && dim.is_int64();
        if (has_dims) dims.push_back(dim.get<int64_t>());
      }
      if (!has_dims) return wrong(cat("inputs.", shown_plain(name, 200), ".dims"), value, "a list of sizes");
    } else if (key == "batch_dim") {
      if (!value.is_int64() || value.get<int64_t>() < -1 || value.get<int64_t>() >= EPL_MAX_NDIM)
        return wrong(cat("inputs.", shown_plain(name, 200), ".batch_dim"), value, "a dimension, or -1 for none,");
      EPL_TRY(bind_batch_dim(trainer, name, static_cast<int32_t>(value.get<int64_t>())));
    } else {
      return unknown_option(key, {"dtype", "dims", "batch_dim"}, cat("input ", shown_plain(name, 200)));
    }
  }
  if (dtype != EPL_DTYPE_NONE && !has_dims)
    return invalid("input ", shown_plain(name, 200), " of a trainer has a dtype and no dims");
  return has_dims ? bind_input(trainer, name, dtype, dims.data(), static_cast<int32_t>(dims.size())) : Status();
}

// A shape by what it changes, of which nothing is bound unless all of it is right.
Status read_shape(const Json& shape, epl_trainer& trainer) {
  constexpr size_t max_shapes = 64;  // each is compiled, and a session keeps its constants
  if (trainer.shapes.size() == max_shapes) return invalid("a trainer has ", max_shapes, " further shapes at most");
  if (!shape.is_object() || shape.empty()) return wrong("shapes", shape, R"(an object with "symbols" or "inputs")");
  epl_trainer read;
  for (const auto& [key, value] : shape.items()) {
    if (key == "symbols") {
      EPL_TRY(read_symbols(value, read));
    } else if (key == "inputs" && value.is_object()) {
      for (const auto& [name, input] : value.items()) {
        const bool dims_alone = input.is_object() && input.size() == 1 && input.find("dims") != nullptr;
        if (!dims_alone) return wrong(cat("inputs.", name), input, R"(an object with "dims" alone)");
        Json untyped = {{"dims", *input.find("dims")}};
        EPL_TRY(read_input(name, untyped, read));
      }
    } else {
      return unknown_option(key, {"symbols", "inputs"}, "a shape");
    }
  }
  trainer.shapes.push_back({std::move(read.binding.symbols), std::move(read.binding.input_shapes)});
  return {};
}

Status read_trainer(const Json& json, epl_trainer& trainer) {
  if (!json.is_object()) return invalid("the JSON of a trainer is an object");
  epl_trainer::Keys keys;
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") {
      if (!value.is_int64() || value.get<int64_t>() != 1)
        return unsupported("schema ", print_json(value), " of a trainer; this version reads 1");
    } else if (key == "groups") {
      EPL_TRY(read_groups(value, trainer));
    } else if (key == "train_only") {
      EPL_ASSIGN(trainer.train_only, patterns_of(key, value));
    } else if (key == "adapters") {
      EPL_TRY(read_adapters(value, trainer));
    } else if (key == "symbols") {
      EPL_TRY(read_symbols(value, trainer));
    } else if (key == "inputs") {
      if (!value.is_object()) return wrong(key, value, "an object of inputs");
      for (const auto& [name, input] : value.items()) EPL_TRY(read_input(name, input, trainer));
    } else if (key == "shapes") {
      if (!value.is_array()) return wrong(key, value, "a list of objects");
      for (const Json& one : value) EPL_TRY(read_shape(one, trainer));
    } else if (key == "values") {
      return unsupported("\"values\" of a trainer cannot be read; bind them by the trainer's bind_value");
    } else {
      EPL_ASSIGN(keys[key], value_text(value, key));
    }
  }
  return set_keys(trainer, std::move(keys));
}

Json groups_json(const epl_trainer& trainer) {
  Json out = Json::array();
  for (const epl_trainer::Group& group : trainer.groups) {
    Json one = {{"match", group.patterns}};
    if (group.frozen) one["frozen"] = true;
    if (group.constants) one["constants"] = true;
    for (const auto& [key, text] : group.options) one[key] = value_json(text);
    out.push_back(std::move(one));
  }
  return out;
}

Json inputs_json(const epl_trainer& trainer) {
  Json out = Json::object();
  for (const auto& [name, shape] : trainer.binding.input_shapes) {
    if (const auto type = trainer.input_types.find(name); type != trainer.input_types.end())
      out[name]["dtype"] = dtype_name(type->second);
    out[name]["dims"] = shape;
  }
  for (const auto& [name, dim] : trainer.binding.batch_dims) out[name]["batch_dim"] = dim;
  return out;
}

Json shapes_json(const epl_trainer& trainer) {
  Json out = Json::array();
  for (const epl_trainer::Sizes& shape : trainer.shapes) {
    Json one = Json::object();
    if (!shape.symbols.empty()) one["symbols"] = shape.symbols;
    for (const auto& [name, dims] : shape.inputs) one["inputs"][name]["dims"] = dims;
    out.push_back(std::move(one));
  }
  return out;
}

std::string describe_trainer(const epl_trainer& trainer) {
  Json out = {{"schema", 1}};
  for (const auto& [key, text] : trainer.keys) out[key] = value_json(text);
  if (!trainer.groups.empty()) out["groups"] = groups_json(trainer);
  if (!trainer.train_only.empty()) out["train_only"] = trainer.train_only;
  Json adapters = Json::array();
  for (const AdapterSpec& spec : trainer.adapters) {
    adapters.push_back(
        {{"match", spec.pattern}, {"rank", spec.rank}, {"alpha", spec.alpha}, {"dropout", spec.dropout}});
  }
  if (!adapters.empty()) out["adapters"] = adapters;
  if (!trainer.binding.symbols.empty()) out["symbols"] = trainer.binding.symbols;
  if (const Json inputs = inputs_json(trainer); !inputs.empty()) out["inputs"] = inputs;
  if (!trainer.shapes.empty()) out["shapes"] = shapes_json(trainer);
  Json values = Json::array();
  for (const auto& [name, value] : trainer.binding.values) values.push_back(name);
  if (!values.empty()) out["values"] = values;
  return print_json(out, 2);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_trainer_parse(const epl_engine* engine, const char* json, size_t json_length, epl_trainer** trainer) {
  return giving(trainer, "trainer", [&]() -> Result<std::unique_ptr<epl_trainer>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(json);
    EPL_ASSIGN(const Json read, parse_json(json_text));
    auto made = std::make_unique<epl_trainer>();
    made->engine = engine->engine;
    EPL_TRY(read_trainer(read, *made));
    return made;
  });
}

epl_error* epl_trainer_add_shape(epl_trainer* trainer, const char* json, size_t json_length) {
  return guarded([&] {
    return with_caller(trainer, "trainer", [&]() -> Status {
      EPL_TEXT_ARGUMENT(json);
      EPL_ASSIGN(const Json read, parse_json(json_text));
      return read_shape(read, *trainer);
    });
  });
}

epl_error* epl_trainer_describe(const epl_trainer* trainer, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string out;
    EPL_TRY(with_caller(const_cast<epl_trainer*>(trainer), "trainer",
                        [&]() -> Status { return out = describe_trainer(*trainer), Status(); }));
    return out;
  });
}
