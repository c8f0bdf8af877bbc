// The .local text form: how the batch lies, the ports, the schedule, then the graph with local shapes. A node's region
// is its block: 0 main, see BlockKind.
#include "core/ir/text.h"
#include "core/program/local_graph.h"

namespace epl {
namespace {

void print_ports(std::string& out, std::string_view word, const std::vector<LocalPort>& ports, const Graph& graph) {
  for (const LocalPort& port : ports) {
    out +=
        cat(word, " ", name_text(port.name), " ", port.global_type.text(), " dim ", port.dim,
            port.outer == 1 ? "" : cat(" outer ", port.outer), " is ", name_text(graph.value(port.value).name), "\n");
  }
}

}  // namespace

std::string print_local(const LocalGraph& local) {
  std::string out =
      cat("local ranks ", local.ranks, " micro_batches ", local.micro_batches, " units ", local.units, "\n");
  for (const Action& action : local.schedule)
    out += cat("run ", block_name(action.block), " ", action.micro_batch, "\n");
  print_ports(out, "in", local.inputs, local.graph);
  print_ports(out, "out", local.outputs, local.graph);
  return out + print_graph(local.graph);
}

Result<LocalGraph> parse_local(std::string_view text) {
  size_t start = text.find("\ngraph ");
  if (start == std::string_view::npos) return invalid("a .local text holds a graph");
  LocalGraph local;
  EPL_ASSIGN(local.graph, parse_graph(text.substr(start + 1)));
  TextReader reader(text.substr(0, start));
  if (!reader.next_line() || !reader.take("local ranks") || !reader.integer(local.ranks) ||
      !reader.take("micro_batches") || !reader.integer(local.micro_batches) || !reader.take("units") ||
      !reader.integer(local.units)) {
    return reader.fail("expected local ranks N micro_batches N units N");
  }
  while (reader.next_line()) {
    std::string word, value;
    int64_t number = 0;
    if (reader.take("run ")) {
      Action action{};
      if (!reader.name(word) || !reader.integer(action.micro_batch)) return reader.fail("expected run block index");
      bool known = false;
      for (BlockKind kind : all_blocks) {
        if (block_name(kind) == word) action.block = kind, known = true;
      }
      if (!known) return reader.fail("unknown block");
      local.schedule.push_back(action);
      continue;
    }
    bool input = reader.take("in ");
    LocalPort port;
    if ((!input && !reader.take("out ")) || !reader.name(port.name) || !reader.type(port.global_type) ||
        !reader.take("dim") || !reader.integer(number) || (reader.take("outer") && !reader.integer(port.outer)) ||
        port.outer < 1 || !reader.take("is") || !reader.name(value)) {
      return reader.fail("expected a port");
    }
    port.dim = static_cast<int>(number);
    port.value = local.graph.find(value);
    if (!port.value) return reader.fail(cat("nothing is called ", value));
    (input ? local.inputs : local.outputs).push_back(std::move(port));
  }
  return local;
}

}  // namespace epl
