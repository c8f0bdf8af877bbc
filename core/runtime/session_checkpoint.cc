#include "core/runtime/session_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/base/stop_hook.h"
#include "core/runtime/frozen.h"

namespace epl {

namespace {

int64_t units_of(const Session& session) { return session.plan().entries().front().plan.units(); }

// What the run is now.
Facts facts_of(const Session& session, const TrainingData& data) {
  Facts facts = describe_run(session.plan());
  facts["seed"] = cat(session.host_state().seed());
  facts.insert(data.facts.begin(), data.facts.end());
  return facts;
}

using Names = std::vector<std::pair<std::string, StateKind>>;

// What a checkpoint of the session says besides its tensors, whose names are added to `names`.
Result<Checkpoint> describe(Session& session, const TrainingData& data, Names& names) {
  Checkpoint out;
  out.units = units_of(session);
  if (data.dataset) out.data_position = data.dataset->position();
  out.facts = facts_of(session, data);
  session.host_state().save(out);
  EPL_ASSIGN(const std::vector<std::string> left_out, leave_to_the_file(session, out.facts));
  for (StateKind kind : state_kinds) {
    if (!state_kind_row(kind).saved) continue;
    for (const std::string& name : state_names(session.plan(), kind)) {
      if (kind == StateKind::frozen && std::ranges::find(left_out, name) != left_out.end()) continue;
      names.emplace_back(name, kind);
    }
  }
  return out;
}

// Where an element of a shard stands in the tensor that it is a shard of.
int64_t element_of(const Shape& full, const PositionedBox& shard, int64_t element) {
  int64_t out = 0;
  const Shape inside = row_major_strides(shard.shape), outside = row_major_strides(full);
  for (size_t d = 0; d < full.size(); ++d) out += (element / inside[d] % shard.shape[d] + shard.offset[d]) * outside[d];
  return out;
}

// The values that the optimizer would go on with must be numbers: a damaged state never takes the place of a good
// checkpoint. They are read in parts. `value` is a shard of a tensor of the shape `full`, or all of it.
Status check_finite(const std::string& name, StateKind kind, const Shape& full, const PositionedBox& shard,
                    const Tensor& value) {
  const auto refused = state_kind_row(kind).refused;
  if (refused == StateKindRow::Refused::nothing || !is_float(value.dtype())) return {};
  constexpr int64_t at_once = 64 << 10;
  const auto size = static_cast<int64_t>(dtype_bytes(value.dtype()));
  Tensor part(TensorType{value.dtype(), {std::min(at_once, value.elements())}});
  for (int64_t first = 0; first < value.elements(); first += at_once) {
    const int64_t count = std::min(at_once, value.elements() - first);
    EPL_TRY(value.read(first * size, count * size, part.data()));
    for (int64_t i = 0; i < count; ++i) {
      const double number = part.get(i);
      if (std::isfinite(number) || (refused == StateKindRow::Refused::no_number && !std::isnan(number))) continue;
      return Status(Code::not_finite,
                    cat(name, " holds ", number_text(number), " (element ", element_of(full, shard, first + i),
                        "); a state with it is not saved"),
                    name);
    }
  }
  return {};
}

// This process's share of the state, where it lies.
Result<std::vector<CheckpointShard>> shards_of(const Session& session, const Names& names) {
  std::vector<CheckpointShard> out;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, kind] = names[i];
    const Shape& full = session.plan().state().find(name)->type.shape;
    EPL_ASSIGN(std::vector<State::Shard> held, session.state().shards(name, i));
    for (State::Shard& shard : held) {
      for (PositionedBox& box : shard.boxes) {
        Tensor value = box.as_tensor();
        EPL_TRY(check_finite(name, kind, full, box, value));
        out.push_back({name, kind, full, std::move(box.offset), shard.rank, std::move(value)});
      }
    }
  }
  return out;
}

