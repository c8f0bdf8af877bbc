// epl check: trains cases with known answers and compares every number with PyTorch's.
#include <filesystem>
#include <limits>

#include "tools/case.h"
#include "tools/case_processes.h"
#include "tools/commands.h"
#include "tools/layouts.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

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

std::string layout_text(const LayoutResult& layout, const std::string& expected) {
  std::string out = std::to_string(layout.threads) + " thread(s), " + std::to_string(layout.micro_batches) +
                    " micro-batch(es), " + std::to_string(layout.ranks) + " rank(s): ";
  if (!layout.refused.empty()) return out + "refused: " + layout.refused;
  return out + (layout.hash == expected ? "the same bits" : "OTHER BITS, " + layout.hash);
}

void print(const CheckOptions& o, const std::string& name, const Outcome& r) {
  if (o.job.json) {
    say_json(outcome_json(name, r));
  } else {
    std::string worst;
    if (!r.pass)
      worst = "  worst gradient " + (r.worst_gradient.empty() ? "-" : r.worst_gradient) + ", parameter " +
              (r.worst_parameter.empty() ? "-" : r.worst_parameter);
    say("%s  %s: loss %s, gradient %s, parameter %s; memory %lld planned, %lld measured; weights %s; %s ms a step%s\n",
        r.pass ? "pass" : "FAIL", printable_line(name).c_str(), scientific(r.loss_error).c_str(),
        scientific(r.gradient_error).c_str(), scientific(r.parameter_error).c_str(), static_cast<long long>(r.planned),
        static_cast<long long>(r.measured), r.hash.c_str(), fixed(r.seconds_per_step() * 1e3, 2).c_str(),
        worst.c_str());
    for (const std::string& note : r.notes) say("      %s\n", printable_line(note).c_str());
    for (const LayoutResult& layout : r.layouts) say("      %s\n", layout_text(layout, r.hash).c_str());
  }
  std::fflush(stdout);
}

void print_error(const CheckOptions& o, const std::string& name, const std::exception& error) {
  const Json line = error_json(name, error);
  if (o.job.json) {
    say_json(line);
  } else {
    say("FAIL  %s: %s\n", printable_line(name).c_str(), printable_line(line.at("error").get<std::string>()).c_str());
  }
  std::fflush(stdout);
}

// Every case under every strategy: as right as without one, and where nothing is split, with the same bits. Another
// job, as one of independent micro-batches or in mixed precision, has the bits of one rank that does it, beside a split
// at level `layout`.
class StrategyCheck {
 public:
  explicit StrategyCheck(const CheckOptions& o)
      : o_(o), rows_(parse_strategies(read_file(o.strategies), o.strategies)) {
    if (!o.options.empty()) rows_ = with_options(rows_, read_file(o.options), o.options);
  }

