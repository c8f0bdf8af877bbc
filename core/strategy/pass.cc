#include "core/strategy/pass.h"

#include <algorithm>

#include "core/base/suggestion.h"
#include "core/ir/options.h"

namespace epl {

const PassTable& pass_table() {
  static const PassTable table = [] {
    PassTable made;
    fill_pass_table(made);
    return made;
  }();
  return table;
}

const std::string& default_passes() {
  static const std::string list = "place; propagate; schedule";
  return list;
}

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "zero(level=v2)" into its name and options; a bare word is a text.
Result<std::pair<std::string, Attributes>> parse_pass(std::string_view text) {
  size_t open = text.find('(');
  std::string name(trim(text.substr(0, open)));
  Attributes arguments;
  if (open == std::string_view::npos) return std::pair(name, arguments);
  if (text.back() != ')') return invalid("pass \"", text, "\" has no closing )");
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  while (!trim(rest).empty()) {
    size_t comma = rest.find(',');
    std::string_view item = trim(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    size_t equals = item.find('=');
    std::string key(trim(item.substr(0, equals)));
    if (equals == std::string_view::npos) {
      arguments.set(key, true);
      continue;
    }
    std::string_view value = trim(item.substr(equals + 1)), left = value;
    auto parsed = parse_attribute(left);
    arguments.set(key, parsed.ok() && left.empty() ? *std::move(parsed) : Attribute(std::string(value)));
  }
  return std::pair(name, arguments);
}

}  // namespace

Status run_passes(Plan& plan, const PlanRequest& request, std::string_view list,
                  const std::function<void(const std::string&, const Plan&)>& after) {
  while (!trim(list).empty()) {
    size_t end = list.find(';');
    std::string_view text = trim(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    if (text.empty()) continue;
    EPL_ASSIGN(auto pass, parse_pass(text));
    const auto& rows = pass_table().rows;
    auto row = std::ranges::find(rows, pass.first, &PassRow::name);
    if (row == rows.end()) {
      std::vector<std::string> known;
      for (const PassRow& r : rows) known.push_back(r.name);
      return error(Code::not_found, "no strategy pass ", quoted(pass.first), choices(pass.first, known));
    }
    EPL_ASSIGN(Attributes options, complete_options(row->options, pass.second, cat("pass ", row->name)));
    PassContext context{plan, request, std::move(options)};
    if (Status status = row->run(context); !status.ok()) return status.with_context(cat("pass ", row->name));
    if (Status status = verify_plan(plan); !status.ok()) return status.with_context(cat("after pass ", row->name));
    if (after) after(row->name, plan);
  }
  return {};
}

Status verify_plan(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (!plan.shardings.empty() && static_cast<int>(plan.shardings.size()) != graph.value_count()) {
    return error(Code::internal, "shardings of ", plan.shardings.size(), " of ", graph.value_count(), " values");
  }
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    const Sharding& sharding = plan.shardings[i];
    if (sharding.dims.size() != info.type.shape.size()) return error(Code::internal, info.name, " has another number of dimensions");
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      int64_t pieces = 1;
      for (int axis : sharding.dims[d]) pieces *= plan.mesh.axes[axis].size;
      if (!sharding.dims[d].empty()) pieces *= sharding.outer;
      if (info.type.shape[d] % pieces != 0) {
        return error(Code::internal, info.name, ": dimension ", d, " of ", info.type.shape[d], " is cut into ", pieces);
      }
    }
  }
  auto sized = [&](size_t size) { return size == 0 || static_cast<int>(size) == graph.node_count(); };
  if (!sized(plan.node_block.size()) || !sized(plan.node_cut.size()) || !sized(plan.node_task_graph.size())) {
    return error(Code::internal, "a table by node has the wrong size");
  }
  return {};
}

}  // namespace epl
