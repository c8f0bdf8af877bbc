// A process of a job of several: rank_process RENDEZVOUS FIRST RANKS WORLD STEPS RESULT [KEY VALUE]... It trains,
// predicts, and writes what came out to the file RESULT. By the keys `die_in STEP` it ends by SIGKILL in the middle of
// that step; `late_at STEP` begins that step after the others' patience has ended, which is then made again; `save
// FOLDER` saves with the others at the end, `load FOLDER` loads before the first step, `export FILE` takes part in an
// export; `damage WEIGHT` writes instead what it says of a step with a NaN in it; `strategy JSON` trains the model with
// a skip connection by it, on the device of `device NAME`, whose compiled kernels stay in `kernels FOLDER`; `transport
// NAME` and `silence SECONDS` are those of the session; `steps N` stands for STEPS.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/export.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/two_processes.h"

namespace epl {
namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "rank_process: %s\n", what.c_str());
  return 1;
}

// What it says of a step with a weight that is not a number.
int skip_a_step(Session& session, const std::string& weight, const std::string& result) {
  Tensor value = *session.state().get(weight);
  value.set(3 * 16 + 13, NAN);
  if (Status status = session.state().set(weight, value); !status.ok()) return fail(status.to_string());
  StepMetrics metrics;
  if (Status status = session.step(mlp_batch(0), metrics); !status.ok()) return fail(status.to_string());
  std::ofstream out(result, std::ios::binary);
  out << metrics.skipped.rank() << " " << metrics.skipped.message();
  return out.flush() ? 0 : fail("it cannot write its result");
}

// What a process has of the system's.
struct Holdings {
  int64_t descriptors = 0, threads = 0, shared = 0;
  static Holdings now() {
    namespace fs = std::filesystem;
    Holdings out{std::distance(fs::directory_iterator("/proc/self/fd"), {}),
                 std::distance(fs::directory_iterator("/proc/self/task"), {}), 0};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) out.shared += line.find("memfd:epl") != std::string::npos;
    return out;
  }
  // A thread that was joined is listed until the system has ended it. So the lowest of some readings counts, the last
  // of which are after `seconds` at most if more threads stay than there are to be.
  static Holdings at_rest(int64_t threads, double seconds) {
    Holdings out = now();
    const double begin = seconds_now();
    while (out.threads > threads && seconds_now() < begin + seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const Holdings next = now();
      if (next.threads <= out.threads) out = next;
    }
    return out;
  }
  std::string text() const { return cat(descriptors, " descriptors, ", threads, " threads, ", shared, " mappings"); }
};

constexpr int lost_a_peer = 3;
constexpr double soon = 10;  // seconds, of a busy machine; nobody waits for a rank that is known to be lost

// Who has lost a peer, or has heard of it, says so again at once.
Status say_it_again(const Host& host, Session& session, const Status& why) {
  if (why.code() != Code::peer_failed) return why;
  const double begin = host.seconds();
  StepMetrics metrics;
  const Status again = session.step(mlp_batch(static_cast<int>(session.host_state().steps_done())), metrics);
  const bool known = again.code() == Code::peer_failed || again.code() == Code::state_lost;
  if (!known || host.seconds() - begin > soon) {
    return error(Code::internal, "after \"", why.message(), "\" the next step gave, after ", host.seconds() - begin,
                 " s: ", again.to_string());
  }
  return why;
}

