#include "tools/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/job.h"
#include "tools/processes.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

extern char** environ;

namespace epl::tools {
namespace {

constexpr int not_found = 127;  // what a shell says of a program that is not there

[[noreturn]] void fail(const std::string& doing) {
  throw ApiError(EPL_ERROR_IO, doing + ": " + std::strerror(errno), "");
}

std::string drawn_secret() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail("the system gives no random numbers");
  std::string out;
  for (const unsigned char byte : bytes) out += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return out;
}

// Of the file, which the first host makes where it is not there; or of the environment; or drawn.
std::string secret_of(const LaunchOptions& o, bool several_hosts, bool first_host) {
  const Surroundings around = surroundings();
  if (o.secret_file.empty()) {
    const std::string given = find_secret(around);
    if (given.empty() && several_hosts)
      throw UsageError(
          "several hosts need a secret that all of them have: --secret-file FILE (epl makes it on the first "
          "one), EPL_SECRET_FILE or EPL_SECRET");
    return given.empty() ? drawn_secret() : given;
  }
  struct stat info{};
  if (::stat(o.secret_file.c_str(), &info) != 0 && errno == ENOENT && first_host) {
    const int file = ::open(o.secret_file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const std::string made = drawn_secret() + "\n";
    if (file < 0 || ::write(file, made.data(), made.size()) != static_cast<ssize_t>(made.size()) || ::close(file) != 0)
      fail("cannot write " + o.secret_file);
    std::fprintf(stderr, "epl: a secret was made in %s\n", o.secret_file.c_str());
  }
  std::string secret = around.read_file(o.secret_file);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) throw UsageError(o.secret_file + " is empty; it should hold the secret of the job");
  return secret;
}

// Memory that processes inherit: what is in it stands neither in their arguments nor in their environment.
int secret_memory(const std::string& secret) {
  const int memory = ::memfd_create("epl-secret", MFD_CLOEXEC);
  if (memory < 0 || ::write(memory, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail("cannot hand over the secret");
  return memory;
}

struct Stream {
  int from = -1;  // a pipe
  int to = -1;    // standard output or error, or a file
  std::string kept;
};

struct Child {
  int64_t rank = 0;
  pid_t process = -1;
  bool alive = false;
  Stream out, error;
};

class Launch {
 public:
  Launch(const LaunchOptions& o, std::vector<LaunchHost> hosts, size_t own)
      : o_(o), hosts_(std::move(hosts)), own_(own), engine_(make_engine({})) {}

  Launch(const Launch&) = delete;
  ~Launch() {
    if (signals_ < 0) return;
    ::close(signals_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int run() {
    const bool several = hosts_.size() > 1, first = own_ == 0;
    const std::string secret = secret_of(o_, several, first);
    const int memory = secret_memory(secret);
    memory_path_ = "/proc/self/fd/" + std::to_string(memory);
    if (!o_.rendezvous.empty()) {
      rendezvous_ = o_.rendezvous;
    } else if (first) {
      serve(secret, several);
    }
    if (!first) rendezvous_ = "tcp://" + hosts_[0].name + ":" + std::to_string(o_.port);
    if (first && several) tell_other_hosts();
    watch();
    for (int64_t i = 0; i < hosts_[own_].count; ++i) start(i, memory);
    ::close(memory);
    while (std::ranges::any_of(children_, &Child::alive)) {
      const double left = end_at_ > 0 ? std::max(0.0, end_at_ - steady_seconds()) : 3600;
      look(static_cast<int>(left * 1e3) + 1);
    }
    // All that they have printed lies in the pipes by now. What a process left running may hold these open; nobody
    // waits for that.
    const double enough = steady_seconds() + 1;
    while (any_open() && look(0) > 0 && steady_seconds() < enough) continue;
    for (Child& child : children_) {
      for (Stream* stream : {&child.out, &child.error})
        if (stream->from >= 0) end(child, *stream);
    }
    return code_;
  }

 private:
  void serve(const std::string& secret, bool several) {
    const std::string at = several ? hosts_[0].name + ":" + std::to_string(o_.port) : "127.0.0.1:0";
    epl_store_options options = EPL_STORE_OPTIONS_INIT;
    options.address = at.data();
    options.address_length = at.size();
    options.secret = secret.data();
    options.secret_length = secret.size();
    store_ = make<Store>(epl_store_create, engine_.get(), &options);
    rendezvous_ = std::string("tcp://") + epl_store_address(store_.get(), nullptr);
  }

  void tell_other_hosts() const {
    std::string words = " --hosts " + o_.hosts.front();
    for (size_t i = 1; i < o_.hosts.size(); ++i) words += "," + o_.hosts[i];
    if (o_.port != LaunchOptions().port) words += " --port " + std::to_string(o_.port);
    if (!o_.secret_file.empty()) words += " --secret-file " + shell_word(o_.secret_file);
    std::string command;
    for (const std::string& word : o_.command) command += " " + shell_word(word);
    for (size_t i = 1; i < hosts_.size(); ++i) {
      std::fprintf(stderr, "epl: on %s, with the same secret: epl launch --host %s%s --%s\n", hosts_[i].name.c_str(),
                   hosts_[i].name.c_str(), words.c_str(), command.c_str());
    }
  }

  // Signals are read like anything else; the processes begin with those of this one before.
  void watch() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&wanted, signal);
    ::sigprocmask(SIG_BLOCK, &wanted, &before_);
    signals_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) fail("cannot wait for signals");
    ::signal(SIGPIPE, SIG_IGN);
  }

  std::vector<std::string> environment(int64_t local, int memory) const {
    int64_t count = 0;
    for (const LaunchHost& host : hosts_) count += host.count;
    std::vector<std::string> out = {"EPL_RANK=" + std::to_string(hosts_[own_].first + local),
                                    "EPL_WORLD_SIZE=" + std::to_string(count),
                                    "EPL_LOCAL_RANK=" + std::to_string(local),
                                    "EPL_LOCAL_WORLD_SIZE=" + std::to_string(hosts_[own_].count),
                                    "EPL_RENDEZVOUS=" + rendezvous_,
                                    "EPL_SECRET_FD=" + std::to_string(memory)};
    const std::vector<std::string> own = out;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string_view text = *one, name = text.substr(0, std::min(text.find('='), text.size()));
      const bool ours =
          name == "EPL_SECRET" || name == "EPL_SECRET_FILE" || std::ranges::any_of(own, [&](const std::string& set) {
            return std::string_view(set).substr(0, set.find('=')) == name;
          });
      if (!ours) out.emplace_back(text);
    }
    return out;
  }

  int output_of(const Child& child, const char* which, int otherwise) const {
    if (o_.logs.empty()) return otherwise;
    std::filesystem::create_directories(o_.logs);
    const std::string path = o_.logs + "/" + std::to_string(child.rank) + which;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) fail("cannot write " + path);
    return file;
  }

