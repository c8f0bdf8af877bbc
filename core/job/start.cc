// How a job begins: what it is told, what would fail later, and the run that it goes on from.
#include <algorithm>
#include <cmath>

#include "core/base/shown.h"
#include "core/job/job.h"
#include "core/runtime/entry_data.h"

namespace epl {
namespace {

// "optimizer was adam, now it is sgd".
std::string difference_text(const FactDifference& one) {
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("nothing") : value; };
  return cat(one.key, " was ", shown(one.saved), ", now it is ", shown(one.now));
}

Json value_json(const Attribute& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return Json(*flag);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return Json(*integer);
  if (const double* number = std::get_if<double>(&value)) return Json(*number);
  return Json(std::get<std::string>(value));
}

Status check_entry(const Dataset& data, const Entry& entry, const Stop& stop) {
  return data.endless() ? Status() : check_dataset(data, entry, stop);
}

}  // namespace

Status Job::set(std::string_view json) {
  EPL_ASSIGN(const Attributes all, parse_options(json, job_options(), "a job"));
  if (json.empty()) return {};
  EPL_ASSIGN(const Json read, parse_json(json));
  Attributes given = given_;
  for (const auto& [key, value] : read.items()) given.set(key, *all.find(key));
  return take_settings(std::move(given));
}

Status Job::set(std::string_view key, std::string_view text) {
  EPL_ASSIGN(const Attributes read,
             parse_options(OptionTexts{{std::string(key), std::string(text)}}, job_options(), "a job"));
  Attributes given = given_;
  for (const Attributes::Entry& one : read.entries()) given.set(one.name, one.value);
  return take_settings(std::move(given));
}

Status Job::take_settings(Attributes given) {
  if (started_) return error(Code::misuse, "this job has started; its settings stay as they are");
  EPL_TRY(read_job_settings(given).status());
  for (const char* name : {"folder", "resume", "overwrite"}) {
    const Attribute *before = given_.find(name), *now = given.find(name);
    const bool same = before && now ? identical(*before, *now) : before == now;
    if (folder_ && !same) return error(Code::misuse, "this job has taken its folder; ", name, " stays as it is");
  }
  given_ = std::move(given);
  return {};
}

Status Job::read_settings() {
  EPL_ASSIGN(settings_, read_job_settings(given_));
  const std::string& from = settings_.resume;
  if (from == "auto") {
    if (settings_.folder.empty()) return invalid("resume is auto, and there is no folder to look in").at("resume");
    const std::string newest = find_checkpoint(settings_.folder);
    resume_ = newest == settings_.folder ? "" : newest;
  } else {
    resume_ = from.empty() ? "" : find_checkpoint(from);
    if (settings_.folder.empty() && resume_ != from) settings_.folder = from;
  }
  return {};
}

Status Job::open_folder(bool leads) {
  if (folder_ || settings_.folder.empty()) return {};
  if (leads) {
    EPL_ASSIGN(folder_, RunFolder::take(settings_.folder, resume_, settings_.overwrite));
  } else {
    EPL_ASSIGN(folder_, RunFolder::share(settings_.folder));
  }
  return {};
}

Status Job::take_folder() {
  if (started_) return error(Code::misuse, "this job has started");
  EPL_TRY(read_settings());
  if (settings_.folder.empty()) return invalid("the job has no folder to take").at("folder");
  return open_folder(true);
}

Status Job::check_length(const Dataset& data) {
  if (settings_.epochs > 0) {
    if (data.endless())
      return invalid("nobody knows how many batches an epoch of this data has; give steps instead of epochs")
          .at("epochs");
    settings_.steps = std::max<int64_t>(1, std::llround(settings_.epochs * static_cast<double>(data.batches())));
  }
  if (settings_.steps > 0 || data.endless()) return {};
  return invalid("how long the job is, is not said; give steps or epochs").at("steps");
}

// What this process alone can see.
Status Job::prepare(const JobParts& parts, const Stop& stop) {
  EPL_TRY(read_settings());
  leads_ = parts.session.world().is_local(0);
  EPL_TRY(check_length(*parts.data.dataset));
  if (settings_.restore_best && settings_.folder.empty())
    return invalid("restore_best needs a folder that the best weights are kept in").at("restore_best");
  EPL_ASSIGN(watch_, Watch::create(parts.session, settings_, *parts.data.dataset, parts.held_out));
  if (parts.session.plan().entry(EntryKind::train) == nullptr)
    return invalid("the session's plan has nothing to train; make it with a trainer");
  if (settings_.check) EPL_TRY(check_data(parts, stop));
  EPL_TRY(open_folder(leads_));
  return resume_.empty() ? Status() : check_continues(parts);
}

// All processes write their parts of a checkpoint there: each says whether it sees the folder of the one that took it.
Status Job::check_folder_is_seen(Session& session) const {
  if (!folder_ || !session.world().over_processes()) return {};
  EPL_TRY(session.world().agree(leads_ ? folder_->leave_mark() : Status()));
  const Result<std::vector<std::string>> said = session.world().tell(leads_ || folder_->sees_mark() ? "yes" : "no");
  if (leads_) folder_->take_mark_away();
  EPL_TRY(said.status());
  std::vector<std::string> blind;
  for (size_t p = 0; p < said->size(); ++p) {
    if ((*said)[p] != "yes") blind.push_back(std::to_string(p));
  }
  if (blind.empty()) return {};
  return invalid(blind.size() == 1 ? "process " : "processes ", join(blind, ", "), blind.size() == 1 ? " does" : " do",
                 " not see the folder ", shown_path(folder_->path()),
                 " of process 0; all write checkpoints there: give a folder that "
                 "all of them see under one name")
      .at(folder_->path());
}

