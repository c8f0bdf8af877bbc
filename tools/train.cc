// epl train: the command and its options; the work is in tools/training.cc.
#include "tools/commands.h"
#include "tools/lora.h"
#include "tools/training.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

void add_saving_options(CLI::App& app, TrainOptions& o) {
  app.option_defaults()->group(groups::saving);
  app.add_option("--out", o.out,
                 "folder for checkpoints, trained.onnx and report.html (default: out; with --resume that run's folder)")
      ->type_name("FOLDER");
  app.add_flag("--overwrite", o.overwrite, "replace the run that this folder holds");
  app.add_option("--resume", o.resume,
                 "go on from a run's newest checkpoint (its folder) or from a certain one, to --steps in all")
      ->check(existing_folder());
  app.add_option("--resume-anyway", o.resume_anyway,
                 "go on although these differ from that run: model, data, batch, order, loss, optimizer, or all")
      ->type_name("TOPIC,...")
      ->delimiter(',')
      ->check(one_of({"model", "data", "batch", "order", "loss", "optimizer", "all"}));
  app.add_option("--checkpoint-minutes", o.checkpoint_minutes,
                 "save when so many minutes have passed; 0: at the end only, as with several processes")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "save every so many steps instead of by time; at the end in any case")
      ->check(integer_value(0));
  app.add_option("--keep", o.keep, "how many of the newest checkpoints to keep, beside the best")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_flag("--for-training", o.for_training,
               "write trained.onnx to train on, not for inference: batch norm and dropout stay in training mode");
}

}  // namespace

Run add_train(CLI::App& app) {
  auto o = std::make_shared<TrainOptions>();
  app.footer(R"(  epl train model.onnx --text book.txt --steps 1000 --lr 2e-3 --out run
  epl train mlp.onnx --data table.csv --held-out 0.2 --epochs 30 --out run
  epl train model.onnx --text book.txt --steps 2000 --resume run)");
  app.option_defaults()->group(groups::data);
  app.add_option("model", o->job.model, "the ONNX file to start from")->required()->check(existing_file());
  add_data_options(app, o->job);
  o->job.steps = 1000;
  app.option_defaults()->group(groups::data);
  auto* steps =
      app.add_option("--steps", o->job.steps, "optimizer steps in all")->check(integer_value(1))->capture_default_str();
  app.add_option("--epochs", o->job.epochs, "instead of --steps: times through the data; parts are possible")
      ->check(above(0))
      ->excludes(steps);
  add_binding_options(app, o->job);
  add_training_options(app, o->job);
  add_adapter_options(app, o->job);
  add_validation_options(app, o->validation);
  add_saving_options(app, *o);
  app.option_defaults()->group(groups::watching);
  app.add_flag("--json", o->job.json, "JSON lines instead of progress");
  app.add_flag("--tensorboard", o->tensorboard, "write an event file for TensorBoard into the run's folder as well");
  app.add_option("--report", o->report,
                 "the page with curves, memory and facts (default: report.html in the run's folder)")
      ->type_name("FILE");
  app.add_option("--sample-bytes", o->sample_bytes, "length of the text that a model of text writes in the end")
      ->check(integer_value(0))
      ->capture_default_str();
  app.add_option("--temperature", o->temperature, "of that text")->check(between(0.01, 10))->capture_default_str();
  add_machine_options(app, o->job);
  add_process_options(app, o->job);
  add_plan_option(app, o->job);
  return [o] {
    o->job.processes = find_processes(surroundings());
    o->job.processes.agreement = o->job.agreement;
    const int code = Training(*o).run();
    leave(o->job.processes);
    return code;
  };
}

}  // namespace epl::tools
