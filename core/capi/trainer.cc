// The trainer: keys are kept as text and get their types when a plan is made, because an option's type is its row's.
#include "core/base/suggestion.h"
#include "core/capi/json.h"
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

using Declared = std::vector<AttributeSpec>;

std::vector<std::string> names_of(const Declared& declared) {
  std::vector<std::string> names;
  for (const AttributeSpec& spec : declared) names.push_back(spec.name);
  return names;
}

Result<Attributes> typed(const epl_trainer::Texts& texts, const Declared& declared, std::string_view prefix) {
  Attributes out;
  for (const auto& [key, text] : texts) {
    const AttributeSpec* spec = nullptr;
    for (const AttributeSpec& one : declared) {
      if (one.name == key) spec = &one;
    }
    if (spec == nullptr) {
      std::vector<std::string> known = names_of(declared);
      if (known.empty()) return error(Code::not_found, "no key ", prefix, key, ": what was chosen has no options");
      for (std::string& one : known) one = cat(prefix, one);
      return error(Code::not_found, "no key ", prefix, key, choices(cat(prefix, key), known));
    }
    EPL_ASSIGN(Attribute value, parse_value(text, spec->value, cat(prefix, key)));
    out.set(key, value);
  }
  return out;
}

// The row's options; none for a loss that is a scalar output of the graph, or where there is no loss.
Result<Declared> loss_declared(const std::string& name) {
  if (name.starts_with("output:") || name == "none") return Declared{};
  EPL_ASSIGN(const LossRow* row, find_named(loss_table(), name, "loss", {"output:NAME", "none"}));
  return row->options;
}

template <class T> Status set_typed(T& target, std::string_view key, std::string_view value) {
  EPL_ASSIGN(Attribute read, parse_value(value, Attribute(T{}), key));
  target = std::get<T>(read);
  return {};
}

Status set_count(int64_t& target, std::string_view key, std::string_view value) {
  int64_t read = 0;
  EPL_TRY(set_typed(read, key, value));
  if (read < 0) return invalid(key, " is ", read, "; it is a number of steps");
  target = read;
  return {};
}

Status set_key(epl_trainer& t, std::string_view key, std::string_view value) {
  if (key == "loss") {
    EPL_TRY(loss_declared(std::string(value)).status());
    t.loss = value;
  } else if (key == "loss.output") {
    t.loss_output = value;
  } else if (key == "loss.peel") {
    return set_typed(t.peel, key, value);
  } else if (key.starts_with("loss.")) {
    t.loss_options.emplace_back(key.substr(5), value);
  } else if (key == "optimizer") {
    EPL_TRY(find_optimizer(value).status());
    t.optimizer = value;
  } else if (key.starts_with("optimizer.")) {
    t.optimizer_options.emplace_back(key.substr(10), value);
  } else if (key == "schedule") {
    EPL_TRY(find_schedule(value).status());
    t.schedule = value;
  } else if (key == "schedule.warmup_steps") {
    return set_count(t.warmup_steps, key, value);
  } else if (key.starts_with("schedule.")) {
    t.schedule_options.emplace_back(key.substr(9), value);
  } else if (key == "clip_norm") {
    return set_typed(t.clip_norm, key, value);
  } else if (key == "precision") {
    if (value != "f32" && value != "f64") return invalid("precision is ", quoted(value), "; it is f32 or f64");
    t.precision = value == "f64" ? DType::f64 : DType::f32;
  } else if (key == "report.gradient_norms") {
    return set_typed(t.report_gradient_norms, key, value);
  } else if (key == "free_batch") {
    return set_typed(t.binding.free_batch, key, value);
  } else {
    static const std::vector<std::string> known = {"loss",
                                                   "loss.output",
                                                   "loss.peel",
                                                   "free_batch",
                                                   "optimizer",
                                                   "optimizer.lr",
                                                   "schedule",
                                                   "schedule.warmup_steps",
                                                   "clip_norm",
                                                   "precision",
                                                   "report.gradient_norms"};
    return error(Code::not_found, "no trainer key ", quoted(key), choices(key, known),
                 " The loss, the optimizer and the schedule declare more.");
  }
  return {};
}

Result<epl_trainer::Group*> find_group(epl_trainer& trainer, int64_t group) {
  if (group < 0 || group >= static_cast<int64_t>(trainer.groups.size())) {
    return invalid("there is no parameter group ", group, "; there are ", trainer.groups.size());
  }
  return &trainer.groups[static_cast<size_t>(group)];
}

// Runs f with the trainer to itself.
template <class F> epl_error* with_trainer(epl_trainer* trainer, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return with_caller(trainer, "trainer", f); }, call);
}

}  // namespace

