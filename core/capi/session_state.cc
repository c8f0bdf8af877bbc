// What a session keeps, by name, and how it gets out: tensors, checkpoints, exported models.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/converted.h"
#include "core/base/hash.h"
#include "core/capi/frozen.h"
#include "core/capi/json.h"
#include "core/capi/session.h"
#include "core/data/safetensors.h"
#include "core/runtime/checkpoint.h"

namespace epl::capi {
namespace {

int64_t units_of(const Session& session) { return session.plan().entries().front().plan.units(); }

// What the run is now. The data is looked at once: its samples do not change, or nothing holds.
Facts facts_of(const Session& session, const epl_dataset* dataset) {
  Facts facts = describe_run(session.plan());
  facts["seed"] = cat(session.seed());
  if (dataset == nullptr) return facts;
  if (!dataset->facts) dataset->facts = describe_data(*dataset->dataset);
  facts.insert(dataset->facts->begin(), dataset->facts->end());
  return facts;
}

Result<Checkpoint> gather(const epl_session& handle, const epl_dataset* dataset) {
  const Session& session = *handle.session;
  if (!session.healthy())
    return error(Code::misuse, "the last step failed while the weights were changing; this state is not worth saving");
  Checkpoint out;
  out.step = session.steps_done();
  out.seed = session.seed();
  out.units = units_of(session);
  if (dataset) out.data_position = dataset->dataset->position();
  out.facts = facts_of(session, dataset);
  out.facts.merge(describe_rate(session.rate_scale()));
  EPL_ASSIGN(const std::vector<std::string> left_out, leave_to_the_file(handle, out.facts));
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::string& name : handle.names[kind]) {
      if (kind == EPL_STATE_FROZEN && std::ranges::find(left_out, name) != left_out.end()) continue;
      EPL_ASSIGN(Tensor value, session.state_view(name));
      out.items.push_back({name, static_cast<StateKind>(kind), std::move(value)});
    }
  }
  return out;
}

// The values that the optimizer would go on with must be numbers: a damaged state never takes the place of a good
// checkpoint.
Status check_finite(const Checkpoint& checkpoint) {
  for (const CheckpointItem& item : checkpoint.items) {
    if (item.kind == StateKind::frozen || !is_float(item.value.dtype())) continue;
    for (int64_t i = 0; i < item.value.elements(); ++i) {
      const double value = item.value.get(i);
      // A sum of squares may have overflown; its parameter then stands still, which is not damage.
      if (std::isfinite(value) || (item.kind == StateKind::optimizer && !std::isnan(value))) continue;
      return Status(Code::not_finite,
                    cat(item.name, " holds ", number_text(value), " (element ", i, "); a state with it is not saved"),
                    item.name);
    }
  }
  return {};
}

// Nothing is changed before everything fits.
Status check_fits(const epl_session& handle, const Checkpoint& checkpoint, const std::vector<std::string>& left_out,
                  const std::string& path) {
  std::map<std::string, const CheckpointItem*> there;
  for (const CheckpointItem& item : checkpoint.items) there[item.name] = &item;
  std::vector<std::string> problems;
  const StateLayout& layout = handle.session->plan().state();
  for (const StateSlot& slot : layout.slots()) {
    auto it = there.find(slot.name);
    if (it == there.end() && std::ranges::find(left_out, slot.name) != left_out.end()) continue;
    if (it == there.end()) {
      problems.push_back(cat(slot.name, " is missing"));
    } else if (it->second->value.type() != slot.type) {
      problems.push_back(
          cat(slot.name, " is ", it->second->value.type().text(), ", ", slot.type.text(), " is expected"));
    }
  }
  for (const CheckpointItem& item : checkpoint.items) {
    if (layout.find(item.name) == nullptr) problems.push_back(cat(item.name, " is not part of this session"));
  }
  if (problems.empty()) return {};
  size_t count = problems.size();
  if (problems.size() > 5) problems.resize(5);
  return Status(Code::invalid_argument,
                cat("the checkpoint does not fit this session (model, optimizer): ", join(problems, "; "),
                    count > 5 ? cat("; and ", count - 5, " more") : ""),
                path);
}

