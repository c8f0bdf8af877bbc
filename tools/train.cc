// epl train: the command and its options; the work is in tools/training.cc.
#include "tools/commands.h"
#include "tools/lora.h"
#include "tools/training.h"

namespace epl::tools {

Run add_train(CLI::App& app) {
  auto o = std::make_shared<TrainOptions>();
  app.add_option("model", o->job.model, "the ONNX file to start from")->required()->check(CLI::ExistingFile);
  add_data_options(app, o->job, true);
  o->job.steps = 1000;
  auto* steps = app.add_option("--steps", o->job.steps, "optimizer steps in all")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--epochs", o->job.epochs, "the same as times through the data")->check(CLI::PositiveNumber)->excludes(steps);
  add_binding_options(app, o->job);
  add_training_options(app, o->job);
  add_adapter_options(app, o->job);
  add_machine_options(app, o->job);
  add_validation_options(app, o->validation);
  app.add_option("--out", o->out, "folder for checkpoints, trained.onnx and report.html (out; with --resume RUN that run's folder)");
  app.add_flag("--overwrite", o->overwrite, "replace the run that OUT holds");
  app.add_flag("--for-training", o->for_training, "write trained.onnx to train on, not for inference: batch norm and dropout stay in training mode");
  app.add_option("--report", o->report, "the page with loss curve and memory plan (OUT/report.html)");
  app.add_option("--resume", o->resume, "go on from a run's newest checkpoint (its folder) or from a certain one, to --steps in all")->check(CLI::ExistingDirectory);
  app.add_option("--resume-anyway", o->resume_anyway, "go on although these differ from that run: model, data, batch, order, loss, optimizer, or all")
      ->delimiter(',')
      ->check(CLI::IsMember({"model", "data", "batch", "order", "loss", "optimizer", "all"}));
  app.add_option("--checkpoint-every", o->checkpoint_every, "save every so many steps instead of by time; at the end in any case")->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoint-minutes", o->checkpoint_minutes, "save when so many minutes have passed; 0 for at the end only")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--keep", o->keep, "how many of the newest checkpoints to keep, beside the best")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sample-bytes", o->sample_bytes, "text to write with the trained model")->capture_default_str();
  app.add_option("--temperature", o->temperature, "of that text")->check(CLI::Range(0.01, 10.0))->capture_default_str();
  app.add_flag("--tensorboard", o->tensorboard, "write an event file for TensorBoard into OUT as well");
  app.add_flag("--json", o->job.json, "JSON lines instead of progress");
  return [o] { return Training(*o).run(); };
}

}  // namespace epl::tools
