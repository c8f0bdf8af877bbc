#include "core/runtime/export.h"

#include <algorithm>
#include <map>

#include "core/base/converted.h"
#include "core/base/shown.h"
#include "core/base/stop_hook.h"
#include "core/base/suggestion.h"
#include "core/formats/safetensors.h"
#include "core/runtime/session_checkpoint.h"

namespace epl {
namespace {

// Parameters and buffers that a model's file has as well, in its types, with the adapters of each in it; views where
// they are that and made as they are read where not, as all is only written out. Over processes, that of rank 0 gets
// them; the others help it to.
using Weights = std::map<std::string, Tensor>;
Result<Weights> collect_weights(Session& session) {
  Weights out;
  const std::vector<Adapter>& adapters = session.plan().adapters();
  for (StateKind kind : {StateKind::parameter, StateKind::frozen, StateKind::buffer}) {
    for (const std::string& name : state_names(session.plan(), kind)) {
      if (std::ranges::any_of(adapters, [&](const Adapter& one) { return one.a == name || one.b == name; })) continue;
      EPL_ASSIGN(Tensor value, session.state().view(name));
      if (session.world().is_local(0)) out[name] = std::move(value);
    }
  }
  for (const Adapter& one : adapters) {
    EPL_ASSIGN(Tensor a, session.state().view(one.a));
    EPL_ASSIGN(Tensor b, session.state().view(one.b));
    if (!session.world().is_local(0)) continue;
    Tensor& weight = out.at(one.weight);
    weight = merge_adapter(one, weight, a, b);
  }
  // Masters of 16-bit weights go back to the type that the file has.
  for (const ModelInitializer& one : session.plan().options().model->initializers()) {
    auto found = out.find(one.name);
    if (found == out.end() || found->second.dtype() == one.type.dtype) continue;
    found->second = converted(found->second, one.type.dtype);
  }
  return out;
}

Result<Weights> weights(Session& session) {
  EPL_TRY(session.world().enter_call(session.world().call().stop()));
  Result<Weights> collected = collect_weights(session);
  EPL_TRY(session.world().leave_call(collected.status()));
  return collected;
}

// As Hugging Face PEFT keeps them.
struct AdapterFiles {
  NamedTensors values;
  std::string config;
};

Result<AdapterFiles> collect_adapters(Session& session, const std::string& folder) {
  const std::vector<Adapter>& adapters = session.plan().adapters();
  NamedTensors values;
  const auto add = [&](const std::string& name, const std::string& as) -> Status {
    EPL_ASSIGN(Tensor value, session.state().view(name));
    values.emplace_back(as, std::move(value));
    return {};
  };
  for (const Adapter& one : adapters) {
    for (const std::string& name : {one.a, one.b}) EPL_TRY(add(name, name));
  }
  // PEFT keeps a module complete, with its frozen parameters.
  std::vector<std::string> changed = session.plan().trained(), all;
  for (const std::string& name : state_names(session.plan(), StateKind::buffer)) {
    EPL_ASSIGN(Tensor value, session.state().view(name));
    if (!identical(value, session.plan().state().find(name)->initial)) changed.push_back(name);
  }
  for (StateKind kind : {StateKind::parameter, StateKind::frozen, StateKind::buffer}) {
    for (const std::string& name : state_names(session.plan(), kind)) all.push_back(name);
  }
  const TrainedModules beside = trained_modules(adapters, changed, all);
  for (const std::string& name : all) {
    const std::string module = name.substr(0, std::min(name.rfind('.'), name.size()));
    if (std::ranges::find(beside.modules, module) == beside.modules.end()) continue;
    EPL_TRY(add(name, cat("base_model.model.", name)));
    // A batch norm of PyTorch counts its batches, too, and PEFT misses what a module should have.
    if (name.ends_with(".running_var"))
      values.emplace_back(cat("base_model.model.", module, ".num_batches_tracked"),
                          Tensor::from_ints({session.host_state().steps_done()}).reshaped({}));
  }
  if (!beside.left_out.empty()) {
    log(session.host(), LogLevel::warning, LoggedPath{folder}, ": ", beside.left_out[0],
        beside.left_out.size() > 1 ? cat(" and ", beside.left_out.size() - 1, " more have") : " has",
        " changed, too, and is left out: Hugging Face PEFT keeps whole modules that have no adapter, by their names");
  }
  return AdapterFiles{std::move(values), adapter_config(adapters, beside.modules)};
}

}  // namespace

Status export_adapters(Session& session, const std::string& folder) {
  if (session.plan().adapters().empty())
    return invalid("the plan has no low-rank adapters to export; a trainer with adapters makes one that has");
  EPL_TRY(session.world().enter_call(session.world().call().stop()));
  const Result<AdapterFiles> files = collect_adapters(session, folder);
  EPL_TRY(session.world().leave_call(files.status()));
  const auto write = [&]() -> Status {
    if (!session.world().is_local(0)) return {};
    const auto& [values, config] = *files;
    EPL_TRY(make_folder(folder));
    EPL_TRY(save_safetensors(cat(folder, "/adapter_model.safetensors"), values, {{"format", "pt"}},
                             stop_hook(session.world().call().stop())));
    // The two belong together: where the first is there, the second follows.
    return write_file_atomically(cat(folder, "/adapter_config.json"),
                                 [&](FileWriter& file) { return file.write(config.data(), config.size()); });
  };
  return session.world().agree(write());
}

namespace {

ModelSaveOptions how_to_save(const Session& session, bool for_inference) {
  constexpr std::string_view own_output = "output:";
  const PlanOptions& options = session.plan().options();
  ModelSaveOptions how{
      .for_inference = for_inference, .loss_output = {}, .hook = stop_hook(session.world().call().stop())};
  if (options.training && options.train.loss.name.starts_with(own_output))
    how.loss_output = options.train.loss.name.substr(own_output.size());
  return how;
}

Status finished(ByteWriter& out, const Status& written) { return written.ok() ? out.finish() : written; }

Status write_model(Session& session, ByteWriter* out, bool for_inference) {
  EPL_ASSIGN(const auto values, weights(session));
  const Model& model = *session.plan().options().model;
  return session.world().agree(session.world().is_local(0)
                                   ? finished(*out, model.write(*out, values, how_to_save(session, for_inference)))
                                   : Status());
}

Status write_weights(Session& session, ByteWriter* out) {
  EPL_ASSIGN(const auto values, weights(session));
  const NamedTensors named(values.begin(), values.end());
  return session.world().agree(session.world().is_local(0) ? finished(*out, write_safetensors(*out, named)) : Status());
}

}  // namespace

std::span<const ExportFormat> export_formats() {
  static constexpr ExportFormat formats[] = {
      {"onnx", "the model's file with the trained weights, ready for inference",
       [](Session& session, ByteWriter* out) { return write_model(session, out, true); }},
      {"onnx_for_training", "the model's file with the trained weights, to train on",
       [](Session& session, ByteWriter* out) { return write_model(session, out, false); }},
      {"safetensors", "parameters and buffers under their names", write_weights}};
  return formats;
}

Status export_to(Session& session, std::string_view format, ByteWriter* out) {
  std::vector<std::string> names;
  for (const ExportFormat& row : export_formats()) {
    names.emplace_back(row.name);
    if (row.name != format) continue;
    EPL_TRY(session.world().agree(session.world().is_local(0) && out == nullptr ? no_writer() : Status()));
    EPL_TRY(row.write(session, out));
    log(session.host(), LogLevel::info, "exported ", format, " to the host");
    return {};
  }
  return error(Code::not_found, "no export format ", shown(format), choices(format, names));
}

Status export_model(Session& session, const std::string& path, bool for_inference) {
  EPL_ASSIGN(const auto values, weights(session));
  const Model& model = *session.plan().options().model;
  EPL_TRY(session.world().agree(
      session.world().is_local(0) ? model.save(path, values, how_to_save(session, for_inference)) : Status()));
  log(session.host(), LogLevel::info, "exported ", LoggedPath{path});
  return {};
}

Status export_weights(Session& session, const std::string& path) {
  EPL_ASSIGN(auto values, weights(session));
  const NamedTensors named(values.begin(), values.end());
  EPL_TRY(session.world().agree(session.world().is_local(0)
                                    ? save_safetensors(path, named, {}, stop_hook(session.world().call().stop()))
                                    : Status()));
  log(session.host(), LogLevel::info, "exported ", LoggedPath{path});
  return {};
}

}  // namespace epl
