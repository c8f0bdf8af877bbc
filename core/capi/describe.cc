#include "core/capi/describe.h"

#include "core/base/json.h"
#include "core/base/pack.h"
#include "core/base/processor.h"
#include "core/capi/objects.h"
#include "core/data/reader.h"
#include "core/frontend/model.h"
#include "core/frontend/template.h"
#include "core/job/settings.h"
#include "core/strategy/built.h"
#include "core/train/loss.h"
#include "core/train/metric.h"
#include "core/train/optimizer.h"
#include "core/train/schedule.h"

namespace epl::capi {
namespace {

Json attribute_json(const Attribute& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, DType>) {
          return std::string(dtype_name(v));
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return v.type().text();
        } else {
          return v;
        }
      },
      value);
}

std::string_view option_type(const Option& option) {
  static constexpr std::string_view names[] = {"boolean", "integer",  "number",  "text",
                                               "text",    "integers", "numbers", "text"};
  return option.json ? "json" : names[option.value.index()];
}

// Options that take any JSON have no default, and those that must be given none either: null.
Json row_json(const std::string& name, const std::string& doc, const std::vector<Option>& declared) {
  Json options = Json::object(), docs = Json::object(), types = Json::object(), ranges = Json::object();
  for (const Option& option : declared) {
    types[option.name] = std::string(option_type(option));
    options[option.name] = option.json || option.required ? Json() : attribute_json(option.value);
    if (!option.doc.empty()) docs[option.name] = option.doc;
    if (const std::string range = option.range.text(); !range.empty()) ranges[option.name] = range;
  }
  return {{"name", name},           {"doc", doc}, {"options", options}, {"option_docs", docs}, {"option_types", types},
          {"option_ranges", ranges}};
}

// The rows of a table; `more` adds what only they have.
template <class Rows, class F> Json rows_json(const Rows& rows, F&& more) {
  Json out = Json::array();
  for (const auto& row : rows) {
    Json one = row_json(row.name, row.doc, row.options);
    more(one, row);
    out.push_back(std::move(one));
  }
  return out;
}

std::string processor_name() {
#if defined(__x86_64__)
  return processor_level() >= 4 ? "x86-64-v4" : "x86-64-v3";  // an engine is made on no lower level
#else
  return "generic";
#endif
}

Json ports_json(const std::vector<ModelPort>& ports) {
  Json out = Json::array();
  for (const ModelPort& port : ports) {
    Json dims = Json::array();
    for (const ModelDim& dim : port.dims) {
      if (dim.size >= 0) {
        dims.push_back(dim.size);
      } else {
        dims.push_back(dim.symbol);
      }
    }
    Json entry = {{"name", port.name}, {"dtype", dtype_name(port.dtype)}, {"dims", dims}};
    if (!port.ranked) entry["ranked"] = false;
    out.push_back(std::move(entry));
  }
  return out;
}

std::string_view level_name(ModelFinding::Level level) {
  switch (level) {
    case ModelFinding::Level::note:
      return "note";
    case ModelFinding::Level::warning:
      return "warning";
    case ModelFinding::Level::error:
      return "error";
  }
  return "note";
}

}  // namespace

std::string describe_engine(const Engine& engine) {
  Json out = {{"schema", 1}};
  out["version"] = cat(EPL_VERSION_MAJOR, ".", EPL_VERSION_MINOR, ".", EPL_VERSION_PATCH);
  out["abi"] = EPL_ABI_VERSION;
  out["processor"] = processor_name();
  out["threads"] = engine.host.threads;
  out["workers"] = engine.host.workers->started();
  out["memory_bytes"] = engine.host.budget->in_use.load(std::memory_order_relaxed);
  if (engine.host.budget->bytes > 0) out["memory_budget_bytes"] = engine.host.budget->bytes;
  out["devices"] = describe_devices(engine.host);
  Json packs = Json::array();
  for (const PackRow& row : pack_table().rows) {
    Json one = {{"name", row.name}, {"doc", row.doc}, {"path", pack_path(engine.host.packs, row.name)}};
    if (!row.device.empty()) one["device"] = row.device;
    packs.push_back(std::move(one));
  }
  out["packs"] = packs;
  out["losses"] = rows_json(loss_table().rows, [](Json& one, const LossRow& row) { one["metrics"] = row.metrics; });
  out["metrics"] = rows_json(metric_table().rows,
                             [](Json& one, const MetricRow& row) { one["higher_is_better"] = row.higher_is_better; });
  out["schedules"] =
      rows_json(schedule_table().rows, [](Json& one, const ScheduleRow& row) { one["watches"] = row.watches; });
  out["optimizers"] = rows_json(optimizer_table().rows, [](Json& one, const OptimizerRow& row) {
    one["states"] = row.states;
    one["shrinks_weights"] = row.shrinks_weights;
  });
  out["readers"] = rows_json(reader_table().rows, [](Json& one, const ReaderRow& row) {
    one["suffixes"] = row.suffixes;
    one["folder"] = row.folder;
    one["files"] = row.files;
  });
  out["trainer"] = row_json("trainer", "what is learnt and how", trainer_options());
  out["job"] = row_json("job", "what a job is told", job_options());
  out["templates"] = rows_json(template_table().rows, [](Json&, const ModelTemplate&) {});
  Json keys = Json::array();
  for (const ConfigKey& key : config_keys()) {
    Json needs = Json::array();
    for (const KeyNeed& need : key_needs()) {
      if (need.key == key.name) needs.push_back({{"key", need.other}, {"words", need.words}});
    }
    keys.push_back({{"name", key.name},
                    {"default", attribute_json(key.value)},
                    {"words", key.words},
                    {"built", key.built},
                    {"built_words", built_words(key)},
                    {"settled", key.settled},
                    {"keeps_bits", keeps_bits(key)},
                    {"needs", needs},
                    {"doc", key.doc}});
  }
  out["strategy_keys"] = keys;
  return print_json(out, 2);
}

Json describe_findings(const Model& model) {
  Json out = Json::array();
  for (const ModelFinding& finding : model.findings()) {
    out.push_back({{"level", level_name(finding.level)}, {"where", finding.where}, {"message", finding.message}});
  }
  return out;
}

std::string describe_model(const Model& model, bool rewrites) {
  Json out = {{"schema", 1}};
  out["description"] = model.description();
  out["inputs"] = ports_json(model.inputs());
  out["outputs"] = ports_json(model.outputs());
  int64_t elements = 0;
  Json initializers = Json::array();
  for (const ModelInitializer& one : model.initializers()) {
    elements += one.type.elements();
    initializers.push_back({{"name", one.name}, {"dtype", dtype_name(one.type.dtype)}, {"dims", one.type.shape}});
  }
  out["initializers"] = initializers;
  out["initializer_elements"] = elements;
  Json ops = Json::object();
  for (const auto& [name, count] : model.op_counts()) ops[name] = count;
  out["ops"] = ops;
  const std::string training = model.training_parts();
  out["ready_for_inference"] = training.empty();
  out["training_parts"] = training;
  out["findings"] = describe_findings(model);
  out["training"] = describe_training(model);
  out["rewrites"] = rewrites;
  return print_json(out, 2);
}

}  // namespace epl::capi
