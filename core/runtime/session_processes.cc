// What processes of a job do together besides running programs: they tell each other something, and each gets whole
// what others have all or a part of, outputs and state.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/exception.h"
#include "core/base/shown.h"
#include "core/program/pieces.h"
#include "core/runtime/session_rank.h"

namespace epl {

// Each rank says which is the first of its process. The first ranks are a group of their own.
Status Session::meet_processes() {
  const int64_t first = options_.first_rank;
  on_ranks([&](int r) {
    Rank& rank = *ranks_[static_cast<size_t>(r)];
    std::vector<int64_t> firsts(static_cast<size_t>(world()));
    rank.status = rank.world->run(*rank.stream, {.kind = Collective::Kind::all_gather,
                                                 .dtype = DType::i64,
                                                 .count = 1,
                                                 .source = &first,
                                                 .target = firsts.data()});
    if (rank.status.ok()) rank.status = rank.stream->synchronize();
    if (r != 0 || !rank.status.ok()) return;
    processes_.assign(firsts.begin(), firsts.end());
    const auto repeated = std::ranges::unique(processes_);
    processes_.erase(repeated.begin(), repeated.end());
  });
  for (const auto& rank : ranks_) EPL_TRY(rank->status);
  EPL_ASSIGN(among_, ranks_.front()->world->split("processes", processes_));
  return {};
}

bool Session::is_local(int rank) const {
  return rank >= options_.first_rank && rank < options_.first_rank + static_cast<int>(ranks_.size());
}

size_t Session::process_of(int rank) const {
  return static_cast<size_t>(std::ranges::upper_bound(processes_, rank) - processes_.begin()) - 1;
}

Status Session::lost_process(const Status& why) {
  if (why.ok()) return why;
  return error(Code::peer_failed, "this session has lost a process of its job and cannot go on: ", why.message())
      .of_rank(why.rank());
}

// The others must not wait for this process, and all of them come together again at the next call.
Status Session::give_up_world(const Status& why) {
  connected_ = false;
  ++meetings_;
  for (const auto& rank : ranks_) {
    if (!rank->world) continue;
    rank->world->abort(Status(Code::peer_failed, cat("rank ", options_.first_rank, ": ", why.message()), why.where())
                           .of_rank(why.rank())
                           .of_rank(options_.first_rank));
    if (lost_.ok()) lost_ = lost_process(rank->world->lost());
  }
  return why;
}

// Who has given up before comes together with the others first: they wait for that at their next call.
Status Session::give_up(const Status& why) {
  if (!over_processes()) return why;
  static_cast<void>(come_together(stop_));
  return give_up_world(why);
}

Status Session::make_call(FunctionRef<Status()> call) {
  const uint64_t before = meetings_;
  Status status;
  try {
    status = call();
  } catch (...) {
    if (meetings_ == before) static_cast<void>(give_up(current_exception_status()));
    throw;
  }
  return status.ok() || meetings_ != before ? status : give_up(status);
}

Status Session::leave_call(const Status& why) {
  return why.ok() || !over_processes() || !connected_ ? why : give_up_world(why);
}

Status Session::among_processes(const Collective& call) {
  ++meetings_;
  Stream& stream = *ranks_.front()->stream;
  Status status = among_->run(stream, call);
  if (status.ok()) status = stream.synchronize();
  return status.ok() ? status : give_up_world(status);
}

Status Session::agree(const Status& own) {
  if (!over_processes()) return own;
  EPL_TRY(reconnect(stop_));
  float failed = own.ok() ? 0.0f : 1.0f;
  const Status status = among_processes({.kind = Collective::Kind::all_reduce,
                                         .dtype = DType::f32,
                                         .count = 1,
                                         .source = &failed,
                                         .target = &failed,
                                         .reduction = Reduction::max});
  // That a process is gone is why this one fails as well, or matters more: a rank that has heard of it first may, for
  // example, have removed what this one was writing to.
  if (!own.ok() && status.code() == Code::peer_failed)
    return error(Code::peer_failed, status.message(), "; this process itself: ", own.message()).of_rank(status.rank());
  if (!status.ok() || failed == 0) return own.ok() ? status : own;
  // All know that one has failed, and it says why, so that whoever looks at another one's error is told as well.
  const auto said =
      tell(own.ok() ? std::string() : cat(own.where().empty() ? "" : cat(own.where(), ": "), own.message()));
  EPL_TRY(own);
  EPL_TRY(said.status());
  for (size_t p = 0; p < said->size(); ++p) {
    if (!(*said)[p].empty())
      return error(Code::peer_failed, "another process of the job has failed: rank ", processes_[p], ": ", (*said)[p])
          .of_rank(processes_[p]);
  }
  return error(Code::peer_failed, "another process of the job has failed");
}

// Two gatherings: of the lengths, and of the texts in room for the longest.
Result<std::vector<std::string>> Session::tell(const std::string& own) {
  if (!over_processes()) return std::vector<std::string>{own};
  EPL_TRY(reconnect(stop_));
  const auto gather = [&](const void* source, void* target, size_t bytes) {
    return among_processes({.kind = Collective::Kind::all_gather,
                            .count = static_cast<int64_t>(bytes),
                            .source = source,
                            .target = target});
  };
  const uint64_t length = own.size();
  std::vector<uint64_t> lengths(processes_.size());
  EPL_TRY(gather(&length, lengths.data(), sizeof length));
  const uint64_t longest = std::ranges::max(lengths);
  std::string room = own, all(longest * lengths.size(), '\0');
  room.resize(longest);
  EPL_TRY(gather(room.data(), all.data(), longest));
  std::vector<std::string> said;
  for (size_t p = 0; p < lengths.size(); ++p) said.push_back(all.substr(p * longest, lengths[p]));
  return said;
}

Result<std::vector<int64_t>> Session::tell(int64_t own, const Stop& stop) {
  if (!over_processes()) return std::vector<int64_t>{own};
  EPL_TRY(reconnect(stop));
  std::vector<int64_t> said(processes_.size());
  Communicator& world = *ranks_.front()->world;
  world.watch([&stop] { return stop.check(); });
  const Status status = among_processes({.kind = Collective::Kind::all_gather,
                                         .count = static_cast<int64_t>(sizeof own),
                                         .source = &own,
                                         .target = said.data()});
  world.watch(nullptr);
  EPL_TRY(status);
  return said;
}

// Whether each process has a rank with each piece. `has`: this rank, this piece.
bool Session::everywhere(FunctionRef<bool(int, int)> has, int pieces) const {
  for (size_t p = 0; over_processes() && p < processes_.size(); ++p) {
    const int end = p + 1 < processes_.size() ? processes_[p + 1] : world();
    for (int piece = 0; piece < pieces; ++piece) {
      bool there = false;
      for (int r = processes_[p]; r < end && !there; ++r) there = has(r, piece);
      if (!there) return false;
    }
  }
  return true;
}

Status Session::share_outputs(const Entry& entry, const RunRequest& request) {
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    auto* whole = static_cast<std::byte*>(request.outputs[i]);
    const ProgramPort* port = nullptr;
    for (size_t t = 0; whole != nullptr && port == nullptr && t < entry.programs.size(); ++t) {
      const std::vector<ProgramPort>& ports = entry.programs[t].outputs;
      const auto found = std::ranges::find(ports, static_cast<int>(i), &ProgramPort::index);
      if (found == ports.end()) continue;
      port = &*found;
      EPL_TRY(share_output(entry.mesh(static_cast<int>(t)), *port, whole));
    }
  }
  return {};
}

