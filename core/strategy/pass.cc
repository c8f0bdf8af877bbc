#include "core/strategy/pass.h"

#include <algorithm>

#include "core/base/options.h"

namespace epl {

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
    EPL_ASSIGN(const PassRow* row, find_named(pass_table(), pass.first, "strategy pass"));
    EPL_ASSIGN(Attributes options, complete_options(row->options, pass.second, cat("pass ", row->name)));
    PassContext context{plan, request, std::move(options)};
    if (Status status = row->run(context); !status.ok()) return status.with_context(cat("pass ", row->name));
    if (Status status = verify_plan(plan); !status.ok()) return status.with_context(cat("after pass ", row->name));
    if (after) after(row->name, plan);
  }
  return {};
}

namespace {

// The size of the global batch: every input that counts samples must agree.
Result<int64_t> batch_size(const Graph& graph) {
  int64_t batch = 0;
  std::string from;
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    if (info.batch_dim < 0) continue;
    int64_t size = info.type.dim(info.batch_dim);
    if (batch != 0 && size != batch) {
      return invalid("input ", info.name, " has ", size, " samples in dimension ", info.batch_dim, " but ", from,
                     " has ", batch, "; name the dimension that counts samples for each input, or -1 for none");
    }
    batch = size;
    from = info.name;
  }
  return batch;
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) {
  if (request.ranks < 1) return invalid("a plan needs at least one rank, got ", request.ranks);
  EPL_TRY(check_built(request.strategy, request.ranks));
  Plan plan;
  plan.graph = request.graph;
  plan.strategy = request.strategy;
  EPL_ASSIGN(plan.batch, batch_size(*request.graph));
  plan.passes = request.passes.empty() ? default_passes() : request.passes;
  EPL_TRY(run_passes(plan, request, plan.passes));
  return plan;
}

}  // namespace epl