Status restore(epl_session& handle, const std::string& path, epl_dataset* dataset) {
  EPL_ASSIGN(Checkpoint checkpoint, load_checkpoint(path));
  EPL_ASSIGN(const std::vector<std::string> left_out, left_to_the_file(handle, checkpoint, path));
  EPL_TRY(check_fits(handle, checkpoint, left_out, path));
  Session& session = *handle.session;
  if (dataset && checkpoint.data_position < 0)
    return Status(
        Code::invalid_argument,
        "the checkpoint was saved without a dataset, so it has no position for this one; load it with dataset NULL",
        path);
  const Host& host = handle.engine->host;
  if (checkpoint.numerics != numerics_version)
    log(host, LogLevel::warning, path, ": numerics version ", checkpoint.numerics, ", this library has ",
        numerics_version, ": results go on, but not bit for bit");
  if (checkpoint.units != units_of(session))
    log(host, LogLevel::warning, path, ": the batch had ", checkpoint.units, " units, now it has ", units_of(session),
        ": results go on, but not bit for bit");
  for (const FactDifference& one : compare_facts(checkpoint.facts, facts_of(session, dataset))) {
    // Without a dataset it is weights that are wanted, for any purpose.
    if (dataset || one.topic == "model" || one.topic == "optimizer")
      log(host, LogLevel::warning, path, ": ", one.key, " was ", one.saved, ", now it is ", one.now);
  }
  session.torn();  // until all of it is there: reading may fail, and so may memory
  EPL_TRY(restore_from_the_file(handle, left_out));
  for (const CheckpointItem& item : checkpoint.items) EPL_TRY(session.set_state(item.name, item.value));
  EPL_TRY(session.set_rate_scale(parse_rate(checkpoint.facts)));
  session.set_steps_done(checkpoint.step);
  session.set_seed(checkpoint.seed);
  session.restored();
  log(host, LogLevel::info, "loaded checkpoint ", path, " of step ", checkpoint.step);
  return dataset ? dataset->dataset->seek(checkpoint.data_position) : Status();
}

// Parameters and buffers that a model's file has as well, in its types, with the adapters of each in it; views where
// they are that and made as they are read where not, as all is only written out.
Result<std::map<std::string, Tensor>> weights(const epl_session& handle) {
  std::map<std::string, Tensor> out;
  const std::vector<Adapter>& adapters = handle.session->plan().adapters();
  for (int kind : {EPL_STATE_PARAMETER, EPL_STATE_FROZEN, EPL_STATE_BUFFER}) {
    for (const std::string& name : handle.names[kind]) {
      if (std::ranges::any_of(adapters, [&](const Adapter& one) { return one.a == name || one.b == name; })) continue;
      EPL_ASSIGN(out[name], handle.session->state_view(name));
    }
  }
  for (const Adapter& one : adapters) {
    EPL_ASSIGN(Tensor a, handle.session->state_view(one.a));
    EPL_ASSIGN(Tensor b, handle.session->state_view(one.b));
    Tensor& weight = out.at(one.weight);
    weight = merge_adapter(one, weight, a, b);
  }
  // Masters of 16-bit weights go back to the type that the file has.
  for (const ModelInitializer& one : handle.session->plan().options().model->initializers()) {
    auto found = out.find(one.name);
    if (found == out.end() || found->second.dtype() == one.type.dtype) continue;
    found->second = converted(found->second, one.type.dtype);
  }
  return out;
}

