// epl evaluate, plan, inspect (tools/inspect.cc does the work) and template.
#include <algorithm>
#include <cstdio>

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/data_notes.h"
#include "tools/found_plans.h"
#include "tools/inspect.h"
#include "tools/job.h"
#include "tools/lora.h"
#include "tools/measure.h"
#include "tools/output_folder.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/report_data.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

int run_evaluate(JobOptions o, const std::string& where, int64_t batches, const std::string& metrics) {
  const std::string checkpoint = where.empty() ? where : find_checkpoint(where);
  if (computes_nothing(o.device))
    throw UsageError("--device " + o.device + " computes no numbers, so there is nothing to measure");
  Engine engine = make_engine(o);
  Model model = load_model(engine, o.model);
  if (!checkpoint.empty()) match_checkpoint(o, describe_checkpoint(engine, checkpoint));
  // Texts are numbered, and gaps filled, as in the training: a file that lacks a class would number the others anew.
  const Json as_trained = o.data.empty() || !o.data_options.empty()
                              ? Json()
                              : options_of_run(checkpoint.empty() ? o.model : checkpoint, o.data);
  if (as_trained.is_object()) {
    o.data_options = print_json(as_trained);
    o.own_data_options = false;
    if (!o.json)
      say_error("the data is read as in training (its data.json); --data-options '{}' reads it for itself\n");
  }
  DataFiles data = open_data(engine, model, o, true);
  Trainer trainer = make_trainer(engine, o);
  bind_inputs(trainer, model, data.train, o);
  Plan plan = make_plan(model, trainer, make_strategy(engine, o), o);
  Store store;
  Session session = make_session(engine, plan, o.processes, o.ranks, store);
  if (!checkpoint.empty())
    check(epl_session_load(session.get(), checkpoint.data(), checkpoint.size(), static_cast<epl_dataset*>(nullptr),
                           nullptr));
  const Dataset& set = data.held_out ? data.held_out : data.train;
  bind_data(set, plan, EPL_ENTRY_EVALUATE, o.processes, o.ranks);
  if (o.processes.several()) {
    agree(session,
          {{"--batches", batches},
           {"--metrics", metrics},
           {"--text", content_of(o.text)},
           {"--data", content_of(o.data)}},
          &set);
  }
  check_labels(plan, set, !o.validation.empty() ? o.validation : o.text.empty() ? o.data : o.text);
  const Measured found = Measurer(plan, metrics).run(session, set, batches);
  if (!o.processes.leads()) return 0;
  if (o.json) {
    Json line = {{"samples", found.samples}, {"held_out", static_cast<bool>(data.held_out)}};
    for (const auto& [name, value] : found.metrics) line[name] = value;
    if (found.left_out > 0) line["left_out"] = found.left_out;
    say_json(line);
    return 0;
  }
  const char* unit = data.context > 0 ? " windows" : " samples";
  say("loss %s over %s%s%s\n", fixed(found.metrics[0].second, 6).c_str(), with_thousands(found.samples).c_str(),
      data.held_out ? " held-out" : "", unit);
  for (size_t i = 1; i < found.metrics.size(); ++i)
    say("%s %s\n", found.metrics[i].first.c_str(), fixed(found.metrics[i].second, 6).c_str());
  if (found.left_out > 0) {
    say_error(
        "epl: warning: the last %s samples are left out: the model computes its own loss of full batches; "
        "choose a --batch that divides %s\n",
        with_thousands(found.left_out).c_str(), with_thousands(found.samples + found.left_out).c_str());
  }
  return 0;
}

// A text for people, or one of the documents for programs.
std::string described(const Plan& plan, std::string_view stage) {
  const bool document = stage == "overview" || stage == "memory" || stage == "parameters" || stage == "notes";
  return text_of(document ? epl_plan_describe : epl_plan_print, plan.get(), stage.data(), stage.size(), nullptr);
}

// Of two plan files; 1 where they differ, as for a check that does not hold.
int run_plan_diff(const JobOptions& o, const std::string& one, const std::string& other) {
  Engine engine = make_engine(o);
  const std::string found =
      text_of(epl_plan_compare, engine.get(), one.data(), one.size(), other.data(), other.size(), nullptr);
  say("%s", found.empty() ? "the plans decide the same\n" : found.c_str());
  return found.empty() ? 0 : 1;
}

struct PlanOutput {
  std::string stage = "explain", page, annotated, save, devices;
  bool why = false;
};

// With a plan that is found, of as many ranks as there are devices.
Plan find_plan(const Engine& engine, const Model& model, const Trainer& trainer, JobOptions o, int64_t devices) {
  o.ranks = devices;
  Strategy strategy = make_strategy(engine, o);
  check(epl_strategy_set(strategy.get(), EPL_STR("auto.auto_parallel"), EPL_STR("true")));
  return make_plan(model, trainer, strategy, o);
}