Result<TrainOptions> resolve_trainer(const epl_trainer& trainer) {
  TrainOptions out;
  out.loss.name = trainer.loss;
  out.loss.output = trainer.loss_output;
  out.loss.peel = trainer.peel;
  EPL_ASSIGN(Declared loss, loss_declared(trainer.loss));
  EPL_ASSIGN(out.loss.options, typed(trainer.loss_options, loss, "loss."));
  if (auto type = trainer.input_types.find("target"); type != trainer.input_types.end()) {
    out.loss.target = TensorType{type->second, trainer.binding.input_shapes.at("target")};
  }
  if (auto dim = trainer.binding.batch_dims.find("target"); dim != trainer.binding.batch_dims.end())
    out.loss.target_batch_dim = dim->second;
  EPL_ASSIGN(const OptimizerRow* row, find_optimizer(trainer.optimizer));
  out.optimizer = row->name;
  EPL_ASSIGN(out.optimizer_options, typed(trainer.optimizer_options, row->options, "optimizer."));
  for (const epl_trainer::Group& group : trainer.groups) {
    ParameterGroup made;
    made.patterns = group.patterns;
    made.frozen = group.frozen;
    EPL_ASSIGN(made.options, typed(group.options, row->options, ""));
    out.groups.push_back(std::move(made));
  }
  out.train_only = trainer.train_only;
  EPL_ASSIGN(const ScheduleRow* schedule, find_schedule(trainer.schedule));
  out.schedule.name = schedule->name;
  out.schedule.warmup_steps = trainer.warmup_steps;
  EPL_ASSIGN(out.schedule.options, typed(trainer.schedule_options, schedule->options, "schedule."));
  out.clip_norm = trainer.clip_norm;
  out.precision = trainer.precision;
  out.report_gradient_norms = trainer.report_gradient_norms;
  return out;
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_trainer_create(const epl_engine* engine, epl_trainer** trainer) {
  return giving(trainer, "trainer", [&]() -> Result<std::unique_ptr<epl_trainer>> {
    EPL_REQUIRE(engine);
    auto made = std::make_unique<epl_trainer>();
    made->engine = engine->engine;
    return made;
  });
}

void epl_trainer_destroy(epl_trainer* trainer) { destroy(trainer); }

epl_error* epl_trainer_set(epl_trainer* trainer, const char* key, size_t key_length, const char* value,
                           size_t value_length) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    EPL_TEXT_ARGUMENT(value);
    return set_key(*trainer, key_text, value_text);
  });
}

epl_error* epl_trainer_set_number(epl_trainer* trainer, const char* key, size_t key_length, double value) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    bool whole = value >= -9007199254740992.0 && value <= 9007199254740992.0 &&
                 value == static_cast<double>(static_cast<int64_t>(value));
    return set_key(*trainer, key_text, whole ? cat(static_cast<int64_t>(value)) : number_text(value));
  });
}

epl_error* epl_trainer_add_group(epl_trainer* trainer, const char* pattern, size_t pattern_length, int64_t* group) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_REQUIRE(group);
    EPL_TEXT_ARGUMENT(pattern);
    trainer->groups.push_back({{std::string(pattern_text)}, {}, false, false});
    *group = static_cast<int64_t>(trainer->groups.size()) - 1;
    return {};
  });
}

epl_error* epl_trainer_group_add(epl_trainer* trainer, int64_t group, const char* pattern, size_t pattern_length) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(pattern);
    EPL_ASSIGN(epl_trainer::Group * found, find_group(*trainer, group));
    found->patterns.emplace_back(pattern_text);
    return {};
  });
}

epl_error* epl_trainer_group_set(epl_trainer* trainer, int64_t group, const char* key, size_t key_length,
                                 const char* value, size_t value_length) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    EPL_TEXT_ARGUMENT(value);
    EPL_ASSIGN(epl_trainer::Group * found, find_group(*trainer, group));
    if (key_text == "constants") return set_typed(found->constants, key_text, value_text);
    if (key_text == "frozen") return set_typed(found->frozen, key_text, value_text);
    found->options.emplace_back(key_text, value_text);
    return {};
  });
}

epl_error* epl_trainer_train_only(epl_trainer* trainer, const char* pattern, size_t pattern_length) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(pattern);
    trainer->train_only.emplace_back(pattern_text);
    return {};
  });
}

void epl_adapter_options_init(epl_adapter_options* options) {
  if (options) *options = EPL_ADAPTER_OPTIONS_INIT;
}

epl_error* epl_trainer_add_adapter(epl_trainer* trainer, const char* pattern, size_t pattern_length,
                                   const epl_adapter_options* options) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(pattern);
    epl_adapter_options known = EPL_ADAPTER_OPTIONS_INIT;
    EPL_TRY(copy_options(options, known, "epl_adapter_options"));
    AdapterSpec spec;
    spec.pattern = pattern_text;
    if (known.rank != 0) spec.rank = known.rank;
    if (known.alpha != 0) spec.alpha = known.alpha;
    spec.dropout = known.dropout;
    trainer->adapters.push_back(std::move(spec));
    return {};
  });
}

epl_error* epl_trainer_bind_symbol(epl_trainer* trainer, const char* symbol, size_t symbol_length, int64_t size) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(symbol);
    if (size < 0) return invalid("symbol ", symbol_text, " is bound to ", size);
    trainer->binding.symbols[std::string(symbol_text)] = size;
    return {};
  });
}

epl_error* epl_trainer_bind_input(epl_trainer* trainer, const char* input, size_t input_length, int32_t dtype,
                                  const int64_t* dims, int32_t ndim) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    std::string name(input_text);
    if (dtype == EPL_DTYPE_NONE && name == "target")
      return invalid("the target needs an element type; the model does not know it");
    EPL_ASSIGN(TensorType type, type_argument(dtype == EPL_DTYPE_NONE ? EPL_DTYPE_U8 : dtype, dims, ndim));
    trainer->binding.input_shapes[name] = type.shape;
    if (dtype != EPL_DTYPE_NONE) trainer->input_types[name] = type.dtype;
    return {};
  });
}

epl_error* epl_trainer_bind_batch_dim(epl_trainer* trainer, const char* input, size_t input_length, int32_t dim) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    if (dim < -1 || dim >= EPL_MAX_NDIM)
      return invalid("batch dimension ", dim, " of input ", input_text, "; -1 is none");
    trainer->binding.batch_dims[std::string(input_text)] = dim;
    return {};
  });
}

epl_error* epl_trainer_bind_value(epl_trainer* trainer, const char* input, size_t input_length,
                                  const epl_tensor* value) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    EPL_REQUIRE(value);
    trainer->binding.values[std::string(input_text)] = value->tensor.clone();
    return {};
  });
}
