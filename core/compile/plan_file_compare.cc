// What differs between the decisions of two plan files.
#include <algorithm>
#include <map>
#include <set>

#include "core/compile/plan_file.h"
#include "core/strategy/plan_text.h"

namespace epl {
namespace {

constexpr size_t max_listed = 6;  // names of what differs alike

// One entry's decisions in the order of their names. A line of its text begins a record, or adds to the one before it.
struct PlanRecord {
  std::string name, text;
  std::vector<std::string> calls;
};
struct Decisions {
  std::map<std::string, std::vector<PlanRecord>> records;  // by the word that begins their lines
};
// Which records there are, what people call them, and the word behind which their decisions begin.
struct RecordKind {
  std::string_view word, called, behind = "";
};
constexpr RecordKind record_kinds[] = {
    {"class", "ranks of"}, {"taskgraph", "task graph"}, {"value", "tensor", " @ "}, {"node", "node", " in "}};

std::string unindented(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  return std::string(text);
}

Decisions read_decisions(const std::string& text) {
  Decisions out;
  TextReader reader(text);
  PlanRecord* record = nullptr;
  while (reader.next_line()) {
    const RecordKind* kind = nullptr;
    for (const RecordKind& one : record_kinds) {
      if (reader.take(one.word)) kind = &one;
    }
    if (kind) {
      record = &out.records[std::string(kind->word)].emplace_back();
      if (kind->word != "class") reader.name(record->name);
      std::string_view decisions = reader.line();
      const size_t at = kind->behind.empty() ? std::string::npos : decisions.find(kind->behind);
      if (at != std::string::npos) decisions.remove_prefix(at + kind->behind.size());
      record->text = unindented(decisions);
    } else if (record && reader.take("run")) {
      record->calls.push_back(unindented(reader.line()));
    } else if (record && !reader.take("why")) {
      record->text += cat(", ", unindented(reader.line()));
    }
  }
  return out;
}

// Numbers of virtual devices and of TaskGraphs become the names of scopes, so that a plan with one scope more compares
// well.
void name_records(Decisions& decisions) {
  std::vector<PlanRecord>& devices = decisions.records["class"];
  std::vector<PlanRecord>& task_graphs = decisions.records["taskgraph"];
  for (PlanRecord& task_graph : task_graphs) {
    TextReader reader(task_graph.text);
    int64_t c = -1;
    if (!reader.next_line() || !reader.take("class") || !reader.integer(c)) continue;
    if (c < 0 || c >= static_cast<int64_t>(devices.size())) continue;
    std::string& name = devices[static_cast<size_t>(c)].name;
    name += cat(name.empty() ? "" : ", ", task_graph.name);
    task_graph.text = unindented(reader.line());
  }
  for (PlanRecord& node : decisions.records["node"]) {
    const size_t at = node.text.rfind("taskgraph ");
    if (at == std::string::npos) continue;
    TextReader reader(std::string_view(node.text).substr(at));
    int64_t number = -1;
    if (!reader.next_line() || !reader.take("taskgraph") || !reader.integer(number)) continue;
    if (number < 0 || number >= static_cast<int64_t>(task_graphs.size())) continue;
    node.text.replace(at, std::string::npos, cat("of ", task_graphs[static_cast<size_t>(number)].name));
  }
}

// "a, b, c and 4 more"
std::string listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), max_listed);
  const std::string out = join(std::vector<std::string>(names.begin(), names.begin() + static_cast<long>(shown)), ", ");
  return names.size() > shown ? cat(out, " and ", names.size() - shown, " more") : out;
}

void compare_calls(const std::string& what, const std::vector<std::string>& one, const std::vector<std::string>& other,
                   std::vector<std::string>& out) {
  if (one == other) return;
  size_t same = 0;
  while (same < one.size() && same < other.size() && one[same] == other[same]) ++same;
  const auto call = [&](const std::vector<std::string>& calls) {
    return same < calls.size() ? calls[same] : std::string("no more");
  };
  out.push_back(cat("calls of ", what, ": ", one.size(), ", in the second ", other.size(), "; number ", same + 1,
                    " is ", call(one), ", in the second ", call(other)));
}

// What both begin with, a block, and what both end with, a scope, goes without saying.
std::string difference(std::string_view one, std::string_view other) {
  const size_t end = std::min(one.rfind(" of "), one.size()), other_end = std::min(other.rfind(" of "), other.size());
  if (one.substr(end) == other.substr(other_end)) {
    one = one.substr(0, end);
    other = other.substr(0, other_end);
  }
  size_t same = 0;
  for (size_t i = 0; i < one.size() && i < other.size() && one[i] == other[i] && one[i] != '['; ++i) {
    if (one[i] == ' ') same = i + 1;
  }
  const auto rest = [&](std::string_view text) { return text.size() > same ? text.substr(same) : "not cut"; };
  return cat(rest(one), "; in the second ", rest(other));
}

// Those that differ alike are one sentence.
void compare_records(const std::string& called, const std::vector<PlanRecord>& one,
                     const std::vector<PlanRecord>& other, std::vector<std::string>& out) {
  std::map<std::string, const PlanRecord*> there;
  for (const PlanRecord& record : other) there.emplace(record.name, &record);
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  const auto add = [&](const std::string& what, const std::string& name) {
    auto group = std::ranges::find(groups, what, &decltype(groups)::value_type::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(name);
  };
  std::set<std::string> seen;
  for (const PlanRecord& record : one) {
    seen.insert(record.name);
    const auto found = there.find(record.name);
    if (found == there.end()) {
      add("in the first alone", record.name);
      continue;
    }
    if (record.text != found->second->text) add(difference(record.text, found->second->text), record.name);
    compare_calls(cat(called, " ", record.name), record.calls, found->second->calls, out);
  }
  for (const PlanRecord& record : other) {
    if (!seen.contains(record.name)) add("in the second alone", record.name);
  }
  for (const auto& [what, names] : groups) {
    out.push_back(names.size() == 1 ? cat(called, " ", names.front(), ": ", what)
                                    : cat(names.size(), " times ", called, ": ", what, ": ", listed(names)));
  }
}

}  // namespace

std::vector<std::string> compare_plan_files(const PlanFile& one, const PlanFile& other) {
  std::vector<std::string> out;
  for (const auto& [name, value] : one.facts) {
    const auto found = other.facts.find(name);
    if (found == other.facts.end()) continue;  // of an entry that is not there
    if (found->second != value) out.push_back(cat(name, ": ", value, "; in the second ", found->second));
  }
  for (const auto& [name, text] : one.entries) {
    const std::string* there = other.entry(name);
    if (!there) {
      out.push_back(cat("entry ", name, " is in the first alone"));
      continue;
    }
    Decisions a = read_decisions(text), b = read_decisions(*there);
    name_records(a);
    name_records(b);
    for (const RecordKind& kind : record_kinds)
      compare_records(cat(name, ": ", kind.called), a.records[std::string(kind.word)],
                      b.records[std::string(kind.word)], out);
  }
  for (const auto& [name, text] : other.entries) {
    if (!one.entry(name)) out.push_back(cat("entry ", name, " is in the second alone"));
  }
  return out;
}

}  // namespace epl
