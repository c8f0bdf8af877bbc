#include "tests/backend/failing_device.h"

#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "core/ir/host_op.h"

namespace epl {

std::string_view fails_name(Fails how) {
  static constexpr std::string_view names[] = {"never", "refuses", "afterwards", "later", "no_memory", "calls"};
  return names[static_cast<size_t>(how)];
}

// What the streams and groups of a device share.
struct FailingDevice::State {
  FailingDevice* device = nullptr;
  int stream = -1;
  int64_t command = -1;
  Fails how = Fails::never;
  std::vector<std::unique_ptr<Counted>> counted;
  std::mutex mutex;  // of what follows
  bool failed = false;
  std::string what;

  // Of a stream's next command, whether and how it fails.
  Fails next(int number, std::string_view name) {
    const int64_t now = counted[static_cast<size_t>(number)]->commands++;
    if (number != stream || now != command) return Fails::never;
    const std::lock_guard lock(mutex);
    if (std::exchange(failed, true)) return Fails::never;
    what = name;
    return how;
  }
};

namespace {

using State = FailingDevice::State;

// With the code that means most elsewhere: a host's op may say any.
Status injected() { return error(Code::internal, "a failure of the tests"); }

class FailingStream final : public Stream {
 public:
  FailingStream(std::shared_ptr<State> state, int number, std::unique_ptr<Stream> inside)
      : state_(std::move(state)), number_(number), inside_(std::move(inside)) {}

  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override {
    const auto work = [&] { inside_->launch(row, query, state, inputs, outputs, workspace, context); };
    if (const Fails how = carry_out(row.op, work); how != Fails::never) throw HostFailure{injected()};
  }
  void copy(void* target, const void* source, int64_t bytes) override {
    command("copy", [&] { inside_->copy(target, source, bytes); });
  }
  void copy_rows(const RowCopy& rows) override {
    command("copy_rows", [&] { inside_->copy_rows(rows); });
  }
  void fetch(void* target, const void* source, int64_t bytes) override {
    command("fetch", [&] { inside_->fetch(target, source, bytes); });
  }
  void evict(void* target, const void* source, int64_t bytes) override {
    command("evict", [&] { inside_->evict(target, source, bytes); });
  }
  void fill(void* target, int64_t bytes, uint8_t value) override {
    command("fill", [&] { inside_->fill(target, bytes, value); });
  }
  void upload(void* target, const void* host_source, int64_t bytes) override {
    command("upload", [&] { inside_->upload(target, host_source, bytes); });
  }
  void download(void* host_target, const void* source, int64_t bytes) override {
    command("download", [&] { inside_->download(host_target, source, bytes); });
  }
  void record(Event& event) override {
    ordered("record", [&] { inside_->record(event); });
  }
  void wait(Event& event) override {
    ordered("wait", [&] { inside_->wait(event); });
  }
  void guard(const int64_t* verdict) override { inside_->guard(verdict); }
  Status synchronize() override {
    Status inside;
    const Fails how = carry_out("synchronize", [&] { inside = inside_->synchronize(); });
    if (how != Fails::never) failure_ = injected();
    Status own = std::exchange(failure_, {});
    return own.ok() ? inside : own;
  }
  HostStream* host() override { return inside_->host(); }
  VirtualClock* clock() override { return inside_->clock(); }
  StreamClock* stamps() override { return inside_->stamps(); }

  // Fails::never where the command has been carried out as it should, or only later says that it was not.
  template <class Work>
  Fails carry_out(std::string_view name, const Work& work, Fails in_place_of_later = Fails::later) {
    Fails how = state_->next(number_, name);
    if (how == Fails::later) how = in_place_of_later;
    if (how == Fails::no_memory) throw std::bad_alloc();
    if (how == Fails::calls) state_->device->call();
    if (how != Fails::refuses && how != Fails::later) work();
    if (how == Fails::later) failure_ = injected();
    return how == Fails::refuses || how == Fails::afterwards ? how : Fails::never;
  }
  Stream& inside() { return *inside_; }
  FailingDevice::Counted& counted() { return *state_->counted[static_cast<size_t>(number_)]; }

 private:
  // One that gives no error fails later, whatever is asked for.
  template <class Work> void command(std::string_view name, const Work& work) {
    if (carry_out(name, work) != Fails::never) failure_ = injected();
  }

