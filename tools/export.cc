#include "tools/export.h"

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/output_folder.h"
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

// A plan with the shapes that the model leaves open at any size: only names and types of the weights matter here.
Plan plan_of_any_shape(const Engine& engine, const Model& model, const JobOptions& o) {
  Trainer trainer = make_trainer(engine, o);
  bind_open(trainer, model, o, 64);
  return make_plan(model, trainer, make_strategy(engine, o), o);
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
  match_checkpoint(engine, o.job, describe_checkpoint(engine, o.checkpoint));
  if (!o.adapters.empty() && o.job.adapters.empty())
    throw UsageError("--adapters: " + o.checkpoint + " holds no low-rank adapters");
  Plan plan = plan_of_any_shape(engine, model, o.job);
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
