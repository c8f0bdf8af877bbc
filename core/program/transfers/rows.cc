// Rows that go to the rank which owns them, and back: tokens to experts. An all_gather moves every row to every rank,
// these move each to one.
#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

template <bool out> Result<OutputTypes> infer_rows(const OpQuery& q) {
  TensorType type = q.in(0);
  const int64_t ranks = q.attributes().integer("parts");
  const int64_t all = type.ndim() == 0 ? 0 : type.shape[0] * (out ? ranks : 1);
  if (ranks < 1 || type.ndim() == 0 || all % ranks != 0 || q.in(1) != TensorType{DType::i64, {all}})
    return invalid("no owners for the rows of ", type.text(), " over ", ranks, " ranks: ", q.in(1).text());
  type.shape[0] = out ? all : all / ranks;
  return OutputTypes{type};
}

OpDef rows_op(std::string doc, Result<OutputTypes> (*infer)(const OpQuery&)) {
  return {.doc = std::move(doc),
          .signature = "x, owners -> y",
          .attributes = {{"axis", std::string("data"), true}, {"parts", int64_t{1}, true}},
          .infer = infer,
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

template <Collective::Kind kind> Status run_rows(const TransferCall& call) {
  const TensorType& here = kind == Collective::Kind::dispatch ? call.in.query->in(0) : call.in.query->out(0);
  return call.group->run(call.stream, {.kind = kind,
                                       .dtype = here.dtype,
                                       .count = here.elements(),
                                       .source = call.source,
                                       .target = call.target,
                                       .rows = here.shape[0],
                                       .owners = static_cast<const int64_t*>(call.sources[1])});
}

}  // namespace

EPL_OP(dispatch_rows) {
  return rows_op(
      "Of the x of all `parts` ranks of mesh axis `axis`, one behind the other along dimension 0, the rows that the "
      "current rank owns: owners[all rows] has for each a rank of the axis, or a number that is none for the rank "
      "that has it. Others are anything.",
      infer_rows<true>);
}
EPL_OP(combine_rows) {
  return rows_op(
      "The way back of dispatch_rows: of x, rows of all `parts` ranks of mesh axis `axis`, those of the current rank, "
      "each from the rank that owns it.",
      infer_rows<false>);
}

// As many bytes as a rank has rows, whichever rank they are for, where tokens are routed to experts evenly.
EPL_TRANSFER(dispatch_rows) {
  return {.doc = "rows from the ranks of a group to those that own them",
          .op = "dispatch_rows",
          .holds = "input",
          .grouped = true,
          .call = Collective::Kind::dispatch,
          .moved_bytes = [](const Instruction& in) { return in.query->in(0).bytes(); },
          .run = run_rows<Collective::Kind::dispatch>};
}
EPL_TRANSFER(combine_rows) {
  return {.doc = "rows from the ranks of a group that own them back to where they came from",
          .op = "combine_rows",
          .holds = "input",
          .grouped = true,
          .call = Collective::Kind::combine,
          .moved_bytes = [](const Instruction& in) { return in.query->out(0).bytes(); },
          .run = run_rows<Collective::Kind::combine>};
}

}  // namespace epl
