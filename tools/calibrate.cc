// epl calibrate: measures what plans take a machine to do, and writes a table that they take instead.
#include <algorithm>
#include <cmath>

#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/job.h"
#include "tools/json.h"
#include "tools/machine_fit.h"
#include "tools/machine_probes.h"
#include "tools/machine_table.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

struct CalibrateOptions {
  JobOptions job;
  std::string out = "machine.json", folder, table;
  double seconds = 20;
};

std::string rate_text(double per_second, const char* unit) {
  return short_number(per_second / 1e6) + " million " + unit + " per second";
}

std::string share_text(double share) { return fixed(100 * share, 1) + " %"; }

void print_fitted(const FittedMachine& fitted, const Probed& probed) {
  say("%s\n", probed.device.c_str());
  say("  products: %s\n", rate_text(fitted.products, "operations").c_str());
  say("  elementwise: %s\n", rate_text(fitted.elementwise, "operations").c_str());
  say("  memory: %s\n", rate_text(fitted.bandwidth, "bytes").c_str());
  if (probed.host_bandwidth > 0) say("  from the host: %s\n", rate_text(probed.host_bandwidth, "bytes").c_str());
  if (probed.file_bandwidth > 0) say("  files: %s\n", rate_text(probed.file_bandwidth, "bytes").c_str());
  say("  a launch: %s\n", readable_seconds(fitted.launch_seconds).c_str());
  if (fitted.link_bandwidth > 0)
    say("  between ranks: %s, a message %s\n", rate_text(fitted.link_bandwidth, "bytes").c_str(),
        readable_seconds(fitted.link_seconds).c_str());
  if (fitted.link_bandwidth <= 0) say("  not measured: what is between ranks, for want of sums of two of them\n");
  for (const std::string& one : probed.unmeasured) say("  not measured: %s\n", one.c_str());
  for (const ProbeError& one : errors_by_probe(fitted, probed.measures))
    say("  %s: %s kernels, off by %s at the median\n", one.what.c_str(), with_thousands(one.count).c_str(),
        share_text(one.error).c_str());
  say("off by %s at the median and %s at the 90th percentile\n", share_text(fitted.error).c_str(),
      share_text(fitted.error_90th).c_str());
}

int run_measure(const CalibrateOptions& o) {
  const double begin = steady_seconds();
  const Probed probed = probe_machine(o.job, o.seconds, o.folder);
  const FittedMachine fitted = fit_machine(probed.measures);
  // A processor's numbers are those of one core: a stream has one for each of its threads.
  const Json table = machine_table(fitted, probed, o.job.device == "cpu", steady_seconds() - begin);
  write_file(o.out, print_json(table) + "\n");
  if (o.job.json) {
    Json line = table;
    line["file"] = o.out;
    say_json(line);
    return 0;
  }
  print_fitted(fitted, probed);
  say("wrote %s; plans take it by --device %s@%s\n", o.out.c_str(), o.job.device.c_str(), shell_word(o.out).c_str());
  return 0;
}

void print_checked(const Checked& one, bool json) {
  if (json) {
    Json line = {{"model", one.model}, {"layout", one.layout}};
    if (one.impossible.empty()) {
      line.update(Json{{"predicted", one.predicted}, {"measured", one.measured}, {"error", one.error()}});
    } else {
      line["impossible"] = one.impossible;
    }
    say_json(line);
  } else if (one.impossible.empty()) {
    say("%s, %s: predicted %s, measured %s, off by %s\n", one.model.c_str(), one.layout.c_str(),
        readable_seconds(one.predicted).c_str(), readable_seconds(one.measured).c_str(),
        share_text(one.error()).c_str());
  } else {
    say("%s, %s: not checked: %s\n", one.model.c_str(), one.layout.c_str(), one.impossible.c_str());
  }
}

int run_predictions(const CalibrateOptions& o) {
  JobOptions job = o.job;
  job.device += "@" + o.table;
  std::vector<double> errors;
  for (const Checked& one : check_predictions(job, o.seconds)) {
    if (one.impossible.empty()) errors.push_back(std::abs(one.error()));
    print_checked(one, job.json);
  }
  if (errors.empty()) throw UsageError("none of the layouts can be checked here");
  const double middle = middle_of(errors), most = middle_of(errors, 0.9);
  if (job.json) {
    say_json({{"checked", errors.size()}, {"error", middle}, {"error_90th", most}});
  } else {
    say("%s steps: off by %s at the median and %s at the 90th percentile\n",
        with_thousands(static_cast<int64_t>(errors.size())).c_str(), share_text(middle).c_str(),
        share_text(most).c_str());
  }
  return 0;
}

int run_calibrate(const CalibrateOptions& o) {
  if (o.job.device.find('@') != std::string::npos)
    throw UsageError("--device " + o.job.device + " has a table already: name the device alone");
  if (computes_nothing(o.job.device))
    throw UsageError("--device " + o.job.device + " computes nothing, so that there is nothing to measure");
  return o.table.empty() ? run_measure(o) : run_predictions(o);
}

}  // namespace

Run add_calibrate(CLI::App& app) {
  auto o = std::make_shared<CalibrateOptions>();
  app.footer(
      "  epl calibrate --out machine.json\n  epl calibrate --check machine.json\n  epl plan model.onnx --batch 64 "
      "--device cpu@machine.json");
  app.option_defaults()->group(groups::machine);
  app.add_option("--device", o->job.device, "what to measure, as of epl train")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--seconds", o->seconds, "how long, about; a disk that is slow comes on top")
      ->check(between(1, 60))
      ->capture_default_str();
  app.add_option("--folder", o->folder, "also measure files in this folder, for values that are kept in files")
      ->check(existing_folder());
  add_packs_option(app, o->job);
  add_kernel_cache_option(app, o->job);
  app.option_defaults()->group(groups::watching);
  app.add_option("--check", o->table,
                 "measure no machine, and compare what plans by this table predict with what steps of a few models "
                 "take")
      ->check(existing_file());
  app.add_flag("--json", o->job.json, "JSON lines");
  app.option_defaults()->group(groups::saving);
  app.add_option("--out", o->out, "the table to write")->check(file_name())->capture_default_str();
  return [=] { return run_calibrate(*o); };
}

}  // namespace epl::tools
