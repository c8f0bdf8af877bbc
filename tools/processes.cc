#include "tools/processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/text.h"

namespace epl::tools {
namespace {

constexpr int64_t usual_port = 29511;
constexpr int64_t max_processes = 4096;

class Reader {
 public:
  Reader(const Surroundings& around, const char* launcher) : around_(around), launcher_(launcher) {}
  std::string text(const char* name) const {
    const char* value = around_.environment(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  int64_t number(const char* name) const {
    const std::string value = text(name);
    int64_t number = -1;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (failure != std::errc() || end != value.data() + value.size() || number < 0)
      throw UsageError(std::string(launcher_) + " says " + name + "=" + value + ", which is not a number");
    return number;
  }
  int64_t number_or(const char* name, int64_t otherwise) const { return has(name) ? number(name) : otherwise; }

 private:
  const Surroundings& around_;
  const char* launcher_;
};

std::string tcp(const std::string& host, int64_t port) {
  const bool colons = host.find(':') != std::string::npos;
  return "tcp://" + (colons ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string folders_of_user(const Surroundings& around) {
  return around.temporary + "/epl-" + std::to_string(around.user) + "-";
}
// Its name follows from what all processes of the run know.
std::string rendezvous_path(const Surroundings& around, std::string run) {
  for (char& c : run)
    if (std::strchr("/.@ ", c) != nullptr) c = '-';
  return folders_of_user(around) + run;
}
void rendezvous_in_folder(const Surroundings& around, const std::string& run, Processes& out) {
  out.folder = rendezvous_path(around, run);
  out.rendezvous = "file://" + out.folder;
}

void from_epl(const Reader& from, const Surroundings&, Processes& out) {
  out.rank = from.number("EPL_RANK");
  out.count = from.number("EPL_WORLD_SIZE");
  out.local_count = from.number_or("EPL_LOCAL_WORLD_SIZE", 1);
}

void from_open_mpi(const Reader& from, const Surroundings& around, Processes& out) {
  out.rank = from.number("OMPI_COMM_WORLD_RANK");
  out.count = from.number("OMPI_COMM_WORLD_SIZE");
  out.local_count = from.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", out.count);
  if (out.local_count == out.count)
    rendezvous_in_folder(around,
                         from.has("PMIX_NAMESPACE") ? from.text("PMIX_NAMESPACE") : std::to_string(around.parent), out);
}

void from_pmi(const Reader& from, const Surroundings& around, Processes& out) {
  out.rank = from.number("PMI_RANK");
  out.count = from.number("PMI_SIZE");
  out.local_count = from.number_or("MPI_LOCALNRANKS", out.count);
  if (out.local_count == out.count) rendezvous_in_folder(around, std::to_string(around.parent), out);
}

void from_torchrun(const Reader& from, const Surroundings&, Processes& out) {
  out.rank = from.number("RANK");
  out.count = from.number("WORLD_SIZE");
  out.local_count = from.number_or("LOCAL_WORLD_SIZE", 1);
  // The agent of torchrun may listen at the port itself.
  const bool taken = from.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  out.rendezvous = tcp(from.text("MASTER_ADDR"), from.number_or("MASTER_PORT", usual_port) + (taken ? 1 : 0));
  out.serves = out.rank == 0;
}

// The first host of "a[3-5,7],b": "a3".
std::string first_host(const std::string& list) {
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') return list.substr(0, open);
  const size_t end = list.find_first_of("-,]", open);
  const size_t close = list.find(']', open);
  if (end == std::string::npos || close == std::string::npos) return "";
  const size_t rest = std::min(list.find(',', close), list.size());
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) + list.substr(close + 1, rest - close - 1);
}

void from_slurm(const Reader& from, const Surroundings&, Processes& out) {
  out.rank = from.number("SLURM_PROCID");
  out.count = from.number("SLURM_STEP_NUM_TASKS");
  const int64_t hosts = from.number_or("SLURM_STEP_NUM_NODES", from.number_or("SLURM_NNODES", 1));
  out.local_count = hosts == 1 ? out.count : std::max<int64_t>(1, out.count / std::max<int64_t>(hosts, 1));
  const char* list = from.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  const std::string host = hosts == 1 ? "127.0.0.1" : first_host(from.text(list));
  if (host.empty()) throw UsageError("Slurm says " + std::string(list) + "=" + from.text(list) + ", which has no host");
  // Jobs of one host get ports of their own.
  const int64_t job = from.number_or("SLURM_JOB_ID", 0) * 7 + from.number_or("SLURM_STEP_ID", 0);
  out.rendezvous = tcp(host, from.number_or("MASTER_PORT", 20000 + job % 10000));
  out.serves = out.rank == 0;
}

void from_kubernetes(const Reader& from, const Surroundings& around, Processes& out) {
  out.rank = from.number("JOB_COMPLETION_INDEX");
  out.count = from.number("WORLD_SIZE");
  std::string host = from.text("MASTER_ADDR");
  const std::string own = "-" + std::to_string(out.rank);
  if (host.empty() && from.has("EPL_SERVICE") && around.host_name.ends_with(own))
    host = around.host_name.substr(0, around.host_name.size() - own.size()) + "-0." + from.text("EPL_SERVICE");
  if (host.empty())
    throw UsageError(
        "this is one of " + std::to_string(out.count) +
        " pods of an indexed Job, which do not know where the first one is: name the headless service in EPL_SERVICE, "
        "or an address in MASTER_ADDR");
  out.rendezvous = tcp(host, from.number_or("MASTER_PORT", usual_port));
  out.serves = out.rank == 0;
}

// Those that start others' launchers come last: mpirun runs inside of a Slurm job, not the other way round.
struct Launcher {
  const char* name;
  std::vector<const char*> variables;  // all of them must be there
  void (*read)(const Reader&, const Surroundings&, Processes&);
};
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> rows = {
      {"epl launch", {"EPL_RANK", "EPL_WORLD_SIZE"}, from_epl},
      {"mpirun", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, from_open_mpi},
      {"torchrun", {"RANK", "WORLD_SIZE", "MASTER_ADDR"}, from_torchrun},
      {"Slurm", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, from_slurm},
      {"mpiexec", {"PMI_RANK", "PMI_SIZE"}, from_pmi},
      {"Kubernetes", {"JOB_COMPLETION_INDEX", "WORLD_SIZE"}, from_kubernetes},
  };
  return rows;
}

bool of_this_host(const std::string& rendezvous) {
  constexpr const char* begins[] = {"file://", "tcp://127.", "tcp://localhost:", "tcp://[::1]:", "epl-id-"};
  return std::any_of(std::begin(begins), std::end(begins),
                     [&](const char* begin) { return rendezvous.starts_with(begin); });
}

}  // namespace

SecretText find_secret(const Surroundings& around) {
  const Reader from(around, "the environment");
  SecretText secret;
  std::string name;
  if (from.has("EPL_SECRET_FD")) {
    name = "EPL_SECRET_FD";
    secret =
        SecretText(around.read_descriptor(static_cast<int>(std::min<int64_t>(from.number("EPL_SECRET_FD"), INT_MAX))));
  } else if (from.has("EPL_SECRET_FILE")) {
    name = "the file of EPL_SECRET_FILE";
    secret = SecretText(around.read_file(from.text("EPL_SECRET_FILE")));
  } else {
    return SecretText(from.text("EPL_SECRET"));
  }
  if (secret.empty()) throw UsageError(name + " hands over an empty secret");
  return secret;
}

std::string readable_by_others(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || (info.st_mode & 077) == 0) return "";
  return path + ": others than its owner may read this secret; chmod 600 keeps it";
}

Processes find_processes(const Surroundings& around) {
  Processes out;
  for (const Launcher& launcher : launchers()) {
    const Reader from(around, launcher.name);
    if (!std::ranges::all_of(launcher.variables, [&](const char* name) { return from.has(name); })) continue;
    out.launcher = launcher.name;
    launcher.read(from, around, out);
    break;
  }
  if (out.count < 1 || out.count > max_processes || out.rank >= out.count) {
    throw UsageError(out.launcher + " says that this is process " + std::to_string(out.rank) + " of " +
                     std::to_string(out.count));
  }
  if (!out.several()) return Processes();
  const Reader from(around, out.launcher.c_str());
  out.local_count = std::clamp<int64_t>(out.local_count, 1, out.count);
  out.address = from.text("EPL_ADDRESS");
  out.transport = from.text("EPL_TRANSPORT");
  out.secret = find_secret(around);
  if (from.has("EPL_RENDEZVOUS")) {
    out.rendezvous = from.text("EPL_RENDEZVOUS");
    out.serves = out.rank == 0 && out.launcher != "epl launch" && out.rendezvous.starts_with("tcp://");
    out.folder.clear();
  }
  if (out.rendezvous.empty()) {
    throw UsageError(out.launcher +
                     " has started processes on several hosts, which do not know where to meet: give "
                     "all of them EPL_RENDEZVOUS=tcp://HOST:PORT, an address of the first one's host");
  }
  if (out.secret.empty() && !of_this_host(out.rendezvous)) {
    const std::string where = from.has("EPL_RENDEZVOUS") ? "EPL_RENDEZVOUS" : out.rendezvous;
    throw UsageError("processes that meet at " + where +
                     " need a secret, because others may reach that as well: give all of them the same EPL_SECRET_FILE "
                     "or EPL_SECRET");
  }
  // Other users of this host reach the port as well. The folder's name is that of the port, which one job has at a
  // time. Process 0 serves there, so that the secret is its own to draw.
  const bool served = out.rendezvous.starts_with("tcp://") && out.launcher != "epl launch";
  if (out.secret.empty() && served && out.local_count == out.count) {
    out.draws_secret = true;
    out.folder = rendezvous_path(around, "port-" + out.rendezvous.substr(out.rendezvous.rfind(':') + 1));
  }
  return out;
}

void enter(const Surroundings& around, Processes& processes) {
  if (const char* file = around.environment("EPL_SECRET_FILE"); file != nullptr && processes.leads()) {
    const std::string others = readable_by_others(file);
    if (processes.several() && !others.empty()) say_error("epl: warning: %s\n", others.c_str());
  }
  if (processes.folder.empty()) return;
  processes.rendezvous_folder = std::make_shared<const RendezvousFolder>(processes.folder, folders_of_user(around));
  if (processes.draws_secret)
    processes.secret = processes.rendezvous_folder->secret(processes.leads(), processes.join_seconds);
}

Surroundings surroundings() {
  Surroundings around;
  around.environment = [](const char* name) { return static_cast<const char*>(std::getenv(name)); };
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, HOST_NAME_MAX) == 0) around.host_name = name;
  const char* temporary = std::getenv("TMPDIR");
  around.temporary = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  around.user = ::getuid();
  around.parent = ::getppid();
  around.read_file = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in)
      throw ApiError(EPL_ERROR_NOT_FOUND, "cannot read the file of the secret: " + std::string(std::strerror(errno)),
                     "");
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  // It stays as it is, for other programs that this process may start.
  around.read_descriptor = [](int descriptor) {
    std::string text(4096, '\0');
    const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
    if (got < 0)
      throw ApiError(EPL_ERROR_IO, std::string("cannot read the secret of EPL_SECRET_FD: ") + std::strerror(errno), "");
    text.resize(static_cast<size_t>(got));
    return text;
  };
  return around;
}