// The process of the first rank that has an output, or a piece of it, gives it to the others. Its ranks have written
// theirs to `whole`.
Status Session::share_output(const Mesh& mesh, const ProgramPort& port, std::byte* whole) {
  // Over ranks: those of micro-batches cut a rank's piece, or, where they come first, ranks cut each of theirs.
  Sharding by_ranks = port.sharding;
  const auto size_of = [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].size; };
  const auto is_time = [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].kind == MeshAxis::Kind::time; };
  std::vector<int> axes;
  for (Cuts& cuts : by_ranks.dims) {
    for (AxisCut& cut : cuts) {
      for (size_t a = 0; a < cut.axes.size() && is_time(cut.axes[a]); ++a) cut.outer *= size_of(cut.axes[a]);
      std::erase_if(cut.axes,
                    [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].kind != MeshAxis::Kind::rank; });
      axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
    }
    std::erase_if(cuts, [](const AxisCut& cut) { return cut.axes.empty(); });
  }
  const int64_t pieces = mesh.pieces(axes);
  const auto has = [&](int rank, int piece) {
    const bool of_mesh = std::ranges::find(mesh.device.ranks, rank) != mesh.device.ranks.end();
    return of_mesh && mesh.piece(mesh.place(rank), axes) == piece;
  };
  if (everywhere(has, static_cast<int>(pieces))) return {};
  const int64_t bytes = port.global_type.bytes() / pieces;
  parts_.resize(std::max(parts_.size(), static_cast<size_t>(bytes)));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int giver = 0;
    while (!has(giver, static_cast<int>(piece))) ++giver;
    const auto each_run = [&](FunctionRef<void(std::byte*, std::byte*, size_t)> f) {
      for_each_run(port.global_type, by_ranks, mesh, mesh.place(giver), [&](int64_t global, int64_t at, int64_t size) {
        f(whole + global, parts_.data() + at, static_cast<size_t>(size));
      });
    };
    if (is_local(giver))
      each_run([](std::byte* there, std::byte* part, size_t size) { std::memcpy(part, there, size); });
    EPL_TRY(among_processes({.kind = Collective::Kind::broadcast,
                             .count = bytes,
                             .source = parts_.data(),
                             .target = parts_.data(),
                             .peer = static_cast<int>(process_of(giver))}));
    if (is_local(giver)) continue;
    each_run([](std::byte* there, std::byte* part, size_t size) { std::memcpy(there, part, size); });
  }
  return {};
}

