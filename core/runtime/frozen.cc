#include "core/runtime/frozen.h"

#include <algorithm>
#include <set>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/runtime/state.h"

namespace epl {
namespace {

constexpr const char* fact = "model.frozen";
constexpr int64_t chunk_bytes = 1 << 20;

const StateSlot& slot_of(const Session& session, const std::string& name) {
  const StateSlot* slot = session.plan().state().find(name);
  EPL_CHECK(slot != nullptr, "no slot of ", name);
  return *slot;
}

// Whether the model's file can have it: an adapter that no loss reaches is frozen as well, but begins at the plan's
// seed.
bool may_be_in_the_file(const Session& session, const std::string& name) {
  const std::vector<Adapter>& adapters = session.plan().adapters();
  return !slot_of(session, name).initial.empty() &&
         std::ranges::none_of(adapters, [&](const Adapter& one) { return one.a == name || one.b == name; });
}

// In chunks: a weight that is only in the file is not read into memory for this.
Status add_chunks(Hash64& hash, const Tensor& value) {
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(chunk_bytes, value.bytes())));
  const auto size = static_cast<int64_t>(dtype_bytes(value.dtype()));
  for (int64_t at = 0; at < value.bytes(); at += chunk_bytes) {
    const int64_t bytes = std::min(chunk_bytes, value.bytes() - at);
    EPL_TRY(value.read(at, bytes, chunk.data()));
    add_to_hash(hash, Tensor({value.dtype(), {bytes / size}}, nullptr, chunk.data()));
  }
  return {};
}

// The file's weights of these names as one number.
Result<std::string> hash_of(const Session& session, const std::vector<std::string>& names) {
  Hash64 hash;
  for (const std::string& name : names) {
    hash.add(name.data(), name.size());
    EPL_TRY(add_chunks(hash, slot_of(session, name).initial));
  }
  return cat(names.size(), " weights, ", hash.value());
}

}  // namespace

Result<std::vector<std::string>> leave_to_the_file(Session& session, Facts& facts) {
  std::vector<std::string> out;
  if (session.plan().adapters().empty()) return out;
  for (const std::string& name : state_names(session.plan(), StateKind::frozen)) {
    if (!may_be_in_the_file(session, name)) continue;
    EPL_ASSIGN(Tensor value, session.state().view(name));
    if (identical(value, slot_of(session, name).initial)) out.push_back(name);
  }
  if (out.empty()) return out;
  EPL_ASSIGN(facts[fact], hash_of(session, out));
  return out;
}

Result<std::vector<std::string>> left_to_the_file(const Session& session, const Checkpoint& checkpoint,
                                                  const std::string& path) {
  std::vector<std::string> out;
  auto saved = checkpoint.facts.find(fact);
  if (saved == checkpoint.facts.end()) return out;
  std::set<std::string> there;
  for (const CheckpointItem& item : checkpoint.items) there.insert(item.name);
  for (const std::string& name : state_names(session.plan(), StateKind::frozen)) {
    if (!there.contains(name) && may_be_in_the_file(session, name)) out.push_back(name);
  }
  EPL_ASSIGN(const std::string here, hash_of(session, out));
  if (here == saved->second) return out;
  return Status(Code::invalid_argument,
                "the checkpoint holds adapters and leaves the weights beside them to the model's file; this model has "
                "other weights, or the plan trains other parameters",
                path);
}

Status restore_from_the_file(Session& session, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    EPL_TRY(session.state().set_shards(name, {PositionedBox::all(slot_of(session, name).initial)}));
  return {};
}

}  // namespace epl
