// What loading a checkpoint takes of the host's memory: one layout saves, another one loads.
//
//   epl_loading MODEL FOLDER [--batch N] [--sequence N] [--from RANKS] [--to RANKS]
//
// A job of FROM processes, of one rank each and split over them, trains a step and saves into FOLDER. A job of TO
// processes loads that, and so does one process of TO ranks. Memory is what the system says: the most that was resident
// while a process loaded, less what was resident before. Everything a session needs is resident by then.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/base/memory.h"
#include "core/net/rendezvous.h"
#include "core/runtime/session_checkpoint.h"

namespace epl {
namespace {

struct Options {
  std::string model, folder;
  int batch = 1, sequence = 64, from = 1, to = 4;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Host make_host() {
  return {.seconds = now,
          .allocate = allocate_memory,
          .release = [](void* memory, size_t, size_t) { release_memory(memory); },
          .log =
              [](LogLevel level, std::string_view text) {
                if (level != LogLevel::info) std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
              },
          .threads = 1};
}

// A field of /proc/self/status, in bytes.
int64_t memory_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::strtoll(line.c_str() + field.size() + 1, nullptr, 10) << 10;
  }
  return -1;
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Options& options, int ranks) {
  PlanOptions wanted;
  EPL_ASSIGN(wanted.model, load_model(options.model));
  wanted.train.optimizer = "adamw";
  wanted.train.optimizer_options = {{"lr", 1e-4}};
  wanted.evaluate = wanted.predict = false;
  wanted.ranks = ranks;
  for (const ModelPort& port : wanted.model->inputs())
    wanted.binding.input_shapes[port.name] = {options.batch, options.sequence};
  EPL_ASSIGN(wanted.strategy, parse_strategy(ranks > 1 ? cat("{\"default\": {\"split\": ", ranks, "}}") : "{}"));
  return CompiledPlan::create(make_host(), wanted);
}

Status train_and_save(Session& session, const Options& options) {
  std::vector<Tensor> inputs;
  for (const Port& port : session.plan().entry(EntryKind::train)->inputs) {
    inputs.emplace_back(port.global_type);
    for (int64_t i = 0; i < inputs.back().elements(); ++i) inputs.back().set(i, static_cast<double>(i % 13));
  }
  StepMetrics metrics;
  EPL_TRY(session.step(inputs, metrics));
  return save_session(session, options.folder);
}

Status load_and_measure(Session& session, const Options& options) {
  int64_t state = 0, shard = 0;
  int ranks = 0;
  for (const auto& rank : session.world().ranks()) {
    const StateLayout& layout = session.plan().state_of(rank->virtual_device);
    state += layout.bytes();
    ++ranks;
    for (const StateSlot& slot : layout.slots()) shard = std::max(shard, slot.local.bytes());
  }
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = memory_of("VmRSS");
  const double begin = now();
  EPL_TRY(load_session(session, options.folder));
  const double seconds = now() - begin;
  const int64_t most = memory_of("VmHWM");
  if (before < state) return invalid("only ", before, " bytes of ", state, " of the state were resident");
  std::printf("| %d | %d | %d | %.1f | %.1f | %.1f | %.2f |\n", options.from, session.world().size(), ranks,
              static_cast<double>(state) / 1048576.0, static_cast<double>(shard) / 1048576.0,
              static_cast<double>(most - before) / 1048576.0, seconds);
  std::fflush(stdout);
  return {};
}

// A job of processes that are children of this one.
bool run_job(const Options& options, int world, int processes, const std::function<Status(Session&)>& work) {
  const std::string rendezvous = options.folder + ".rendezvous";
  std::filesystem::remove_all(rendezvous);
  std::filesystem::create_directories(rendezvous);
  const auto child = [&](int first) -> Status {
    EPL_ASSIGN(const auto plan, plan_of(options, world));
    SessionOptions own;
    if (processes > 1) {
      own.first_rank = first;
      own.ranks = world / processes;
      EPL_ASSIGN(own.rendezvous, folder_rendezvous(rendezvous));
    }
    EPL_ASSIGN(const std::unique_ptr<Session> session, Session::create(make_host(), plan, own));
    return work(*session);
  };
  bool all = true;
  for (int p = 0; p < processes; ++p) {
    const pid_t made = ::fork();
    if (made < 0) std::perror("epl_loading: fork");
    all = all && made >= 0;
    if (made != 0) continue;
    const Status status = child(p * (world / processes));
    if (!status.ok()) std::fprintf(stderr, "epl_loading: %s\n", status.to_string().c_str());
    ::_exit(status.ok() ? 0 : 1);
  }
  bool good = all;
  for (int status = 0; ::wait(&status) > 0;) good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  std::filesystem::remove_all(rendezvous);
  return good;
}

bool measure(const Options& options) {
  if (!run_job(options, options.from, options.from, [&](Session& s) { return train_and_save(s, options); }))
    return false;
  std::printf("| saved by | loaded by | ranks here | state, MiB | largest shard, MiB | taken, MiB | s |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  std::fflush(stdout);
  const auto load = [&](Session& s) { return load_and_measure(s, options); };
  return run_job(options, options.to, options.to, load) && (options.to == 1 || run_job(options, options.to, 1, load));
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  epl::Options options;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    int* number = nullptr;
    if (word == "--batch") number = &options.batch;
    if (word == "--sequence") number = &options.sequence;
    if (word == "--from") number = &options.from;
    if (word == "--to") number = &options.to;
    if (number == nullptr || i + 1 == argc) {
      words.push_back(word);
    } else {
      *number = std::atoi(argv[++i]);
    }
  }
  if (words.size() != 2 || options.from < 1 || options.to < 1 || options.batch < 1 || options.sequence < 1) {
    std::fprintf(stderr, "usage: epl_loading MODEL FOLDER [--batch N] [--sequence N] [--from RANKS] [--to RANKS]\n");
    return 2;
  }
  options.model = words[0];
  options.folder = words[1];
  return epl::measure(options) ? 0 : 1;
}
