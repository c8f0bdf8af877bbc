#include "core/program/transfer.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

const TransferTable& transfer_table() {
  static const TransferTable table = [] {
    TransferTable made;
    fill_transfer_table(made);
    return made;
  }();
  return table;
}

const TransferRow* find_transfer(std::string_view name) {
  const auto& rows = transfer_table().rows;
  const auto row = std::ranges::find(rows, name, &TransferRow::name);
  return row == rows.end() ? nullptr : &*row;
}

const TransferRow& transfer_named(std::string_view name) {
  const TransferRow* row = find_transfer(name);
  EPL_CHECK(row != nullptr, "no transfer ", name);
  return *row;
}

const TransferRow* transfer_of(std::string_view op) {
  const auto& rows = transfer_table().rows;
  const auto row = std::ranges::find(rows, op, &TransferRow::op);
  return row == rows.end() || op.empty() ? nullptr : &*row;
}

void take_kernel(const TransferRow& row, KernelQuery& query) {
  query.op = "fused";
  query.attributes = {{"expression", row.kernel}};
  query.input_types.push_back(query.input_types.at(0));   // the sum so far
  query.input_present.push_back(true);
}

void launch_kernel(const TransferCall& call, const void* a, const void* b, void* result) {
  const void* operands[] = {a, b};
  void* results[] = {result};
  call.stream.launch(*call.in.row, *call.in.query, call.in.prepared.get(), operands, results, call.workspace, call.context);
}

namespace {

template <Collective::Kind kind>
Status run_collective(const TransferCall& call) {
  const KernelQuery& q = *call.in.query;
  Collective collective{.kind = kind, .dtype = q.in(0).dtype, .source = call.source, .target = call.target};
  // The count is that of the smaller operand; see Collective.
  collective.count = std::min(q.in(0).elements(), q.out(0).elements());
  if (kind == Collective::Kind::all_to_all) collective.count /= call.group->size();
  return call.group->run(call.stream, collective);
}

}  // namespace

TransferRow collective_transfer(Collective::Kind kind, std::string doc) {
  using Kind = Collective::Kind;
  TransferRow row{.doc = std::move(doc), .op = std::string(collective_name(kind)), .holds = "gradient", .grouped = true};
  switch (kind) {
    case Kind::all_reduce: row.run = run_collective<Kind::all_reduce>; break;
    case Kind::reduce_scatter: row.run = run_collective<Kind::reduce_scatter>; break;
    case Kind::all_gather: row.run = run_collective<Kind::all_gather>; break;
    case Kind::all_to_all: row.run = run_collective<Kind::all_to_all>; break;
    case Kind::broadcast:
    case Kind::send:
    case Kind::receive:
    case Kind::barrier: EPL_CHECK(false, collective_name(kind), " is not a transfer of one operand to one result");
  }
  return row;
}

}  // namespace epl
