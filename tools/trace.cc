// epl trace: what every rank does in a step, and when, as a file for Perfetto.
#include <cstdio>

#include "tools/binding.h"
#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/job.h"
#include "tools/json.h"
#include "tools/lora.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

struct TraceOptions {
  JobOptions job;
  std::string out = "trace.json";
  int64_t steps = 1, warmup = 1;
  double begin = steady_seconds();  // of the command
};

// Zeros for the inputs of a step, where no data is given: what a step does hardly depends on them.
std::vector<TensorHandle> zeros(const Engine& engine, const Plan& plan) {
  std::vector<TensorHandle> made;
  for (int64_t i = 0; i < epl_plan_port_count(plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i) {
    const Port port = port_of(epl_plan_port, plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i);
    made.push_back(make<TensorHandle>(epl_tensor_create, engine.get(), port.dtype, port.dims.data(), port.dims.size()));
  }
  return made;
}

// A line for each rank that spent its time otherwise than the one before.
void print_times(const Json& trace, const std::string& out) {
  const Json& other = trace.at("otherData");
  const double seconds = other.at("seconds").get<double>();
  const auto percent = [&](const Json& rank, const char* part) {
    return fixed(seconds > 0 ? 100 * rank.at(part).get<double>() / seconds : 0, 1) + "% " + part;
  };
  say("recorded %s ms on %s\n", fixed(seconds * 1e3, 3).c_str(), other.at("device").get<std::string>().c_str());
  std::string before;
  for (const Json& rank : other.at("ranks")) {
    const std::string line = rank.at("class").get<std::string>() + ": " + percent(rank, "computing") + ", " +
                             percent(rank, "moving") + ", " + percent(rank, "waiting");
    if (line != before) say("rank %s, %s\n", with_thousands(rank.at("rank").get<int64_t>()).c_str(), line.c_str());
    before = line;
  }
  say("wrote %s, which https://ui.perfetto.dev and chrome://tracing open\n", out.c_str());
}

// One line: what was recorded, and what the steps before took, which no recording slows down. Without any there is no
// first one.
void print_numbers(const Plan& plan, const Session& session, const Json& trace, double first,
                   const std::vector<double>& seconds) {
  Json line = trace.at("otherData");
  if (!seconds.empty()) line["first_step_seconds"] = first;
  line["step_seconds"] = seconds;
  line["peak_bytes"] = epl_session_memory_bytes_peak(session.get(), 0);
  line["planned_peak_bytes"] = epl_plan_memory_bytes_peak(plan.get(), 0);
  say_json(line);
}

int run_trace(const TraceOptions& o) {
  Engine engine = make_engine(o.job);
  Model model = load_model(engine, o.job.model);
  Trainer trainer = make_trainer(engine, o.job);
  const bool has_data = !o.job.text.empty() || !o.job.data.empty();
  DataFiles data;
  if (has_data) {
    data = open_data(engine, model, o.job);
    bind_inputs(trainer, model, data.train, o.job);
  } else {
    bind_open(trainer, model, o.job, 0);
  }
  Plan plan = make_plan(model, trainer, make_strategy(engine, o.job), o.job);
  Session session =
      make<Session>(epl_session_create, plan.get(), static_cast<const epl_session_options*>(nullptr), nullptr);
  std::vector<TensorHandle> held;
  std::vector<const epl_tensor*> inputs(
      static_cast<size_t>(epl_plan_port_count(plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
  if (has_data) {
    check(epl_dataset_bind(data.train.get(), plan.get(), EPL_ENTRY_TRAIN));
  } else {
    held = zeros(engine, plan);
    for (size_t i = 0; i < held.size(); ++i) inputs[i] = held[i].get();
  }
  const auto step = [&] {
    if (has_data) check(epl_dataset_next(data.train.get(), nullptr, inputs.data(), inputs.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    check(epl_session_step(session.get(), inputs.data(), inputs.size(), nullptr, &metrics));
    return static_cast<double>(metrics.nanoseconds) * 1e-9;
  };
  double first = 0;
  std::vector<double> seconds;
  for (int64_t i = 0; i < o.warmup; ++i) {
    seconds.push_back(step());
    if (i == 0) first = steady_seconds() - o.begin;
  }
  check(epl_session_record(session.get(), o.steps));
  for (int64_t i = 0; i < o.steps; ++i) step();
  const std::string trace = text_of(epl_session_trace, session.get());
  write_file(o.out, trace);
  if (o.job.json) {
    print_numbers(plan, session, parse_json(trace), first, seconds);
  } else {
    print_times(parse_json(trace), o.out);
  }
  return 0;
}

}  // namespace

Run add_trace(CLI::App& app) {
  auto o = std::make_shared<TraceOptions>();
  app.footer(R"(  epl trace model.onnx --text book.txt --batch 8 --ranks 2 --threads 2
  epl trace model.onnx --batch 64 --ranks 64 --strategy stages.json --device sim)");
  app.option_defaults()->group(groups::data);
  app.add_option("model", o->job.model, "the ONNX file")->required()->check(existing_file());
  add_data_options(app, o->job);
  app.option_defaults()->group(groups::data);
  app.add_option("--steps", o->steps, "how many steps are recorded")->check(integer_value(1))->capture_default_str();
  app.add_option("--before", o->warmup, "how many steps come before them")
      ->check(integer_value(0))
      ->capture_default_str();
  add_binding_options(app, o->job);
  add_training_options(app, o->job);
  add_adapter_options(app, o->job);
  app.option_defaults()->group(groups::watching);
  app.add_flag("--json", o->job.json,
               "a JSON line instead of text, also with what the steps before took, the first one since the start of "
               "the command, and the peak of rank 0's memory");
  app.option_defaults()->group(groups::saving);
  app.add_option("--out", o->out, "the file to write")->check(file_name())->capture_default_str();
  add_machine_options(app, o->job);
  add_plan_option(app, o->job);
  return [=] { return run_trace(*o); };
}

}  // namespace epl::tools