// The ranks that read the input have its samples; any class of them that reads it has all.
Result<Tensor> Session::whole_input(const Entry& entry, size_t input, const Tensor& given) {
  if (slices_.empty()) return given;
  const SampleRange range = slices_[index_of(entry)][input];
  if (!over_processes()) return given;
  for (size_t t = 0; t < entry.programs.size(); ++t) {
    const std::vector<ProgramPort>& ports = entry.programs[t].inputs;
    const auto port = std::ranges::find(ports, static_cast<int>(input), &ProgramPort::index);
    if (port == ports.end()) continue;
    Tensor whole(port->global_type);
    const int dim = entry.samples.inputs[input];
    if (range.count > 0 && dim < 0) {
      std::memcpy(whole.data(), given.data(), static_cast<size_t>(given.bytes()));
    } else if (range.count > 0) {
      put_samples(given, dim, entry.samples.batch, range.first, whole);
    }
    EPL_TRY(share_output(entry.mesh(static_cast<int>(t)), *port, static_cast<std::byte*>(whole.data())));
    return whole;
  }
  return unsupported("no rank reads input ", entry.inputs[input].name, ", so that no process has all of its samples");
}

Result<Session::Held> Session::held(std::string_view name) const {
  Held out;
  for (int t = 0; t < plan_->classes() && !out.slot; ++t) {
    out.slot = plan_->state_of(t).find(name);
    out.mesh = &plan_->mesh(t);
  }
  if (!out.slot) return error(Code::not_found, "no parameter or state is called ", shown(name, 200));
  std::vector<int> ranks = out.mesh->device.ranks;
  std::ranges::sort(ranks);
  std::vector<std::vector<int64_t>> pieces;
  std::vector<int> piece_of(static_cast<size_t>(world()), -1);
  for (const int rank : ranks) {
    if (!out.slot->sharding.dealt.is_at(*out.mesh, out.mesh->place(rank))) continue;
    std::vector<int64_t> piece;
    for (const Cuts& cuts : out.slot->sharding.dims) {
      for (const AxisCut& cut : cuts) piece.push_back(out.mesh->piece(out.mesh->place(rank), cut.axes));
    }
    const auto known = static_cast<size_t>(std::ranges::find(pieces, piece) - pieces.begin());
    if (known == pieces.size()) {
      pieces.push_back(piece);
      out.holders.emplace_back();
    }
    out.holders[known].push_back(rank);
    piece_of[static_cast<size_t>(rank)] = static_cast<int>(known);
  }
  out.everywhere = everywhere([&](int rank, int piece) { return piece_of[static_cast<size_t>(rank)] == piece; },
                              static_cast<int>(pieces.size()));
  return out;
}

bool Session::has_whole(std::string_view name) const {
  const Result<Held> held = this->held(name);
  return held.ok() && held->everywhere;
}

