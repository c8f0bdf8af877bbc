#include "core/backend/communicator.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/backend/device.h"
#include "core/base/check.h"

namespace epl {

std::string_view collective_name(Collective::Kind kind) {
  static constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "dispatch",
                                               "combine",    "broadcast",      "send",       "receive",    "barrier"};
  static_assert(std::size(names) == static_cast<size_t>(Collective::Kind::barrier) + 1);
  return names[static_cast<size_t>(kind)];
}

void Collective::rows_between(int from, int to, int size, int64_t begin, int64_t end, RowsBetween f) const {
  const int64_t row = rows > 0 ? bytes() / rows : 0;
  if (row == 0) return;
  const bool out = kind == Kind::dispatch;
  const int home = out ? from : to, owner = out ? to : from;
  const int64_t first = home * rows;
  const auto is_owned = [&](int64_t i) {
    const int64_t found = owners[first + i];
    return (found >= 0 && found < size ? found : home) == owner;
  };
  // Byte 0 of the home's rows, in each operand.
  const int64_t source = out ? 0 : first * row, target = out ? first * row : 0;
  begin = std::max<int64_t>(begin - source, 0);
  end = std::min(end - source, rows * row);
  for (int64_t i = begin / row; i * row < end; ++i) {
    if (!is_owned(i)) continue;
    const int64_t low = std::max(begin, i * row);
    while ((i + 1) * row < end && is_owned(i + 1)) ++i;
    f(source + low, target + low, std::min(end, (i + 1) * row) - low);
  }
}

void Collective::rows_between(int from, int to, int size, RowsBetween f) const {
  rows_between(from, to, size, 0, std::numeric_limits<int64_t>::max(), f);
}

int64_t Collective::bytes() const { return count * static_cast<int64_t>(dtype_bytes(dtype)); }

std::string Collective::text() const {
  static constexpr std::string_view reductions[] = {"sum", "max", "min"};
  std::string text = cat(collective_name(kind), "(");
  if (kind != Collective::Kind::barrier) text += cat(count, " x ", dtype_name(dtype));
  if (reduces()) text += cat(", ", reductions[static_cast<size_t>(reduction)]);
  if (by_owners()) text += cat(" in ", rows, " rows");
  if (kind == Collective::Kind::broadcast) text += cat(", root ", peer);
  if (kind == Collective::Kind::send) text += cat(", to rank ", peer);
  if (kind == Collective::Kind::receive) text += cat(", from rank ", peer);
  return text + ")";
}

bool agree(const Collective& a, const Collective& b) {
  if (a.dtype != b.dtype || a.count != b.count) return false;
  if (a.between_two()) return b.between_two() && a.kind != b.kind;
  return a.kind == b.kind && a.peer == b.peer && a.rows == b.rows && a.reduction == b.reduction;
}

namespace {

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto from = reinterpret_cast<uintptr_t>(a), other = reinterpret_cast<uintptr_t>(b);
  return from < other + static_cast<uintptr_t>(b_bytes) && other < from + static_cast<uintptr_t>(a_bytes);
}

// The smaller operand is the rank's own segment of the larger one, or lies outside of it.
bool own_segment(const void* small, const void* large, int64_t bytes, int rank, int size) {
  return small == static_cast<const char*>(large) + rank * bytes || !overlap(small, bytes, large, bytes * size);
}

}  // namespace

Status check_collective(const Collective& call, int rank, int size) {
  const auto refuse = [&](std::string_view what) {
    return invalid("rank ", rank, " of ", size, " called ", call.text(), " with ", what);
  };
  if (call.count < 0) return refuse("a negative count");
  const bool has_peer = call.kind == Collective::Kind::broadcast || call.between_two();
  if (has_peer && (call.peer < 0 || call.peer >= size)) return refuse("a peer that is not a rank of the group");
  if (call.between_two() && call.peer == rank) return refuse("itself as the peer");
  const int64_t bytes = call.bytes();
  if (call.by_owners()) {
    if (call.rows < 0 || (call.rows == 0 ? call.count != 0 : call.count % call.rows != 0))
      return refuse("elements that are not so many rows");
    if (call.rows > 0 && !call.owners) return refuse("no owners");
    const bool out = call.kind == Collective::Kind::dispatch;
    if (bytes > 0 && call.source && call.target &&
        overlap(call.source, bytes * (out ? 1 : size), call.target, bytes * (out ? size : 1)))
      return refuse("a source and a target that overlap");
  }
  if (size == 1 || bytes == 0 || !call.source || !call.target) return {};
  if (call.kind == Collective::Kind::all_gather && !own_segment(call.source, call.target, bytes, rank, size)) {
    return refuse("a source within the target that is not the rank's own segment");
  }
  if (call.kind == Collective::Kind::reduce_scatter && !own_segment(call.target, call.source, bytes, rank, size)) {
    return refuse("a target within the source that is not the rank's own segment");
  }
  if (call.kind == Collective::Kind::all_to_all && overlap(call.source, bytes * size, call.target, bytes * size))
    return refuse("a source and a target that overlap");
  return {};
}

Status Communicator::run_on_host(Stream& stream, const Collective& call) {
  EPL_TRY(run(stream, call));
  return stream.synchronize();
}

Status Communicator::run_together(Stream& stream, std::span<const Collective> calls) {
  for (const Collective& call : calls) EPL_TRY(run(stream, call));
  return {};
}

Status check_members(const Communicator& communicator, const std::string& name, std::span<const int> members) {
  const bool own = std::ranges::find(members, communicator.rank()) != members.end();
  const bool ascending = std::ranges::adjacent_find(members, std::greater_equal<>()) == members.end();
  if (own && ascending && members.front() >= 0 && members.back() < communicator.size()) return {};
  return invalid("rank ", communicator.rank(), " of group ", communicator.group(), " splits off ", name,
                 "; its members are not ascending ranks of the group with the caller among them");
}

}  // namespace epl
