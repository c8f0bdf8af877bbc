// The trainer: keys are kept as text and get their types when a plan is made, because an option's type is its row's.
#include <algorithm>
#include <charconv>

#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

// The row's options; none for a loss that is a scalar output of the graph, or where there is no loss.
Result<std::vector<Option>> loss_options(const std::string& name) {
  if (name.starts_with("output:") || name == "none") return std::vector<Option>();
  EPL_ASSIGN(const LossRow* row, find_named(loss_table(), name, "loss", {"output:NAME", "none"}));
  return row->options;
}

template <class T> Status set_option(T& target, const Option& option, std::string_view value) {
  EPL_ASSIGN(Attribute read, parse_option(value, option, "a trainer"));
  target = std::get<T>(std::move(read));
  return {};
}

// A key of the trainer itself, as trainer_options declares it.
template <class T> Status set_own(T& target, std::string_view key, std::string_view value) {
  return set_option(target, *std::ranges::find(trainer_options(), key, &Option::name), value);
}

Status set_precision(DType& target, std::string_view key, std::string_view value) {
  std::string name;
  EPL_TRY(set_own(name, key, value));
  target = name == "f64" ? DType::f64 : DType::f32;
  return {};
}

// What the row says of a value beside its type: how many numbers a list has.
Status check_by_row(const OptimizerRow& row, const Option& declared, const Attribute& value) {
  EPL_ASSIGN(const Attributes all, complete_options(row.options, Attributes{{declared.name, value}}, row.name));
  const Status status = row.attributes == nullptr ? Status() : row.attributes(all).status();
  return status.ok() ? status : status.with_context(cat("optimizer ", row.name));
}
template <class Row> Status check_by_row(const Row&, const Option&, const Attribute&) { return {}; }

// An option of a row that may be named later: one that no row has, and a value that no row takes, are refused at once,
// in the words of the row that is chosen now.
template <class Row>
Status check_value(const TableOf<Row>& table, std::string_view chosen, std::string_view key, std::string_view value) {
  const std::string_view name = key.substr(key.find('.') + 1);
  Status refused;
  std::vector<std::string> known;
  bool found = false;
  for (const Row& row : table.rows) {
    for (const Option& one : row.options) {
      const bool listed = std::ranges::find(known, one.name) != known.end();
      if (!listed && (chosen.empty() || row.name == chosen)) known.push_back(one.name);
    }
    const auto declared = std::ranges::find(row.options, name, &Option::name);
    if (declared == row.options.end()) continue;
    found = true;
    Option option = *declared;
    option.name = key;
    const auto read = parse_option(value, option, "a trainer");
    const Status status = read.ok() ? check_by_row(row, *declared, *read) : read.status();
    if (status.ok()) return {};
    if (refused.ok() || row.name == chosen) refused = status;
  }
  if (found) return refused;
  const std::string_view kind = key.substr(0, key.find('.'));
  return unknown_option(name, known, chosen.empty() ? "an optimizer" : cat(kind, " ", chosen));
}

// An option of the loss, the optimizer or the schedule: kept until it is known which that is. Null for another key.
OptionTexts* options_of(epl_trainer::Settings& t, std::string_view key) {
  if (key.starts_with("loss.")) return &t.loss_options;
  if (key.starts_with("optimizer.")) return &t.optimizer_options;
  return key.starts_with("schedule.") ? &t.schedule_options : nullptr;
}

// "100" or "decoder*=20,100": the loops that a pattern matches, and how often each may run.
Result<std::vector<std::pair<std::string, int64_t>>> trip_counts(std::string_view text) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string_view one = text.substr(from, to - from);
    const size_t equals = one.rfind('=');
    const std::string_view number = equals == std::string_view::npos ? one : one.substr(equals + 1);
    int64_t count = 0;
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (failure != std::errc() || end != number.data() + number.size() || count < 0 || equals == 0)
      return invalid("max_trip_count is ", shown(text), "; N is expected, or NODE=N,... for loops of their own");
    out.emplace_back(equals == std::string_view::npos ? "*" : one.substr(0, equals), count);
    from = to + 1;
  }
  return out;
}

Status check_key(std::string_view key) {
  epl_trainer::Settings any;
  std::vector<std::string> known;
  for (const Option& option : trainer_options()) {
    if (option.name == key) return {};
    known.push_back(option.name);
  }
  if (options_of(any, key) != nullptr) return {};
  for (const char* more : {"loss.OPTION", "optimizer.OPTION", "schedule.OPTION"}) known.emplace_back(more);
  return unknown_option(key, known, "a trainer");
}

