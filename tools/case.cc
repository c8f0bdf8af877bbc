#include "tools/case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/binding.h"
#include "tools/case_scale.h"
#include "tools/layouts.h"
#include "tools/trained.h"

namespace epl::tools {
namespace {

double norm_of(const epl_tensor* tensor) {
  double sum = 0;
  for (const double v : elements_of(tensor)) sum += v * v;
  return std::sqrt(sum);
}

// One case: a folder with model.onnx, train.safetensors and reference.json.
class Case {
 public:
  Case(const CheckOptions& o, const std::string& folder)
      : o_(o), job_(o.job), folder_(folder), reference_(folder, o.precision == "f64") {}

  OpenedCase opened() {
    open();
    Trainer made = trainer();
    return {std::move(engine_), std::move(model_), std::move(dataset_), std::move(made)};
  }

  Outcome run() {
    open();
    // Reporting norms takes time and memory, so one step does it in a plan of its own; the plan whose steps are
    // compared and timed is the one that a user trains with.
    start(true);
    step();
    compare_gradients();
    check(epl_dataset_seek(dataset_.get(), 0));
    start(false);
    const Buffers at_first = buffers();
    for (const std::string& name : rounding_only_) {
      double elements = 0;
      norms_at_first_[name] = final_norm(name, elements);
    }
    train(true);
    compare_final_parameters();
    finish();
    compare_buffers(at_first);
    for (const LayoutResult& layout : o_.layouts ? all_layouts() : std::vector<LayoutResult>()) run_layout(layout);
    return out_;
  }

 private:
  void open() {
    dataset_ = nullptr;
    model_ = nullptr;
    engine_ = make_engine(job_);
    for (const Json& row : described(engine_, "optimizers")) {
      if (o_.without_state ? row.at("states").empty() : row.at("name") == reference_.optimizer) optimizer_ = row;
    }
    model_ = load_model(engine_, folder_ + "/model.onnx");
    const std::string data = folder_ + "/train.safetensors";
    dataset_ = make<Dataset>(epl_dataset_open, engine_.get(), data.data(), data.size(),
                             static_cast<const char*>(nullptr), size_t{0}, nullptr);
  }

  static std::vector<LayoutResult> all_layouts() {
    return {{.threads = 1},
            {.threads = 2},
            {.threads = 1, .micro_batches = 2},
            {.threads = 2, .micro_batches = 4},
            {.threads = 2, .ranks = 2},
            {.threads = 2, .ranks = 4},
            {.threads = 2, .micro_batches = 2, .ranks = 2}};
  }

  // The same weights, or a reason why the work cannot be cut so.
  void run_layout(LayoutResult layout) {
    session_ = nullptr;
    plan_ = nullptr;
    job_ = o_.job;
    job_.threads = layout.threads;
    job_.micro_batches = layout.micro_batches;
    job_.ranks = layout.ranks;
    open();
    try {
      plan_ = make_plan(model_, trainer(), make_strategy(engine_, job_), job_);
    } catch (const ApiError& e) {
      if (e.code != EPL_ERROR_UNSUPPORTED && e.code != EPL_ERROR_INVALID_ARGUMENT) throw;
      layout.refused = e.what();
      out_.layouts.push_back(layout);
      return;
    }
    begin_session();
    train(false);
    layout.hash = hash();
    measure(layout.planned, layout.measured);
    out_.pass &= layout.hash == out_.hash;
    out_.layouts.push_back(layout);
  }

  void start(bool gradient_norms) {
    session_ = nullptr;
    Trainer made = trainer();
    if (gradient_norms) set(made.get(), "report.gradient_norms", "true");
    plan_ = make_plan(model_, made, make_strategy(engine_, job_), job_);
    begin_session();
  }

  void begin_session() {
    check(epl_dataset_bind(dataset_.get(), plan_.get(), EPL_ENTRY_TRAIN));
    session_ = new_session();
    for (int kind = 0; kind < 3; ++kind) {
      for (int64_t i = 0; i < epl_session_state_count(session_.get(), kind); ++i)
        state_.insert(port_of(epl_session_state_port, session_.get(), kind, i).name);
    }
  }