// Nothing is changed before everything fits.
Status check_fits(const Session& session, const Checkpoint& checkpoint, const std::vector<std::string>& left_out,
                  const std::string& path) {
  std::map<std::string, const CheckpointItem*> there;
  for (const CheckpointItem& item : checkpoint.items) there[item.name] = &item;
  std::vector<std::string> problems;
  const StateLayout& layout = session.plan().state();
  for (const StateSlot& slot : layout.slots()) {
    if (!state_kind_row(state_kind(session.plan(), slot)).saved) continue;
    auto it = there.find(slot.name);
    if (it == there.end() && std::ranges::find(left_out, slot.name) != left_out.end()) continue;
    if (it == there.end()) {
      problems.push_back(cat(slot.name, " is missing"));
    } else if (const TensorType& type = it->second->value.type();
               type != slot.type && !converts(session.plan(), slot, type)) {
      problems.push_back(
          cat(slot.name, " is ", it->second->value.type().text(), ", ", slot.type.text(), " is expected"));
    }
  }
  for (const CheckpointItem& item : checkpoint.items) {
    if (layout.find(item.name) == nullptr) problems.push_back(cat(item.name, " is not part of this session"));
  }
  if (problems.empty()) return {};
  size_t count = problems.size();
  if (problems.size() > 5) problems.resize(5);
  return Status(Code::invalid_argument,
                cat("the checkpoint does not fit this session (model, optimizer): ", join(problems, "; "),
                    count > 5 ? cat("; and ", count - 5, " more") : ""),
                path);
}

// A checkpoint that fits.
struct Fitting {
  std::string path;
  Checkpoint checkpoint;
  std::vector<std::string> left_out;  // weights that the model's file has
};

Result<Fitting> find_fitting(Session& session, const CheckpointFiles& files, const TrainingData& data) {
  const std::string& path = files.name;
  EPL_ASSIGN(Checkpoint checkpoint, load_checkpoint(files, session.world().call().stop()));
  EPL_ASSIGN(std::vector<std::string> left_out, left_to_the_file(session, checkpoint, path));
  EPL_TRY(check_fits(session, checkpoint, left_out, path));
  if (data.dataset && checkpoint.data_position < 0)
    return Status(Code::invalid_argument,
                  "the checkpoint was saved without a dataset, so it has no position for this one; load it without one",
                  path);
  EPL_TRY(HostState::check(checkpoint));
  const Host& host = session.host();
  if (checkpoint.numerics != numerics_version)
    log(host, LogLevel::warning, LoggedPath{path}, ": numerics version ", checkpoint.numerics, ", this library has ",
        numerics_version, ": results go on, but not bit for bit");
  if (checkpoint.units != units_of(session))
    log(host, LogLevel::warning, LoggedPath{path}, ": the batch had ", checkpoint.units, " units, now it has ",
        units_of(session), ": results go on, but not bit for bit");
  for (const FactDifference& one : compare_facts(checkpoint.facts, facts_of(session, data))) {
    // Without a dataset it is weights that are wanted, for any purpose.
    if (data.dataset || one.topic == "model" || one.topic == "optimizer")
      log(host, LogLevel::warning, LoggedPath{path}, ": ", one.key, " was ", one.saved, ", now it is ", one.now);
  }
  EPL_TRY(session.world().call().stop().check());  // for the last time: what has begun to change the state ends
  return Fitting{path, std::move(checkpoint), std::move(left_out)};
}

Status restore(Session& session, const Fitting& from) {
  const auto& [path, checkpoint, left_out] = from;
  const StateGate::Change change(session.state().gate());
  session.state().torn();  // until all of it is there: reading may fail, and so may memory
  EPL_TRY(restore_from_the_file(session, left_out));
  for (const CheckpointItem& item : checkpoint.items) EPL_TRY(session.state().set_shards(item.name, item.shards));
  session.host_state().load(checkpoint);
  session.state().restored();
  return {};
}

// Sets the order and the position of the data, and sets them back unless the checkpoint is loaded.
class DataOfCheckpoint {
 public:
  explicit DataOfCheckpoint(Dataset* dataset) : dataset_(dataset) {
    if (dataset_) before_ = dataset_->cursor();
  }
  ~DataOfCheckpoint() {
    if (dataset_) dataset_->go_back(before_);
  }
  DataOfCheckpoint(const DataOfCheckpoint&) = delete;
  Status go_to(const Checkpoint& checkpoint) {
    if (!dataset_) return {};
    EPL_TRY(keep_slices(*dataset_, checkpoint.facts));
    return dataset_->seek(checkpoint.data_position);
  }
  void stay() { dataset_ = nullptr; }