Status set_key(epl_trainer::Settings& t, std::string_view key, std::string_view value) {
  EPL_TRY(check_key(key));
  if (key == "loss") {
    EPL_TRY(loss_options(std::string(value)).status());
    t.loss = value;
  } else if (key == "loss.output") {
    t.loss_output = value;
  } else if (key == "loss.peel") {
    return set_own(t.peel, key, value);
  } else if (key == "loss.target") {
    if (value.empty()) return invalid("loss.target is empty; it is the name of the input that the loss compares with");
    t.loss_target = value;
  } else if (key == "optimizer") {
    EPL_TRY(find_optimizer(value).status());
    t.optimizer = value;
  } else if (key == "schedule") {
    EPL_TRY(find_schedule(value).status());
    t.schedule = value;
  } else if (key == "schedule.warmup_steps") {
    return set_own(t.warmup_steps, key, value);
  } else if (key == "clip_norm") {
    return set_own(t.clip_norm, key, value);
  } else if (key == "precision") {
    return set_precision(t.precision, key, value);
  } else if (key == "report.gradient_norms") {
    return set_own(t.report_gradient_norms, key, value);
  } else if (key == "keep_gradients") {
    return set_own(t.keep_gradients, key, value);
  } else if (key == "freezable") {
    return set_own(t.freezable, key, value);
  } else if (key == "max_trip_count") {
    EPL_ASSIGN(t.max_trip_counts, trip_counts(value));
  } else if (key == "free_batch") {
    return set_own(t.free_batch, key, value);
  } else {
    EPL_TRY(key.starts_with("loss.")        ? check_value(loss_table(), t.loss, key, value)
            : key.starts_with("optimizer.") ? check_value(optimizer_table(), t.optimizer, key, value)
                                            : check_value(schedule_table(), t.schedule, key, value));
    options_of(t, key)->emplace_back(key.substr(key.find('.') + 1), value);
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

// What rows of losses, optimizers and schedules declare is theirs.
const std::vector<Option>& trainer_options() {
  static const epl_trainer::Settings set;
  static const std::vector<Option> options = {
      {.name = "loss", .value = set.loss, .doc = "a loss, output:NAME for a scalar that the model computes, or none"},
      {.name = "loss.output",
       .value = set.loss_output,
       .doc = "what the loss is applied to: an output of the model or of any of its nodes; empty: the first output"},
      {.name = "loss.target",
       .value = set.loss_target,
       .doc = "the input that the loss compares with, where it is not called target"},
      {.name = "loss.peel",
       .value = set.peel,
       .doc = "where the output is a softmax or sigmoid of scores, a loss of scores is applied to the scores"},
      {.name = "optimizer", .value = set.optimizer, .doc = "how weights follow their gradients"},
      {.name = "schedule", .value = set.schedule, .doc = "how the learning rate moves from step to step"},
      {.name = "schedule.warmup_steps",
       .value = set.warmup_steps,
       .doc = "steps in which the learning rate rises from zero first",
       .range = at_least(0)},
      {.name = "clip_norm",
       .value = set.clip_norm,
       .doc = "largest global norm of the gradient; 0: no clipping",
       .range = at_least(0)},
      {.name = "precision",
       .value = std::string("f32"),
       .doc = "f64: the float32 of the model is computed and trained as float64, slowly",
       .words = {"f32", "f64"}},
      {.name = "free_batch",
       .value = set.free_batch,
       .doc = "inputs may be bound to another number of samples than the file fixes, where its nodes allow it"},
      {.name = "report.gradient_norms",
       .value = set.report_gradient_norms,
       .doc = "each step reports \"gradient_norm:<parameter>\""},
      {.name = "keep_gradients",
       .value = set.keep_gradients,
       .doc = "gradients are state, as many bytes as what is trained"},
      {.name = "freezable", .value = set.freezable, .doc = "parameters can be frozen between steps"},
      {.name = "max_trip_count",
       .value = std::string(),
       .doc = "how often a Loop whose trip count only data knows may run, as N, or NODE=N,... for loops of their own"}};
  return options;
}

Status set_keys(epl_trainer& trainer, epl_trainer::Keys keys) {
  epl_trainer::Settings settings;
  for (const auto& [key, value] : keys) EPL_TRY(set_key(settings, key, value));
  trainer.keys = std::move(keys);
  trainer.settings = std::move(settings);
  return {};
}

Status set_group_key(epl_trainer::Group& group, std::string_view key, std::string_view value) {
  for (auto& [own, target] : {std::pair("constants", &group.constants), std::pair("frozen", &group.frozen)})
    if (key == own) return set_option(*target, {.name = own, .value = false}, value);
  EPL_TRY(check_value(optimizer_table(), "", key, value));
  group.options.emplace_back(key, value);
  return {};
}

Status bind_symbol(epl_trainer& trainer, std::string_view symbol, int64_t size) {
  if (size < 0) return invalid("symbol ", shown_plain(symbol, 200), " is bound to ", size);
  trainer.binding.symbols[std::string(symbol)] = size;
  return {};
}

Status bind_input(epl_trainer& trainer, std::string_view input, int32_t dtype, const int64_t* dims, int32_t ndim) {
  const std::string name(input);
  EPL_ASSIGN(TensorType type, type_argument(dtype == EPL_DTYPE_NONE ? EPL_DTYPE_U8 : dtype, dims, ndim));
  trainer.binding.input_shapes[name] = type.shape;
  if (dtype != EPL_DTYPE_NONE) trainer.input_types[name] = type.dtype;
  return {};
}

Status bind_batch_dim(epl_trainer& trainer, std::string_view input, int32_t dim) {
  if (dim < -1 || dim >= EPL_MAX_NDIM)
    return invalid("batch dimension ", dim, " of input ", shown_plain(input, 200), "; -1 is none");
  trainer.binding.batch_dims[std::string(input)] = dim;
  return {};
}

Result<TrainOptions> resolve_trainer(const epl_trainer& trainer) {
  const epl_trainer::Settings& set = trainer.settings;
  TrainOptions out;
  out.loss.name = set.loss;
  out.loss.output = set.loss_output;
  out.loss.peel = set.peel;
  EPL_ASSIGN(const std::vector<Option> loss, loss_options(set.loss));
  EPL_ASSIGN(out.loss.options, parse_options(set.loss_options, loss, cat("loss ", set.loss)));
  out.loss.target_input = set.loss_target;
  if (auto type = trainer.input_types.find(set.loss_target); type != trainer.input_types.end()) {
    out.loss.target = TensorType{type->second, trainer.binding.input_shapes.at(set.loss_target)};
  }
  if (auto dim = trainer.binding.batch_dims.find(set.loss_target); dim != trainer.binding.batch_dims.end())
    out.loss.target_batch_dim = dim->second;
  EPL_ASSIGN(const OptimizerRow* row, find_optimizer(set.optimizer));
  out.optimizer = row->name;
  const std::string optimizer = cat("optimizer ", row->name);
  const auto asks = [](const OptionTexts& texts) {
    return std::ranges::any_of(texts, [](const auto& one) { return one.first == "state_type"; });
  };
  EPL_TRY(check_state_type(*row, asks(set.optimizer_options)));
  EPL_ASSIGN(out.optimizer_options, parse_options(set.optimizer_options, row->options, optimizer));
  for (const epl_trainer::Group& group : trainer.groups) {
    ParameterGroup made;
    made.patterns = group.patterns;
    made.frozen = group.frozen;
    EPL_TRY(check_state_type(*row, asks(group.options)));
    EPL_ASSIGN(made.options, parse_options(group.options, row->options, optimizer));
    out.groups.push_back(std::move(made));
  }
  out.train_only = trainer.train_only;
  EPL_ASSIGN(const ScheduleRow* schedule, find_schedule(set.schedule));
  out.schedule.name = schedule->name;
  out.schedule.warmup_steps = set.warmup_steps;
  EPL_ASSIGN(out.schedule.options,
             parse_options(set.schedule_options, schedule->options, cat("schedule ", schedule->name)));
  out.clip_norm = set.clip_norm;
  out.precision = set.precision;
  out.report_gradient_norms = set.report_gradient_norms;
  out.keep_gradients = set.keep_gradients;
  out.freezable = set.freezable;
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
    epl_trainer::Keys keys = trainer->keys;
    keys[std::string(key_text)] = value_text;
    return set_keys(*trainer, std::move(keys));
  });
}

