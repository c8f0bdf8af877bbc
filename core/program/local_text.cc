// The .local text form: the mesh, the ports, the calls, then the graph with local shapes. A node's region is its block,
// by the order of their first calls.
#include <algorithm>

#include "core/program/local_graph.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

void print_ports(std::string& out, std::string_view word, const std::vector<LocalPort>& ports,
                 const LocalGraph& local) {
  for (const LocalPort& port : ports) {
    out += cat(word, " ", name_text(port.name), " ", port.global_type.text(), " ",
               port_sharding_text(local.mesh, port.sharding), port.emitted ? "" : " kept", " is ",
               name_text(local.graph.value(port.value).name), "\n");
  }
}

bool parse_port(TextReader& reader, const LocalGraph& local, LocalPort& port) {
  std::string value;
  if (!reader.name(port.name) || !reader.type(port.global_type) ||
      !parse_port_sharding(reader, local.mesh, port.global_type, port.sharding)) {
    return false;
  }
  port.emitted = !reader.take("kept");
  if (!reader.take("is") || !reader.name(value)) return false;
  port.value = local.graph.find(value);
  return static_cast<bool>(port.value);
}

bool parse_wait(TextReader& reader, SendWait& wait) {
  int64_t call = 0, sent = 0, to = 0;
  if (!reader.take("before") || !reader.integer(call) || !reader.take("for") || !reader.integer(sent) ||
      !reader.take("to") || !reader.integer(to))
    return false;
  if (std::max({call, sent, to}) > INT32_MAX || std::min({call, sent, to}) < 0) return false;
  wait.call = static_cast<int>(call);
  wait.sent = static_cast<int>(sent);
  wait.to = static_cast<int>(to);
  return !reader.take("channel") || (reader.integer(wait.channel) && wait.channel > 0);
}

bool parse_memory(TextReader& reader, MemoryKind& memory) {
  const auto kind =
      std::ranges::find_if(memory_kinds, [&](MemoryKind one) { return reader.take(memory_kind_name(one)); });
  if (kind == std::end(memory_kinds)) return false;
  memory = *kind;
  return true;
}

}  // namespace

std::string print_local(const LocalGraph& local) {
  std::string out = cat("local class ", local.virtual_device, local.commits ? " commits" : "", "\n");
  out += axis_lines(local.mesh) + batch_line(local.mesh, local.batch);
  for (const BlockCall& call : local.calls) out += cat("run ", call.text(), "\n");
  for (const SendWait& wait : local.waits) {
    out += cat("wait before ", wait.call, " for ", wait.sent, " to ", wait.to,
               wait.channel ? cat(" channel ", wait.channel) : "", "\n");
  }
  print_ports(out, "in", local.inputs, local);
  print_ports(out, "out", local.outputs, local);
  for (const LocalState& state : local.cut_state) {
    out += cat("state ", name_text(state.name), " ", state.global_type.text(), " @ ",
               cuts_text(local.mesh, state.sharding.dims),
               rank_local_text(local.mesh, state.sharding.rank_local, state.representative), "\n");
  }
  for (const StateHome& home : local.homes)
    out += cat("home ", name_text(home.name), " ", memory_kind_name(home.memory), "\n");
  for (const std::string& name : local.again) out += cat("again ", name_text(name), "\n");
  return out + print_graph(local.graph);
}

Result<LocalGraph> parse_local(std::string_view text) {
  size_t start = text.find("\ngraph ");
  if (start == std::string_view::npos) return invalid("a .local text holds a graph");
  LocalGraph local;
  EPL_ASSIGN(local.graph, parse_graph(text.substr(start + 1)));
  TextReader reader(text.substr(0, start));
  int64_t number = 0;
  if (!reader.next_line() || !reader.take("local class") || !reader.integer(number)) {
    return reader.fail("expected local class N");
  }
  local.virtual_device = static_cast<int>(number);
  local.commits = reader.take("commits");
  while (reader.next_line()) {
    if (reader.take("axis ")) {
      if (!parse_axis(reader, local.mesh)) return reader.fail("expected axis name size kind");
    } else if (reader.take("batch ")) {
      if (!parse_batch(reader, local.mesh, local.batch)) return reader.fail("expected how the batch is cut");
    } else if (reader.take("run ")) {
      if (!parse_call(reader, local.calls.emplace_back())) return reader.fail("expected run block index");
    } else if (reader.take("wait ")) {
      if (!parse_wait(reader, local.waits.emplace_back())) return reader.fail("expected before N for N to class");
    } else if (reader.take("in ")) {
      if (!parse_port(reader, local, local.inputs.emplace_back())) return reader.fail("expected a port");
    } else if (reader.take("out ")) {
      if (!parse_port(reader, local, local.outputs.emplace_back())) return reader.fail("expected a port");
    } else if (reader.take("state ")) {
      LocalState& state = local.cut_state.emplace_back();
      const bool read = reader.name(state.name) && reader.type(state.global_type) && reader.take("@") &&
                        parse_cuts(reader, local.mesh, state.sharding.dims) &&
                        parse_rank_local(reader, local.mesh, state.sharding.rank_local, state.representative);
      if (!read) return reader.fail("expected a state that is cut");
    } else if (reader.take("home ")) {
      StateHome& home = local.homes.emplace_back();
      if (!reader.name(home.name) || !parse_memory(reader, home.memory) || home.memory == MemoryKind::device)
        return reader.fail("expected a state and its memory");
    } else if (reader.take("again ")) {
      std::string name;
      if (!reader.name(name)) return reader.fail("expected the name of a node");
      local.again.insert(name);
    } else {
      return reader.fail("unknown line");
    }
  }
  if (local.batch.empty()) local.batch = BatchLayout::over_all_axes(local.mesh);
  local.blocks = blocks_of(local.calls);
  for (const SendWait& wait : local.waits) {
    if (wait.sent >= wait.call || wait.call >= std::ssize(local.calls))
      return invalid("call ", wait.call, " of ", local.calls.size(), " waits for what call ", wait.sent, " has sent");
  }
  for (const Node& node : local.graph.nodes()) {
    if (node.region < 0 || node.region >= static_cast<int32_t>(local.blocks.size()))
      return invalid("node ", node.name, " is in block ", node.region, "; the calls have ", local.blocks.size());
  }
  if (local.sample_block() < 0) return invalid("no call sees the samples");
  return local;
}

}  // namespace epl
