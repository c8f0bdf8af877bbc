// epl check: trains cases with known answers and compares every number with PyTorch's.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tools/commands.h"
#include "tools/job.h"
#include "tools/progress.h"

namespace epl::tools {
namespace {

constexpr double loss_tolerance = 1e-4, norm_tolerance = 1e-3;
// A gradient that is zero but for rounding (a key's bias under softmax) has no relative error: it is compared with this
// share of the largest norm, so that it may be one rounding of a float32 of that size, 1e-7.
constexpr double rounding_share = 1e-4;

struct CheckOptions {
  JobOptions job;
  std::vector<std::string> cases;
  std::string precision = "f32";
  bool details = false;
};

struct Outcome {
  double loss_error = 0, gradient_error = 0, parameter_error = 0;
  std::string worst_gradient, worst_parameter, note;
  bool pass = true;
  int64_t planned = 0, measured = 0;
  std::string hash;
  std::vector<double> step_seconds;
  double seconds_per_step() const {  // the median
    std::vector<double> sorted = step_seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

double norm_of(const epl_tensor* tensor) {
  double sum = 0;
  const size_t count = epl_tensor_bytes(tensor) / epl_dtype_bytes(epl_tensor_dtype(tensor));
  for (size_t i = 0; i < count; ++i) {
    double v = 0;
    switch (epl_tensor_dtype(tensor)) {
      case EPL_DTYPE_F32: v = static_cast<const float*>(epl_tensor_data(tensor))[i]; break;
      case EPL_DTYPE_F64: v = static_cast<const double*>(epl_tensor_data(tensor))[i]; break;
      case EPL_DTYPE_I64: v = static_cast<double>(static_cast<const int64_t*>(epl_tensor_data(tensor))[i]); break;
      default: throw UsageError("a parameter of type " + std::string(epl_dtype_name(epl_tensor_dtype(tensor))) + " cannot be compared");
    }
    sum += v * v;
  }
  return std::sqrt(sum);
}

// One case: a folder with model.onnx, train.safetensors and reference.json.
class Case {
 public:
  Case(const CheckOptions& o, const std::string& folder) : o_(o), folder_(folder), reference_(parse_json(read_file(folder + "/reference.json"))) {}

  Outcome run() {
    engine_ = make_engine(o_.job);
    model_ = load_model(engine_, folder_ + "/model.onnx");
    const std::string data = folder_ + "/train.safetensors";
    dataset_ = make<Dataset>(epl_dataset_open, engine_.get(), data.data(), data.size(), static_cast<const char*>(nullptr), size_t{0});
    // Reporting norms takes time and memory, so one step does it in a plan of its own; the plan whose steps are compared
    // and timed is the one that a user trains with.
    start(true);
    step();
    compare_gradients();
    check(epl_dataset_seek(dataset_.get(), 0));
    start(false);
    const Buffers at_first = buffers();
    train(true);
    compare_final("final_param_norms");
    finish();
    compare_buffers(at_first);
    return out_;
  }

 private:
  void start(bool gradient_norms) {
    session_ = nullptr;
    Trainer made = trainer();
    if (gradient_norms) set(made.get(), "report.gradient_norms", "true");
    plan_ = make_plan(model_, made, make_strategy(engine_, o_.job), o_.job);
    check(epl_dataset_bind(dataset_.get(), plan_.get(), EPL_ENTRY_TRAIN));
    session_ = make<Session>(epl_session_create, plan_.get(), static_cast<const epl_session_options*>(nullptr));
    for (int kind = 0; kind < 3; ++kind) {
      for (int64_t i = 0; i < epl_session_state_count(session_.get(), kind); ++i) state_.insert(port_of(epl_session_state_port, session_.get(), kind, i).name);
    }
  }

  // One step with the dataset's next batch.
  epl_metrics step() {
    std::vector<const epl_tensor*> batch(static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
    check(epl_dataset_next(dataset_.get(), batch.data(), batch.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    check(epl_session_step(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
    return metrics;
  }

  // A parameter's name in this file: exporters keep one name of those that share a tensor.
  std::string name_here(const std::string& name, const std::set<std::string>& there) const {
    if (there.contains(name) || !reference_.contains("tied")) return name;
    for (const Json& group : reference_["tied"]) {
      const auto names = group.get<std::vector<std::string>>();
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      for (const std::string& other : names) {
        if (there.contains(other)) return other;
      }
    }
    return name;
  }

  Trainer trainer() {
    JobOptions job = o_.job;
    job.loss = reference_.at("loss");
    job.optimizer = reference_.at("optimizer");
    for (const Json& row : described(engine_, "optimizers")) {
      if (row.at("name") != job.optimizer) continue;
      for (const auto& [key, unused] : row.at("options").items()) {
        if (reference_.contains(key) && !reference_[key].is_null()) job.optimizer_options.push_back(key + "=" + print_json(reference_[key]));
      }
    }
    if (reference_.contains("ignore_index") && reference_["ignore_index"].is_number() && job.loss == "softmax_cross_entropy") {
      job.ignore_index = std::to_string(reference_["ignore_index"].get<int64_t>());
    }
    Trainer made = make_trainer(engine_, job);
    bind_inputs(made, model_, dataset_);
    choose_parameters(made);
    return made;
  }

  // Exactly what the reference trained is trained.
  void choose_parameters(const Trainer& made) const {
    std::set<std::string> initializers;
    for (int64_t i = 0; i < epl_model_port_count(model_.get(), EPL_PORT_INITIALIZER); ++i) initializers.insert(port_of(epl_model_port, model_.get(), EPL_PORT_INITIALIZER, i).name);
    int64_t group = -1;
    for (const Json& name : reference_.at("trainable")) {
      const std::string here = name_here(name, initializers);
      if (group < 0) {
        check(epl_trainer_add_group(made.get(), here.data(), here.size(), &group));
      } else {
        check(epl_trainer_group_add(made.get(), group, here.data(), here.size()));
      }
    }
    int64_t rest = 0;
    check(epl_trainer_add_group(made.get(), EPL_STR("*"), &rest));
    check(epl_trainer_group_set(made.get(), rest, EPL_STR("frozen"), EPL_STR("true")));
  }

  using Buffers = std::map<std::string, std::vector<float>>;

  // All float32 buffers of the session.
  Buffers buffers() const {
    Buffers all;
    for (int64_t i = 0; i < epl_session_state_count(session_.get(), EPL_STATE_BUFFER); ++i) {
      const Port port = port_of(epl_session_state_port, session_.get(), EPL_STATE_BUFFER, i);
      if (port.dtype != EPL_DTYPE_F32) continue;
      TensorHandle value = make<TensorHandle>(epl_session_get, session_.get(), port.name.data(), port.name.size());
      const auto* data = static_cast<const float*>(epl_tensor_data(value.get()));
      all[port.name] = std::vector<float>(data, data + port.elements());
    }
    return all;
  }

  void start_afresh(const Buffers& file) {
    session_ = make<Session>(epl_session_create, plan_.get(), static_cast<const epl_session_options*>(nullptr));
    for (const auto& [name, values] : file) {
      TensorHandle value = make<TensorHandle>(epl_session_get, session_.get(), name.data(), name.size());
      std::fill_n(static_cast<float*>(epl_tensor_data(value.get())), values.size(), fresh_start(name));
      check(epl_session_set(session_.get(), name.data(), name.size(), value.get()));
    }
    check(epl_dataset_seek(dataset_.get(), 0));
  }
  static float fresh_start(const std::string& name) { return name.ends_with("var") ? 1.0f : 0.0f; }

  // Running statistics do not act on training, so they are looked at apart. Exporting in training mode runs the model
  // once, which moves the statistics in the file but not those of the reference. Where the file's start does not lead to
  // the reference's end, PyTorch's own start (mean 0, variance 1) must, and the two ends may differ by nothing but what
  // is left of the two starts: a moving average keeps the same share of its start in every element.
  void compare_buffers(const Buffers& file) {
    const Outcome before = out_;
    compare_final("final_buffer_norms");
    if (out_.pass || !before.pass) return;
    const Outcome from_file = out_;
    const Buffers file_end = buffers();
    out_ = before;
    start_afresh(file);
    train(false);
    compare_final("final_buffer_norms");
    for (const auto& [name, end] : buffers()) {
      if (!differ_by_starts(file.at(name), file_end.at(name), end, fresh_start(name))) {
        out_ = from_file;
        return;
      }
    }
    out_.note = "running statistics were compared from a fresh start; the export had moved those in the file";
  }

  // Whether two moving averages over the same values, one of which began with `fresh` everywhere, differ by one share, from
  // 0 to 1, of the difference of their starts.
  static bool differ_by_starts(const std::vector<float>& start, const std::vector<float>& end, const std::vector<float>& fresh_end, double fresh) {
    double along = 0, whole = 0;
    for (size_t i = 0; i < start.size(); ++i) {
      const double offset = start[i] - fresh;
      along += offset * (static_cast<double>(end[i]) - fresh_end[i]);
      whole += offset * offset;
    }
    const double share = whole > 0 ? along / whole : 0;
    if (share < -1e-6 || share > 1) return false;
    for (size_t i = 0; i < start.size(); ++i) {
      const double rest = static_cast<double>(end[i]) - fresh_end[i] - share * (start[i] - fresh);
      const double rounding = 1e-5 * (std::fabs(end[i]) + std::fabs(start[i]) + std::fabs(fresh));
      if (!(std::fabs(rest) <= rounding)) return false;
    }
    return true;
  }

  void train(bool compare) {
    const auto losses = reference_.at("losses").get<std::vector<double>>();
    const auto single = reference_.contains("losses_f32") ? reference_["losses_f32"].get<std::vector<double>>() : losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      const epl_metrics metrics = step();
      if (!compare) continue;
      out_.step_seconds.push_back(metrics.seconds);
      const double scale = std::max(std::fabs(losses[i]), 1e-12);
      const double error = std::fabs(metrics.loss - losses[i]) / scale;
      const double allowed = std::max(loss_tolerance, 10 * std::fabs(single[i] - losses[i]) / scale);
      if (!(error <= allowed)) out_.pass = false;
      if (o_.details) std::fprintf(stderr, "%s  step %zu loss %.9g, expected %.9g, error %.1e of %.1e\n", error <= allowed ? "    " : "FAIL", i, metrics.loss, losses[i], error, allowed);
      out_.loss_error = std::isfinite(error) ? std::max(out_.loss_error, error) : std::numeric_limits<double>::infinity();
    }
  }

  void compare_gradients() {
    const Json& norms = reference_.at("step0_grad_norms");
    double largest = 0;
    for (const auto& [name, norm] : norms.items()) largest = std::max(largest, norm.get<double>());
    for (const auto& [name, norm] : norms.items()) {
      const std::string metric = "gradient_norm:" + name_here(name, state_);
      double ours = 0;
      check(epl_session_metric(session_.get(), metric.data(), metric.size(), &ours));
      const double expected = norm;
      // What the reference has below a float32 rounding of the largest, ours must have there too.
      const bool rounding_only = expected < 1e-7 * largest;
      if (rounding_only) rounding_only_.insert(name);
      const double scale = rounding_only ? rounding_share * largest : expected;
      note("gradient", std::fabs(ours - expected) / scale, ours, expected, name, out_.gradient_error, out_.worst_gradient);
    }
  }

  void note(const char* what, double error, double ours, double expected, const std::string& name, double& worst, std::string& worst_name) {
    if (!(error <= norm_tolerance)) out_.pass = false;
    if (o_.details) std::fprintf(stderr, "%s  %-8s %.9g, expected %.9g, error %.1e  %s\n", error <= norm_tolerance ? "    " : "FAIL", what, ours, expected, error, name.c_str());
    if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
    if (error > worst) {
      worst = error;
      worst_name = name;
    }
  }

  void compare_final(const char* table) {
    if (!reference_.contains(table)) return;
    const bool buffers = std::string(table) == "final_buffer_norms";
    for (const auto& [name, norm] : reference_[table].items()) {
      const std::string here = name_here(name, state_);
      // Buffers that a model computes with but does not keep (a table of frequencies) are constants of the file.
      if (!state_.contains(here) && (buffers || listed("missing_params", name))) continue;
      TensorHandle value = make<TensorHandle>(epl_session_get, session_.get(), here.data(), here.size());
      const double ours = norm_of(value.get()), expected = norm;
      if (rounding_only_.contains(name)) {
        // Rounding alone moves it, each step by at most the learning rate: there is no digit to compare.
        const double count = static_cast<double>(epl_tensor_bytes(value.get()) / epl_dtype_bytes(epl_tensor_dtype(value.get())));
        const double reach = reference_.at("lr").get<double>() * static_cast<double>(reference_.at("losses").size()) * std::sqrt(count);
        note("weight", std::fabs(ours - expected) <= reach ? 0 : std::fabs(ours - expected) / reach, ours, expected, name, out_.parameter_error, out_.worst_parameter);
      } else {
        note(buffers ? "buffer" : "weight", std::fabs(ours - expected) / std::max(expected, 1e-12), ours, expected, name, out_.parameter_error, out_.worst_parameter);
      }
    }
  }

  bool listed(const char* key, const std::string& name) const {
    if (!reference_.contains(key)) return false;
    return std::any_of(reference_[key].begin(), reference_[key].end(), [&](const Json& item) { return item == name; });
  }

  void finish() {
    for (int64_t rank = 0; rank < epl_plan_ranks(plan_.get()); ++rank) {
      out_.planned = std::max(out_.planned, epl_plan_memory_bytes_peak(plan_.get(), rank));
      out_.measured = std::max(out_.measured, epl_session_memory_bytes_peak(session_.get(), rank));
    }
    uint64_t hash = 0;
    check(epl_session_hash(session_.get(), &hash));
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
    out_.hash = hex;
  }

  const CheckOptions& o_;
  std::string folder_;
  Json reference_;
  Engine engine_;
  Model model_;
  Dataset dataset_;
  Plan plan_;
  Session session_;
  std::set<std::string> state_, rounding_only_;
  Outcome out_;
};

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

void print(const CheckOptions& o, const std::string& name, const Outcome& r) {
  if (o.job.json) {
    Json line = Json{{"case", name}, {"pass", r.pass}, {"loss_error", number(r.loss_error)}, {"gradient_error", number(r.gradient_error)},
                             {"parameter_error", number(r.parameter_error)}, {"planned_peak_bytes", r.planned}, {"measured_peak_bytes", r.measured},
                             {"weights_hash", r.hash}, {"seconds_per_step", r.seconds_per_step()}, {"step_seconds", r.step_seconds}};
    if (!r.note.empty()) line["note"] = r.note;
    std::printf("%s\n", print_json(line).c_str());
  } else {
    std::string worst = r.note.empty() ? "" : "\n      " + r.note;
    if (!r.pass) worst = "  worst gradient " + (r.worst_gradient.empty() ? "-" : r.worst_gradient) + ", parameter " + (r.worst_parameter.empty() ? "-" : r.worst_parameter);
    std::printf("%s  %s: loss %s, gradient %s, parameter %s; memory %lld planned, %lld measured; weights %s; %s ms a step%s\n", r.pass ? "pass" : "FAIL", name.c_str(),
                scientific(r.loss_error).c_str(), scientific(r.gradient_error).c_str(), scientific(r.parameter_error).c_str(), static_cast<long long>(r.planned),
                static_cast<long long>(r.measured), r.hash.c_str(), fixed(r.seconds_per_step() * 1e3, 2).c_str(), worst.c_str());
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
  if (o.precision != "f32") throw ApiError(EPL_ERROR_UNSUPPORTED, "--precision " + o.precision + " is not built; f32 is", "");
  bool all = true;
  for (const std::string& folder : o.cases) {
    try {
      const Outcome outcome = Case(o, folder).run();
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
  app.add_option("cases", o->cases, "folders with model.onnx, train.safetensors and reference.json")->required();
  add_machine_options(app, o->job);
  app.add_option("--precision", o->precision, "f32")->capture_default_str();
  app.add_flag("--json", o->job.json, "a JSON line for each case");
  app.add_flag("--details", o->details, "every number that is compared, on standard error");
  app.footer("Every loss must be within 1e-4 of the float64 reference, relative (or within ten times PyTorch's own float32 error),\n"
             "every gradient norm of the first step and every final norm within 1e-3. Running statistics that the export moved are\n"
             "compared from PyTorch's own start (mean 0, variance 1), if nothing but the start makes the difference. The hash is XXH64 over the bytes of the\n"
             "trained parameters in the order of their names.");
  return [o] { return run_check(*o); };
}

}  // namespace epl::tools
