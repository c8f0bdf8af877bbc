// The options that commands have in common: the machine, the processes, training and data.
#include <algorithm>

#include "tools/job.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {

void add_plan_option(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::machine);
  app.add_option("--plan", o.plan, "take the decisions that epl plan --save wrote, instead of new ones")
      ->check(existing_file());
}

void add_process_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::machine);
  app.add_option("--join-timeout", o.join_seconds, "seconds to wait for all processes of a job to come")
      ->check(above(0))
      ->capture_default_str();
  app.add_option("--silence-timeout", o.silence_seconds,
                 "seconds to wait, within a step, for a process that lives and says nothing")
      ->check(above(0))
      ->capture_default_str();
  app.add_flag(
      "--take-weights", o.agreement.take_weights,
      "of several processes: take weights that the model's file of rank 0 has and this one's has not, instead of "
      "refusing them");
  app.add_option(
         "--compare-every", o.agreement.compare_every,
         "of several processes: compare the copies of weights every so many steps, and with each checkpoint; 0: "
         "with these alone")
      ->check(integer_value(0))
      ->capture_default_str();
  app.add_option("--integrity", o.agreement.integrity,
                 "of several processes: hmac signs what goes over connections between them, by the secret of the job")
      ->type_name("WORD")
      ->check(one_of({"none", "hmac"}))
      ->capture_default_str();
}

void add_machine_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::machine);
  app.add_option("--device", o.device,
                 "where to run; cuda is GPUs, rank r on GPU r, and cuda:0,2 some of them; sim gives virtual time and "
                 "no numbers; "
                 "epl plan also takes a GPU that need not be here, by cuda:NAME or cuda:FILE.json; NAME@FILE decides "
                 "plans by a table of epl calibrate")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--threads", o.threads, "threads of all ranks together; 0: one per processor")
      ->check(integer_value(0))
      ->capture_default_str();
  app.add_option(
         "--micro-batches", o.micro_batches,
         "cut each step into this many micro-batches: the same bits, and less memory where activations outweigh "
         "gradients (epl plan tells)")
      ->check(integer_value(0));
  app.add_option("--ranks", o.ranks, "ranks in this process, or in each of several; they share the batch")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_option("--strategy", o.strategy, "how to spread the work: JSON, or a file with it (docs/strategy.md)")
      ->type_name("JSON");
  add_packs_option(app, o);
  add_kernel_cache_option(app, o);
}

void add_packs_option(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::machine);
  app.add_option("--packs", o.packs, "the folder of the optional packs (default: the one that libepl.so is in)")
      ->check(existing_folder());
}

void add_kernel_cache_option(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::machine);
  app.add_option("--kernel-cache", o.kernel_cache,
                 "where what is compiled for a GPU stays for later runs; none: nowhere (default: epl in "
                 "$XDG_CACHE_HOME or in ~/.cache)")
      ->type_name("FOLDER|none");
}

namespace {

// An option for each of every optimizer's, by the type that its default has.
void add_optimizer_options(CLI::App& app, JobOptions& o) {
  Json rows = Json::array();
  try {
    rows = library().at("optimizers");
  } catch (const ApiError&) {
    app.allow_extras();  // the command says why there is no engine, once it wants one
  }
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.at("options").items()) {
      std::string flag = "--" + name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      if (app.get_option_no_throw(flag) != nullptr) continue;  // of another optimizer too
      CLI::Option* option = app.add_option_function<std::string>(
          flag, [&o, name = name](const std::string& text) { o.optimizer_values[name] = text; },
          row.at("option_docs").value(name, ""));
      if (value.is_boolean()) option->type_name("BOOL")->check(one_of({"true", "false"}));
      if (value.is_array()) option->type_name("X,...");
      if (value.is_number()) option->type_name("X")->check(any_number());
    }
  }
}

}  // namespace

void add_training_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::optimizer);
  app.add_option("--optimizer", o.optimizer,
                 "how weights follow their gradients, by PyTorch's formulas; of its options below those that are not "
                 "given have its own defaults")
      ->type_name("NAME")
      ->capture_default_str();
  add_optimizer_options(app, o);
  app.add_option("--optimizer-option", o.optimizer_options,
                 "any option of the optimizer (epl inspect lists them); may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--schedule", o.schedule, "how the learning rate moves from step to step")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps in which the learning rate rises from zero first")
      ->check(integer_value(0));
  app.add_option("--final-ratio", o.final_ratio, "share of the learning rate that is left at the last step")
      ->check(between(0, 1));
  app.add_option("--schedule-option", o.schedule_options, "any option of the schedule; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--clip", o.clip, "largest global norm of the gradient; 0: no clipping")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of dropout, of the order of the data and of the sample text")
      ->capture_default_str();
  app.option_defaults()->group(groups::trained);
  app.add_option("--freeze", o.freeze,
                 "parameters that are not trained; * and ? stand for parts of a name; may be repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  app.add_option("--train-only", o.train_only, "parameters that are trained, all others being frozen; may be repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  app.add_option("--no-decay", o.no_decay, "parameters without weight decay; may be repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  app.add_option("--train-also", o.train_also,
                 "tensors of the file that look like constants and are trained all the same; may be repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
}

void add_data_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::data);
  auto* text =
      app.add_option("--text", o.text, "a text file: the model learns to tell the next byte")->check(existing_file());
  app.add_option("--data", o.data,
                 "a table, arrays or a folder of images (docs/readers.md), with a field for each input and one called "
                 "target; several "
                 "files by * and ? in the name")
      ->check(existing_data())
      ->excludes(text);
  app.add_option("--data-options", o.data_options, "options of the reader of --data: JSON, or a file with it")
      ->type_name("JSON");
  app.option_defaults()->group(groups::validation);
  app.add_option("--held-out", o.held_out,
                 "share of the data that is not trained on but measured on: samples drawn once and for all, of text "
                 "its end (default: 0; of text 0.05)")
      ->check(between(0, 0.9));
  app.add_option("--validation", o.validation,
                 "a file of the same kind to measure on instead; its columns and classes are read as those of --data")
      ->check(existing_data());
  app.add_option("--validation-options", o.validation_options,
                 "options of its reader that differ from those of --data: JSON, or a file with it")
      ->type_name("JSON");
}

}  // namespace epl::tools