Status export_adapters(const epl_session& handle, const std::string& folder) {
  const std::vector<Adapter>& adapters = handle.session->plan().adapters();
  if (adapters.empty())
    return invalid("the plan has no low-rank adapters to export; epl_trainer_add_adapter declares them");
  NamedTensors values;
  const auto add = [&](const std::string& name, const std::string& as) -> Status {
    EPL_ASSIGN(Tensor value, handle.session->state_view(name));
    values.emplace_back(as, std::move(value));
    return {};
  };
  for (const Adapter& one : adapters) {
    for (const std::string& name : {one.a, one.b}) EPL_TRY(add(name, name));
  }
  // PEFT keeps a module whole, with what of it is frozen.
  std::vector<std::string> changed = handle.session->plan().trained(), all;
  for (const std::string& name : handle.names[EPL_STATE_BUFFER]) {
    EPL_ASSIGN(Tensor value, handle.session->state_view(name));
    if (!identical(value, handle.session->plan().state().find(name)->initial)) changed.push_back(name);
  }
  for (int kind : {EPL_STATE_PARAMETER, EPL_STATE_FROZEN, EPL_STATE_BUFFER})
    all.insert(all.end(), handle.names[kind].begin(), handle.names[kind].end());
  const TrainedModules beside = trained_modules(adapters, changed, all);
  for (const std::string& name : all) {
    const std::string module = name.substr(0, std::min(name.rfind('.'), name.size()));
    if (std::ranges::find(beside.modules, module) == beside.modules.end()) continue;
    EPL_TRY(add(name, cat("base_model.model.", name)));
    // A batch norm of PyTorch counts its batches, too, and PEFT misses what a module should have.
    if (name.ends_with(".running_var"))
      values.emplace_back(cat("base_model.model.", module, ".num_batches_tracked"),
                          Tensor::from_ints({handle.session->steps_done()}).reshaped({}));
  }
  if (!beside.left_out.empty()) {
    log(handle.engine->host, LogLevel::warning, folder, ": ", beside.left_out[0],
        beside.left_out.size() > 1 ? cat(" and ", beside.left_out.size() - 1, " more have") : " has",
        " changed, too, and is left out: Hugging Face PEFT keeps whole modules that have no adapter, by their names");
  }
  EPL_TRY(make_folder(folder));
  EPL_TRY(save_safetensors(cat(folder, "/adapter_model.safetensors"), values, {{"format", "pt"}}));
  const std::string config = adapter_config(adapters, beside.modules);
  return write_file_atomically(cat(folder, "/adapter_config.json"),
                               [&](FileWriter& file) { return file.write(config.data(), config.size()); });
}

Status export_onnx(const epl_session& handle, const std::string& path, bool for_inference) {
  constexpr std::string_view own_output = "output:";
  const PlanOptions& options = handle.session->plan().options();
  ModelSaveOptions how{.for_inference = for_inference, .loss_output = {}};
  if (options.training && options.train.loss.name.starts_with(own_output))
    how.loss_output = options.train.loss.name.substr(own_output.size());
  EPL_ASSIGN(auto values, weights(handle));
  EPL_TRY(options.model->save(path, values, how));
  log(handle.engine->host, LogLevel::info, "exported ", path);
  return {};
}

// Takes the dataset for a call that has the session already; NULL is fine.
template <class F> Status with_optional_dataset(epl_dataset* dataset, F&& f) {
  return dataset == nullptr ? f() : with_caller(dataset, "dataset", f);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

int64_t epl_session_state_count(const epl_session* session, int32_t kind) {
  if (!alive(session) || kind < 0 || kind > EPL_STATE_OPTIMIZER) return 0;
  return static_cast<int64_t>(session->names[kind].size());
}

epl_error* epl_session_state_port(const epl_session* session, int32_t kind, int64_t index, epl_port* port) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(session);
    EPL_REQUIRE(port);
    int64_t count = epl_session_state_count(session, kind);
    if (index < 0 || index >= count)
      return invalid("there is no state ", index, " of kind ", kind, "; there are ", count);
    const StateSlot* slot = session->session->plan().state().find(session->names[kind][static_cast<size_t>(index)]);
    EPL_CHECK(slot != nullptr, "state without a slot");
    return write_port(slot->name, slot->type.dtype, slot->type.shape, port);
  });
}

epl_error* epl_session_get(epl_session* session, const char* name, size_t name_length, epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    auto made = std::make_unique<epl_tensor>();
    EPL_TRY(in_session(session, [&]() -> Status {
      EPL_TEXT_ARGUMENT(name);
      EPL_ASSIGN(const Tensor value, session->session->state_view(name_text));
      std::shared_ptr<const void> memory = allocate_bytes(session->engine, static_cast<size_t>(value.bytes()));
      EPL_TRY(value.read(0, value.bytes(), const_cast<void*>(memory.get())));
      const void* data = memory.get();
      made->tensor = Tensor(value.type(), std::move(memory), data);
      made->engine = session->engine;
      return {};
    }));
    return made;
  });
}