int run_plan(JobOptions o, const PlanOutput& output) {
  // A device of the processor is a core, however many of them ranks of this process could share.
  if (!output.devices.empty() && o.threads == 0) o.threads = 1;
  Engine engine = make_engine(o);
  Model model = load_model(engine, o.model);
  Trainer trainer = make_trainer(engine, o);
  if (!o.text.empty() || !o.data.empty()) {
    bind_inputs(trainer, model, open_data(engine, model, o).train, o);
  } else {
    bind_open(trainer, model, o, 0);
  }
  const auto found = [&](int64_t devices) { return find_plan(engine, model, trainer, o, devices); };
  if (!output.devices.empty()) return print_scaling(device_counts(output.devices), found, o.json);
  Plan plan = output.why ? found(o.ranks) : make_plan(model, trainer, make_strategy(engine, o), o);
  for (const std::string& warning : warnings_of(model, plan)) say_error("epl: warning: %s\n", warning.c_str());
  if (!output.save.empty()) {
    check(epl_plan_save(plan.get(), output.save.data(), output.save.size(), nullptr));
    say("wrote %s\n", output.save.c_str());
  }
  if (!output.annotated.empty()) {
    check(epl_plan_export_onnx(plan.get(), output.annotated.data(), output.annotated.size(), nullptr));
    say("wrote %s\n", output.annotated.c_str());
  }
  if (!output.page.empty()) {
    write_file(output.page, render_plan(plan_page(parse_json(described(plan, "overview")), o.model)));
    say("wrote %s\n", output.page.c_str());
  }
  if (output.why) return print_why(plan, o.json);
  if (!output.save.empty() || !output.page.empty() || !output.annotated.empty()) return 0;
  const std::string plan_text = described(plan, o.json ? "memory" : output.stage);
  if (o.json) {
    std::fputs((plan_text + "\n").c_str(), stdout);
  } else {
    say("%s\n", plan_text.c_str());
  }
  return 0;
}

// "--layers 4 --dropout 0.1" as JSON, with the types that the template declares.
Json template_options(const Json& declared, const std::string& family, const std::vector<std::string>& words) {
  Json out = Json::object();
  for (size_t i = 0; i < words.size(); i += 2) {
    std::string key = words[i];
    if (!key.starts_with("--"))
      throw UsageError("template " + family + ": \"" + key + "\" is not an option; options are --NAME VALUE");
    key = key.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    if (i + 1 >= words.size()) throw UsageError("template " + family + ": --" + key + " needs a value");
    const std::string& value = words[i + 1];
    const bool list = declared.contains(key) && declared[key].is_array() && !value.starts_with("[");
    const Json parsed = try_parse_json(list ? "[" + value + "]" : value);
    const bool text = declared.contains(key) && declared[key].is_string();
    out[key] = parsed.is_discarded() || text ? Json(value) : parsed;
  }
  return out;
}

int run_template(const std::string& family, const std::string& out, const std::vector<std::string>& words) {
  Engine engine = make_engine({});
  const Json& known = library().at("templates");
  Json declared = Json::object();
  for (const Json& row : known) {
    if (row.at("name") == family) declared = row.at("options");
  }
  if (family.empty() || out.empty()) {
    if (family.empty() != out.empty())
      throw UsageError(family.empty() ? "which family? epl template without arguments lists them"
                                      : "--out FILE is needed");
    for (const Json& row : known) {
      say("%s: %s\n", row.at("name").get<std::string>().c_str(), row.at("doc").get<std::string>().c_str());
      for (const auto& [key, value] : row.at("options").items())
        say("    --%s %s\n", key.c_str(), print_json(value).c_str());
    }
    return 0;
  }
  const std::string options = print_json(template_options(declared, family, words));
  check(epl_x_template_write(engine.get(), family.data(), family.size(), options.data(), options.size(), out.data(),
                             out.size(), nullptr));
  say("wrote %s\n", out.c_str());
  return 0;
}

}  // namespace

Run add_evaluate(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto checkpoint = std::make_shared<std::string>();
  auto batches = std::make_shared<int64_t>(0);
  auto metrics = std::make_shared<std::string>();
  app.footer(R"(  epl evaluate run/trained.onnx --data test.csv --metrics 'accuracy, f1'
  epl evaluate model.onnx --checkpoint run --data table.csv --held-out 0.2)");
  app.option_defaults()->group(groups::data);
  app.add_option("model", o->model, "the ONNX file")->required()->check(existing_file());
  add_data_options(app, *o);
  app.option_defaults()->group(groups::data);
  app.add_option("--checkpoint", *checkpoint,
                 "weights to use instead of the file's: a checkpoint, or the folder of a run")
      ->check(existing_folder());
  app.add_option("--batches", *batches, "how many batches; 0: all")->check(integer_value(0))->capture_default_str();
  add_metrics_option(app, *metrics);
  add_binding_options(app, *o);
  app.option_defaults()->group(groups::watching);
  app.add_flag("--json", o->json, "one JSON object");
  add_machine_options(app, *o);
  add_process_options(app, *o);
  return [=] {
    o->processes = find_processes(*o);
    return run_evaluate(*o, *checkpoint, *batches, *metrics);
  };
}