epl_error* epl_trainer_set_number(epl_trainer* trainer, const char* key, size_t key_length, double value) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    bool integral = value >= -9007199254740992.0 && value <= 9007199254740992.0 &&
                    value == static_cast<double>(static_cast<int64_t>(value));
    epl_trainer::Keys keys = trainer->keys;
    keys[std::string(key_text)] = integral ? cat(static_cast<int64_t>(value)) : number_text(value);
    return set_keys(*trainer, std::move(keys));
  });
}

epl_error* epl_trainer_unset(epl_trainer* trainer, const char* key, size_t key_length) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    EPL_TRY(check_key(key_text));
    epl_trainer::Keys keys = trainer->keys;
    if (const auto set = keys.find(key_text); set != keys.end()) keys.erase(set);
    return set_keys(*trainer, std::move(keys));
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
    return set_group_key(*found, key_text, value_text);
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
    EPL_TRY(check_adapter(spec));
    trainer->adapters.push_back(std::move(spec));
    return {};
  });
}

epl_error* epl_trainer_bind_symbol(epl_trainer* trainer, const char* symbol, size_t symbol_length, int64_t size) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(symbol);
    return bind_symbol(*trainer, symbol_text, size);
  });
}

epl_error* epl_trainer_bind_input(epl_trainer* trainer, const char* input, size_t input_length, int32_t dtype,
                                  const int64_t* dims, int32_t ndim) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    return bind_input(*trainer, input_text, dtype, dims, ndim);
  });
}

epl_error* epl_trainer_bind_batch_dim(epl_trainer* trainer, const char* input, size_t input_length, int32_t dim) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    return bind_batch_dim(*trainer, input_text, dim);
  });
}

epl_error* epl_trainer_bind_value(epl_trainer* trainer, const char* input, size_t input_length,
                                  const epl_tensor* value) {
  return with_trainer(trainer, [&]() -> Status {
    EPL_TEXT_ARGUMENT(input);
    EPL_REQUIRE(value);
    EPL_TRY(check_on_host(*value, "value"));
    trainer->binding.values[std::string(input_text)] = value->tensor.clone();
    return {};
  });
}