 private:
  Dataset* dataset_;
  Dataset::Cursor before_;
};

}  // namespace

namespace {

Status save_full(Session& session, const std::string& folder, Checkpoint& checkpoint, const Names& names) {
  for (const auto& [name, kind] : names) {
    EPL_TRY(session.world().call().stop().check());
    EPL_ASSIGN(Tensor value, session.state().in_place(name));
    EPL_TRY(check_finite(name, kind, value.shape(), PositionedBox::all(value), value));
    checkpoint.items.push_back({name, kind, std::move(value)});
  }
  return save_checkpoint(folder, checkpoint, stop_hook(session.world().call().stop()));
}

// The process of rank 0 begins the save and ends it; each writes its shard file.
Status save_shard_files(Session& session, const std::string& folder, const Checkpoint& checkpoint, const Names& names) {
  const auto shards = shards_of(session, names);
  EPL_TRY(session.world().agree(shards.status()));
  const bool leads = session.world().is_local(0);
  std::unique_ptr<CheckpointSave> save;
  const auto begin = [&]() -> Status {
    if (!leads) return {};
    EPL_ASSIGN(save, CheckpointSave::begin(folder, session.world().size()));
    return {};
  };
  EPL_TRY(session.world().agree(begin()));
  uint64_t generation = 0;
  bool all_written = false;  // from then on the checkpoint may be made, by the process that leads
  const auto write = [&]() -> Status {
    EPL_ASSIGN(const std::vector<std::string> said,
               session.world().tell(leads ? cat(save->generation()) : std::string()));
    std::from_chars(said[0].data(), said[0].data() + said[0].size(), generation);
    const auto report = write_shard_file(folder, generation, session.world().options().first_rank, *shards);
    EPL_TRY(session.world().agree(report.status()));
    all_written = true;
    EPL_ASSIGN(const std::vector<std::string> reports, session.world().tell(*report));
    return session.world().agree(leads ? save->finish(checkpoint, reports) : Status());
  };
  const Status status = write();
  if (status.ok()) return status;
  if (save) save->give_up(session.world().lost().ok());
  if (!leads && generation > 0 && !all_written && session.world().lost().ok())
    remove_shard_file(folder, generation, session.world().options().first_rank);
  return status;
}

}  // namespace

namespace {

Status check_worth_saving(Session& session) {
  EPL_TRY(session.world().agree(session.state().healthy()
                                    ? Status()
                                    : error(Code::state_lost,
                                            "the last step failed while the weights were changing; this "
                                            "state is not worth saving")));
  return session.state().compare_copies();
}

// Values of the state that are written one behind the other. Over processes all put them together at the same time, so
// each takes them in the same order, all of them, whatever becomes of the writing.
class StateInOrder {
 public:
  StateInOrder(Session& session, const Names& names) : session_(session), names_(names) {}
  Status take(size_t index, Tensor& value) {
    for (; failed_.ok() && next_ <= index; ++next_) {
      auto one = session_.state().view(names_[next_].first);
      failed_ = session_.world().leave_call(one.status());
      if (one.ok()) value = *std::move(one);
    }
    return failed_;
  }
  Status take_rest() {
    Tensor value;
    return names_.empty() ? Status() : take(names_.size() - 1, value);
  }

 private:
  Session& session_;
  const Names& names_;
  size_t next_ = 0;
  Status failed_;
};

// One of them, there from its first byte to its last.
class StateSource final : public TensorSource {
 public:
  StateSource(StateInOrder& all, size_t index) : all_(all), index_(index) {}
  Status read(int64_t begin, int64_t bytes, void* target) const override {
    if (begin == 0) EPL_TRY(all_.take(index_, value_));
    EPL_TRY(value_.read(begin, bytes, target));
    if (begin + bytes == value_.bytes()) value_ = Tensor();
    return {};
  }