// Trains up to so many steps from the newest checkpoint in `folder` on, which it makes after each step. When a peer is
// lost it writes what it was told, checks that nothing is left of the session, and ends with `lost_a_peer`.
int survive(const Host& host, const std::shared_ptr<const CompiledPlan>& plan, const SessionOptions& options, int steps,
            const std::string& folder, const std::string& result) {
  std::thread([] {}).join();  // with the first thread a sanitizer may start one of its own, which stays
  const Holdings before = Holdings::at_rest(1, 0.02);
  std::ofstream out(result, std::ios::binary);
  const auto train = [&]() -> Status {
    EPL_ASSIGN(const std::unique_ptr<Session> session, Session::create(host, plan, options));
    std::ofstream(result + ".begun").flush();
    if (std::filesystem::exists(folder + "/manifest.epl")) EPL_TRY(load_session(*session, folder));
    while (session->host_state().steps_done() < steps) {
      StepMetrics metrics;
      Status status = session->step(mlp_batch(static_cast<int>(session->host_state().steps_done())), metrics,
                                    {.stop = Stop::after(host.seconds, 60)});
      if (status.ok()) status = save_session(*session, folder);
      EPL_TRY(say_it_again(host, *session, status));
    }
    EPL_ASSIGN(const std::string state, gathered_state(*session, {}));
    out << state;
    return session->world().agree({});
  };
  const Status status = train();
  const Holdings after = Holdings::at_rest(before.threads, 10);
  if (status.code() == Code::peer_failed) out << status.message();
  if (!out.flush()) return fail("it cannot write its result");
  if (after.descriptors != before.descriptors + 1 /* the result */ || after.threads != before.threads ||
      after.shared != 0)
    return fail(cat("it had ", before.text(), ", now it has ", after.text()));
  if (status.code() == Code::peer_failed) return lost_a_peer;
  return status.ok() ? 0 : fail(status.to_string());
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 6 || words.size() % 2 != 0) return fail("it takes 6 words and then pairs of words");
  std::map<std::string, std::string> keys;
  for (size_t i = 6; i < words.size(); i += 2) keys[words[i]] = words[i + 1];
  const auto number = [&](size_t i) { return static_cast<int>(std::strtol(words[i].c_str(), nullptr, 10)); };
  const auto step_of = [&](const char* key) {
    return keys.contains(key) ? static_cast<int>(std::strtol(keys[key].c_str(), nullptr, 10)) : -1;
  };
  const int die_in = step_of("die_in"), late_at = step_of("late_at");
  int64_t step = 0;
  int readings = 0;
  Host host = process_host();
  host.seconds = [&] {
    if (step == die_in && ++readings == 5) ::raise(SIGKILL);  // the clock is read before each instruction
    return seconds_now();
  };
  host.kernel_cache = keys["kernels"];
  const std::string device = keys.contains("device") ? keys["device"] : "cpu";
  auto plan = keys.contains("strategy") ? strategy_plan(host, number(3), keys["strategy"], device)
                                        : two_process_plan(host, number(3));
  if (!plan.ok()) return fail(plan.status().to_string());
  auto rendezvous = folder_rendezvous(words[0]);
  if (!rendezvous.ok()) return fail(rendezvous.status().to_string());
  SessionOptions options = {
      .seed = 7, .first_rank = number(1), .ranks = number(2), .rendezvous = *rendezvous, .join_seconds = 30};
  if (keys.contains("transport")) options.transport = keys["transport"];
  if (keys.contains("silence")) options.silence_seconds = std::strtod(keys["silence"].c_str(), nullptr);
  if (keys.contains("survive"))
    return survive(host, *plan, options, keys.contains("steps") ? step_of("steps") : number(4), keys["survive"],
                   words[5]);
  auto session = Session::create(host, *plan, options);
  if (!session.ok()) return fail(session.status().to_string());
  if (keys.contains("load")) {
    if (Status status = load_session(**session, keys["load"]); !status.ok()) return fail(status.to_string());
  }
  if (keys.contains("damage")) return skip_a_step(**session, keys["damage"], words[5]);
  std::vector<double> losses;
  for (; step < number(4); ++step) {
    StepMetrics metrics;
    if (step == late_at) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const Status refused = (*session)->step(mlp_batch(step), metrics, {.stop = Stop::after(host.seconds, 60)});
      if (refused.code() != Code::peer_failed)
        return fail(cat("a step that another process gave up: ", refused.to_string()));
    }
    Status status = (*session)->step(mlp_batch(step), metrics, {.stop = Stop::after(host.seconds, 60)});
    if (!status.ok()) return fail(status.to_string());
    losses.push_back(metrics.loss);
  }
  if (keys.contains("save")) {
    if (Status status = save_session(**session, keys["save"]); !status.ok()) return fail(status.to_string());
  }
  if (keys.contains("export")) {
    if (Status status = export_weights(**session, keys["export"]); !status.ok()) return fail(status.to_string());
  }
  std::ofstream out(words[5], std::ios::binary);
  out << answer(**session, losses);
  return out.flush() ? 0 : fail("it cannot write its result");
}

}  // namespace
}  // namespace epl

int main(int count, char** words) { return epl::run({words + 1, words + count}); }
