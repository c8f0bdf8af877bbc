// epl bench: what each reproducible.level costs, measured in rounds.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <sstream>

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/job.h"
#include "tools/reference.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

struct BenchOptions {
  JobOptions job;
  std::vector<std::string> cases;
  std::string levels = "run,data,layout", ranks = "1,2";
  int rounds = 5, steps = 10;
};

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

// One level on some ranks: a plan, of which every round makes a session, so that one at a time takes memory.
struct Contender {
  std::string level;
  Engine engine;
  Model model;
  Dataset data;
  Plan plan;
  std::vector<double> seconds, processor;  // of each step; of all threads' processors, which other work disturbs less
  double median() const { return quantile(seconds, 0.5); }
  double processor_median() const { return quantile(processor, 0.5); }
};

Contender contender(const BenchOptions& o, const std::string& folder, const std::string& level, int64_t ranks) {
  Contender made{.level = level, .engine = {}, .model = {}, .data = {}, .plan = {}, .seconds = {}, .processor = {}};
  const Reference reference(folder);
  JobOptions job = o.job;
  job.ranks = ranks;
  job.loss = reference.loss;
  job.optimizer = reference.optimizer;
  Json strategy = o.job.strategy.empty() ? Json::object() : parse_json(json_argument(o.job.strategy), "--strategy");
  strategy["reproducible.level"] = level;
  job.strategy = print_json(strategy);
  made.engine = make_engine(job);
  made.model = load_model(made.engine, folder + "/model.onnx");
  const std::string data = folder + "/train.safetensors";
  made.data = make<Dataset>(epl_dataset_open, made.engine.get(), data.data(), data.size(),
                            static_cast<const char*>(nullptr), size_t{0}, nullptr);
  Trainer trainer = make_trainer(made.engine, job);
  bind_inputs(trainer, made.model, made.data, job);
  for (const auto& [name, dim] : reference.batch_dims)
    check(epl_trainer_bind_batch_dim(trainer.get(), name.data(), name.size(), static_cast<int32_t>(dim)));
  made.plan = make_plan(made.model, trainer, make_strategy(made.engine, job), job);
  check(epl_dataset_bind(made.data.get(), made.plan.get(), EPL_ENTRY_TRAIN));
  return made;
}

// Two steps warm up: the first touches the memory.
void run_round(Contender& c, int steps) {
  Session session =
      make<Session>(epl_session_create, c.plan.get(), static_cast<const epl_session_options*>(nullptr), nullptr);
  check(epl_dataset_seek(c.data.get(), 0));
  for (int i = -2; i < steps; ++i) {
    std::vector<const epl_tensor*> batch(
        static_cast<size_t>(epl_plan_port_count(c.plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
    check(epl_dataset_next(c.data.get(), nullptr, batch.data(), batch.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    const std::clock_t begin = std::clock();
    check(epl_session_step(session.get(), batch.data(), batch.size(), nullptr, &metrics));
    if (i < 0) continue;
    c.seconds.push_back(static_cast<double>(metrics.nanoseconds) * 1e-9);
    c.processor.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
}

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 2) + " ms"; }

void print(const BenchOptions& o, const std::string& name, int64_t ranks, const std::vector<Contender>& all) {
  for (const Contender& c : all) {
    const double cost = c.median() / all.front().median() - 1;
    const double processor_cost = c.processor_median() / all.front().processor_median() - 1;
    const double low = quantile(c.seconds, 0.1), high = quantile(c.seconds, 0.9);
    if (o.job.json) {
      const Json line = {{"case", name},
                         {"ranks", ranks},
                         {"level", c.level},
                         {"seconds", c.median()},
                         {"seconds_10th", low},
                         {"seconds_90th", high},
                         {"cost", cost},
                         {"processor_seconds", c.processor_median()},
                         {"processor_cost", processor_cost}};
      say_json(line);
    } else {
      say("| %s | %lld | %s | %s (%s to %s) | %+.1f %% | %s | %+.1f %% |\n", name.c_str(),
          static_cast<long long>(ranks), c.level.c_str(), milliseconds(c.median()).c_str(), milliseconds(low).c_str(),
          milliseconds(high).c_str(), 100 * cost, milliseconds(c.processor_median()).c_str(), 100 * processor_cost);
    }
  }
  std::fflush(stdout);
}

int run_bench(const BenchOptions& o) {
  if (!o.job.json)
    say("| case | ranks | level | a step: median (10th to 90th) | cost | processor time | cost |\n"
        "|---|---|---|---|---|---|---|\n");
  for (std::string folder : o.cases) {
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    for (const std::string& ranks : words_of(o.ranks)) {
      std::vector<Contender> all;
      for (const std::string& level : words_of(o.levels)) all.push_back(contender(o, folder, level, std::stoll(ranks)));
      // Each round begins with another, so that none always comes after the same one.
      for (size_t round = 0; round < static_cast<size_t>(o.rounds); ++round) {
        for (size_t i = 0; i < all.size(); ++i) run_round(all[(i + round) % all.size()], o.steps);
      }
      print(o, folder.substr(folder.find_last_of('/') + 1), std::stoll(ranks), all);
    }
  }
  return 0;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  app.option_defaults()->group(groups::data);
  app.add_option("cases", o->cases, "folders with model.onnx, train.safetensors and reference.json, as of epl check")
      ->required();
  add_shape_options(app, o->job);
  app.option_defaults()->group(groups::machine);
  app.add_option("--levels", o->levels, "the levels to compare; the cost of each is against the first")
      ->type_name("NAME,...")
      ->check(list_of({"run", "data", "layout", "exact"}))
      ->capture_default_str();
  app.add_option("--ranks", o->ranks, "numbers of ranks, which share the threads")
      ->type_name("N,...")
      ->check(list_of({"1", "2", "4", "8"}))
      ->capture_default_str();
  app.add_option("--threads", o->job.threads, "threads of all ranks together; 0: one per processor")
      ->check(integer_value(0))
      ->capture_default_str();
  app.add_option("--strategy", o->job.strategy, "what the levels are measured with: JSON, or a file with it")
      ->type_name("JSON");
  app.add_option("--packs", o->job.packs, "the folder of the optional packs (default: the one that libepl.so is in)")
      ->check(existing_folder());
  add_kernel_cache_option(app, o->job);
  app.option_defaults()->group(groups::watching);
  app.add_option("--rounds", o->rounds, "rounds of each level")->check(integer_value(1))->capture_default_str();
  app.add_option("--steps", o->steps, "steps of a round that count; two before them warm up")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_flag("--json", o->job.json, "a JSON line for each level");
  app.footer(
      "The levels take turns in one process, because only what ran beside each other can be compared. A line says the "
      "median step and what the level costs against the first one named, and the same of the processor time of all "
      "threads, which says more on a busy machine. reproducible.level: docs/strategy.md.");
  return [o] { return run_bench(*o); };
}

}  // namespace epl::tools
