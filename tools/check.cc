// epl check: trains cases with known answers and compares every number with PyTorch's.
#include <cmath>

#include "tools/case.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/usage.h"

namespace epl::tools {
namespace {

std::string case_name(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder.substr(folder.find_last_of('/') + 1);
}

std::string scientific(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1e", value);
  return buffer;
}

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(1e308); }

Json layout_json(const Layout& layout) {
  Json out = {{"threads", layout.threads}, {"micro_batches", layout.micro_batches}, {"ranks", layout.ranks}};
  if (!layout.refused.empty()) {
    out["refused"] = layout.refused;
  } else {
    out.update(Json{{"weights_hash", layout.hash},
                    {"planned_peak_bytes", layout.planned},
                    {"measured_peak_bytes", layout.measured}});
  }
  return out;
}

std::string layout_text(const Layout& layout, const std::string& expected) {
  std::string out = std::to_string(layout.threads) + " thread(s), " + std::to_string(layout.micro_batches) +
                    " micro-batch(es), " + std::to_string(layout.ranks) + " rank(s): ";
  if (!layout.refused.empty()) return out + "refused: " + layout.refused;
  return out + (layout.hash == expected ? "the same bits" : "OTHER BITS, " + layout.hash);
}

void print(const CheckOptions& o, const std::string& name, const Outcome& r) {
  if (o.job.json) {
    Json line = Json{{"case", name},
                     {"pass", r.pass},
                     {"loss_error", number(r.loss_error)},
                     {"gradient_error", number(r.gradient_error)},
                     {"parameter_error", number(r.parameter_error)},
                     {"planned_peak_bytes", r.planned},
                     {"measured_peak_bytes", r.measured},
                     {"weights_hash", r.hash},
                     {"seconds_per_step", r.seconds_per_step()},
                     {"step_seconds", r.step_seconds}};
    if (!r.notes.empty()) line["notes"] = r.notes;
    for (const Layout& layout : r.layouts) line["layouts"].push_back(layout_json(layout));
    std::printf("%s\n", print_json(line).c_str());
  } else {
    std::string worst;
    if (!r.pass)
      worst = "  worst gradient " + (r.worst_gradient.empty() ? "-" : r.worst_gradient) + ", parameter " +
              (r.worst_parameter.empty() ? "-" : r.worst_parameter);
    std::printf(
        "%s  %s: loss %s, gradient %s, parameter %s; memory %lld planned, %lld measured; weights %s; %s ms a step%s\n",
        r.pass ? "pass" : "FAIL", name.c_str(), scientific(r.loss_error).c_str(), scientific(r.gradient_error).c_str(),
        scientific(r.parameter_error).c_str(), static_cast<long long>(r.planned), static_cast<long long>(r.measured),
        r.hash.c_str(), fixed(r.seconds_per_step() * 1e3, 2).c_str(), worst.c_str());
    for (const std::string& note : r.notes) std::printf("      %s\n", note.c_str());
    for (const Layout& layout : r.layouts) std::printf("      %s\n", layout_text(layout, r.hash).c_str());
  }
  std::fflush(stdout);
}

void print_error(const CheckOptions& o, const std::string& name, const std::string& message) {
  if (o.job.json) {
    std::printf("%s\n", print_json({{"case", name}, {"pass", false}, {"error", message}}).c_str());
  } else {
    std::printf("FAIL  %s: %s\n", name.c_str(), message.c_str());
  }
  std::fflush(stdout);
}

int run_check(const CheckOptions& o) {
  bool all = true;
  for (const std::string& folder : o.cases) {
    try {
      const Outcome outcome = run_case(o, folder);
      all &= outcome.pass;
      print(o, case_name(folder), outcome);
    } catch (const std::exception& e) {
      const auto* api = dynamic_cast<const ApiError*>(&e);
      const bool place = api && !api->where.empty() && std::string(e.what()).find(api->where) == std::string::npos;
      print_error(o, case_name(folder), std::string(e.what()) + (place ? " (at " + api->where + ")" : ""));
      all = false;
    }
  }
  return all ? 0 : 1;
}

}  // namespace

Run add_check(CLI::App& app) {
  auto o = std::make_shared<CheckOptions>();
  app.option_defaults()->group(groups::data);
  app.add_option("cases", o->cases, "folders with model.onnx, train.safetensors and reference.json")->required();
  app.add_option("--precision", o->precision,
                 "f32, or f64: the same in float64, where every number must be within 1e-9 of the reference")
      ->type_name("NAME")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_flag("--layouts", o->layouts,
               "train also on 1 and 2 threads, in 2 and 4 micro-batches and on 2 and 4 ranks, and compare the bits; a "
               "cut that is refused is listed with its reason");
  app.option_defaults()->group(groups::watching);
  app.add_flag("--details", o->details, "every number that is compared, on standard error");
  app.add_flag("--json", o->job.json, "a JSON line for each case");
  add_machine_options(app, o->job);
  app.footer(
      "Every loss must be within 1e-4 of the float64 reference, relative (or within ten times PyTorch's own float32 "
      "error, but never "
      "more than 1e-3), every gradient norm of the first step and every final norm within 1e-3 (or three times the "
      "spread of final_param_norms_f32, never "
      "more than 1e-2). What reference.json lacks, misspells or contradicts is an error. Running statistics that the "
      "export moved are "
      "compared from PyTorch's own start (mean 0, variance 1), if nothing but the start makes the difference. The hash "
      "is XXH64 over the bytes of the "
      "trained parameters in the order of their names.");
  return [o] { return run_check(*o); };
}

}  // namespace epl::tools
