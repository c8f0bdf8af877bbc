// epl evaluate, plan, inspect and template.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/data_notes.h"
#include "tools/inspect_build.h"
#include "tools/job.h"
#include "tools/lora.h"
#include "tools/measure.h"
#include "tools/output_folder.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace epl::tools {
namespace {

int run_evaluate(JobOptions o, const std::string& where, int64_t batches, const std::string& metrics) {
  const std::string checkpoint = where.empty() ? where : find_checkpoint(where);
  if (o.device == "sim") throw UsageError("--device sim computes no numbers, so there is nothing to measure");
  Engine engine = make_engine(o);
  Model model = load_model(engine, o.model);
  if (!checkpoint.empty()) match_checkpoint(engine, o, describe_checkpoint(engine, checkpoint));
  DataFiles data = open_data(engine, model, o, true);
  Trainer trainer = make_trainer(engine, o);
  bind_inputs(trainer, model, data.train, o);
  Plan plan = make_plan(model, trainer, make_strategy(engine, o), o);
  Session session = make<Session>(epl_session_create, plan.get(), static_cast<const epl_session_options*>(nullptr));
  if (!checkpoint.empty()) check(epl_session_load(session.get(), checkpoint.data(), checkpoint.size(), static_cast<epl_dataset*>(nullptr)));
  const Dataset& set = data.held_out ? data.held_out : data.train;
  check_labels(plan, set, !o.validation.empty() ? o.validation : o.text.empty() ? o.data : o.text);
  check(epl_dataset_bind(set.get(), plan.get(), EPL_ENTRY_EVALUATE));
  const Measured found = Measurer(plan, metrics).run(session, set, batches);
  if (o.json) {
    Json line = {{"samples", found.samples}, {"held_out", static_cast<bool>(data.held_out)}};
    for (const auto& [name, value] : found.metrics) line[name] = value;
    if (found.left_out > 0) line["left_out"] = found.left_out;
    std::printf("%s\n", print_json(line).c_str());
    return 0;
  }
  const char* unit = data.context > 0 ? " windows" : " samples";
  std::printf("loss %s over %s%s%s\n", fixed(found.metrics[0].second, 6).c_str(), with_thousands(found.samples).c_str(), data.held_out ? " held-out" : "", unit);
  for (size_t i = 1; i < found.metrics.size(); ++i) std::printf("%s %s\n", found.metrics[i].first.c_str(), fixed(found.metrics[i].second, 6).c_str());
  if (found.left_out > 0) {
    std::fprintf(stderr, "epl: warning: the last %s samples are left out: the model computes its own loss of whole batches; choose a --batch that divides %s\n",
                 with_thousands(found.left_out).c_str(), with_thousands(found.samples + found.left_out).c_str());
  }
  return 0;
}

int run_plan(const JobOptions& o, const std::string& stage) {
  Engine engine = make_engine(o);
  Model model = load_model(engine, o.model);
  Trainer trainer = make_trainer(engine, o);
  if (!o.text.empty() || !o.data.empty()) {
    bind_inputs(trainer, model, open_data(engine, model, o).train, o);
  } else {
    bind_open(trainer, model, o, 0);
  }
  Plan plan = make_plan(model, trainer, make_strategy(engine, o), o);
  for (const std::string& warning : warnings_of(model, plan)) std::fprintf(stderr, "epl: warning: %s\n", warning.c_str());
  const std::string wanted = o.json ? "memory" : stage;
  const std::string plan_text = text_of(epl_plan_describe, plan.get(), wanted.data(), wanted.size());
  std::printf("%s\n", o.json ? plan_text.c_str() : printable(plan_text).c_str());
  return 0;
}

std::string dims_text(const Json& dims) {
  std::string out = "[";
  for (const Json& dim : dims) out += (out.size() > 1 ? "," : "") + (dim.is_string() ? (dim.get<std::string>().empty() ? "?" : dim.get<std::string>()) : print_json(dim));
  return out + "]";
}

// Which initialisers can be trained, and what stands in the way of gradients.
void print_training(const Json& t) {
  if (t.contains("refused")) {
    std::printf("\ntraining\n  the model does not bind: %s\n", t.at("refused").get<std::string>().c_str());
    return;
  }
  long long trainable = 0;
  for (const Json& one : t.at("initializers")) trainable += one.at("trainable").get<bool>();
  std::printf("\ntraining: %lld of %zu initialisers can be trained", trainable, t.at("initializers").size());
  if (t.contains("open_dimensions_as")) std::printf(" (open dimensions taken as %lld)", static_cast<long long>(t.at("open_dimensions_as").get<int64_t>()));
  std::printf("\n");
  for (const Json& one : t.at("initializers")) {
    if (!one.at("trainable").get<bool>()) std::printf("  not %s: %s\n", one.at("name").get<std::string>().c_str(), one.at("reason").get<std::string>().c_str());
  }
  for (const Json& one : t.at("obstacles")) {
    std::printf("  %s at node %s (%s): %s\n", one.at("blocks").get<bool>() ? "no gradient" : "gradients stop", one.at("node").get<std::string>().c_str(),
                one.at("op").get<std::string>().c_str(), one.at("reason").get<std::string>().c_str());
  }
}

void print_model(const Json& m) {
  std::printf("%s\n", m.at("description").get<std::string>().c_str());
  const std::string training = m.at("training_parts");
  std::printf("%s%s\n", training.empty() ? "ready for inference" : "for training: ", training.c_str());
  for (const char* kind : {"inputs", "outputs"}) {
    std::printf("\n%s\n", kind);
    for (const Json& port : m.at(kind)) std::printf("  %s: %s%s\n", port.at("name").get<std::string>().c_str(), port.at("dtype").get<std::string>().c_str(), dims_text(port.at("dims")).c_str());
  }
  std::printf("\ninitialisers: %zu with %s elements\n", m.at("initializers").size(), with_thousands(m.at("initializer_elements").get<int64_t>()).c_str());
  for (const Json& one : m.at("initializers")) std::printf("  %s: %s%s\n", one.at("name").get<std::string>().c_str(), one.at("dtype").get<std::string>().c_str(), dims_text(one.at("dims")).c_str());
  std::printf("\noperators\n");
  for (const auto& [name, count] : m.at("ops").items()) std::printf("  %6lld  %s\n", static_cast<long long>(count.get<int64_t>()), name.c_str());
  print_training(m.at("training"));
  if (!m.at("findings").empty()) std::printf("\nworth knowing before training\n");
  for (const Json& f : m.at("findings")) {
    std::printf("  %s: %s%s%s\n", f.at("level").get<std::string>().c_str(), f.at("where").get<std::string>().c_str(), f.at("where").get<std::string>().empty() ? "" : ": ", f.at("message").get<std::string>().c_str());
  }
}

void print_checkpoint(const Json& c) {
  std::printf("checkpoint after %s steps; seed %llu, %lld batch units, numerics version %lld", with_thousands(c.at("step").get<int64_t>()).c_str(), static_cast<unsigned long long>(c.at("seed").get<uint64_t>()),
              static_cast<long long>(c.at("units").get<int64_t>()), static_cast<long long>(c.at("numerics").get<int64_t>()));
  if (c.at("data_position").get<int64_t>() >= 0) std::printf(", %s batches of data seen", with_thousands(c.at("data_position").get<int64_t>()).c_str());
  std::printf("\n");
  const std::string adapters = c.at("facts").value("adapters", "");
  if (!adapters.empty()) std::printf("low-rank adapters: %s; the weights that are not here are in the model's file\n", adapters.c_str());
  for (const Json& t : c.at("tensors")) std::printf("  %-10s %s: %s%s\n", t.at("kind").get<std::string>().c_str(), t.at("name").get<std::string>().c_str(), t.at("dtype").get<std::string>().c_str(), dims_text(t.at("dims")).c_str());
}

int run_inspect(const JobOptions& o, const std::string& path) {
  Engine engine = make_engine(o);
  struct stat info{};
  if (path.empty()) {
    const Json build = parse_json(text_of(epl_engine_describe, engine.get()));
    o.json ? static_cast<void>(std::printf("%s\n", print_json(build).c_str())) : print_build(build);
  } else if (is_data(path)) {
    Dataset data = make<Dataset>(epl_dataset_open, engine.get(), path.data(), path.size(), static_cast<const char*>(nullptr), size_t{0});
    const std::string text = text_of(epl_dataset_describe, data.get());
    std::printf("%s\n", o.json ? print_json(parse_json(text)).c_str() : printable(data_text(parse_json(text))).c_str());
  } else if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    const Json checkpoint = describe_checkpoint(engine, find_checkpoint(path));
    o.json ? static_cast<void>(std::printf("%s\n", print_json(checkpoint).c_str())) : print_checkpoint(printable_json(checkpoint));
  } else {
    Model model = load_model(engine, path);
    const Json described = parse_json(text_of(epl_model_describe, model.get()));
    o.json ? static_cast<void>(std::printf("%s\n", print_json(described).c_str())) : print_model(printable_json(described));
  }
  return 0;
}