  void start(int64_t local, int memory) {
    Child child{.rank = hosts_[own_].first + local};
    int out[2], error[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0) fail("cannot make a pipe");
    child.out = {out[0], output_of(child, ".out", STDOUT_FILENO), ""};
    child.error = {error[0], output_of(child, ".err", STDERR_FILENO), ""};
    // All that needs memory comes before the fork.
    std::vector<std::string> words = o_.command, variables = environment(local, memory);
    std::vector<char*> arguments, environment;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& variable : variables) environment.push_back(variable.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    const pid_t parent = ::getpid();
    child.process = ::fork();
    if (child.process < 0) fail("cannot start a process");
    if (child.process == 0) become(arguments.data(), environment.data(), out[1], error[1], memory, parent);
    ::setpgid(child.process, child.process);  // the child does so too; whoever is first
    ::close(out[1]), ::close(error[1]);
    child.alive = true;
    children_.push_back(std::move(child));
  }

  // In a group of its own, so that what it starts is asked to end as well; and it ends with this process.
  [[noreturn]] void become(char** arguments, char** environment, int out, int error, int memory, pid_t parent) const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(not_found);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO), ::dup2(out, STDOUT_FILENO), ::dup2(error, STDERR_FILENO);
    // Each reads the secret from its start.
    const int secret = ::open(memory_path_.c_str(), O_RDONLY);
    if (secret < 0 || ::dup2(secret, memory) < 0) ::fcntl(memory, F_SETFD, 0);
    if (secret >= 0) ::close(secret);
    ::execvpe(arguments[0], arguments, environment);
    ::dprintf(STDERR_FILENO, "epl: cannot start %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(not_found);
  }

  bool any_open() const {
    return std::ranges::any_of(children_, [](const Child& one) { return one.out.from >= 0 || one.error.from >= 0; });
  }

  // Waits for so many milliseconds at most; how many streams and signals there was something of.
  int look(int milliseconds) {
    std::vector<pollfd> waiting = {{.fd = signals_, .events = POLLIN, .revents = 0}};
    for (const Child& child : children_) {
      for (const Stream* stream : {&child.out, &child.error})
        waiting.push_back({.fd = stream->from, .events = POLLIN, .revents = 0});
    }
    const int ready = ::poll(waiting.data(), waiting.size(), milliseconds);
    size_t at = 1;
    for (Child& child : children_) {
      for (Stream* stream : {&child.out, &child.error}) {
        if (waiting[at++].revents != 0) pass_on(child, *stream);
      }
    }
    if (waiting[0].revents != 0) take_signals();
    if (end_at_ > 0 && steady_seconds() >= end_at_ && !killed_) {
      killed_ = true;
      signal_all(SIGKILL);
    }
    return ready;
  }

  void pass_on(const Child& child, Stream& stream) {
    char room[1 << 16];
    const ssize_t got = ::read(stream.from, room, sizeof room);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return end(child, stream);
    stream.kept.append(room, static_cast<size_t>(got));
    write_kept(child, stream, false);
  }
  void end(const Child& child, Stream& stream) {
    write_kept(child, stream, true);
    ::close(std::exchange(stream.from, -1));
  }
  // Whole lines; at the end what is left as well.
  void write_kept(const Child& child, Stream& stream, bool all) {
    const bool prefixes = !o_.plain && o_.logs.empty();
    write_all(stream.to, prefixed_lines(stream.kept, prefixes ? "[" + std::to_string(child.rank) + "] " : "", all));
  }
  static void write_all(int to, std::string_view text) {
    while (!text.empty()) {
      const ssize_t wrote = ::write(to, text.data(), text.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return;  // nobody reads it; the job goes on
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      // The processes decide what it means: epl train saves first. A second one goes on to them as well.
      signal_all(number);
    }
    for (Child& child : children_) {
      int status = 0;
      if (child.alive && ::waitpid(child.process, &status, WNOHANG) == child.process) ended(child, status);
    }
  }

  void ended(Child& child, int status) {
    child.alive = false;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || code_ != 0) return;
    code_ = code;
    const bool others = std::ranges::any_of(children_, &Child::alive);
    if (!o_.quiet)
      std::fprintf(stderr, "epl: process %lld ended %s%s\n", static_cast<long long>(child.rank),
                   (WIFSIGNALED(status) ? "by signal " + std::to_string(WTERMSIG(status))
                                        : "with exit code " + std::to_string(code))
                       .c_str(),
                   others ? "; the others are asked to end" : "");
    signal_all(SIGTERM);
    end_at_ = steady_seconds() + o_.patience_seconds;
  }

  void signal_all(int number) {
    for (const Child& child : children_) {
      if (child.alive) ::kill(-child.process, number);
    }
  }

  const LaunchOptions& o_;
  const std::vector<LaunchHost> hosts_;
  const size_t own_;
  Engine engine_;
  Store store_;
  std::string rendezvous_, memory_path_;
  std::vector<Child> children_;
  sigset_t before_{};
  int signals_ = -1, code_ = 0;
  double end_at_ = 0;  // when those that are left are ended; 0: nobody has failed
  bool killed_ = false;
};

}  // namespace