int threads_beside(int64_t local_count) {
  cpu_set_t own;
  CPU_ZERO(&own);
  const bool known = ::sched_getaffinity(0, sizeof own, &own) == 0;
  // A launcher that has bound its processes has shared the processors already.
  if (local_count <= 1 || !known || CPU_COUNT(&own) < ::sysconf(_SC_NPROCESSORS_ONLN)) return 0;
  return static_cast<int>(std::max<int64_t>(1, CPU_COUNT(&own) / local_count));
}

namespace {

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9); }

}  // namespace

Session make_session(const Engine& engine, const Plan& plan, const Processes& processes, int64_t ranks, Store& store,
                     const epl_call_options* call, bool slices) {
  epl_session_options options = EPL_SESSION_OPTIONS_INIT;
  if (!processes.several()) return make<Session>(epl_session_create, plan.get(), &options, call);
  if (processes.serves && !store) {
    const std::string at = processes.rendezvous.substr(std::strlen("tcp://"));
    epl_store_options serving = EPL_STORE_OPTIONS_INIT;
    serving.address = at.data();
    serving.address_length = at.size();
    serving.secret = processes.secret.data();
    serving.secret_length = processes.secret.size();
    store = make<Store>(epl_store_create, engine.get(), &serving);
  }
  options.slices = slices;
  options.first_rank = processes.rank * ranks;
  options.ranks = ranks;
  options.rendezvous = processes.rendezvous.data();
  options.rendezvous_length = processes.rendezvous.size();
  options.secret = processes.secret.data();
  options.secret_length = processes.secret.size();
  options.address = processes.address.data();
  options.address_length = processes.address.size();
  options.transport = processes.transport.data();
  options.transport_length = processes.transport.size();
  options.join_timeout_nanoseconds = nanoseconds(processes.join_seconds);
  options.silence_timeout_nanoseconds = nanoseconds(processes.silence_seconds);
  const Agreement& agreement = processes.agreement;
  options.take_weights = agreement.take_weights ? 1 : 0;
  options.compare_every = agreement.compare_every == 0 ? -1 : agreement.compare_every;
  options.integrity = agreement.integrity.data();
  options.integrity_length = agreement.integrity.size();
  return make<Session>(epl_session_create, plan.get(), &options, call);
}