 private:
  StateInOrder& all_;
  size_t index_;
  mutable Tensor value_;
};

}  // namespace

Status no_writer() { return invalid("there is no function to write by, and the process of rank 0 writes"); }

Status write_session(Session& session, ByteWriter* out, const TrainingData& data) {
  EPL_TRY(check_worth_saving(session));
  Names names;
  Result<Checkpoint> checkpoint = describe(session, data, names);
  EPL_TRY(session.world().leave_call(checkpoint.status()));
  const bool leads = session.world().is_local(0);
  EPL_TRY(session.world().agree(leads && out == nullptr ? no_writer() : Status()));
  EPL_TRY(session.world().agree(shards_of(session, names).status()));
  StateInOrder state(session, names);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, kind] = names[i];
    checkpoint->items.push_back(
        {name, kind, Tensor(session.plan().state().find(name)->type, std::make_shared<StateSource>(state, i))});
  }
  const auto write = [&]() -> Status {
    if (!leads) return {};
    EPL_TRY(write_checkpoint(*out, *checkpoint));
    return out->finish();
  };
  const Status written = write();
  const Status rest = session.world().over_processes() ? state.take_rest() : Status();
  EPL_TRY(rest);  // the others have heard of it
  EPL_TRY(session.world().agree(written));
  log(session.host(), LogLevel::info, "wrote a checkpoint of step ", checkpoint->step);
  return {};
}

Status save_session(Session& session, const std::string& folder, const TrainingData& data) {
  EPL_TRY(check_worth_saving(session));
  std::vector<std::pair<std::string, StateKind>> names;
  Result<Checkpoint> checkpoint = describe(session, data, names);
  EPL_TRY(session.world().leave_call(checkpoint.status()));
  const Status status = session.world().over_processes()
                            ? save_shard_files(session, folder, *checkpoint, names)
                                  .with_context(cat("saving checkpoint ", shown_path(folder)))
                            : save_full(session, folder, *checkpoint, names);
  if (status.ok())
    log(session.host(), LogLevel::info, "saved checkpoint ", LoggedPath{folder}, " of step ", checkpoint->step);
  return status;
}

Status save_alone(Session& session, const std::string& folder, const TrainingData& data) {
  Names names;
  EPL_ASSIGN(Checkpoint checkpoint, describe(session, data, names));
  EPL_TRY(save_full(session, folder, checkpoint, names));
  log(session.host(), LogLevel::info, "saved checkpoint ", LoggedPath{folder}, " of step ", checkpoint.step,
      " without the other processes");
  return {};
}

Status load_session(Session& session, const std::string& path, const TrainingData& data) {
  return load_session(session, CheckpointFiles::at(path), data);
}

Status load_session(Session& session, const Result<CheckpointFiles>& files, const TrainingData& data) {
  const Result<Fitting> fitting = files.ok() ? find_fitting(session, *files, data) : files.status();
  EPL_TRY(session.world().agree(fitting.status()));  // in all processes or in none
  const Checkpoint& found = fitting->checkpoint;
  EPL_TRY(session.world().compare(told_line("the checkpoint's step", cat(found.step)) +
                                  told_line("the checkpoint's hash", cat(found.content))));
  DataOfCheckpoint sought(data.dataset);
  EPL_TRY(session.world().agree(sought.go_to(fitting->checkpoint)));
  if (const Status status = session.world().agree(restore(session, *fitting)); !status.ok()) {
    session.state().torn();  // in one process at least
    return status;
  }
  sought.stay();
  log(session.host(), LogLevel::info, "loaded checkpoint ", LoggedPath{fitting->path}, " of step ",
      fitting->checkpoint.step);
  return session.state().compare_copies();
}

Result<std::vector<FactDifference>> compare_session(const Session& session, const std::string& folder,
                                                    const TrainingData& data) {
  EPL_ASSIGN(const Checkpoint checkpoint, load_checkpoint(folder, session.world().call().stop()));
  return compare_facts(checkpoint.facts, facts_of(session, data));
}

}  // namespace epl
