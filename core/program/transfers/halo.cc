// halo: the rows that a shard reads over its borders (PartitionRule::halo), from the ranks that have them. Where shards
// are smaller than borders these are several ranks. Where no rank has a row, padding stands for it.
#include <algorithm>
#include <array>
#include <limits>

#include "core/ir/reference.h"
#include "core/program/memory.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return std::max<int64_t>(end - begin, 0); }
};
Range overlap(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// Who has and who reads which indices of the dimension. Operand and result are `outer` runs of steps of `inner` bytes.
struct Reading {
  int64_t parts, first, step, size, own;
  int64_t outer = 1, inner = 1, element = 1;

  explicit Reading(const KernelQuery& q)
      : parts(q.attributes.integer("parts")),
        first(q.attributes.integer("first")),
        step(q.attributes.integer("step")),
        size(q.attributes.integer("size")),
        element(static_cast<int64_t>(dtype_bytes(q.in(0).dtype))) {
    const Shape& shape = q.in(0).shape;
    const auto dim = static_cast<size_t>(q.attributes.integer("dim"));
    own = shape[dim];
    inner = element;
    for (size_t d = 0; d < dim; ++d) outer *= shape[d];
    for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  }
  Range read(int64_t rank) const { return {first + rank * step, first + rank * step + size}; }
  Range owned(int64_t rank) const { return {rank * own, (rank + 1) * own}; }
  Range sent(int64_t from, int64_t to) const { return overlap(owned(from), read(to)); }
  int64_t bytes(const Range& range) const { return outer * range.size() * inner; }
  // Of what a rank sends or receives at a time. It is packed in the workspace, which the next command of the stream may
  // use again: a stream goes on when a send has been taken.
  int64_t room() const { return outer > 1 ? aligned_bytes(outer * std::min(own, size) * inner) : 0; }
};

// The lowest number of a type, as often as it fits into a line of memory.
const std::byte* lowest_line(DType dtype) {
  static constexpr int64_t line = 64;
  static const auto lines = [] {
    std::array<std::array<std::byte, line>, 4> made{};
    const std::array types = {DType::f32, DType::f64, DType::f16, DType::bf16};
    for (size_t t = 0; t < types.size(); ++t) {
      const auto size = static_cast<int64_t>(dtype_bytes(types[t]));
      const TensorType type{types[t], {line / size}};
      TensorView view(&type, made[t].data());
      for (int64_t i = 0; i < line / size; ++i) view.set(i, -std::numeric_limits<double>::infinity());
    }
    return made;
  }();
  return lines[dtype == DType::f32 ? 0 : dtype == DType::f64 ? 1 : dtype == DType::f16 ? 2 : 3].data();
}

class Exchange {
 public:
  explicit Exchange(const TransferCall& call) : call_(call), r_(*call.in.query), rank_(call.group->rank()) {}

  Status run() {
    const Range here = r_.read(rank_), own = r_.sent(rank_, rank_), all{0, r_.parts * r_.own};
    if (own.size() > 0) copy(in_result(own), r_.size, in_operand(own), r_.own, own.size());
    pad({here.begin, std::min<int64_t>(here.end, 0)});
    pad({std::max(here.begin, all.end), here.end});
    // In two rounds for each distance, so that every rank has one partner at a time and none waits in a ring.
    for (int64_t distance = 1; distance < r_.parts; ++distance) {
      const int64_t first = rank_ / distance % 2;
      for (int64_t now = 0; now < 2; ++now) {
        const int64_t other = now == first ? rank_ + distance : rank_ - distance;
        if (other >= 0 && other < r_.parts) EPL_TRY(exchange(other));
      }
    }
    return {};
  }

 private:
  std::byte* in_result(const Range& range) const {
    return call_.target + (range.begin - r_.read(rank_).begin) * r_.inner;
  }
  const std::byte* in_operand(const Range& range) const {
    return call_.source + (range.begin - r_.owned(rank_).begin) * r_.inner;
  }
  // Steps of which the target has so many in a run and the source so many.
  void copy(std::byte* target, int64_t target_run, const std::byte* source, int64_t source_run, int64_t steps) const {
    call_.stream.copy_rows({.target = target,
                            .target_step = target_run * r_.inner,
                            .source = source,
                            .source_step = source_run * r_.inner,
                            .bytes = steps * r_.inner,
                            .rows = r_.outer});
  }

  void pad(const Range& range) const {
    if (range.size() <= 0 || r_.outer == 0 || r_.inner == 0) return;
    const KernelQuery& q = *call_.in.query;
    const int64_t bytes = range.size() * r_.inner;
    std::byte* const first = in_result(range);
    if (q.attributes.flag("lowest")) {
      int64_t known = std::min<int64_t>(64, bytes);
      call_.stream.upload(first, lowest_line(q.in(0).dtype), known);
      for (; known < bytes; known *= 2) call_.stream.copy(first + known, first, std::min(known, bytes - known));
    } else {
      call_.stream.fill(first, bytes, 0);
    }
    const int64_t step = r_.size * r_.inner;
    call_.stream.copy_rows(
        {.target = first + step, .target_step = step, .source = first, .bytes = bytes, .rows = r_.outer - 1});
  }

  Status exchange(int64_t other) {
    if (rank_ < other) EPL_TRY(send(other));
    EPL_TRY(receive(other));
    return rank_ < other ? Status() : send(other);
  }
  Status send(int64_t other) {
    const Range range = r_.sent(rank_, other);
    if (range.size() == 0) return {};
    const std::byte* source = in_operand(range);
    if (r_.outer > 1) {
      copy(call_.workspace, range.size(), source, r_.own, range.size());
      source = call_.workspace;
    }
    return talk(Collective::Kind::send, other, range, source, nullptr);
  }
  Status receive(int64_t other) {
    const Range range = r_.sent(other, rank_);
    if (range.size() == 0) return {};
    std::byte* const target = r_.outer > 1 ? call_.workspace : in_result(range);
    EPL_TRY(talk(Collective::Kind::receive, other, range, nullptr, target));
    if (r_.outer > 1) copy(in_result(range), r_.size, target, range.size(), range.size());
    return {};
  }
  Status talk(Collective::Kind kind, int64_t other, const Range& range, const std::byte* source, std::byte* target) {
    return call_.group->run(call_.stream, {.kind = kind,
                                           .dtype = call_.in.query->in(0).dtype,
                                           .count = r_.bytes(range) / r_.element,
                                           .source = source,
                                           .target = target,
                                           .peer = static_cast<int>(other)});
  }

  const TransferCall& call_;
  const Reading r_;
  const int64_t rank_;
};

}  // namespace