Run add_plan(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto output = std::make_shared<PlanOutput>();
  auto other = std::make_shared<std::string>();
  app.footer(
      "  epl plan model.onnx --batch 8\n  epl plan model.onnx --ranks 4 --html plan.html\n  epl plan model.onnx "
      "--ranks 4 --save four.plan\n  epl plan --diff four.plan other.plan\n  epl plan model.onnx --batch 64 --devices "
      "1..8\n  epl plan model.onnx --batch 64 --ranks 8 --why");
  app.option_defaults()->group(groups::data);
  app.add_option("model", o->model, "the ONNX file")->required()->check(existing_file());
  add_data_options(app, *o);
  app.option_defaults()->group(groups::data);
  app.add_option("--steps", o->steps, "optimizer steps in all, for schedules")->check(integer_value(0));
  add_binding_options(app, *o);
  add_training_options(app, *o);
  add_adapter_options(app, *o);
  app.option_defaults()->group(groups::watching);
  app.add_option(
         "--stage", output->stage,
         "explain, overview, memory, parameters, or a stage of the train step as text: graph, plan, local, program, "
         "kernels, texts (predict.graph and so on for the others)")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--html", output->page,
                 "a page to write instead: ranks, a predicted step as a picture, memory over time and what holds it, "
                 "what moves, and how each tensor lies and why")
      ->check(file_name());
  app.add_option("--annotated", output->annotated,
                 "an ONNX file to write: the model with the plan in it (stages and shards, IR 11)")
      ->check(file_name());
  app.add_flag("--why", output->why,
               "find a plan (auto.auto_parallel), and say what it takes, what the best others take, and what decided");
  app.add_option("--devices", output->devices,
                 "find a plan for each of these numbers of devices, and say where adding devices stops to pay: 1,2,6, "
                 "or 1..8 for 1, 2, 4 and 8")
      ->type_name("COUNTS");
  app.add_flag("--json", o->json, "the memory plan as JSON");
  add_machine_options(app, *o);
  add_plan_option(app, *o);
  app.option_defaults()->group(groups::saving);
  app.add_option("--save", output->save, "write the decisions to a file, for --plan")->check(file_name());
  app.add_option("--diff", *other, "say what two plan files decide differently: epl plan --diff ONE OTHER")
      ->check(existing_file());
  return [=] { return other->empty() ? run_plan(*o, *output) : run_plan_diff(*o, *other, o->model); };
}

Run add_inspect(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto path = std::make_shared<std::string>();
  auto kernels = std::make_shared<bool>(false), all = std::make_shared<bool>(false);
  app.footer("  epl inspect model.onnx\n  epl inspect run\n  epl inspect table.csv");
  app.option_defaults()->group(groups::data);
  app.add_option("path", *path, "a model, a checkpoint folder or a data file; without one: what this build can do")
      ->check(existing_data());
  app.add_option("--data-options", o->data_options, "options of the reader of a data file: JSON, or a file with it")
      ->type_name("JSON");
  app.add_flag("--all", *all, "every line of long lists");
  app.add_flag("--kernels", *kernels,
               "which kernels a train step of the model would run, and why better ones were refused");
  app.add_flag("--json", o->json, "JSON");
  add_binding_options(app, *o);
  add_machine_options(app, *o);
  return [=] {
    if (!*kernels) return run_inspect(*o, *path, *all);
    if (!path->ends_with(".onnx")) throw UsageError("--kernels: a model is expected, FILE.onnx");
    JobOptions job = *o;
    job.model = *path;
    job.json = false;  // it is a text
    return run_plan(job, {.stage = "kernels"});
  };
}

Run add_template(CLI::App& app) {
  auto family = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  app.footer("  epl template\n  epl template mlp --sizes 4,16,3 --out mlp.onnx");
  app.option_defaults()->group(groups::data);
  app.add_option("family", *family,
                 "gpt2, mlp, ...; without one, lists the families with their options, which are given as --NAME VALUE");
  app.add_option("--out", *out, "the ONNX file to write")->type_name("FILE");
  app.allow_extras();
  CLI::App* self = &app;
  return [=] { return run_template(*family, *out, self->remaining()); };
}

}  // namespace epl::tools