  int run() {
    for (const std::string& folder : o_.cases) {
      const int64_t due = (o_.every - pairs_ % o_.every) % o_.every;
      if (due >= static_cast<int64_t>(rows_.size())) {
        pairs_ += static_cast<int64_t>(rows_.size());
        continue;
      }
      const std::string name = case_name(folder);
      try {
        run_one(folder, name);
      } catch (const std::exception& e) {
        ++failed_;
        print_error(o_, name, e);
      }
    }
    if (o_.job.json) {
      say_json({{"event", "done"}, {"passed", passed_}, {"refused", refused_}, {"failed", failed_}});
    } else {
      say("%lld passed, %lld refused, %lld failed\n", static_cast<long long>(passed_), static_cast<long long>(refused_),
          static_cast<long long>(failed_));
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  void run_one(const std::string& folder, const std::string& name) {
    const std::string alone = run_case(o_, folder).hash;
    const std::vector<std::string> nodes = case_nodes(o_, folder);
    for (const StrategyRow& row : rows_) {
      if (pairs_++ % o_.every != 0) continue;
      Json line = {{"case", name}, {"strategy", row.name}, {"pass", false}};
      try {
        const bool is_own = is_another_job(row);
        int64_t budget = std::numeric_limits<int64_t>::max();
        const CheckOptions o = under(row, folder, nodes, budget);
        // Processes end where one of them does not find the reference's numbers, which are those of another job.
        const Outcome outcome = is_own ? run_case(o, folder) : run_case_in_processes(o, folder);
        const std::string& wanted = is_own ? one_rank(folder, row) : alone;
        const bool bits = (row.layout.split > 1 && !is_own) || outcome.hash == wanted,
                   memory = outcome.planned == outcome.measured && outcome.planned <= budget;
        line["pass"] = (outcome.pass || is_own) && bits && memory;
        const Json said = outcome_json(name, outcome);
        for (const char* key : {"loss_error", "parameter_error", "weights_hash"}) line[key] = said.at(key);
        if (outcome.processes > 1) line["processes"] = outcome.processes;
        if (!outcome.notes.empty() && !outcome.pass) line["notes"] = outcome.notes;
        if (!bits)
          line["error"] = (is_own ? "other bits than on one rank, " : "other bits than without a strategy, ") + wanted;
        if (!memory)
          line["error"] = std::to_string(outcome.planned) + " bytes were planned and " +
                          std::to_string(outcome.measured) + " used" +
                          (outcome.planned > budget ? " of " + std::to_string(budget) : "");
      } catch (const ApiError& e) {
        const bool is_refusal = e.code == EPL_ERROR_UNSUPPORTED || e.code == EPL_ERROR_INVALID_ARGUMENT;
        line[is_refusal && may_refuse(row, folder, nodes, e) ? "refused" : "error"] = error_json(name, e).at("error");
      }
      tell(line);
    }
  }

  // A strategy may not fit a model. An option beside it changes no place of any work, so it is refused where the
  // strategy is, or for a reason that the list names.
  bool may_refuse(const StrategyRow& row, const std::string& folder, const std::vector<std::string>& nodes,
                  const ApiError& why) const {
    if (!row.alone) return true;
    for (const std::string& reason : row.refusals) {
      if (std::string_view(why.what()).find(reason) != std::string_view::npos) return true;
    }
    CheckOptions o = o_;
    o.job.ranks = row.alone->ranks();
    o.job.strategy = print_json(strategy_of(*row.alone, {}, nodes));
    try {
      case_peak(o, folder);
    } catch (const ApiError&) {
      return true;
    }
    return false;
  }

  // What one rank that does another job is told as well.
  static Json job_keys(const StrategyRow& row) {
    Json out = Json::object();
    for (const char* name : {"batch.semantics", "communication.gradients_reduce_method", "communication.fp16",
                             "communication.fp16_scale", "communication.fp16_type", "amp.level", "amp.type"}) {
      const auto key = row.layout.keys.find(name);
      if (key != row.layout.keys.end()) out[name] = key->second;
    }
    if (out.contains("batch.semantics"))
      out["pipeline.num_micro_batch"] = row.layout.keys.at("pipeline.num_micro_batch");
    return out;
  }
  static bool is_another_job(const StrategyRow& row) { return !job_keys(row).empty() || !row.optimizer.empty(); }

  void add_optimizer(const StrategyRow& row, CheckOptions& o) const {
    o.job.optimizer_options.insert(o.job.optimizer_options.end(), row.optimizer.begin(), row.optimizer.end());
  }

  // `budget`: the bytes of one, where the row has one.
  CheckOptions under(const StrategyRow& row, const std::string& folder, const std::vector<std::string>& nodes,
                     int64_t& budget) const {
    CheckOptions o = o_;
    o.job.ranks = row.layout.ranks();
    Json strategy = strategy_of(row.layout, {}, nodes);
    if (is_another_job(row) && row.layout.split > 1) strategy["reproducible.level"] = "layout";
    o.job.strategy = print_json(strategy);
    add_optimizer(row, o);
    if (row.budget == 0) return o;
    budget = static_cast<int64_t>(row.budget * static_cast<double>(case_peak(o, folder)));
    strategy["memory.budget"] = std::to_string(budget);
    strategy["offload.folder"] = std::filesystem::temp_directory_path().string();
    o.job.strategy = print_json(strategy);
    return o;
  }

  const std::string& one_rank(const std::string& folder, const StrategyRow& row) {
    Json strategy = job_keys(row);
    if (row.layout.split > 1) strategy["reproducible.level"] = "layout";
    CheckOptions o = o_;
    o.job.ranks = 1;
    o.job.strategy = print_json(strategy);
    add_optimizer(row, o);
    std::string& hash = hashes_[{folder, o.job.strategy + (row.optimizer.empty() ? "" : row.optimizer.front())}];
    if (hash.empty()) hash = run_case(o, folder).hash;
    return hash;
  }

  void tell(const Json& line) {
    const bool pass = line.at("pass"), refused = line.contains("refused");
    (pass ? passed_ : refused ? refused_ : failed_) += 1;
    if (o_.job.json) {
      say_json(line);
    } else {
      std::string more = line.contains("refused") ? line.at("refused") : line.value("error", Json(""));
      if (!pass && more.empty()) more = "loss or weights are not those of the reference: " + print_json(line);
      say("%s  %s: %s%s%s\n",
          pass      ? "pass"
          : refused ? "refused"
                    : "FAIL",
          printable_line(line.at("case").get<std::string>()).c_str(), line.at("strategy").get<std::string>().c_str(),
          more.empty() ? "" : ": ", printable_line(more).c_str());
    }
    std::fflush(stdout);
  }

  const CheckOptions& o_;
  std::vector<StrategyRow> rows_;
  std::map<std::pair<std::string, std::string>, std::string> hashes_;
  int64_t pairs_ = 0, passed_ = 0, refused_ = 0, failed_ = 0;
};

// A case that no plan can be made for is said, and the others come all the same.
int print_texts(const CheckOptions& o) {
  bool all = true;
  for (const std::string& folder : o.cases) {
    try {
      std::fputs(case_texts(o, folder).c_str(), stdout);
    } catch (const std::exception& e) {
      say_error("epl: %s: %s\n", printable_line(case_name(folder)).c_str(), printable_line(e.what()).c_str());
      all = false;
    }
  }
  return all ? 0 : 1;
}

// In this process, which may be one of several, or in several that this one starts.
int run_check(CheckOptions& o) {
  if (o.texts) return print_texts(o);
  if (!o.strategies.empty()) return StrategyCheck(o).run();
  if (o.processes == 1) o.job.processes = find_processes(o.job);
  if (o.job.processes.several() && !o.job.processes.rendezvous.starts_with("file://")) {
    throw UsageError(
        "epl check makes several sessions, and processes that meet at a store can make one; epl check --processes " +
        std::to_string(o.job.processes.count) + " starts them itself");
  }
  o.job.ranks *= o.processes;
  bool all = true;
  for (const std::string& folder : o.cases) {
    try {
      const Outcome outcome = run_case_in_processes(o, folder);
      all &= outcome.pass;
      print(o, case_name(folder), outcome);
    } catch (const std::exception& e) {
      print_error(o, case_name(folder), e);
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
  auto* layouts = app.add_flag(
      "--layouts", o->layouts,
      "train also on 1 and 2 threads, in 2 and 4 micro-batches and on 2 and 4 ranks, and compare the bits; a "
      "cut that is refused is listed with its reason");
  app.add_option("--strategies", o->strategies,
                 "train under each strategy of a list, too: JSON, as in tests/cases/strategies.json; what a strategy "
                 "cannot cut is listed with the reason")
      ->type_name("FILE")
      ->check(existing_file());
  app.add_option("--options", o->options,
                 "with --strategies: each option of a list, alone and beside each strategy, instead of the strategies "
                 "themselves: JSON, as in tests/cases/options.json; one that is refused where its strategy is not, and "
                 "for no reason of its list refused, is a failure")
      ->type_name("FILE")
      ->check(existing_file());
  app.add_option("--every", o->every, "with --strategies: only each Nth pair of a case and a strategy")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_option(
         "--processes", o->processes,
         "train in N processes of this host, which find each other as those of epl launch do, each with --ranks "
         "ranks; with --strategies each strategy's own ranks are given to as many of N as divide them")
      ->check(integer_value(1))
      ->capture_default_str()
      ->excludes(layouts);
  add_shape_options(app, o->job);
  app.option_defaults()->group(groups::watching);
  app.add_flag("--texts", o->texts,
               "train nothing: print what the kernels of each case's plan are compiled from, a line of JSON each; with "
               "--device cuda:h100 no GPU is needed");
  app.add_flag("--details", o->details, "every number that is compared, on standard error");
  app.add_flag("--json", o->job.json, "a JSON line for each case");
  add_machine_options(app, o->job);
  app.footer(
      "Every loss must be within 1e-4 of the float64 reference, relative (or within ten times PyTorch's own float32 "
      "error, but never "
      "more than 1e-3), every gradient norm of the first step and every final norm within 1e-3 (or three times the "
      "spread of final_param_norms_f32, never "
      "more than 1e-2). A value below 1e-7 of the largest of its kind (losses, gradients, weights, the statistics of a "
      "norm) is zero in truth; its error counts against a thousandth of that. \"insensitive\" lists weights and "
      "statistics that are not compared. What reference.json lacks, misspells or contradicts is an error. Running "
      "statistics that the "
      "export moved are "
      "compared from PyTorch's own start (mean 0, variance 1), if nothing but the start makes the difference. The hash "
      "is XXH64 over the bytes of the "
      "trained parameters in the order of their names.");
  return [o] { return run_check(*o); };
}

}  // namespace epl::tools
