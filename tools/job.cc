#include "tools/job.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tools/binding.h"
#include "tools/data_notes.h"
#include "tools/kernel_cache.h"
#include "tools/lora.h"
#include "tools/sizes.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"
#include "tools/words.h"

namespace epl::tools {

Processes find_processes(const JobOptions& o) {
  Processes found = find_processes(surroundings());
  found.join_seconds = o.join_seconds;
  found.silence_seconds = o.silence_seconds;
  found.agreement = o.agreement;
  enter(surroundings(), found);
  return found;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError("cannot read " + path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_file(const std::string& path, const std::string& text) {
  const std::string beside = path + ".part";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  errno = 0;
  out << text;
  out.close();
  if (out && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  std::remove(beside.c_str());
  throw ApiError(
      EPL_ERROR_IO,
      "cannot write " + path +
          (reason != 0 ? std::string(": ") + std::strerror(reason) : "; is there space, and may you write there?"),
      path);
}

std::string json_argument(const std::string& value) {
  size_t first = value.find_first_not_of(" \t\r\n");
  return first != std::string::npos && value[first] == '{' ? value : read_file(value);
}

void set(epl_trainer* trainer, std::string_view key, std::string_view value) {
  check(epl_trainer_set(trainer, key.data(), key.size(), value.data(), value.size()));
}
void set(epl_trainer* trainer, std::string_view key, double value) {
  check(epl_trainer_set_number(trainer, key.data(), key.size(), value));
}

// Behind a colon stand the numbers of devices, or the name of a sheet, and behind them all @ and a table.
bool computes_nothing(const std::string& name) {
  const std::string device = name.substr(0, name.find('@'));
  if (device == "sim" || device.ends_with(".json")) return true;
  for (const Json& known : described("devices")) {
    if (!known.contains("sheets")) continue;
    for (const Json& sheet : known.at("sheets"))
      if (sheet.at("name") == device) return true;
  }
  return false;  // the library says what it does not know
}

Engine make_engine(const JobOptions& o, HostLog* log) {
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.threads = o.threads > 0 ? o.threads : threads_beside(o.processes.local_count);
  if (!o.packs.empty()) {
    options.packs = o.packs.data();
    options.packs_length = o.packs.size();
  }
  const std::string kernel_cache = kernel_cache_folder(o.kernel_cache, surroundings().environment);
  options.kernel_cache = kernel_cache.data();
  options.kernel_cache_length = kernel_cache.size();
  options.log_userdata = log;
  options.log = [](void* to, int32_t, const char* message, size_t length) {
    if (to != nullptr) return static_cast<HostLog*>(to)->add({message, length});
    say_error("epl: %.*s\n", static_cast<int>(length), message);
  };
  return make<Engine>(epl_engine_create, &options);
}

Model load_model(const Engine& engine, const std::string& path) {
  return make<Model>(epl_model_load, engine.get(), path.data(), path.size(),
                     static_cast<const epl_model_options*>(nullptr), nullptr);
}

namespace {

int64_t add_group(epl_trainer* trainer, const std::vector<std::string>& patterns) {
  int64_t group = 0;
  check(epl_trainer_add_group(trainer, patterns[0].data(), patterns[0].size(), &group));
  for (size_t i = 1; i < patterns.size(); ++i)
    check(epl_trainer_group_add(trainer, group, patterns[i].data(), patterns[i].size()));
  return group;
}

}  // namespace

namespace {

// Sets PREFIX.NAME for each NAME=VALUE.
void set_options(epl_trainer* t, const std::string& prefix, const char* flag, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) throw UsageError(std::string(flag) + " " + option + ": NAME=VALUE is expected");
    set(t, prefix + option.substr(0, equals), std::string_view(option).substr(equals + 1));
  }
}

void set_schedule(epl_trainer* t, const JobOptions& o) {
  set(t, "schedule", o.schedule);
  if (o.warmup > 0) set(t, "schedule.warmup_steps", static_cast<double>(o.warmup));
  for (const Json& row : described("schedules")) {
    if (row.at("name") == o.schedule && row.at("options").contains("total_steps"))
      set(t, "schedule.total_steps", static_cast<double>(o.steps));
  }
  if (o.final_ratio > 0) set(t, "schedule.final_ratio", o.final_ratio);
  set_options(t, "schedule.", "--schedule-option", o.schedule_options);
}

}  // namespace

Trainer make_trainer(const Engine& engine, const JobOptions& o) {
  Trainer trainer = make<Trainer>(epl_trainer_create, engine.get());
  epl_trainer* t = trainer.get();
  set(t, "loss", o.loss);
  if (!o.loss_output.empty()) set(t, "loss.output", o.loss_output);
  if (o.loss_target != "target") set(t, "loss.target", o.loss_target);
  if (!o.ignore_index.empty()) set(t, "loss.ignore_index", o.ignore_index);
  if (o.label_smoothing) set(t, "loss.label_smoothing", *o.label_smoothing);
  if (!o.class_weights.empty()) set(t, "loss.class_weights", o.class_weights);
  set_options(t, "loss.", "--loss-option", o.loss_options);
  set(t, "optimizer", o.optimizer);
  for (const auto& [name, value] : o.optimizer_values) set(t, "optimizer." + name, value);
  set_options(t, "optimizer.", "--optimizer-option", o.optimizer_options);
  set_schedule(t, o);
  if (o.clip > 0) set(t, "clip_norm", o.clip);
  if (!o.freeze.empty()) check(epl_trainer_group_set(t, add_group(t, o.freeze), EPL_STR("frozen"), EPL_STR("true")));
  if (!o.train_also.empty())
    check(epl_trainer_group_set(t, add_group(t, o.train_also), EPL_STR("constants"), EPL_STR("true")));
  for (const std::string& pattern : o.train_only) check(epl_trainer_train_only(t, pattern.data(), pattern.size()));
  add_adapters(t, o);
  if (!o.no_decay.empty())
    check(epl_trainer_group_set(t, add_group(t, o.no_decay), EPL_STR("weight_decay"), EPL_STR("0")));
  bind_names(engine, trainer, o);
  return trainer;
}

Strategy make_strategy(const Engine& engine, const JobOptions& o) {
  const std::string json = o.strategy.empty() ? "{}" : json_argument(o.strategy);
  Strategy strategy = make<Strategy>(epl_strategy_parse, engine.get(), json.data(), json.size());
  if (o.micro_batches > 0) {
    const std::string count = std::to_string(o.micro_batches);
    check(epl_strategy_set(strategy.get(), EPL_STR("pipeline.num_micro_batch"), count.data(), count.size()));
  }
  return strategy;
}

namespace {

// The input that takes the text.
Port text_input(const Model& model) {
  for (const ModelInput& input : inputs_of(model)) {
    if (input.dtype != EPL_DTYPE_I64) continue;
    if (!input.ranked) return {input.name, input.dtype, {-1, -1}};
    if (input.dims.size() == 2) return input;
  }
  throw UsageError("the model has no input i64[batch, context] for --text; give its inputs with --data");
}

}  // namespace

Plan make_plan(const Model& model, const Trainer& trainer, const Strategy& strategy, const JobOptions& o) {
  epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
  options.ranks = o.ranks * o.processes.count;
  options.local_ranks = o.ranks;
  options.seed = o.seed;
  options.device = o.device.data();
  options.device_length = o.device.size();
  try {
    if (o.plan.empty())
      return make<Plan>(epl_plan_create, model.get(), trainer.get(), strategy.get(), &options, nullptr);
    if (options.ranks == 1) options.ranks = options.local_ranks = 0;  // nothing was said: those of the file
    const bool has_strategy = !o.strategy.empty() || o.micro_batches > 0;
    return make<Plan>(epl_plan_load, model.get(), trainer.get(), has_strategy ? strategy.get() : nullptr, &options,
                      o.plan.data(), o.plan.size(), nullptr);
  } catch (const ApiError& e) {
    const bool usual_context = !o.text.empty() && o.context == 0 && text_input(model).dims[1] < 0;
    if (!usual_context || e.code != EPL_ERROR_INVALID_ARGUMENT) throw;
    throw ApiError(e.code,
                   std::string(e.what()) +
                       "; the model leaves open how many bytes of text a sample has, and 64 were taken: --context N "
                       "says otherwise",
                   e.where);
  }
}

namespace {

// A file that the user's own options name may lie anywhere; one that those of a checkpoint name lies beside the data.
Dataset open_dataset(const Engine& engine, const std::string& path, const Json& options, bool own_options = true) {
  const std::string text = print_json(options);
  if (!own_options)
    return make<Dataset>(epl_dataset_open, engine.get(), path.data(), path.size(), text.data(), text.size(), nullptr);
  return make<Dataset>(epl_dataset_open_within, engine.get(), path.data(), path.size(), "/", size_t{1}, text.data(),
                       text.size(), nullptr);
}

// The options of a reader, which calls the target as the loss does.
Json with_target_name(Json options, const JobOptions& o) {
  const Json* inputs = options.contains("inputs") ? &options.at("inputs") : nullptr;
  const bool own = inputs != nullptr && inputs->is_object() && inputs->contains(o.loss_target);
  if (o.loss_target != "target" && !own && !options.contains("target_name")) options["target_name"] = o.loss_target;
  return options;
}

// Under which --validation is read to the meaning of --data.
Json options_for_another(Json options, const JobOptions& o) {
  const Json own = reader_options("--validation-options", o.validation_options);
  options = options_alike(std::move(options), o.data, o.validation);
  options.update(own);
  // An array's targets are a file beside it, which the other array in that folder does not have.
  const std::filesystem::path data(o.data), validation(o.validation);
  if (options.contains("target") && options.value("reader", "") == "npy" && !own.contains("target") &&
      data.parent_path() == validation.parent_path()) {
    throw UsageError("--validation " + o.validation + ": its targets are not those of " + o.data +
                     "; say which file has them, --validation-options '{\"target\": \"FILE.npy\"}'");
  }
  return options;
}

}  // namespace

DataFiles open_data(const Engine& engine, const Model& model, const JobOptions& o, bool once) {
  DataFiles out;
  if (!o.data.empty()) {
    const Json in_order = {{"order", "sequential"}, {"partial", true}};
    out.batch = batch_of(model, o);
    Json options = {
        {"batch", out.batch}, {"order", "shuffled"}, {"seed", static_cast<int64_t>(o.seed)}, {"prefetch", 2}};
    options.update(with_target_name(reader_options("--data-options", o.data_options), o));
    Json train = options;
    if (once) train.update(in_order);
    if (o.held_out.value_or(0) > 0 && o.validation.empty())
      train.update(Json{{"split", "train"}, {"held_out", *o.held_out}});
    out.train = open_dataset(engine, o.data, train, o.own_data_options);
    out.batch = samples_of_batch(model, out.train, options.value("batch", int64_t{0}), o);
    if (train.contains("split") || !o.validation.empty()) {
      // Read to the same meaning: the classes and means that the training data has given.
      Json held_out = parse_json(text_of(epl_dataset_describe, out.train.get())).at("options");
      if (!o.validation.empty()) held_out = options_for_another(held_out, o);
      held_out["batch"] = options.at("batch");
      held_out.update(in_order);
      if (o.validation.empty()) held_out.update(Json{{"split", "held_out"}, {"held_out", *o.held_out}});
      out.held_out = open_dataset(engine, o.validation.empty() ? o.data : o.validation, held_out, o.own_data_options);
    }
    return out;
  }
  const Port input = text_input(model);
  out.batch = batch_of(model, o);
  const int64_t said = SaidSizes(model, o).of(input.name, 1);
  out.context = input.dims[1] > 0 ? input.dims[1] : said > 0 ? said : o.context > 0 ? o.context : 64;
  if (o.context > 0 && out.context != o.context) {
    const std::string has = input.dims[1] > 0 ? "the model's input " + input.name + " has "
                                              : "--shape or --symbol gives input " + input.name + " ";
    throw UsageError("--context " + std::to_string(o.context) + ": " + has + std::to_string(out.context));
  }
  Json options = {{"reader", "text"},
                  {"batch", out.batch},
                  {"context", out.context},
                  {"input", input.name},
                  {"held_out", o.text_held_out()}};
  options = with_target_name(std::move(options), o);
  Json train = options, held_out = options;
  // Windows may begin anywhere, so that an epoch has as many samples as there are bytes.
  train.update(once ? Json{{"split", "train"}, {"partial", true}}
                    : Json{{"split", "train"},
                           {"stride", 1},
                           {"order", "shuffled"},
                           {"seed", static_cast<int64_t>(o.seed)},
                           {"prefetch", 2}});
  held_out.update(Json{{"split", o.validation.empty() ? "held_out" : "all"}, {"partial", true}});
  out.train = open_dataset(engine, o.text, train);
  if (!o.validation.empty()) {
    out.held_out = open_dataset(engine, o.validation, held_out);
  } else if (o.text_held_out() > 0) {
    out.held_out = open_dataset(engine, o.text, held_out);
  }
  return out;
}

std::string find_checkpoint(const std::string& path) {
  return text_of(epl_checkpoint_find, make_engine({}).get(), path.data(), path.size());
}

Json describe_checkpoint(const Engine& engine, const std::string& path) {
  return parse_json(text_of(epl_checkpoint_describe, engine.get(), path.data(), path.size(), nullptr));
}

const Json& library() {
  static const Json description = [] {
    // Without a folder no pack is opened: to look for GPUs takes up to seconds, and the tables do not need it.
    epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
    options.packs = "";
    return parse_json(text_of(epl_engine_describe, make<Engine>(epl_engine_create, &options).get()));
  }();
  return description;
}

Json described(const char* what) { return library().at(what); }

void match_checkpoint(JobOptions& o, const Json& checkpoint) {
  std::set<std::string> states;
  std::vector<std::string> trained;
  o.freeze.clear();
  for (const Json& item : checkpoint.at("tensors")) {
    const std::string kind = item.at("kind"), name = item.at("name");
    if (kind == "frozen") o.freeze.push_back(name);
    if (kind == "parameter") trained.push_back(name);
    if (kind == "optimizer") states.insert(name.substr(name.rfind('.') + 1));
  }
  o.no_decay.clear();
  match_adapters(o, checkpoint, trained);
  o.train_also = o.train_only;  // whatever they look like
  // Checkpoints of older versions do not name their optimizer; its state tells.
  std::string found = checkpoint.contains("facts") ? checkpoint.at("facts").value("optimizer", "") : "";
  for (const Json& row : described("optimizers")) {
    if (found.empty() && row.at("states").get<std::set<std::string>>() == states)
      found = row.at("name").get<std::string>();
  }
  if (found.empty()) throw UsageError("this build has no optimizer with the states that the checkpoint holds");
  o.optimizer = found;
}

}  // namespace epl::tools
