#include "tools/export.h"

#include <algorithm>

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/output_folder.h"
#include "tools/sizes.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

struct ExportOptions {
  JobOptions job;
  std::string checkpoint, out, adapters;
  bool for_training = false;
};

// Of one sample of a field that the run was trained on; empty where the checkpoint does not tell. `fields`: what it
// says of its data, as "x f32[3,16]; target i64[16]".
std::vector<int64_t> sizes_of_field(const std::string& fields, const std::string& name) {
  const std::string all = "; " + fields;
  const size_t found = all.find("; " + name + " ");
  const size_t begin = found == std::string::npos ? found : all.find('[', found + 2 + name.size());
  const size_t end = begin == std::string::npos ? begin : all.find(']', begin);
  std::vector<int64_t> out;
  if (end == std::string::npos) return out;
  std::string text = all.substr(begin + 1, end - begin - 1);
  for (size_t from = 0; !text.empty() && from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    if (!read_integer(text.substr(from, to - from), out.emplace_back())) return {};
    from = to + 1;
  }
  return out;
}

// What the model leaves open and no option says has the sizes that the run was trained with, where those are known.
// Returns the inputs of which they are not, as --shape would have them.
std::string take_trained_sizes(const Model& model, JobOptions& o, const Json& checkpoint) {
  const std::string fields = checkpoint.contains("facts") ? checkpoint.at("facts").value("data.fields", "") : "";
  const SaidSizes said(model, o);
  const auto batch_dims = batch_dims_of(o);
  std::string unknown;
  for (const ModelInput& input : inputs_of(model)) {
    std::vector<int64_t> trained = sizes_of_field(fields, input.name);
    if (trained.empty()) trained = sizes_of_field(fields, "input." + input.name);
    const int64_t samples_in = batch_dim(input, batch_dims);
    const bool fits = trained.size() + (samples_in >= 0 ? 1 : 0) == input.dims.size();
    std::string shape, open;
    bool takes = false, guessed = false;
    size_t next = 0;
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const bool samples = static_cast<int64_t>(d) == samples_in;
      const int64_t size = samples || !fits ? -1 : trained[next++];
      const bool asked = !samples && input.dims[d] < 0 && said.of(input, d) < 0 && !(d == 1 && o.context > 0);
      const std::string comma = d > 0 ? "," : "";
      shape += comma + (asked && size >= 0 ? std::to_string(size) : "?");
      open += comma + (asked && size < 0 ? "N" : "?");
      takes = takes || (asked && size >= 0);
      guessed = guessed || (asked && size < 0);
    }
    const bool told = std::any_of(o.shapes.begin(), o.shapes.end(),
                                  [&](const std::string& one) { return one.starts_with(input.name + "="); });
    if (takes && !told) o.shapes.push_back(input.name + "=" + shape);
    if (guessed) unknown += " --shape " + shell_word(input.name + "=" + open);
  }
  return unknown;
}

// A plan with the shapes that nothing says at any size: only names and types of the weights matter here.
Plan plan_of_any_shape(const Engine& engine, const Model& model, JobOptions o, const Json& checkpoint) {
  constexpr int64_t any = 64;
  const std::string unknown = take_trained_sizes(model, o, checkpoint);
  Trainer trainer = make_trainer(engine, o);
  bind_open(trainer, model, o, any);
  try {
    return make_plan(model, trainer, make_strategy(engine, o), o);
  } catch (const ApiError& e) {
    if (unknown.empty()) throw;
    throw ApiError(e.code,
                   std::string(e.what()) +
                       "; sizes that the model leaves open and the checkpoint does not tell were "
                       "taken as " +
                       std::to_string(any) + ": give them as in" + unknown,
                   e.where);
  }
}

int run_export(ExportOptions o) {
  if (!o.out.empty() && !o.adapters.empty()) throw UsageError("--out and --adapters exclude each other");
  const bool onnx = o.out.ends_with(".onnx") || !o.adapters.empty();
  if (!onnx && !o.out.ends_with(".safetensors"))
    throw UsageError("--out " + o.out + ": .onnx or .safetensors says what to write");
  if (!onnx && o.for_training)
    throw UsageError("--for-training is about the graph of an ONNX file; " + o.out + " holds weights alone");
  o.checkpoint = find_checkpoint(o.checkpoint);
  Engine engine = make_engine(o.job);
  Model model = load_model(engine, o.job.model);
  const Json checkpoint = describe_checkpoint(engine, o.checkpoint);
  match_checkpoint(o.job, checkpoint);
  if (!o.adapters.empty() && o.job.adapters.empty())
    throw UsageError("--adapters: " + o.checkpoint + " holds no low-rank adapters");
  Plan plan = plan_of_any_shape(engine, model, o.job, checkpoint);
  Session session =
      make<Session>(epl_session_create, plan.get(), static_cast<const epl_session_options*>(nullptr), nullptr);
  check(epl_session_load(session.get(), o.checkpoint.data(), o.checkpoint.size(), static_cast<epl_dataset*>(nullptr),
                         nullptr));
  std::string said = "wrote " + o.out;
  if (!o.adapters.empty()) {
    export_adapters(session, o.adapters);
    said = "wrote " + o.adapters + "/adapter_model.safetensors and adapter_config.json";
  } else if (onnx) {
    said = export_onnx(session, model, o.job, o.out, o.for_training);
  } else {
    check(epl_session_export_safetensors(session.get(), o.out.data(), o.out.size(), nullptr));
  }
  if (!o.job.json) say("%s\n", said.c_str());
  return 0;
}

}  // namespace

std::string export_onnx(const Session& session, const Model& model, const JobOptions& o, const std::string& path,
                        bool for_training) {
  check((for_training ? epl_session_export_onnx_for_training : epl_session_export_onnx)(session.get(), path.data(),
                                                                                        path.size(), nullptr));
  if (for_training) return "wrote " + path + ", to train on: its graph is that of " + o.model;
  std::string said = "wrote " + path + ", ready for inference";
  const bool loss_alone = o.loss.starts_with("output:") && epl_model_port_count(model.get(), EPL_PORT_OUTPUT) == 1;
  if (loss_alone)
    said += ", though the loss is its only output: export the model with what it should predict as an output, too";
  return said;
}

void export_adapters(const Session& session, const std::string& folder) {
  check(epl_session_export_adapters(session.get(), folder.data(), folder.size(), nullptr));
}

Run add_export(CLI::App& app) {
  auto o = std::make_shared<ExportOptions>();
  app.footer("  epl export model.onnx --checkpoint run/checkpoint --out weights.safetensors");
  app.option_defaults()->group(groups::data);
  app.add_option("model", o->job.model, "the ONNX file that was trained")->required()->check(existing_file());
  app.add_option("--checkpoint", o->checkpoint, "the checkpoint, or the folder of the run for its newest")
      ->required()
      ->check(existing_folder());
  app.add_option("--out", o->out,
                 "FILE.onnx, ready for inference (what has nothing to do with that is unchanged), or FILE.safetensors")
      ->type_name("FILE");
  app.add_option("--adapters", o->adapters,
                 "a folder for the low-rank adapters and what is trained beside them, as Hugging Face PEFT loads them")
      ->type_name("FOLDER");
  app.add_flag("--for-training", o->for_training,
               "leave batch norm and dropout in training mode, and every output, so that FILE.onnx can be trained on");
  add_binding_options(app, o->job);
  return [=] { return run_export(*o); };
}

}  // namespace epl::tools
