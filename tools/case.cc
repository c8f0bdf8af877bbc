#include "tools/case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/binding.h"
#include "tools/case_run.h"
#include "tools/case_scale.h"
#include "tools/layouts.h"
#include "tools/text.h"
#include "tools/trained.h"

namespace epl::tools {
namespace {

double norm_of(const epl_tensor* tensor) {
  double sum = 0;
  for (const double v : elements_of(tensor)) sum += v * v;
  return std::sqrt(sum);
}

// A case whose numbers are compared with those of its reference.
class Case final : CaseRun {
 public:
  using CaseRun::CaseRun;

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
      out_.losses.push_back(metrics.loss);
      out_.step_seconds.push_back(static_cast<double>(metrics.nanoseconds) * 1e-9);
      const double error = scale.error(metrics.loss, losses[i]);
      const double allowed = reference_.loss_tolerance_at(i);
      if (!(error <= allowed)) out_.pass = false;
      if (o_.details)
        say_error("%s  step %zu loss %.9g, expected %.9g, error %.1e of %.1e\n", error <= allowed ? "    " : "FAIL", i,
                  metrics.loss, losses[i], error, allowed);
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
      say_error("%s  %-8s %.9g, expected %.9g, error %.1e of %.1e  %s\n", error <= allowed ? "    " : "FAIL", what,
                ours, expected, error, allowed, name.c_str());
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

  std::set<std::string> rounding_only_;
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
OpenedCase open_case(const CheckOptions& o, const std::string& folder) { return CaseRun(o, folder).opened(); }
std::vector<std::string> case_nodes(const CheckOptions& o, const std::string& folder) {
  const OpenedCase opened = open_case(o, folder);
  return forward_nodes(make_plan(opened.model, opened.trainer, make_strategy(opened.engine, o.job), o.job));
}
int64_t case_peak(const CheckOptions& o, const std::string& folder) {
  const OpenedCase opened = open_case(o, folder);
  const Plan plan = make_plan(opened.model, opened.trainer, make_strategy(opened.engine, o.job), o.job);
  int64_t peak = 0;
  for (int64_t rank = 0; rank < epl_plan_ranks(plan.get()); ++rank)
    peak = std::max(peak, epl_plan_memory_bytes_peak(plan.get(), rank));
  return peak;
}
std::string case_texts(const CheckOptions& o, const std::string& folder) {
  const OpenedCase opened = open_case(o, folder);
  const Plan plan = make_plan(opened.model, opened.trainer, make_strategy(opened.engine, o.job), o.job);
  std::string out;
  for (const std::string_view stage : {"train.texts", "evaluate.texts"})
    out += text_of(epl_plan_print, plan.get(), stage.data(), stage.size(), nullptr);
  return out;
}

}  // namespace epl::tools
