// Predictions are checked with models and layouts that nothing was fitted on.
#include "tools/machine_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/scratch_folder.h"
#include "tools/zero_job.h"

namespace epl::tools {
namespace {

struct CheckedModel {
  const char *name, *family, *options;
  int64_t batch;
};
constexpr CheckedModel checked_models[] = {
    {"wide mlp", "mlp", R"({"sizes":[256,768,768,64]})", 64},
    {"deep mlp", "mlp", R"({"sizes":[128,128,128,128,128,128,128,32]})", 64},
    {"gpt2", "gpt2", R"({"layers":2,"width":64,"heads":4,"context":32,"vocab":256})", 8},
};

struct CheckedLayout {
  const char *name, *strategy;
  int64_t ranks;
};
constexpr CheckedLayout checked_layouts[] = {
    {"1 rank", "{}", 1},
    {"4 micro-batches", R"({"pipeline.num_micro_batch": 4})", 1},
    {"2 copies", "{}", 2},
    {"split of 2", R"({"default": {"split": 2}})", 2},
    {"2 stages, 4 micro-batches", R"({"pipeline.num_stages": 2, "pipeline.num_micro_batch": 4})", 2},
};

Checked check_one(const CheckedModel& model, const CheckedLayout& layout, const JobOptions& common,
                  const std::string& scratch, double seconds) {
  Checked made{.model = model.name, .layout = layout.name};
  try {
    ZeroTraining training({.family = model.family,
                           .options = model.options,
                           .batch = model.batch,
                           .ranks = layout.ranks,
                           .strategy = layout.strategy},
                          common, scratch);
    made.predicted = training.overview().at("seconds").get<double>();
    training.begin();
    training.step();  // touches the memory
    made.measured = middle_of(training.steps_for(seconds));
  } catch (const ApiError& e) {
    if (layout.ranks == 1) throw;  // the device or its table is at fault, not the layout
    made.impossible = e.what();
  }
  return made;
}

}  // namespace

Json machine_table(const FittedMachine& fitted, const Probed& probed, bool core, double seconds) {
  Json table = {{"measured",
                 {{"device", probed.device},
                  {"version", version_text()},
                  {"seconds", std::max(seconds, 1e-3)},
                  {"error", fitted.error},
                  {"error_90th", fitted.error_90th}}},
                {"core", core},
                {"bandwidth", fitted.bandwidth},
                {"host_bandwidth", probed.host_bandwidth > 0 ? probed.host_bandwidth : fitted.bandwidth}};
  if (probed.file_bandwidth > 0) table["file_bandwidth"] = probed.file_bandwidth;
  table["products"] = {{"f32", fitted.products}};
  table["elementwise"] = {{"f32", fitted.elementwise}};
  if (fitted.link_bandwidth > 0)
    table["links"] = Json::array({{{"bandwidth", fitted.link_bandwidth}, {"seconds", fitted.link_seconds}}});
  table["launch_seconds"] = fitted.launch_seconds;
  return table;
}

std::vector<ProbeError> errors_by_probe(const FittedMachine& fitted, const Measures& measures) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> errors;
  for (const KernelMeasure& one : measures.kernels) {
    std::vector<double>& of_probe = errors[one.probe];
    if (of_probe.empty()) order.push_back(one.probe);
    of_probe.push_back(std::abs(fitted.seconds(one) / one.seconds - 1));
  }
  std::vector<ProbeError> out;
  for (const std::string& what : order)
    out.push_back({what, static_cast<int64_t>(errors.at(what).size()), middle_of(errors.at(what))});
  return out;
}

std::vector<Checked> check_predictions(const JobOptions& common, double seconds) {
  const ScratchFolder scratch;
  const auto processors = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const double begin = steady_seconds();
  double left = static_cast<double>(std::size(checked_models) * std::size(checked_layouts));
  std::vector<Checked> all;
  for (const CheckedModel& model : checked_models) {
    for (const CheckedLayout& layout : checked_layouts) {
      const double share = std::max(seconds - (steady_seconds() - begin), 0.0) / left--;
      // Ranks that share a processor take turns, of which no plan knows.
      if (layout.ranks > processors) {
        Checked none{.model = model.name, .layout = layout.name};
        none.impossible = "there are fewer processors than ranks";
        all.push_back(std::move(none));
      } else {
        all.push_back(check_one(model, layout, common, scratch.path(), share / 2));
      }
    }
  }
  return all;
}

}  // namespace epl::tools
