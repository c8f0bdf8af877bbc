#include "core/backend/staged_communicator.h"

#include <utility>

namespace epl {
namespace {

// What of an operand a rank gives or gets, as offsets and sizes in bytes.
using EachRange = FunctionRef<void(int64_t offset, int64_t bytes)>;

// What a rank's groups have in common.
struct Tie {
  Host host;
  std::shared_ptr<Device> cpu;
  CircleMeans means;
  bool signs;  // what is sent, which a pack's library does not
};

class StagedCommunicator final : public Communicator {
 public:
  // `cards` by rank; none where they are not known.
  static Result<std::unique_ptr<Communicator>> make(std::shared_ptr<const Tie> tie, std::unique_ptr<Communicator> there,
                                                    std::vector<std::string> cards) {
    EPL_ASSIGN(auto stream, tie->cpu->create_stream(1));
    auto made = std::make_unique<StagedCommunicator>(std::move(tie), std::move(stream), std::move(there));
    made->introduce(std::move(cards));
    return std::unique_ptr<Communicator>(std::move(made));
  }
  StagedCommunicator(std::shared_ptr<const Tie> tie, std::unique_ptr<Stream> stream,
                     std::unique_ptr<Communicator> there)
      : tie_(std::move(tie)), stream_(std::move(stream)), there_(std::move(there)) {}

  const std::string& group() const override { return there_->group(); }
  int rank() const override { return there_->rank(); }
  int size() const override { return there_->size(); }
  Status run(Stream& stream, const Collective& call) override {
    // It says why, to all ranks, and looks at no operand.
    if (!check_collective(call, rank(), size()).ok()) return there_->run(*stream_, call);
    if (meets_ && PackCircle::takes(call)) EPL_TRY(join_circle());
    if (circle_ && PackCircle::takes(call)) {
      EPL_TRY(circle_->run(static_cast<PackStream&>(stream), call));
      return stream.synchronize();
    }
    Collective staged = call;
    EPL_TRY(take(stream, call, staged));
    Status status = there_->run(*stream_, staged);
    if (status.ok()) status = stream_->synchronize();
    if (!status.ok()) return status;
    targets(staged, [&](int64_t offset, int64_t bytes) {
      stream.upload(static_cast<char*>(call.target) + offset, target_.data() + offset, bytes);
    });
    return stream.synchronize();  // the next call has the same room
  }
  Status run_on_host(Stream& stream, const Collective& call) override {
    EPL_TRY(stream.synchronize());  // what the rank has done before is done for the others too
    return there_->run_on_host(*stream_, call);
  }
  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_ASSIGN(auto part, there_->split(name, members));
    std::vector<std::string> cards;
    if (!cards_.empty())
      for (const int member : members) cards.push_back(cards_[static_cast<size_t>(member)]);
    return make(tie_, std::move(part), std::move(cards));
  }
  std::string card() const override {
    return size() > 1 && !tie_->signs ? circle_card(*tie_->means.opened) : std::string();
  }
  void introduce(std::vector<std::string> cards) override {
    cards_ = std::move(cards);
    meets_ = can_meet(cards_);
  }
  void abort(const Status& status) override { there_->abort(status); }
  void watch(std::function<Status()> stop) override { there_->watch(std::move(stop)); }
  void hasten(std::function<bool()> asked) override { there_->hasten(std::move(asked)); }
  Status lost() const override { return there_->lost(); }
  bool has(int rank) override { return there_->has(rank); }
  void enter(const JobCall& call) override { there_->enter(call); }
  void retire() override { there_->retire(); }

 private:
  using Kind = Collective::Kind;

  // Once, with the first call that it may carry out: all ranks come to that one.
  Status join_circle() {
    if (circle_) return {};
    std::string why;
    EPL_ASSIGN(circle_, PackCircle::join(tie_->means, *there_, *stream_, why));
    if (circle_) {
      log(tie_->host, LogLevel::info, "the devices of group ", group(), " meet by ",
          cards_.front().substr(0, cards_.front().find('\n')));
      return {};
    }
    meets_ = false;
    log(tie_->host, LogLevel::warning, "the devices of group ", group(),
        " do not meet, and what they send goes through memory of the host: ", why);
    return {};
  }

  // Brings what the rank gives to the host, and `staged` there.
  Status take(Stream& stream, const Collective& call, Collective& staged) {
    if (call.by_owners()) {  // they say which rows there are
      owners_.resize(static_cast<size_t>(call.rows * size()));
      stream.download(owners_.data(), call.owners, static_cast<int64_t>(owners_.size() * sizeof(int64_t)));
      EPL_TRY(stream.synchronize());
      staged.owners = owners_.data();
    }
    const bool many_from =
        call.kind == Kind::reduce_scatter || call.kind == Kind::all_to_all || call.kind == Kind::combine;
    const bool many_to = call.kind == Kind::all_gather || call.kind == Kind::all_to_all || call.kind == Kind::dispatch;
    source_.resize(static_cast<size_t>(call.bytes() * (many_from ? size() : 1)));
    target_.resize(static_cast<size_t>(call.bytes() * (many_to ? size() : 1)));
    staged.source = source_.data();
    staged.target = target_.data();
    sources(staged, [&](int64_t offset, int64_t bytes) {
      stream.download(source_.data() + offset, static_cast<const char*>(call.source) + offset, bytes);
    });
    return stream.synchronize();
  }

  // Of what is given and got by the owners of rows, nothing else may be touched.
  void sources(const Collective& staged, EachRange each) const {
    const bool none = staged.kind == Kind::receive || staged.kind == Kind::barrier ||
                      (staged.kind == Kind::broadcast && staged.peer != rank());
    if (none) return;
    if (!staged.by_owners()) return each(0, static_cast<int64_t>(source_.size()));
    for (int r = 0; r < size(); ++r)
      staged.rows_between(rank(), r, size(), [&](int64_t source, int64_t, int64_t bytes) { each(source, bytes); });
  }
  void targets(const Collective& staged, EachRange each) const {
    const bool none = staged.kind == Kind::send || staged.kind == Kind::barrier ||
                      (staged.kind == Kind::broadcast && staged.peer == rank());
    if (none) return;
    if (!staged.by_owners()) return each(0, static_cast<int64_t>(target_.size()));
    for (int p = 0; p < size(); ++p)
      staged.rows_between(p, rank(), size(), [&](int64_t, int64_t target, int64_t bytes) { each(target, bytes); });
  }

  const std::shared_ptr<const Tie> tie_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Communicator> there_;
  std::vector<std::string> cards_;
  bool meets_ = false;
  std::unique_ptr<PackCircle> circle_;
  std::vector<char> source_, target_;  // as large as the largest call so far
  std::vector<int64_t> owners_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> join_through_host(const Host& host, const Joining& joining,
                                                        Rendezvous& rendezvous, const CircleMeans& means) {
  EPL_ASSIGN(auto cpu, open_device("cpu", host));
  EPL_ASSIGN(auto there, cpu->join(joining, rendezvous));
  auto tie = std::make_shared<const Tie>(
      Tie{.host = host, .cpu = std::move(cpu), .means = means, .signs = joining.signs_frames});
  return StagedCommunicator::make(std::move(tie), std::move(there), {});
}

}  // namespace epl
