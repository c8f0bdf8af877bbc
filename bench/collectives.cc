// How quick ranks of several processes are together: bandwidth and latency of a collective by size, of each way to be
// connected, in turns in one run.
//
//   epl_collectives [--ranks N] [--kind all_reduce|all_gather|...] [--most BYTES] [--ways shared,sockets,...]
//
// Starts N processes of one rank each. A way is a device whose ranks join (`Device::join`), or one of `shared` (the
// CPU's own choice on one host) and `sockets`. Prints, for each size, the smallest time of one call that the slowest
// rank has seen, and the bytes of one operand by that time. The smallest and not the mean: other work of the machine
// only adds.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/cpu/process_communicator.h"
#include "core/base/memory.h"

namespace epl {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Host make_host() {
  return {.seconds = now,
          .allocate = allocate_memory,
          .release = [](void* memory, size_t, size_t) { release_memory(memory); },
          .log = [](LogLevel, std::string_view) {},
          .threads = 1,
          .spare_processors = true};
}

struct Options {
  int ranks = 2;
  Collective::Kind kind = Collective::Kind::all_reduce;
  int64_t most = int64_t{64} << 20;
  std::vector<std::string> ways = {"shared", "sockets"};
};

Result<std::unique_ptr<Communicator>> join(const std::string& way, const Joining& joining, Rendezvous& rendezvous) {
  if (way == "sockets") return cpu::join_processes(joining, rendezvous, now, false);
  EPL_ASSIGN(const std::shared_ptr<Device> device, open_device(way == "shared" ? "cpu" : way, make_host()));
  return device->join(joining, rendezvous);
}

// The smallest time of one call in some tries. Each try is as many calls as fit in a few milliseconds.
Result<double> measure(Communicator& ranks, Stream& stream, const Collective& call) {
  int64_t repeats = 1;
  double best = 1e9;
  for (int attempt = 0; attempt < 12; ++attempt) {
    EPL_TRY(ranks.run(stream, {.kind = Collective::Kind::barrier}));
    const double begin = now();
    for (int64_t i = 0; i < repeats; ++i) EPL_TRY(ranks.run(stream, call));
    double seconds = (now() - begin) / static_cast<double>(repeats);
    EPL_TRY(ranks.run(stream, {.kind = Collective::Kind::all_reduce,
                               .dtype = DType::f64,
                               .count = 1,
                               .source = &seconds,
                               .target = &seconds,
                               .reduction = Reduction::max}));
    best = std::min(best, seconds);
    repeats = std::clamp<int64_t>(static_cast<int64_t>(0.02 / seconds), 1, 5000);
  }
  return best;
}

Status rank_process(const Options& options, const std::string& folder, int rank) {
  EPL_ASSIGN(const std::shared_ptr<Rendezvous> rendezvous, folder_rendezvous(folder));
  EPL_ASSIGN(const std::shared_ptr<Device> device, open_device("cpu", make_host()));
  EPL_ASSIGN(const std::unique_ptr<Stream> stream, device->create_stream(1));
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const std::string& way : options.ways) {
    EPL_ASSIGN(auto joined, join(way, {.group = way, .rank = rank, .size = options.ranks}, *rendezvous));
    groups.push_back(std::move(joined));
  }
  const auto all = static_cast<size_t>(options.most) * static_cast<size_t>(options.ranks);
  std::vector<float> source(all / sizeof(float), 1.0f), target(source.size());
  if (rank == 0) {
    std::printf("%s, %d processes\n%12s", collective_name(options.kind).data(), options.ranks, "bytes");
    for (const std::string& way : options.ways) std::printf(" %11s us %10s GB/s", way.c_str(), "");
    std::printf("\n");
  }
  for (int64_t bytes = 4; bytes <= options.most; bytes *= 4) {
    if (rank == 0) std::printf("%12ld", static_cast<long>(bytes));
    for (const auto& group : groups) {
      EPL_ASSIGN(const double seconds, measure(*group, *stream,
                                               {.kind = options.kind,
                                                .dtype = DType::f32,
                                                .count = bytes / 4,
                                                .source = source.data(),
                                                .target = target.data()}));
      if (rank == 0) std::printf(" %14.2f %15.3f", seconds * 1e6, static_cast<double>(bytes) / seconds * 1e-9);
    }
    if (rank == 0) std::printf("\n"), std::fflush(stdout);
  }
  return {};
}

int run(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--ranks") options.ranks = std::atoi(value.c_str());
    if (key == "--most") options.most = std::atoll(value.c_str());
    if (key == "--kind") {
      for (int k = 0; k <= static_cast<int>(Collective::Kind::barrier); ++k) {
        const auto kind = static_cast<Collective::Kind>(k);
        if (collective_name(kind) == value) options.kind = kind;
      }
    }
    if (key == "--ways") {
      options.ways.clear();
      for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        options.ways.push_back(value.substr(at, end - at));
        at = end + 1;
      }
    }
  }
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("epl_collectives_" + std::to_string(::getpid()))).string();
  for (int rank = 1; rank < options.ranks; ++rank) {
    if (::fork() != 0) continue;
    const Status status = rank_process(options, folder, rank);
    ::_exit(status.ok() ? 0 : 1);
  }
  const Status status = rank_process(options, folder, 0);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  int ended = 0;
  while (::wait(&ended) > 0) {
  }
  std::filesystem::remove_all(folder);
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace epl

int main(int count, char** words) { return epl::run(count, words); }
