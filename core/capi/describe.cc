#include "core/capi/describe.h"

#include "core/backend/device.h"
#include "core/backend/pack.h"
#include "core/base/processor.h"
#include "core/capi/json.h"
#include "core/data/reader.h"
#include "core/frontend/model.h"
#include "core/frontend/template.h"
#include "core/strategy/strategy.h"
#include "core/train/loss.h"
#include "core/train/metric.h"
#include "core/train/optimizer.h"
#include "core/train/schedule.h"

namespace epl::capi {
namespace {

Json options_json(const std::vector<AttributeSpec>& options) {
  Json out = Json::object();
  for (const AttributeSpec& spec : options) out[spec.name] = attribute_json(spec.value);
  return out;
}

template <class Rows> Json rows_json(const Rows& rows) {
  Json out = Json::array();
  for (const auto& row : rows)
    out.push_back({{"name", row.name}, {"doc", row.doc}, {"options", options_json(row.options)}});
  return out;
}

// Options that take any JSON have no default: null.
Json reader_json(const ReaderRow& row) {
  Json options = Json::object(), docs = Json::object();
  for (const ReaderOption& option : row.options) {
    options[option.name] = option.json ? Json() : attribute_json(option.value);
    docs[option.name] = option.doc;
  }
  return {{"name", row.name},    {"doc", row.doc},           {"options", options},
          {"option_docs", docs}, {"suffixes", row.suffixes}, {"folder", row.folder}};
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
    out.push_back({{"name", port.name}, {"dtype", dtype_name(port.dtype)}, {"dims", dims}});
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
  Json out;
  out["version"] = cat(EPL_VERSION_MAJOR, ".", EPL_VERSION_MINOR, ".", EPL_VERSION_PATCH);
  out["abi"] = EPL_ABI_VERSION;
  out["processor"] = processor_name();
  out["threads"] = engine.host.threads;
  Json packs = Json::array();
  for (const BackendRow& row : backend_table().rows) {
    out["devices"].push_back({{"name", row.name}, {"doc", row.doc}});
    for (const BackendPack& pack : row.packs) {
      packs.push_back({{"name", pack.name},
                       {"device", row.name},
                       {"doc", pack.doc},
                       {"path", pack_path(engine.host.packs, pack.name)}});
    }
  }
  out["packs"] = packs;
  out["losses"] = rows_json(loss_table().rows);
  for (size_t i = 0; i < out["losses"].size(); ++i) out["losses"][i]["metrics"] = loss_table().rows[i].metrics;
  out["metrics"] = rows_json(metric_table().rows);
  for (size_t i = 0; i < out["metrics"].size(); ++i)
    out["metrics"][i]["higher_is_better"] = metric_table().rows[i].higher_is_better;
  out["schedules"] = rows_json(schedule_table().rows);
  for (size_t i = 0; i < out["schedules"].size(); ++i)
    out["schedules"][i]["watches"] = schedule_table().rows[i].watches;
  out["optimizers"] = rows_json(optimizer_table().rows);
  for (size_t i = 0; i < out["optimizers"].size(); ++i)
    out["optimizers"][i]["states"] = optimizer_table().rows[i].states;
  Json readers = Json::array();
  for (const ReaderRow& row : reader_table().rows) readers.push_back(reader_json(row));
  out["readers"] = readers;
  out["templates"] = rows_json(template_table().rows);
  Json keys = Json::array();
  for (const ConfigKey& key : config_keys()) {
    keys.push_back({{"name", key.name},
                    {"default", attribute_json(key.value)},
                    {"words", key.words},
                    {"built", key.built},
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
  Json out;
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