// A piece that some process lacks goes from its first holder to all.
Result<Tensor> Session::state(std::string_view name) {
  EPL_ASSIGN(const Held held, this->held(name));
  if (!held.everywhere) EPL_TRY(reconnect(stop_));
  if (const Status stopped = stop_.check(); !stopped.ok()) return held.everywhere ? stopped : give_up_world(stopped);
  const StateSlot& slot = *held.slot;
  Tensor whole(slot.type);
  for (const std::vector<int>& holders : held.holders) {
    const auto local = std::ranges::find_if(holders, [&](int rank) { return is_local(rank); });
    if (held.everywhere) {
      const Rank& rank = *ranks_[static_cast<size_t>(*local - options_.first_rank)];
      EPL_TRY(rank.store.gather(*rank.stream, slot, whole));
      continue;
    }
    const int giver = holders.front();
    Tensor piece(slot.local);
    if (is_local(giver)) {
      const Rank& rank = *ranks_[static_cast<size_t>(giver - options_.first_rank)];
      if (Status status = rank.store.read(*rank.stream, slot, piece); !status.ok()) return give_up_world(status);
    }
    EPL_TRY(among_processes({.kind = Collective::Kind::broadcast,
                             .count = piece.bytes(),
                             .source = piece.data(),
                             .target = piece.data(),
                             .peer = static_cast<int>(process_of(giver))}));
    const auto put = [&](int64_t global, int64_t at, int64_t bytes) {
      std::memcpy(static_cast<std::byte*>(whole.data()) + global, static_cast<const std::byte*>(piece.data()) + at,
                  static_cast<size_t>(bytes));
    };
    for_each_run(slot.type, slot.sharding, *held.mesh, held.mesh->place(giver), put);
  }
  return whole;
}

Result<Tensor> Session::state_view(std::string_view name) {
  EPL_ASSIGN(const Held held, this->held(name));
  if (!held.everywhere || held.holders.size() > 1) return state(name);
  EPL_TRY(stop_.check());
  const auto local = std::ranges::find_if(held.holders.front(), [&](int rank) { return is_local(rank); });
  const Rank& rank = *ranks_[static_cast<size_t>(*local - options_.first_rank)];
  return rank.store.view(*rank.stream, *held.slot);
}

Result<std::vector<Session::StatePiece>> Session::state_pieces(std::string_view name, size_t turn) {
  EPL_ASSIGN(const Held held, this->held(name));
  EPL_TRY(stop_.check());
  std::vector<StatePiece> out;
  for (const std::vector<int>& holders : held.holders) {
    const int giver = holders[turn % holders.size()];
    if (!is_local(giver)) continue;
    const Rank& rank = *ranks_[static_cast<size_t>(giver - options_.first_rank)];
    const bool whole = held.slot->local == held.slot->type;
    Tensor value = whole ? Tensor() : Tensor(held.slot->local);
    if (whole) {
      EPL_ASSIGN(value, rank.store.view(*rank.stream, *held.slot));
    } else {
      EPL_TRY(rank.store.read(*rank.stream, *held.slot, value));
    }
    out.push_back({giver, held.mesh, std::move(value)});
  }
  return out;
}

// What may fail for want of memory or of a file comes before anything changes, but for values that are too large to be
// in memory, which only a checkpoint has.
Status Session::set_state(std::string_view name, const Tensor& value) {
  EPL_ASSIGN(const Held held, this->held(name));
  if (value.type() != held.slot->type)
    return invalid(name, " is ", held.slot->type.text(), ", got ", value.type().text());
  std::vector<Tensor> pieces;
  for (const auto& rank : ranks_) {
    const StateSlot* slot = plan_->state_of(rank->rank_class).find(name);
    const bool now = slot != nullptr && value.in_memory();
    EPL_ASSIGN(Tensor piece, now ? rank->store.cut(*slot, value) : Result<Tensor>(value));
    pieces.push_back(std::move(piece));
  }
  const StateGate::Change change(gate_);
  const bool was_healthy = healthy_, was_whole = whole_here_;
  torn();  // until all ranks have it
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    const StateSlot* slot = plan_->state_of(rank.rank_class).find(name);
    if (slot == nullptr) continue;
    EPL_TRY(value.in_memory() ? rank.store.put(*rank.stream, *slot, pieces[r])
                              : rank.store.scatter(*rank.stream, *slot, value));
  }
  healthy_ = was_healthy;
  whole_here_ = was_whole;
  note_set(*held.slot);
  return note_value_set(name, value);
}

}  // namespace epl