  // A stream that goes on keeps its order with others, whatever it says of it: else two would use one memory at once.
  template <class Work> void ordered(std::string_view name, const Work& work) {
    bool done = false;
    command(name, [&] { work(), done = true; });
    if (!done) work();
  }

  std::shared_ptr<State> state_;
  const int number_;
  std::unique_ptr<Stream> inside_;
  Status failure_;
};

class FailingCommunicator final : public Communicator {
 public:
  FailingCommunicator(std::shared_ptr<State> state, std::unique_ptr<Communicator> inside, bool is_world)
      : state_(std::move(state)), inside_(std::move(inside)), is_world_(is_world) {}
  const std::string& group() const override { return inside_->group(); }
  int rank() const override { return inside_->rank(); }
  int size() const override { return inside_->size(); }

  Status run(Stream& stream, const Collective& call) override {
    auto& failing = dynamic_cast<FailingStream&>(stream);
    if (is_world_ && call.kind == Collective::Kind::all_reduce && failing.counted().agreement < 0)
      failing.counted().agreement = failing.counted().commands;
    return carry_out(failing, cat(collective_name(call.kind), " of ", group()),
                     [&] { return inside_->run(failing.inside(), call); });
  }
  Status run_together(Stream& stream, std::span<const Collective> calls) override {
    auto& failing = dynamic_cast<FailingStream&>(stream);
    return carry_out(failing, cat(calls.size(), " collectives of ", group()),
                     [&] { return inside_->run_together(failing.inside(), calls); });
  }
  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_ASSIGN(auto made, inside_->split(name, members));
    return std::unique_ptr<Communicator>(new FailingCommunicator(state_, std::move(made), false));
  }
  void abort(const Status& status) override { inside_->abort(status); }
  void watch(std::function<Status()> stop) override { inside_->watch(std::move(stop)); }
  void hasten(std::function<bool()> asked) override { inside_->hasten(std::move(asked)); }
  Status lost() const override { return inside_->lost(); }
  bool has(int rank) override { return inside_->has(rank); }
  void enter(const JobCall& call) override { inside_->enter(call); }
  void retire() override { inside_->retire(); }

 private:
  template <class Work> Status carry_out(FailingStream& stream, const std::string& name, const Work& work) {
    Status status;
    const Fails how = stream.carry_out(name, [&] { status = work(); }, Fails::refuses);
    return how == Fails::never ? status : injected();
  }

  std::shared_ptr<State> state_;
  std::unique_ptr<Communicator> inside_;
  const bool is_world_;
};

}  // namespace

FailingDevice::FailingDevice(std::shared_ptr<Device> inside)
    : inside_(std::move(inside)), state_(std::make_shared<State>()) {
  state_->device = this;
}
FailingDevice::~FailingDevice() = default;

void FailingDevice::arm(int stream, int64_t command, Fails how) {
  state_->stream = stream;
  state_->command = command;
  state_->how = how;
  state_->failed = false;
  state_->what.clear();
  for (auto& one : state_->counted) *one = {};
}

std::vector<FailingDevice::Counted> FailingDevice::counted() const {
  std::vector<Counted> out;
  for (const auto& one : state_->counted) out.push_back(*one);
  return out;
}

bool FailingDevice::has_failed() const { return state_->failed; }
std::string FailingDevice::failed_command() const { return state_->what; }

Result<std::unique_ptr<Stream>> FailingDevice::create_stream(int threads) {
  EPL_ASSIGN(auto inside, inside_->create_stream(threads));
  const int number = static_cast<int>(state_->counted.size());
  state_->counted.push_back(std::make_unique<Counted>());
  return std::unique_ptr<Stream>(new FailingStream(state_, number, std::move(inside)));
}

Result<std::vector<std::unique_ptr<Communicator>>> FailingDevice::create_group(const std::string& name, int ranks) {
  EPL_ASSIGN(auto inside, inside_->create_group(name, ranks));
  std::vector<std::unique_ptr<Communicator>> out;
  for (auto& one : inside) out.push_back(std::make_unique<FailingCommunicator>(state_, std::move(one), true));
  return out;
}

Result<std::unique_ptr<Communicator>> FailingDevice::join(const Joining& joining, Rendezvous& rendezvous) {
  EPL_ASSIGN(auto inside, inside_->join(joining, rendezvous));
  return std::unique_ptr<Communicator>(new FailingCommunicator(state_, std::move(inside), true));
}

}  // namespace epl