std::string content_of(const std::string& path) {
  constexpr uintmax_t read_quickly = 64 << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return "";
  const uintmax_t size = std::filesystem::file_size(path, ignored);
  std::string out = std::to_string(size) + " bytes";
  if (size > read_quickly) return out;
  std::ifstream in(path, std::ios::binary);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char chunk[1 << 16]; in.read(chunk, sizeof chunk), in.gcount() > 0;) {
    for (std::streamsize i = 0; i < in.gcount(); ++i)
      hash = (hash ^ static_cast<unsigned char>(chunk[i])) * 0x100000001b3;
  }
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return out + ", hash " + hex;
}

void agree(const Session& session, const Json& facts, const Dataset* data) {
  const std::string text = print_json(facts);
  const epl_dataset* const dataset = data != nullptr ? data->get() : nullptr;
  check(epl_session_agree(session.get(), text.data(), text.size(), dataset, nullptr));
}

void bind_data(const Dataset& data, const Plan& plan, int32_t entry, const Processes& processes, int64_t ranks) {
  if (!processes.several()) return check(epl_dataset_bind(data.get(), plan.get(), entry));
  check(epl_dataset_bind_slice(data.get(), plan.get(), entry, processes.rank * ranks, ranks));
}

}  // namespace epl::tools
