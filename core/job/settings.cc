#include "core/job/settings.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

Status check_at_least(const Attributes& all, const char* name, int64_t least) {
  const Attribute* value = all.find(name);
  const int64_t* integer = std::get_if<int64_t>(value);
  const double number = integer ? static_cast<double>(*integer) : std::get<double>(*value);
  if (number >= static_cast<double>(least)) return {};
  return invalid("option ", quoted(std::string_view(name)), " of a job is ", attribute_text(*value), "; ", least,
                 " is the smallest that it can be")
      .at(name);
}

Result<std::vector<std::string>> read_topics(std::string_view text) {
  static const std::vector<std::string> known = {"model", "data",      "batch",   "order",
                                                 "loss",  "optimizer", "options", "all"};
  std::vector<std::string> topics;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (std::ranges::find(known, one) == known.end())
      return invalid("resume_anyway has no topic ", shown(one), choices(one, known)).at("resume_anyway");
    topics.emplace_back(one);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return topics;
}

}  // namespace

const std::vector<Option>& job_options() {
  static const std::vector<Option> options = {
      {.name = "steps",
       .value = int64_t{0},
       .doc = "optimizer steps in all, those of earlier runs included; where they are done already, the job ends at "
              "once, without a step"},
      {.name = "epochs", .value = 0.0, .doc = "instead of steps: times through the data; parts are possible"},
      {.name = "folder",
       .value = std::string(),
       .doc = "where checkpoints and the history are written; empty: nowhere, or the folder of the run that goes on"},
      {.name = "resume",
       .value = std::string(),
       .doc = "a checkpoint to go on from, or the folder of a run, whose newest it is; auto: the newest of the folder, "
              "where there is one; empty: from the session as it is"},
      {.name = "resume_anyway",
       .value = std::string(),
       .doc = "go on although these differ from that run, as a list: model, data, batch, order, loss, optimizer, "
              "options, or all"},
      {.name = "overwrite", .value = false, .doc = "replace the run that the folder holds"},
      {.name = "checkpoint_every", .value = int64_t{0}, .doc = "save every so many steps, instead of by time"},
      {.name = "checkpoint_seconds",
       .value = 600.0,
       .doc = "save when so many seconds have passed; 0: at the end alone, as where a job has several processes"},
      {.name = "keep", .value = int64_t{2}, .doc = "how many of the newest checkpoints stay, beside the best"},
      {.name = "evaluate_every",
       .value = int64_t{0},
       .doc = "measure every so many steps; 0: a quarter of all, or each epoch where epochs are asked for"},
      {.name = "evaluate_epochs", .value = 0.0, .doc = "the same in epochs"},
      {.name = "evaluate_batches", .value = int64_t{0}, .doc = "batches of the held-out data to measure on; 0: all"},
      {.name = "metrics",
       .value = std::string(),
       .doc = "what is measured beside the loss, as \"accuracy, top_k(k=3)\"; empty: what suits the loss; none"},
      {.name = "monitor",
       .value = std::string("loss"),
       .doc = "the number that says which weights are best: loss or a metric"},
      {.name = "patience",
       .value = int64_t{0},
       .doc = "end after so many measurements in a row without a better one; 0: never"},
      {.name = "restore_best", .value = false, .doc = "the session has the best weights in the end, not the last"},
      {.name = "check",
       .value = true,
       .doc = "before the first step look through all data for labels and indices that the model cannot take"},
      {.name = "measured_on",
       .value = std::string(),
       .doc = "what the held-out data is, in words of the host's own, for the history: a JSON object. Numbers of other "
              "data do not say which weights are best",
       .json = true}};
  return options;
}

Result<JobSettings> read_job_settings(const Attributes& given) {
  EPL_ASSIGN(const Attributes all, complete_options(job_options(), given, "a job"));
  for (const char* name : {"steps", "epochs", "checkpoint_every", "checkpoint_seconds", "evaluate_every",
                           "evaluate_epochs", "evaluate_batches", "patience"})
    EPL_TRY(check_at_least(all, name, 0));
  EPL_TRY(check_at_least(all, "keep", 1));
  JobSettings out;
  out.steps = all.integer("steps");
  out.epochs = all.number("epochs");
  out.folder = all.text("folder");
  out.resume = all.text("resume");
  EPL_ASSIGN(out.resume_anyway, read_topics(all.text("resume_anyway")));
  out.overwrite = all.flag("overwrite");
  out.checkpoint_every = all.integer("checkpoint_every");
  out.checkpoint_seconds = all.number("checkpoint_seconds");
  out.keep = all.integer("keep");
  out.evaluate_every = all.integer("evaluate_every");
  out.evaluate_epochs = all.number("evaluate_epochs");
  out.evaluate_batches = all.integer("evaluate_batches");
  out.metrics = all.text("metrics");
  out.monitor = all.text("monitor");
  out.patience = all.integer("patience");
  out.restore_best = all.flag("restore_best");
  out.check = all.flag("check");
  out.measured_on = all.text("measured_on");
  if (out.steps > 0 && out.epochs > 0)
    return invalid("both steps and epochs say how long the job is; give one of them").at("epochs");
  return out;
}

}  // namespace epl