namespace {

// `epl` is this program, wherever it lies.
std::string own_program() {
  std::error_code failure;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", failure).string();
  return failure ? "epl" : path;
}

}  // namespace

int launch(LaunchOptions o) {
  if (!o.command.empty() && o.command.front() == "epl") o.command.front() = own_program();
  if (o.hosts.empty()) return Launch(o, {{"127.0.0.1", o.processes, 0}}, 0).run();
  std::vector<LaunchHost> hosts = launch_hosts(o.hosts);
  const size_t own = own_host(hosts, o.host.empty() ? surroundings().host_name : o.host);
  return Launch(o, std::move(hosts), own).run();
}

Run add_launch(CLI::App& app) {
  auto o = std::make_shared<LaunchOptions>();
  app.footer(R"(  epl launch -n 4 -- epl train model.onnx --text book.txt --out run
  epl launch --hosts a:4,b:4 --secret-file key -- epl train m.onnx --text b.txt)");
  app.option_defaults()->group(groups::machine);
  auto* count =
      app.add_option("-n,--processes", o->processes, "processes to start, all on this host")->check(integer_value(1));
  auto* hosts = app.add_option("--hosts", o->hosts,
                               "hosts with their numbers of processes; each of them runs this command, which tells the "
                               "words for the others. The first is where they meet")
                    ->type_name("NAME:COUNT,...")
                    ->delimiter(',')
                    ->allow_extra_args(false)
                    ->excludes(count);
  app.add_option("--host", o->host, "which of them this one is (default: the one with its name)")
      ->type_name("NAME")
      ->needs(hosts);
  app.add_option("--port", o->port, "of the first host, where processes of several hosts meet")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_option("--secret-file", o->secret_file,
                 "what all processes know and nobody else; made on the first host where it is not there (default: of "
                 "EPL_SECRET_FILE or EPL_SECRET, else drawn)")
      ->type_name("FILE");
  app.add_option("--patience", o->patience_seconds,
                 "seconds that the others have to end by themselves when a process has failed")
      ->check(at_least(0))
      ->capture_default_str();
  app.option_defaults()->group(groups::watching);
  auto* plain = app.add_flag("--plain", o->plain, "no [process] before the lines that processes print");
  app.add_option("--logs", o->logs, "write what each prints to N.out and N.err in this folder instead")
      ->type_name("FOLDER")
      ->excludes(plain);
  app.option_defaults()->group(groups::data);
  app.add_option("command", o->command, "the program to start and its words, after --")->required();
  return [o] { return launch(*o); };
}

}  // namespace epl::tools