EPL_OP(halo) {
  return {
      .doc =
          "Of dimension `dim` of a value that the `parts` ranks of mesh axis `axis` have in equal shards x, what the "
          "windows of a rank read: rank r the `size` elements from `first` + r * `step` on, over the borders of its "
          "shard. Outside of the value they are zero, or with `lowest` minus infinity.",
      .signature = "x -> y",
      .attributes = {{"axis", std::string("split"), true},
                     {"parts", int64_t{1}, true},
                     {"dim", int64_t{0}, true},
                     {"first", int64_t{0}, true},
                     {"step", int64_t{0}, true},
                     {"size", int64_t{0}, true},
                     {"lowest", false}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        TensorType type = q.in(0);
        const int64_t dim = q.attributes().integer("dim"), size = q.attributes().integer("size");
        if (dim < 0 || dim >= type.ndim() || size < 0 || q.attributes().integer("parts") < 1)
          return invalid("no halo of ", size, " elements along dimension ", dim, " of ", type.text());
        if (q.attributes().flag("lowest") && !is_float(type.dtype))
          return invalid("a halo of the lowest number of ", type.text());
        type.shape[dim] = size;
        return OutputTypes{type};
      },
      .no_gradient = "it is inserted after the gradients are known",
      .boundary = true};
}

EPL_TRANSFER(halo) {
  return {.doc = "a shard of a value with the borders of its neighbours that windows read",
          .op = "halo",
          .grouped = true,
          .prepare = [](Instruction& in) { in.workspace_bytes = Reading(*in.query).room(); },
          .moved_bytes =
              [](const Instruction& in) {  // of a rank that has neighbours on both sides, if one has
                const Reading r(*in.query);
                const Range inside = overlap(r.read(r.parts / 2), {0, r.parts * r.own});
                return r.bytes(inside) - r.bytes(r.sent(r.parts / 2, r.parts / 2));
              },
          .run = [](const TransferCall& call) { return Exchange(call).run(); }};
}

}  // namespace epl
