#include "tools/case_processes.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "tools/launch.h"
#include "tools/scratch_folder.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(1e308); }

Json layout_json(const LayoutResult& layout) {
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

Outcome outcome_of(const Json& line) {
  Outcome out{.loss_error = line.at("loss_error"),
              .gradient_error = line.at("gradient_error"),
              .parameter_error = line.at("parameter_error")};
  out.pass = line.at("pass");
  out.planned = line.at("planned_peak_bytes");
  out.measured = line.at("measured_peak_bytes");
  out.hash = line.at("weights_hash");
  out.losses = line.at("losses").get<std::vector<double>>();
  out.step_seconds = line.at("step_seconds").get<std::vector<double>>();
  out.notes = line.value("notes", std::vector<std::string>());
  return out;
}

// The words that start one of the processes.
std::vector<std::string> command(const CheckOptions& o, const std::string& folder, int64_t ranks) {
  std::vector<std::string> words = {"epl",         "check",    folder, "--json", "--ranks", std::to_string(ranks),
                                    "--precision", o.precision};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--device", o.job.device);
  add("--strategy", o.job.strategy);
  add("--packs", o.job.packs);
  add("--kernel-cache", o.job.kernel_cache);
  if (o.job.threads > 0) add("--threads", std::to_string(o.job.threads));
  if (o.job.micro_batches > 0) add("--micro-batches", std::to_string(o.job.micro_batches));
  if (o.details) words.emplace_back("--details");
  return words;
}

// What a process has printed; an error of its own where it has printed nothing.
Json line_of(const std::string& logs, int64_t process) {
  const std::string path = logs + "/" + std::to_string(process);
  const Json line = try_parse_json(read_file(path + ".out"));
  if (line.is_object()) return line;
  std::string said = read_file(path + ".err");
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Json{{"pass", false}, {"ended", true}, {"error", said.substr(said.find_last_of('\n') + 1)}};
}

[[noreturn]] void throw_error(const Json& line, int64_t process) {
  const std::string said = line.at("error");
  if (line.contains("code")) throw ApiError(line.at("code"), said, "");
  throw UsageError("process " + std::to_string(process) + ": " +
                   (said.empty() ? "it ended without a word of what it found" : said));
}

// By process. What the first one says beside it is passed on.
std::vector<Json> lines_of_processes(const CheckOptions& o, const std::string& folder, int64_t processes) {
  std::vector<Json> lines;
  int signal = 0;
  {
    const ScratchFolder scratch;
    LaunchOptions launched{.processes = processes, .logs = scratch.path() + "/logs", .quiet = true};
    launched.rendezvous = "file://" + scratch.path();
    launched.command = command(o, folder, o.job.ranks / processes);
    const int code = launch(launched);
    for (const int asked : {SIGINT, SIGTERM, SIGHUP}) signal = code == 128 + asked ? asked : signal;
    for (int64_t p = 0; p < processes; ++p) lines.push_back(line_of(launched.logs, p));
    std::fputs(printable(read_file(launched.logs + "/0.err")).c_str(), stderr);
  }
  if (signal != 0) std::raise(signal);  // which the processes were asked to end by, and this one as well
  return lines;
}

// One that ended because another had failed says less than that one.
void throw_first_error(const std::vector<Json>& lines) {
  const auto failed = [&](bool of_itself) {
    return std::ranges::find_if(lines, [&](const Json& line) {
      const bool followed = line.contains("ended") || line.value("code", 0) == EPL_ERROR_PEER_FAILED;
      return line.contains("error") && (followed != of_itself);
    });
  };
  auto first = failed(true);
  if (first == lines.end()) first = failed(false);
  if (first != lines.end()) throw_error(*first, first - lines.begin());
}

}  // namespace

Json outcome_json(const std::string& name, const Outcome& r) {
  Json losses = Json::array();
  for (const double loss : r.losses) losses.push_back(number(loss));
  Json line = Json{{"case", name},
                   {"pass", r.pass},
                   {"loss_error", number(r.loss_error)},
                   {"gradient_error", number(r.gradient_error)},
                   {"parameter_error", number(r.parameter_error)},
                   {"planned_peak_bytes", r.planned},
                   {"measured_peak_bytes", r.measured},
                   {"weights_hash", r.hash},
                   {"losses", losses},
                   {"seconds_per_step", r.seconds_per_step()},
                   {"step_seconds", r.step_seconds}};
  if (r.processes > 1) line["processes"] = r.processes;
  if (!r.notes.empty()) line["notes"] = r.notes;
  for (const LayoutResult& layout : r.layouts) line["layouts"].push_back(layout_json(layout));
  return line;
}

Json error_json(const std::string& name, const std::exception& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  const bool place = api && !api->where.empty() && std::string(error.what()).find(api->where) == std::string::npos;
  Json line = {{"case", name},
               {"pass", false},
               {"error", std::string(error.what()) + (place ? " (at " + api->where + ")" : "")}};
  if (api) line["code"] = api->code;
  return line;
}

Outcome run_case_in_processes(const CheckOptions& o, const std::string& folder) {
  int64_t processes = std::min(o.processes, o.job.ranks);
  while (o.job.ranks % processes != 0) --processes;
  if (processes <= 1) return run_case(o, folder);
  const std::vector<Json> lines = lines_of_processes(o, folder, processes);
  throw_first_error(lines);
  Outcome out = outcome_of(lines[0]);
  out.processes = processes;
  for (int64_t p = 1; p < processes; ++p) {
    const Outcome other = outcome_of(lines[static_cast<size_t>(p)]);
    for (const char* key : {"pass", "loss_error", "gradient_error", "parameter_error", "weights_hash", "losses"}) {
      const Json &here = lines[static_cast<size_t>(p)].at(key), &there = lines[0].at(key);
      if (here == there) continue;
      out.pass = false;
      out.notes.push_back("process " + std::to_string(p) + " has " + key + " " + print_json(here) + ", process 0 " +
                          print_json(there));
    }
    // As of the ranks of one process: of those that have the most. Others may need it for an entry that is not run.
    out.planned = std::max(out.planned, other.planned);
    out.measured = std::max(out.measured, other.measured);
  }
  return out;
}

}  // namespace epl::tools