Status Job::check_data(const JobParts& parts, const Stop& stop) const {
  const CompiledPlan& plan = parts.session.plan();
  EPL_TRY(check_entry(*parts.data.dataset, *plan.entry(EntryKind::train), stop));
  if (parts.held_out == nullptr) return {};
  const Status held_out = check_entry(*parts.held_out, *plan.entry(EntryKind::evaluate), stop);
  return held_out.ok() ? held_out : held_out.with_context("held-out data");
}

// What makes another run of it must be meant.
Status Job::check_continues(const JobParts& parts) const {
  const auto meant = [&](const std::string& topic) {
    return std::ranges::find(settings_.resume_anyway, topic) != settings_.resume_anyway.end();
  };
  EPL_ASSIGN(const std::vector<FactDifference> differences, compare_session(parts.session, resume_, parts.data));
  std::vector<std::string> what, topics;
  for (const FactDifference& one : differences) {
    if (!one.breaks || meant(one.topic) || meant("all")) continue;
    what.push_back(difference_text(one));
    if (std::ranges::find(topics, one.topic) == topics.end()) topics.push_back(one.topic);
  }
  if (what.empty()) return {};
  return invalid("this would not go on with the run of ", shown_path(resume_), ": ", join(what, "; "),
                 ". Give what it began with, or resume_anyway = ", join(topics, ","))
      .at(resume_);
}

// The history is read before the processes of a job come together: then the one that leads writes it.
Status Job::go_on(const JobParts& parts, const Stop& stop) {
  if (!resume_.empty()) {
    if (folder_) history_.read(folder_->history());
    const StopScope stopping(parts.session.world().call(), stop);
    EPL_TRY(load_session(parts.session, resume_, parts.data));
  }
  first_step_ = parts.session.host_state().steps_done();
  now_.steps = settings_.steps;
  now_.step = first_step_;
  const Json earlier = history_.held_out();
  history_.begin(folder_ && leads_ ? folder_->history() : "", first_step_, settings_.steps);
  earlier_seconds_ = history_.seconds();
  began_ = last_saved_ = host_.seconds();
  count_samples(parts);
  first_samples_ = now_.samples;
  if (settings_.steps > 0 && first_step_ >= settings_.steps) {
    tell(JobEventKind::warning,
         cat(first_step_, " steps were done before: steps = ", settings_.steps, " leaves nothing to do"));
  }
  if (watch_->any()) return parts.session.world().agree(tell_held_out(parts, earlier));
  if (!earlier.empty()) history_.add_held_out(earlier);  // for a run that measures again
  return {};
}

Status Job::tell_held_out(const JobParts& parts, const Json& earlier) {
  EPL_ASSIGN(const Watch::Told told, watch_->tell(*parts.held_out, earlier));
  for (const std::string& warning : told.warnings) tell(JobEventKind::warning, warning);
  if (told.same) watch_->remember(history_.lines());
  history_.add_held_out(told.event);
  if (watch_->best()) now_.best_value = *watch_->best();
  now_.best_step = watch_->best_step();
  best_lost_ = folder_ && now_.best_step >= 0 && folder_->step_of_best() != now_.best_step;
  return {};
}

Status Job::start(const JobParts& parts, const Stop& stop) {
  if (started_) return error(Code::misuse, "this job has started already");
  EPL_TRY(parts.session.world().agree(prepare(parts, stop)));
  EPL_TRY(check_alike(parts));
  EPL_TRY(check_folder_is_seen(parts.session));
  EPL_TRY(go_on(parts, stop));
  started_ = true;
  return {};
}

Json Job::describe() const {
  Json settings = Json::object();
  for (const Option& option : job_options()) {
    const Attribute* value = given_.find(option.name);
    settings[option.name] = value_json(value ? *value : option.value);
  }
  Json out = {{"schema", 1}, {"settings", settings}};
  const auto optional = [](bool there, const std::string& text) { return there ? Json(text) : Json(); };
  out["folder"] = optional(folder_ != nullptr, folder_ ? folder_->path() : "");
  out["resumed_from"] = optional(!resume_.empty(), resume_);
  out["checkpoint"] = optional(folder_ && saved_step_ >= 0, folder_ ? folder_->newest() : "");
  const int64_t best_step = watch_ ? watch_->best_step() : -1;
  out["best_checkpoint"] =
      optional(folder_ && folder_->best_step() >= 0 && !best_lost_, folder_ ? folder_->best() : "");
  out["first_step"] = first_step_;
  out["step"] = now_.step;
  out["steps"] = now_.steps;
  out["seconds"] = now_.seconds;
  out["earlier_seconds"] = earlier_seconds_;
  out["monitor"] = watch_ && watch_->any() ? Json(watch_->monitor()) : Json();
  out["best_step"] = best_step;
  out["best_value"] = watch_ && watch_->best() ? Json(*watch_->best()) : Json();
  out["held_out"] = history_.held_out();
  {
    const std::lock_guard lock(ending_);
    out["ended"] = job_end_names[static_cast<size_t>(end_)];
    out["reason"] = end_reason_;
  }
  out["history"] = Json::array();
  for (const Json& line : history_.lines()) out["history"].push_back(line);
  return out;
}

}  // namespace epl
