#include "core/program/transfer.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

const TransferRow* find_transfer(std::string_view name) { return transfer_table().find(name); }

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

Result<ProgramGroup> counterpart_group(const TransferRow& row, const Attributes& attributes) {
  const auto integer = [&](std::string_view name) {
    const Attribute* found = attributes.find(name);
    return found && std::holds_alternative<int64_t>(*found) ? std::get<int64_t>(*found) : -1;
  };
  const int64_t other = integer(row.counterpart), peer = row.sends ? integer("peer") : -1;
  if (other < 0 || other > INT32_MAX || peer > INT32_MAX || (row.sends && peer < 0))
    return invalid("expected the other virtual device");
  const int64_t channel = integer("channel");
  return ProgramGroup{.virtual_device = static_cast<int>(other),
                      .peer = static_cast<int>(peer),
                      .channel = std::max<int64_t>(channel, 0)};
}

void take_kernel(const TransferRow& row, KernelQuery& query) {
  query.op = fused_op;
  query.attributes = {{"expression", row.kernel}};
  query.input_types.push_back(query.input_types.at(0));  // the sum so far
  query.input_present.push_back(true);
}

int64_t largest_side(const Instruction& in) {
  if (in.transfer && in.transfer->moved_bytes) return in.transfer->moved_bytes(in);
  int64_t given = 0, results = 0;
  for (const TensorType& type : in.query->input_types) given += type.bytes();
  for (const TensorType& type : in.query->output_types) results += type.bytes();
  return std::max(given, results);
}

std::vector<GroupCall> group_calls(const Instruction& in, int64_t ranks) {
  using Kind = Collective::Kind;
  if (!in.transfer || !in.transfer->call) return {};
  const Kind kind = *in.transfer->call;
  const KernelQuery& q = *in.query;
  const auto message = [&](const TensorType& type) {
    return std::vector<GroupCall>{{kind, static_cast<double>(type.bytes()), type.elements()}};
  };
  if (kind == Kind::send) return message(q.in(0));
  if (kind == Kind::receive) return message(q.out(0));
  // Rows have an operand that says where they go.
  const bool rows = kind == Kind::dispatch || kind == Kind::combine;
  const bool of_each = rows || kind == Kind::all_to_all;
  std::vector<GroupCall> calls;
  for (int i = 0; i < (rows ? 1 : q.inputs()); ++i) {
    const TensorType& smaller = q.in(i).bytes() < q.out(i).bytes() ? q.in(i) : q.out(i);
    const int64_t shares = of_each ? ranks : 1;
    calls.push_back(
        {kind, static_cast<double>(smaller.bytes()) / static_cast<double>(shares), smaller.elements() / shares});
  }
  return calls;
}

void launch_kernel(const TransferCall& call, const void* a, const void* b, void* result) {
  const void* operands[] = {a, b};
  void* results[] = {result};
  call.stream.launch(*call.in.row, *call.in.query, call.in.prepared.state.get(), operands, results, call.workspace,
                     call.context);
}

namespace {

template <Collective::Kind kind> Status run_collective(const TransferCall& call) {
  const KernelQuery& q = *call.in.query;
  Reduction reduction = Reduction::sum;
  if (const Attribute* named = q.attributes.find("reduction")) {
    const std::string& name = std::get<std::string>(*named);
    if (name != "sum") reduction = name == "max" ? Reduction::max : Reduction::min;
  }
  const auto calls = call.calls.first(call.sources.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    const TensorType &given = q.in(static_cast<int>(i)), &result = q.out(static_cast<int>(i));
    calls[i] = {.kind = kind,
                .dtype = given.dtype,
                .count = std::min(given.elements(), result.elements()),  // that of the smaller operand; see Collective
                .source = call.sources[i],
                .target = call.targets[i],
                .reduction = reduction};
    if (kind == Collective::Kind::all_to_all) calls[i].count /= call.group->size();
  }
  return call.group->run_together(call.stream, calls);
}

}  // namespace

namespace {

template <Segments segments> Result<OutputTypes> infer_collective(const OpQuery& q) {
  OutputTypes types;
  for (int i = 0; i < q.inputs(); ++i) {
    TensorType& type = types.emplace_back(q.in(i));
    if constexpr (segments == Segments::none) continue;
    const int64_t ranks = q.attributes().integer("parts");
    const bool divides = segments == Segments::gathered || (type.ndim() > 0 && ranks > 0 && type.shape[0] % ranks == 0);
    if (ranks < 1 || type.ndim() == 0 || !divides)
      return invalid("dimension 0 of ", type.text(), " is not made of ", ranks, " segments");
    if (segments == Segments::gathered) type.shape[0] *= ranks;
    if (segments == Segments::scattered) type.shape[0] /= ranks;
  }
  return types;
}

}  // namespace

OpDef collective_op(std::string doc, Segments segments) {
  OpDef op{.doc = std::move(doc), .signature = "x* -> y", .attributes = {{"axis", std::string("data"), true}}};
  switch (segments) {
    case Segments::none:
      op.infer = infer_collective<Segments::none>;
      break;
    case Segments::exchanged:
      op.infer = infer_collective<Segments::exchanged>;
      break;
    case Segments::gathered:
      op.infer = infer_collective<Segments::gathered>;
      break;
    case Segments::scattered:
      op.infer = infer_collective<Segments::scattered>;
      break;
  }
  if (segments != Segments::none) op.attributes.push_back({"parts", int64_t{1}, true});
  op.no_gradient = "it is inserted after the gradients are known";
  op.boundary = true;
  return op;
}

TransferRow collective_transfer(Collective::Kind kind, std::string doc) {
  using Kind = Collective::Kind;
  TransferRow row{.doc = std::move(doc),
                  .op = std::string(collective_name(kind)),
                  .holds = "gradient",
                  .grouped = true,
                  .joins = true,
                  .in_place = kind == Kind::all_reduce,
                  .gathers = kind == Kind::all_gather,
                  .scatters = kind == Kind::reduce_scatter,
                  .call = kind};
  switch (kind) {
    case Kind::all_reduce:
      row.run = run_collective<Kind::all_reduce>;
      break;
    case Kind::reduce_scatter:
      row.run = run_collective<Kind::reduce_scatter>;
      break;
    case Kind::all_gather:
      row.run = run_collective<Kind::all_gather>;
      break;
    case Kind::all_to_all:
      row.run = run_collective<Kind::all_to_all>;
      break;
    case Kind::dispatch:
    case Kind::combine:
    case Kind::broadcast:
    case Kind::send:
    case Kind::receive:
    case Kind::barrier:
      EPL_CHECK(false, collective_name(kind), " is not a transfer of one operand to one result");
  }
  return row;
}

}  // namespace epl