// "--layers 4 --dropout 0.1" as JSON, with the types that the template declares.
Json template_options(const Json& declared, const std::string& family, const std::vector<std::string>& words) {
  Json out = Json::object();
  for (size_t i = 0; i < words.size(); i += 2) {
    std::string key = words[i];
    if (!key.starts_with("--")) throw UsageError("template " + family + ": \"" + key + "\" is no option; options are --NAME VALUE");
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
  const Json known = described(engine, "templates");
  Json declared = Json::object();
  for (const Json& row : known) {
    if (row.at("name") == family) declared = row.at("options");
  }
  if (family.empty() || out.empty()) {
    if (family.empty() != out.empty()) throw UsageError(family.empty() ? "which family? epl template without arguments lists them" : "--out FILE is needed");
    for (const Json& row : known) {
      std::printf("%s: %s\n", row.at("name").get<std::string>().c_str(), row.at("doc").get<std::string>().c_str());
      for (const auto& [key, value] : row.at("options").items()) std::printf("    --%s %s\n", key.c_str(), print_json(value).c_str());
    }
    return 0;
  }
  const std::string options = print_json(template_options(declared, family, words));
  check(epl_template_write(engine.get(), family.data(), family.size(), options.data(), options.size(), out.data(), out.size()));
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

}  // namespace

Run add_evaluate(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto checkpoint = std::make_shared<std::string>();
  auto batches = std::make_shared<int64_t>(0);
  auto metrics = std::make_shared<std::string>();
  app.add_option("model", o->model, "the ONNX file")->required()->check(CLI::ExistingFile);
  add_data_options(app, *o, true);
  app.add_option("--checkpoint", *checkpoint, "weights to use instead of the file's")->check(CLI::ExistingDirectory);
  app.add_option("--batches", *batches, "how many batches; 0 for all")->check(CLI::NonNegativeNumber);
  app.add_option("--metrics", *metrics, "what to measure beside the loss: accuracy, top_k(k=5), ...; epl inspect lists them (those of the loss; none)");
  add_binding_options(app, *o);
  add_machine_options(app, *o);
  app.add_flag("--json", o->json, "one JSON object");
  return [=] { return run_evaluate(*o, *checkpoint, *batches, *metrics); };
}

Run add_plan(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto stage = std::make_shared<std::string>("explain");
  app.add_option("model", o->model, "the ONNX file")->required()->check(CLI::ExistingFile);
  add_data_options(app, *o, false);
  app.add_option("--steps", o->steps, "optimizer steps in all");
  add_binding_options(app, *o);
  add_training_options(app, *o);
  add_adapter_options(app, *o);
  add_machine_options(app, *o);
  app.add_option("--stage", *stage, "explain, memory, parameters, or a stage of the train step as text: graph, plan, local, program, kernels (predict.graph and so on for the others)")->capture_default_str();
  app.add_flag("--json", o->json, "the memory plan as JSON");
  return [=] { return run_plan(*o, *stage); };
}

Run add_inspect(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  auto path = std::make_shared<std::string>();
  auto kernels = std::make_shared<bool>(false);
  app.add_option("path", *path, "a model, a checkpoint folder or a data file")->check(CLI::ExistingPath);
  app.add_flag("--kernels", *kernels, "which kernels a train step of the model would run, and why better ones were refused");
  add_binding_options(app, *o);
  add_machine_options(app, *o);
  app.add_flag("--json", o->json, "JSON");
  return [=] {
    if (!*kernels) return run_inspect(*o, *path);
    if (!path->ends_with(".onnx")) throw UsageError("--kernels: a model is expected, FILE.onnx");
    JobOptions job = *o;
    job.model = *path;
    job.json = false;   // it is a text
    return run_plan(job, "kernels");
  };
}

Run add_template(CLI::App& app) {
  auto family = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  app.add_option("family", *family, "gpt2, mlp, ...; without one, lists the families with their options");
  app.add_option("--out", *out, "the ONNX file to write");
  app.allow_extras();
  CLI::App* self = &app;
  return [=] { return run_template(*family, *out, self->remaining()); };
}

}  // namespace epl::tools