  // Names that processes have put at a place to meet stay there, so each session has a place of its own.
  Session new_session() {
    Processes processes = job_.processes;
    processes.rendezvous += "/" + std::to_string(sessions_++);
    processes.agreement.compare_every = 1;  // copies that part are found where they part
    return make_session(engine_, plan_, processes, job_.ranks, store_, nullptr, false);
  }

  // One step with the dataset's next batch.
  epl_metrics step() {
    std::vector<const epl_tensor*> batch(
        static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
    check(epl_dataset_next(dataset_.get(), nullptr, batch.data(), batch.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    check(epl_session_step(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
    return metrics;
  }

  // A parameter's name in this file: exporters keep one name of those that share a tensor.
  std::string name_here(const std::string& name, const std::set<std::string>& there) const {
    if (there.contains(name)) return name;
    for (const std::vector<std::string>& names : reference_.tied) {
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      for (const std::string& other : names) {
        if (there.contains(other)) return other;
      }
    }
    return name;
  }

  Trainer trainer() {
    JobOptions job = job_;
    const Json& settings = reference_.json();
    job.loss = reference_.loss;
    job.optimizer = optimizer_.value("name", reference_.optimizer);
    if (optimizer_.contains("options")) {
      for (const auto& [key, unused] : optimizer_.at("options").items()) {
        if (reference_.has(key.c_str())) job.optimizer_options.push_back(key + "=" + print_json(settings[key]));
      }
    }
    if (reference_.has("ignore_index") && settings["ignore_index"].is_number() && job.loss == "softmax_cross_entropy") {
      job.ignore_index = std::to_string(settings["ignore_index"].get<int64_t>());
    }
    Trainer made = make_trainer(engine_, job);
    set(made.get(), "precision", o_.precision);
    bind_inputs(made, model_, dataset_, job);
    for (const auto& [name, dim] : reference_.batch_dims)
      check(epl_trainer_bind_batch_dim(made.get(), name.data(), name.size(), static_cast<int32_t>(dim)));
    choose_parameters(made);
    return made;
  }

  // Exactly what the reference trained is trained.
  void choose_parameters(const Trainer& made) const {
    std::set<std::string> initializers;
    for (int64_t i = 0; i < epl_model_port_count(model_.get(), EPL_PORT_INITIALIZER); ++i)
      initializers.insert(port_of(epl_model_port, model_.get(), EPL_PORT_INITIALIZER, i).name);
    int64_t group = -1;
    for (const std::string& name : reference_.trainable) {
      const std::string here = name_here(name, initializers);
      if (!initializers.contains(here) && is_absent(name)) continue;
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

  // A parameter that the file does not have: exporters leave out what no output depends on.
  bool is_absent(const std::string& name) const {
    const auto gradient = reference_.gradients.find(name);
    return reference_.missing.contains(name) || reference_.without_gradient.contains(name) ||
           (gradient != reference_.gradients.end() && gradient->second == 0);
  }

  using Buffers = std::map<std::string, std::vector<double>>;

  // All float32 buffers of the session.
  Buffers buffers() const {
    Buffers all;
    for (int64_t i = 0; i < epl_session_state_count(session_.get(), EPL_STATE_BUFFER); ++i) {
      const Port port = port_of(epl_session_state_port, session_.get(), EPL_STATE_BUFFER, i);
      if (port.dtype != EPL_DTYPE_F32 && port.dtype != EPL_DTYPE_F64) continue;
      TensorHandle value =
          make<TensorHandle>(epl_session_get, session_.get(), port.name.data(), port.name.size(), nullptr);
      all[port.name] = elements_of(value.get());
    }
    return all;
  }

  void start_afresh(const Buffers& file) {
    session_ = new_session();
    for (const auto& [name, values] : file) {
      TensorHandle value = make<TensorHandle>(epl_session_get, session_.get(), name.data(), name.size(), nullptr);
      void* data = epl_tensor_data(value.get());
      if (epl_tensor_dtype(value.get()) == EPL_DTYPE_F64) {
        std::fill_n(static_cast<double*>(data), values.size(), fresh_start(name));
      } else {
        std::fill_n(static_cast<float*>(data), values.size(), static_cast<float>(fresh_start(name)));
      }
      check(epl_session_set(session_.get(), name.data(), name.size(), value.get(), nullptr));
    }
    check(epl_dataset_seek(dataset_.get(), 0));
  }
  static double fresh_start(const std::string& name) { return name.ends_with("var") ? 1 : 0; }

  // A statistic that moved and that the reference does not know has a misspelt name there, or none.
  void expect_all_buffers(const Buffers& file) {
    for (const auto& [name, end] : buffers()) {
      const bool moved = file.at(name) != end;
      if (moved && !reference_.buffers.contains(name))
        throw UsageError(folder_ + "/reference.json: \"final_buffer_norms\" lacks " + name + ", which training moves");
    }
  }

  // Running statistics do not act on training, so they are looked at apart. Exporting in training mode runs the model
  // once, which moves the statistics in the file but not those of the reference. Where the file's start does not lead
  // to the reference's end, PyTorch's own start (mean 0, variance 1) must, and the two ends may differ by nothing but
  // what is left of the two starts: a moving average keeps the same share of its start in every element.
  void compare_buffers(const Buffers& file) {
    expect_all_buffers(file);
    const Outcome before = out_;
    compare_final_buffers();
    if (out_.pass || !before.pass) return;
    const Outcome from_file = out_;
    const Buffers file_end = buffers();
    out_ = before;
    start_afresh(file);
    train(false);
    compare_final_buffers();
    for (const auto& [name, end] : buffers()) {
      if (!differ_by_starts(file.at(name), file_end.at(name), end, fresh_start(name))) {
        out_ = from_file;
        return;
      }
    }
    out_.notes.push_back("running statistics were compared from a fresh start; the export had moved those in the file");
  }

  // Whether two moving averages over the same values, one of which began with `fresh` everywhere, differ by one share,
  // from 0 to 1, of the difference of their starts.
  static bool differ_by_starts(const std::vector<double>& start, const std::vector<double>& end,
                               const std::vector<double>& fresh_end, double fresh) {
    double along = 0, length = 0;
    for (size_t i = 0; i < start.size(); ++i) {
      const double offset = start[i] - fresh;
      along += offset * (static_cast<double>(end[i]) - fresh_end[i]);
      length += offset * offset;
    }
    const double share = length > 0 ? along / length : 0;
    if (share < -1e-6 || share > 1) return false;
    for (size_t i = 0; i < start.size(); ++i) {
      const double rest = static_cast<double>(end[i]) - fresh_end[i] - share * (start[i] - fresh);
      const double rounding = 1e-5 * (std::fabs(end[i]) + std::fabs(start[i]) + std::fabs(fresh));
      if (!(std::fabs(rest) <= rounding)) return false;
    }
    return true;
  }

  void train(bool compare) {
    const std::vector<double>& losses = reference_.losses;
    Scale scale;
    for (double loss : losses) scale.add(loss);
    for (size_t i = 0; i < losses.size(); ++i) {
      const epl_metrics metrics = step();
      if (!compare) continue;
      out_.step_seconds.push_back(static_cast<double>(metrics.nanoseconds) * 1e-9);
      const double error = scale.error(metrics.loss, losses[i]);
      const double allowed = reference_.loss_tolerance_at(i);
      if (!(error <= allowed)) out_.pass = false;
      if (o_.details)
        std::fprintf(stderr, "%s  step %zu loss %.9g, expected %.9g, error %.1e of %.1e\n",
                     error <= allowed ? "    " : "FAIL", i, metrics.loss, losses[i], error, allowed);
      out_.loss_error =
          std::isfinite(error) ? std::max(out_.loss_error, error) : std::numeric_limits<double>::infinity();
    }
  }

  // A gradient that is zero in the reference needs none here: the loss need not depend on the parameter.
  void compare_gradients() {
    const Scale scale(reference_.gradients);
    const std::set<std::string> trained = trained_names();
    for (const auto& [name, expected] : reference_.gradients) {
      const std::string here = name_here(name, state_);
      if (!trained.contains(here) && expected == 0) continue;
      const double ours = trained.contains(here) ? gradient_norm(here) : 0;
      if (scale.is_zero(expected)) rounding_only_.insert(name);
      note("gradient", scale.error(ours, expected), reference_.tolerance_of_norms(), ours, expected, name,
           out_.gradient_error, out_.worst_gradient);
    }
    for (const std::string& name : reference_.without_gradient) {
      const std::string here = name_here(name, state_);
      if (trained.contains(here) && gradient_norm(here) != 0)
        throw UsageError(folder_ + "/reference.json: \"step0_grad_norms\" lacks " + name + ", which is trained");
    }
  }

  double gradient_norm(const std::string& parameter) const {
    const std::string metric = "gradient_norm:" + parameter;
    double norm = 0;
    check(epl_session_metric(session_.get(), metric.data(), metric.size(), &norm));
    return norm;
  }

  // What the plan trains; a session has the gradients of these.
  std::set<std::string> trained_names() const {
    std::set<std::string> names;
    for (const Json& one : parse_json(text_of(epl_plan_describe, plan_.get(), "parameters", size_t{10}, nullptr))) {
      if (one.at("trained").get<bool>()) names.insert(one.at("name"));
    }
    return names;
  }

  void note(const char* what, double error, double allowed, double ours, double expected, const std::string& name,
            double& worst, std::string& worst_name) {
    if (!(error <= allowed)) out_.pass = false;
    if (o_.details)
      std::fprintf(stderr, "%s  %-8s %.9g, expected %.9g, error %.1e of %.1e  %s\n", error <= allowed ? "    " : "FAIL",
                   what, ours, expected, error, allowed, name.c_str());
    if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
    if (error > worst) {
      worst = error;
      worst_name = name;
    }
  }

  double final_norm(const std::string& name, double& elements) const {
    const std::string here = name_here(name, state_);
    TensorHandle value = make<TensorHandle>(epl_session_get, session_.get(), here.data(), here.size(), nullptr);
    elements = static_cast<double>(8 * epl_tensor_bytes(value.get())) / epl_dtype_bits(epl_tensor_dtype(value.get()));
    return norm_of(value.get());
  }

  // A parameter that the reference lists as insensitive, or whose gradient and movement in float64 are nothing but
  // rounding: a step of it has no right digit.
  bool only_rounds(const std::string& name, double expected) const {
    if (reference_.insensitive.contains(name)) return true;
    if (!rounding_only_.contains(name) || !norms_at_first_.contains(name)) return false;
    const bool shrinks = optimizer_.value("shrinks_weights", false) && reference_.has("weight_decay");
    const double decay = shrinks ? reference_.json()["weight_decay"].get<double>() : 0;
    const double start = norms_at_first_.at(name),
                 kept = start * std::pow(1 - reference_.lr * decay, static_cast<double>(reference_.losses.size()));
    return std::fabs(expected - kept) <= 1e-5 * start + 1e-9 || std::fabs(expected - start) <= 1e-5 * start + 1e-9;
  }

  void compare_final_parameters() {
    std::string listed;
    const Scale scale(reference_.parameters);
    for (const auto& [name, expected] : reference_.parameters) {
      if (!state_.contains(name_here(name, state_)) && is_absent(name)) continue;
      double elements = 0;
      const double ours = final_norm(name, elements);
      if (!only_rounds(name, expected)) {
        note("weight", scale.error(ours, expected), reference_.tolerance_of(name), ours, expected, name,
             out_.parameter_error, out_.worst_parameter);
        continue;
      }
      listed += (listed.empty() ? "" : ", ") + name;
      if (reference_.insensitive.contains(name)) continue;
      // Each step moves it by at most about the learning rate.
      const double reach = reference_.lr * static_cast<double>(reference_.losses.size()) * std::sqrt(elements);
      note("weight", std::fabs(ours - expected) <= reach ? 0 : std::fabs(ours - expected) / std::max(reach, 1e-12),
           reference_.tolerance_of_norms(), ours, expected, name, out_.parameter_error, out_.worst_parameter);
    }
    note_insensitive(listed);
  }

  void note_insensitive(const std::string& listed) {
    const std::string said = "insensitive, moved by rounding alone: " + listed;
    if (!listed.empty() && std::find(out_.notes.begin(), out_.notes.end(), said) == out_.notes.end())
      out_.notes.push_back(said);
  }

  void compare_final_buffers() {
    std::string apart, listed;
    for (const auto& [name, expected] : reference_.buffers) {
      // Buffers that a model computes with but does not keep (a table of frequencies) are constants of the file.
      if (!state_.contains(name_here(name, state_))) {
        apart += (apart.empty() ? "" : ", ") + name;
        continue;
      }
      if (reference_.insensitive.contains(name)) {
        listed += (listed.empty() ? "" : ", ") + name;
        continue;
      }
      double elements = 0;
      const double ours = final_norm(name, elements);
      note("buffer", scale_of_statistic(reference_.buffers, name).error(ours, expected),
           reference_.tolerance_of_norms(), ours, expected, name, out_.parameter_error, out_.worst_parameter);
    }
    note_insensitive(listed);
    const std::string said = "no state of the file, so not compared: " + apart;
    if (!apart.empty() && std::find(out_.notes.begin(), out_.notes.end(), said) == out_.notes.end())
      out_.notes.push_back(said);
  }

  void finish() {
    measure(out_.planned, out_.measured);
    out_.hash = hash();
  }

  // An evaluation may need more memory than a step, so there is one first.
  void measure(int64_t& planned, int64_t& measured) const {
    std::vector<const epl_tensor*> batch(
        static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_EVALUATE, EPL_PORT_INPUT)));
    check(epl_dataset_seek(dataset_.get(), 0));
    check(epl_dataset_next(dataset_.get(), nullptr, batch.data(), batch.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    check(epl_session_evaluate(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
    const bool several = job_.processes.several();
    const int64_t first = several ? job_.processes.rank * job_.ranks : 0,
                  end = several ? first + job_.ranks : epl_plan_ranks(plan_.get());
    for (int64_t rank = first; rank < end; ++rank) {
      planned = std::max(planned, epl_plan_memory_bytes_peak(plan_.get(), rank));
      measured = std::max(measured, epl_session_memory_bytes_peak(session_.get(), rank));
    }
  }

  std::string hash() const {
    uint64_t hash = 0;
    check(epl_session_hash(session_.get(), nullptr, &hash));
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
    return hex;
  }

  const CheckOptions& o_;
  JobOptions job_;
  std::string folder_;
  Reference reference_;
  Json optimizer_ = Json::object();  // what the engine says of it
  Engine engine_;
  Model model_;
  Dataset dataset_;
  Store store_;
  Plan plan_;
  Session session_;
  int64_t sessions_ = 0;
  std::set<std::string> state_, rounding_only_;
  Norms norms_at_first_;
  Outcome out_;
};

}  // namespace

double Outcome::seconds_per_step() const {
  std::vector<double> sorted = step_seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

Outcome run_case(const CheckOptions& o, const std::string& folder) { return Case(o, folder).run(); }
OpenedCase open_case(const CheckOptions& o, const std::string& folder) { return Case(o, folder).opened(); }
std::vector<std::string> case_nodes(const CheckOptions& o, const std::string& folder) {
  const OpenedCase opened = open_case(o, folder);
  return forward_nodes(make_plan(opened.model, opened.trainer, make_strategy(opened.engine, o.job), o.job));
}

}  // namespace epl::tools
