// How quick ranks of several processes are together: bandwidth and latency of a collective by size, of each way to be
// connected, in turns in one run.
//
//   epl_collectives [--ranks N] [--kind all_reduce|all_gather|...] [--least BYTES] [--most BYTES] [--tries N]
//                   [--ways shared,sockets,gloo,...]
//
// Starts N processes of one rank each. A way is a transport (Joining::transport): `shared` (memory that the processes
// share), `sockets`, `pack:NAME` (what a pack carries); or `gloo` or `mpi`: Gloo's or MPI's own all-reduce, where this
// was built with it. All processes of MPI are started by mpirun, so with `mpi` or `pack:mpi` this program starts itself
// under it. All work on the same memory, all_reduce and broadcast in place. In each try the ways take turns, so that
// other work of the machine disturbs all of them. Prints, for each size and way, the median time of one call that the
// slowest rank has seen, the bytes of one operand by that time, and the median over the tries of its time by that of
// the first way. dispatch and combine move rows of 1 KiB, which go to the ranks in turn.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "core/backend/device.h"
#include "core/base/memory.h"
#include "core/net/rendezvous.h"

namespace epl {
namespace {

constexpr std::string_view by_pack = "pack:";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Host make_host() {
  return {.seconds = now,
          .allocate = allocate_memory,
          .release = [](void* memory, size_t, size_t) { release_memory(memory); },
          .log = [](LogLevel, std::string_view) {},
          .threads = 1,
          .spare_processors = true,
          .packs = EPL_PACK_FOLDER};
}

int64_t rows_of(int64_t bytes) { return std::max<int64_t>(1, bytes / 1024); }

struct Options {
  int ranks = 2;
  Collective::Kind kind = Collective::Kind::all_reduce;
  int64_t least = 4, most = int64_t{64} << 20;
  int tries = 11;
  std::vector<std::string> ways = {"shared", "sockets"};
  std::string folder = {};  // the rendezvous, of a process that mpirun has started
};

// One way to be connected: by a communicator, or by another engine, whose ranks find each other by a communicator in
// between.
struct Way {
  std::string name;
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<Peer> peer;
  int64_t repeats = 1;
  std::vector<double> seconds;  // of each try, by the slowest rank
};

Result<Way> join(const std::string& name, const std::string& folder, const Joining& joining, Rendezvous& rendezvous) {
  Way way{.name = name, .ranks = nullptr, .peer = nullptr, .seconds = {}};
  if (name == "gloo") {
    EPL_ASSIGN(way.peer, join_gloo(folder + "/gloo", joining.rank, joining.size));
  } else if (name == "mpi") {
    EPL_ASSIGN(way.peer, join_mpi());
  } else {
    Joining own = joining;
    own.transport = name.starts_with(by_pack) ? name.substr(by_pack.size()) : name;
    EPL_ASSIGN(const std::shared_ptr<Device> device, open_device("cpu", make_host()));
    EPL_ASSIGN(way.ranks, device->join(own, rendezvous));
  }
  return way;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The ranks as one of them sees them.
class Ranks {
 public:
  Ranks(std::unique_ptr<Communicator> barrier, Stream& stream) : barrier_(std::move(barrier)), stream_(stream) {}

  // One try of one way: as many calls as fit in a few milliseconds.
  Status measure(Way& way, const Collective& call) {
    EPL_TRY(barrier_->run(stream_, {.kind = Collective::Kind::barrier}));
    const double begin = now();
    for (int64_t i = 0; i < way.repeats; ++i) {
      if (way.peer) {
        way.peer->all_reduce(static_cast<float*>(call.target), call.count);
      } else {
        EPL_TRY(way.ranks->run(stream_, call));
      }
    }
    double seconds = (now() - begin) / static_cast<double>(way.repeats);
    EPL_TRY(barrier_->run(stream_, {.kind = Collective::Kind::all_reduce,
                                    .dtype = DType::f64,
                                    .count = 1,
                                    .source = &seconds,
                                    .target = &seconds,
                                    .reduction = Reduction::max}));
    way.seconds.push_back(seconds);
    way.repeats = std::clamp<int64_t>(static_cast<int64_t>(0.02 / seconds), 1, 5000);
    return {};
  }

 private:
  std::unique_ptr<Communicator> barrier_;
  Stream& stream_;
};

void print_row(int64_t bytes, const std::vector<Way>& ways) {
  std::printf("%12ld", static_cast<long>(bytes));
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (size_t i = 0; i < way.seconds.size(); ++i) ratios.push_back(way.seconds[i] / ways.front().seconds[i]);
    const double seconds = median(way.seconds);
    std::printf(" %13.2f %9.3f %6.2f", seconds * 1e6, static_cast<double>(bytes) / seconds * 1e-9, median(ratios));
  }
  std::printf("\n");
  std::fflush(stdout);
}

Status rank_process(const Options& options, const std::string& folder, int rank) {
  EPL_ASSIGN(const std::shared_ptr<Rendezvous> rendezvous, folder_rendezvous(folder));
  EPL_ASSIGN(const std::shared_ptr<Device> device, open_device("cpu", make_host()));
  EPL_ASSIGN(const std::unique_ptr<Stream> stream, device->create_stream(1));
  Joining joining{.group = "between", .rank = rank, .size = options.ranks};
  EPL_ASSIGN(auto between, device->join(joining, *rendezvous));
  Ranks ranks(std::move(between), *stream);
  std::vector<Way> ways;
  for (const std::string& name : options.ways) {
    if ((name == "gloo" || name == "mpi") && options.kind != Collective::Kind::all_reduce)
      return unsupported(name, " is measured for all_reduce");
    joining.group = name;
    EPL_ASSIGN(Way way, join(name, folder, joining, *rendezvous));
    ways.push_back(std::move(way));
  }
  const auto all = static_cast<size_t>(options.most) * static_cast<size_t>(options.ranks);
  const bool in_place = options.kind == Collective::Kind::all_reduce || options.kind == Collective::Kind::broadcast;
  std::vector<float> target(all / sizeof(float)), source(in_place ? 0 : target.size());
  std::vector<int64_t> owners(static_cast<size_t>(options.ranks) * static_cast<size_t>(rows_of(options.most)));
  for (size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<int64_t>(i) % options.ranks;
  if (rank == 0) {
    std::printf("%s, %d processes\n%12s", collective_name(options.kind).data(), options.ranks, "bytes");
    for (const Way& way : ways) std::printf(" %10s us %9s %6s", way.name.c_str(), "GB/s", "ratio");
    std::printf("\n");
  }
  for (int64_t bytes = options.least; bytes <= options.most; bytes *= 4) {
    for (Way& way : ways) way.repeats = 1, way.seconds.clear();
    for (int attempt = 0; attempt <= options.tries; ++attempt) {
      for (Way& way : ways) {
        EPL_TRY(ranks.measure(way, {.kind = options.kind,
                                    .dtype = DType::f32,
                                    .count = bytes / 4,
                                    .source = in_place ? target.data() : source.data(),
                                    .target = target.data(),
                                    .rows = rows_of(bytes),
                                    .owners = owners.data()}));
        if (attempt == 0) way.seconds.clear();  // memory is new, and nobody knows how many calls to make
      }
    }
    if (rank == 0) print_row(bytes, ways);
  }
  return {};
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--ranks") options.ranks = std::atoi(value.c_str());
    if (key == "--tries") options.tries = std::max(1, std::atoi(value.c_str()));
    if (key == "--least") options.least = std::max<int64_t>(4, std::atoll(value.c_str()));
    if (key == "--most") options.most = std::atoll(value.c_str());
    if (key == "--folder") options.folder = value;
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
  return options;
}

// All processes by fork; this one is rank 0.
Status start_processes(const Options& options, const std::string& folder) {
  std::vector<pid_t> others;
  for (int rank = 1; rank < options.ranks; ++rank) {
    if (const pid_t other = ::fork(); other != 0) {
      others.push_back(other);
      continue;
    }
    const Status status = rank_process(options, folder, rank);
    ::_exit(status.ok() ? 0 : 1);
  }
  const Status status = rank_process(options, folder, 0);
  std::fflush(stdout);
  if (!status.ok()) {
    for (const pid_t other : others) ::kill(other, SIGKILL);  // they may wait for a rank that never comes
  }
  // By name: MPI starts children of its own, which stay.
  for (const pid_t other : others) ::waitpid(other, nullptr, 0);
  return status;
}

// This program again under mpirun, which gives each process its rank. Nobody is bound to a processor, as under fork.
Status start_by_mpirun(const Options& options, const std::string& folder, int count, char** words) {
  const std::string ranks = std::to_string(options.ranks), self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<const char*> line = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                                   "-n",     ranks.c_str(),         self.c_str()};
  line.insert(line.end(), words + 1, words + count);
  line.insert(line.end(), {"--folder", folder.c_str(), nullptr});
  const pid_t started = ::fork();
  if (started == 0) {
    ::execvp(line[0], const_cast<char* const*>(line.data()));
    std::perror("mpirun");
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(started, &status, 0);
  return status == 0 ? Status() : error(Code::io, "mpirun ended with status ", status);
}

int run(int count, char** words) {
  const Options options = parse(count, words);
  Status status;
  if (!options.folder.empty()) {
    status = rank_process(options, options.folder, mpi_rank());
  } else {
    const std::string folder =
        (std::filesystem::temp_directory_path() / ("epl_collectives_" + std::to_string(::getpid()))).string();
    const bool by_mpi = std::ranges::any_of(options.ways, [](const std::string& way) { return way.ends_with("mpi"); });
    status = by_mpi ? start_by_mpirun(options, folder, count, words) : start_processes(options, folder);
    std::filesystem::remove_all(folder);
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace epl

int main(int count, char** words) { return epl::run(count, words); }
