#include "tools/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
#include "tools/launch_output.h"
#include "tools/processes.h"
#include "tools/secret.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

extern char** environ;

namespace epl::tools {
namespace {

constexpr int not_found = 127;             // what a shell says of a program that is not there
constexpr double idle_milliseconds = 100;  // without output, before a line that has not ended is shown

[[noreturn]] void fail(const std::string& doing) {
  throw ApiError(EPL_ERROR_IO, doing + ": " + std::strerror(errno), "");
}

// Of the file, which the first host makes where it is not there; or of the environment; or drawn.
SecretText secret_of(const LaunchOptions& o, bool several_hosts, bool first_host) {
  const Surroundings around = surroundings();
  if (o.secret_file.empty()) {
    SecretText given = find_secret(around);
    if (given.empty() && several_hosts)
      throw UsageError(
          "several hosts need a secret that all of them have: --secret-file FILE (epl makes it on the first "
          "one), EPL_SECRET_FILE or EPL_SECRET");
    return given.empty() ? drawn_secret() : given;
  }
  struct stat info{};
  if (::stat(o.secret_file.c_str(), &info) != 0 && errno == ENOENT && first_host) {
    const int file = ::open(o.secret_file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const SecretText made = drawn_secret();
    if (file < 0 || ::write(file, made.data(), made.size()) != static_cast<ssize_t>(made.size()) ||
        ::write(file, "\n", 1) != 1 || ::close(file) != 0)
      fail("cannot write " + o.secret_file);
    say_error("epl: a secret was made in %s\n", o.secret_file.c_str());
  }
  SecretText secret(around.read_file(o.secret_file));
  if (secret.empty()) throw UsageError(o.secret_file + " is empty; it should hold the secret of the job");
  if (const std::string others = readable_by_others(o.secret_file); !others.empty())
    say_error("epl: warning: %s\n", others.c_str());
  return secret;
}

// Memory that processes inherit: what is in it stands neither in their arguments nor in their environment.
int secret_memory(const SecretText& secret) {
  const int memory = ::memfd_create("epl-secret", MFD_CLOEXEC);
  if (memory < 0 || ::write(memory, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail("cannot hand over the secret");
  return memory;
}

struct Stream {
  int from = -1;                   // a pipe
  int file = -1;                   // of --logs
  LaunchOutput* output = nullptr;  // else
  PrefixedLines lines{""};
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
    if (wake_ >= 0) ::close(wake_);
    if (signals_ < 0) return;
    ::close(signals_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int run() {
    const bool several = hosts_.size() > 1, first = own_ == 0;
    SecretText secret = secret_of(o_, several, first);
    const int memory = secret_memory(secret);
    memory_path_ = "/proc/self/fd/" + std::to_string(memory);
    if (!o_.rendezvous.empty()) {
      rendezvous_ = o_.rendezvous;
    } else if (first) {
      serve(secret, several);
    }
    secret = SecretText();
    if (!first) rendezvous_ = "tcp://" + hosts_[0].name + ":" + std::to_string(o_.port);
    if (first && several) tell_other_hosts();
    watch();
    for (int64_t i = 0; i < hosts_[own_].count; ++i) start(i, memory);
    ::close(memory);
    while (std::ranges::any_of(children_, &Child::alive)) {
      const double left = end_at_ > 0 ? std::max(0.0, end_at_ - steady_seconds()) : 3600;
      look(static_cast<int>(std::min(left * 1e3, idle_milliseconds - 1.0)) + 1);
    }
    // All that they have printed lies in the pipes by now. What a process left running may hold these open; nobody
    // waits for that.
    const double enough = steady_seconds() + 1;
    while (any_open() && look(0) > 0 && steady_seconds() < enough) continue;
    for (Child& child : children_) {
      for (Stream* stream : {&child.out, &child.error})
        if (stream->from >= 0) end(*stream);
    }
    await_reader();
    return code_;
  }

 private:
  void serve(const SecretText& secret, bool several) {
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
      say_error("epl: on %s, with the same secret: epl launch --host %s%s --%s\n", hosts_[i].name.c_str(),
                hosts_[i].name.c_str(), words.c_str(), command.c_str());
    }
  }

  // A reader who takes his time gets all of it, until this process is asked to end: then he has another second.
  void await_reader() {
    const double enough = steady_seconds() + 1;
    for (LaunchOutput* output : {out_.get(), error_.get()}) {
      while (output != nullptr && !output->drain(100)) {
        take_signals();
        if (ending_ && steady_seconds() > enough) return;
      }
    }
  }

  // Signals are read like anything else; the processes begin with those of this one before.
  void watch() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&wanted, signal);
    ::sigprocmask(SIG_BLOCK, &wanted, &before_);
    signals_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals_ < 0 || wake_ < 0) fail("cannot wait for signals");
    ::signal(SIGPIPE, SIG_IGN);
    // Behind the mask, so that signals come to this thread. What leads to one place stays in its order.
    struct stat out{}, error{};
    const bool same = ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
                      out.st_dev == error.st_dev && out.st_ino == error.st_ino;
    error_ = std::make_shared<LaunchOutput>(STDERR_FILENO, wake_);
    out_ = same ? error_ : std::make_shared<LaunchOutput>(STDOUT_FILENO, wake_);
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

  Stream stream_of(const Child& child, int from, const char* which, LaunchOutput* output) const {
    const bool prefixes = !o_.plain && o_.logs.empty();
    Stream out{.from = from,
               .output = output,
               .lines = PrefixedLines(prefixes ? "[" + std::to_string(child.rank) + "] " : "")};
    if (o_.logs.empty()) return out;
    std::filesystem::create_directories(o_.logs);
    const std::string path = o_.logs + "/" + std::to_string(child.rank) + which;
    out.file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out.file < 0) fail("cannot write " + path);
    return out;
  }

  void start(int64_t local, int memory) {
    Child child{.rank = hosts_[own_].first + local};
    int out[2], error[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0) fail("cannot make a pipe");
    child.out = stream_of(child, out[0], ".out", out_.get());
    child.error = stream_of(child, error[0], ".err", error_.get());
    // All that needs memory comes before the fork.
    std::vector<std::string> words = o_.command, variables = environment(local, memory);
    std::vector<char*> arguments, environment;
    named_ = printable_line(words.front());
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
    ::dprintf(STDERR_FILENO, "epl: cannot start %s: %s\n", named_.c_str(), std::strerror(errno));
    ::_exit(not_found);
  }

  bool any_open() const {
    return std::ranges::any_of(children_, [](const Child& one) { return one.out.from >= 0 || one.error.from >= 0; });
  }

  // Waits for so many milliseconds at most; how many streams and signals there was something of. A process whose reader
  // is behind waits in its own writing.
  int look(int milliseconds) {
    std::vector<pollfd> waiting = {{.fd = signals_, .events = POLLIN, .revents = 0},
                                   {.fd = wake_, .events = POLLIN, .revents = 0}};
    for (const Child& child : children_) {
      for (const Stream* stream : {&child.out, &child.error})
        waiting.push_back({.fd = waits_for_reader(*stream) ? -1 : stream->from, .events = POLLIN, .revents = 0});
    }
    const int ready = ::poll(waiting.data(), waiting.size(), milliseconds);
    eventfd_t ignored = 0;
    if (waiting[1].revents != 0) static_cast<void>(::eventfd_read(wake_, &ignored));
    size_t at = 2;
    for (Child& child : children_) {
      for (Stream* stream : {&child.out, &child.error}) {
        if (waiting[at++].revents != 0) {
          pass_on(*stream);
        } else if (ready == 0) {
          put(*stream, stream->lines.idle());
        }
      }
    }
    if (waiting[0].revents != 0) take_signals();
    if (end_at_ > 0 && steady_seconds() >= end_at_ && !killed_) {
      killed_ = true;
      signal_all(SIGKILL);
    }
    return ready;
  }

  static bool waits_for_reader(const Stream& stream) { return stream.file < 0 && stream.output->full(); }
  static void pass_on(Stream& stream) {
    char room[1 << 16];
    const ssize_t got = ::read(stream.from, room, sizeof room);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return end(stream);
    put(stream, stream.lines.take({room, static_cast<size_t>(got)}));
  }
  static void end(Stream& stream) {
    put(stream, stream.lines.end());
    ::close(std::exchange(stream.from, -1));
  }
  static void put(const Stream& stream, std::string text) {
    if (stream.file < 0) return stream.output->write(std::move(text));
    for (std::string_view left = text; !left.empty();) {
      const ssize_t wrote = ::write(stream.file, left.data(), left.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return;  // the disk is full; the job goes on
      left.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  // The processes end, and must not wait for a reader of what they still print.
  void begin_ending() {
    ending_ = true;
    out_->be_lossy();
    error_->be_lossy();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      // The processes decide what it means: epl train saves first. A second one goes on to them as well.
      begin_ending();
      signal_all(number);
      asked_ = true;
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
    if (!o_.quiet) {
      const std::string how = WIFSIGNALED(status) ? "by signal " + std::to_string(WTERMSIG(status))
                                                  : "with exit code " + std::to_string(code);
      error_->write("epl: process " + std::to_string(child.rank) + " ended " + how +
                    (others ? "; the others are asked to end" : "") + "\n");
    }
    begin_ending();
    if (!asked_) signal_all(SIGTERM);  // a second signal would end one that is about to save
    asked_ = true;
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
  std::string rendezvous_, memory_path_, named_;
  std::vector<Child> children_;
  sigset_t before_{};
  int signals_ = -1, wake_ = -1, code_ = 0;
  std::shared_ptr<LaunchOutput> out_, error_;
  bool ending_ = false, asked_ = false;
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
