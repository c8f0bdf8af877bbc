// A process of a job of several: rank_process RENDEZVOUS FIRST RANKS WORLD STEPS RESULT [die_in STEP | late_at STEP |
// save FOLDER] It trains, predicts, and writes what came out to the file RESULT. `die_in` ends it by SIGKILL in the
// middle of that step, `late_at` begins that step after the others' patience has ended, which is then made again;
// `save` saves with the others at the end.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "core/runtime/session_state.h"
#include "tests/runtime/two_processes.h"

namespace epl {
namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "rank_process: %s\n", what.c_str());
  return 1;
}

int run(const std::vector<std::string>& words) {
  if (words.size() != 6 && words.size() != 8) return fail("it takes 6 or 8 words");
  const auto number = [&](size_t i) { return static_cast<int>(std::strtol(words[i].c_str(), nullptr, 10)); };
  const int die_in = words.size() == 8 && words[6] == "die_in" ? number(7) : -1;
  const int late_at = words.size() == 8 && words[6] == "late_at" ? number(7) : -1;
  int64_t step = 0;
  int readings = 0;
  Host host = process_host();
  host.seconds = [&] {
    if (step == die_in && ++readings == 5) ::raise(SIGKILL);  // the clock is read before each instruction
    return seconds_now();
  };
  auto plan = two_process_plan(host, number(3));
  if (!plan.ok()) return fail(plan.status().to_string());
  auto place = folder_rendezvous(words[0]);
  if (!place.ok()) return fail(place.status().to_string());
  auto session = Session::create(
      host, *plan, {.seed = 7, .first_rank = number(1), .ranks = number(2), .rendezvous = *place, .join_seconds = 30});
  if (!session.ok()) return fail(session.status().to_string());
  std::vector<double> losses;
  for (; step < number(4); ++step) {
    StepMetrics metrics;
    if (step == late_at) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const Status refused = (*session)->step(mlp_batch(step), metrics, {.timeout_seconds = 60});
      if (refused.code() != Code::peer_failed)
        return fail(cat("a step that another process gave up: ", refused.to_string()));
    }
    Status status = (*session)->step(mlp_batch(step), metrics, {.timeout_seconds = 60});
    if (!status.ok()) return fail(status.to_string());
    losses.push_back(metrics.loss);
  }
  if (words.size() == 8 && words[6] == "save") {
    if (Status status = save_session(**session, words[7]); !status.ok()) return fail(status.to_string());
  }
  std::vector<Tensor> outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  const std::vector<Tensor> batch = mlp_batch(100);
  if (Status status = (*session)->predict(std::span(batch).first(1), outputs); !status.ok())
    return fail(status.to_string());
  std::ofstream out(words[5], std::ios::binary);
  out << all_state(**session, losses);
  out.write(static_cast<const char*>(outputs[0].data()), outputs[0].bytes());
  return out.flush() ? 0 : fail("it cannot write its result");
}

}  // namespace
}  // namespace epl

int main(int count, char** words) { return epl::run({words + 1, words + count}); }