epl_error* epl_session_set(epl_session* session, const char* name, size_t name_length, const epl_tensor* tensor) {
  return with_session(session, [&]() -> Status {
    EPL_REQUIRE(tensor);
    EPL_TEXT_ARGUMENT(name);
    return session->session->set_state(name_text, tensor->tensor);
  });
}

epl_error* epl_session_hash(epl_session* session, uint64_t* hash) {
  return with_session(session, [&]() -> Status {
    EPL_REQUIRE(hash);
    Hash64 all;
    for (const std::string& name : session->names[EPL_STATE_PARAMETER]) {
      EPL_ASSIGN(Tensor value, session->session->state_view(name));
      add_to_hash(all, value);
    }
    *hash = all.value();
    return {};
  });
}

epl_error* epl_session_save(epl_session* session, const char* path, size_t path_length, const epl_dataset* dataset) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
      EPL_ASSIGN(Checkpoint checkpoint, gather(*session, dataset));
      EPL_TRY(check_finite(checkpoint));
      EPL_TRY(save_checkpoint(std::string(path_text), checkpoint));
      log(session->engine->host, LogLevel::info, "saved checkpoint ", path_text, " of step ", checkpoint.step);
      return {};
    });
  });
}

epl_error* epl_session_load(epl_session* session, const char* path, size_t path_length, epl_dataset* dataset) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    return with_optional_dataset(dataset, [&] { return restore(*session, std::string(path_text), dataset); });
  });
}

epl_error* epl_session_compare(epl_session* session, const char* path, size_t path_length, const epl_dataset* dataset,
                               epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    Json out = Json::array();
    EPL_TRY(in_session(session, [&]() -> Status {
      EPL_TEXT_ARGUMENT(path);
      return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
        EPL_ASSIGN(Checkpoint checkpoint, load_checkpoint(std::string(path_text)));
        for (const FactDifference& one : compare_facts(checkpoint.facts, facts_of(*session->session, dataset))) {
          out.push_back({{"key", one.key},
                         {"topic", one.topic},
                         {"checkpoint", one.saved},
                         {"session", one.now},
                         {"breaks", one.breaks}});
        }
        return {};
      });
    }));
    return print_json(out, 2);
  });
}

epl_error* epl_checkpoint_remove(const epl_engine* engine, const char* path, size_t path_length) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    return remove_checkpoint(std::string(path_text));
  });
}

epl_error* epl_checkpoint_describe(const epl_engine* engine, const char* path, size_t path_length, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(Checkpoint checkpoint, load_checkpoint(std::string(path_text)));
    Json out;
    out["step"] = checkpoint.step;
    out["seed"] = checkpoint.seed;
    out["units"] = checkpoint.units;
    out["numerics"] = checkpoint.numerics;
    out["data_position"] = checkpoint.data_position;
    Json facts = Json::object();
    for (const auto& [key, value] : checkpoint.facts) facts[key] = value;
    out["facts"] = facts;
    Json items = Json::array();
    for (const CheckpointItem& item : checkpoint.items) {
      items.push_back({{"name", item.name},
                       {"kind", state_kind_name(item.kind)},
                       {"dtype", dtype_name(item.value.dtype())},
                       {"dims", item.value.shape()}});
    }
    out["tensors"] = items;
    return print_json(out, 2);
  });
}

epl_error* epl_session_export_onnx(epl_session* session, const char* path, size_t path_length) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    return export_onnx(*session, std::string(path_text), true);
  });
}

epl_error* epl_session_export_onnx_for_training(epl_session* session, const char* path, size_t path_length) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    return export_onnx(*session, std::string(path_text), false);
  });
}

epl_error* epl_session_export_adapters(epl_session* session, const char* folder, size_t folder_length) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(folder);
    return export_adapters(*session, std::string(folder_text));
  });
}

epl_error* epl_session_export_safetensors(epl_session* session, const char* path, size_t path_length) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(auto values, weights(*session));
    EPL_TRY(save_safetensors(std::string(path_text), NamedTensors(values.begin(), values.end())));
    log(session->engine->host, LogLevel::info, "exported ", path_text);
    return {};
  });
}
