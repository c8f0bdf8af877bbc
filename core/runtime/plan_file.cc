#include "core/runtime/plan_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/ir/text.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/compiled_plan.h"
#include "core/strategy/plan_text.h"

namespace epl {
namespace {

constexpr std::string_view head = "epl plan 1\n";
constexpr size_t max_listed = 6;  // names of what differs alike

std::string hex_hash(std::string_view text) {
  Hash64 hash;
  hash.add(text.data(), text.size());
  char out[20];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash.value()));
  return out;
}

// Values, nodes and their types, in order; not what weights hold.
std::string hash_of(const Graph& graph) { return hex_hash(print_graph(graph)); }

std::string hash_of(const Model& model) {
  const uint64_t fingerprint = model.fingerprint();
  return fingerprint == 0 ? "" : hex_hash(cat(fingerprint));
}

// Its text, in which a key at its default is as one that nobody sets.
std::string text_of(Strategy strategy) {
  Attributes set;
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    const auto key = std::ranges::find(config_keys(), entry.name, [](const ConfigKey& one) { return one.name; });
    if (key == config_keys().end() || !identical(entry.value, key->value)) set.set(entry.name, entry.value);
  }
  strategy.config = std::move(set);
  return print_strategy(strategy);
}

Status differs(std::string_view what, const std::string& there, const std::string& here) {
  return invalid("the plan file was made for another ", what, ": ", shown_plain(there, 500), " there, ",
                 shown_plain(here, 500), " here; make it again");
}

}  // namespace

const std::string* PlanFile::entry(std::string_view name) const {
  const auto found = std::ranges::find(entries, name, &std::pair<std::string, std::string>::first);
  return found == entries.end() ? nullptr : &found->second;
}

PlanFile decisions_of(const CompiledPlan& plan, std::string_view version) {
  PlanFile file;
  file.facts = {{"model", hash_of(*plan.options().model)},
                {"strategy", text_of(plan.options().strategy)},
                {"ranks", cat(plan.options().ranks)},
                {"version", std::string(version)},
                {"numerics", cat(numerics_version)}};
  for (const Entry& entry : plan.entries()) {
    const std::string name = entry.name();
    file.facts[cat("graph of ", name)] = hash_of(*entry.plan.graph);
    file.entries.emplace_back(name, print_plan_with_reasons(entry.plan));
  }
  return file;
}

std::string print_plan_file(const PlanFile& file) {
  std::string body;
  for (const auto& [name, value] : file.facts) body += cat("fact ", quoted(name), " ", quoted(value), "\n");
  for (const auto& [name, text] : file.entries) body += cat("entry ", name, "\n", text);
  return cat(head, "hash ", hex_hash(body), "\n", body);
}

Result<PlanFile> parse_plan_file(std::string_view text) {
  if (!text.starts_with("epl plan ")) return error(Code::data_loss, "it is not a plan file of EPL");
  if (!text.starts_with(head))
    return unsupported("the plan file has a format that this version does not read: ", text.substr(0, text.find('\n')),
                       "; make it again");
  text.remove_prefix(head.size());
  const std::string_view first = text.substr(0, text.find('\n'));
  const std::string_view body = text.substr(std::min(first.size() + 1, text.size()));
  if (first != cat("hash ", hex_hash(body))) {
    return error(Code::data_loss, "the plan file is damaged, or was changed by hand: its text and its hash disagree");
  }
  PlanFile file;
  for (std::string_view rest = body; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("entry ")) {
      file.entries.emplace_back(line.substr(6), "");
    } else if (!file.entries.empty()) {
      file.entries.back().second += cat(line, "\n");
    } else {
      TextReader reader(line);
      std::string name, value;
      if (!reader.next_line() || !reader.take("fact") || !reader.name(name) || !reader.name(value))
        return error(Code::data_loss, "the plan file has a line that is not a fact: ", shown(line));
      file.facts[name] = value;
    }
  }
  return file;
}

Status take_decisions(const PlanFile& file, std::string_view version, bool has_strategy, PlanOptions& options) {
  const auto fact = [&](const char* name) {
    const auto found = file.facts.find(name);
    return found == file.facts.end() ? std::string() : found->second;
  };
  if (fact("numerics") != cat(numerics_version))
    return differs("version of the numerics", fact("numerics"), cat(numerics_version));
  if (fact("version") != version) return differs("version of EPL", fact("version"), std::string(version));
  if (const std::string here = hash_of(*options.model); fact("model") != here)
    return differs("model", fact("model"), here);
  if (!has_strategy) {
    EPL_ASSIGN(options.strategy, parse_strategy(fact("strategy")));
  }
  const std::string ranks = fact("ranks");
  int64_t count = 0;
  std::from_chars(ranks.data(), ranks.data() + ranks.size(), count);
  if (count < 1) return error(Code::data_loss, "the plan file is for ", shown(ranks), " ranks");
  if (options.ranks != 0 && options.ranks != count) return differs("number of ranks", ranks, cat(options.ranks));
  options.ranks = count;
  return {};
}

Status check_strategy(const PlanFile& file, const Strategy& strategy) {
  const auto there = file.facts.find("strategy");
  const std::string here = text_of(strategy);
  if (there != file.facts.end() && there->second == here) return {};
  return differs("strategy", there == file.facts.end() ? "" : there->second, here);
}

Status check_graph(const PlanFile& file, std::string_view entry, const Graph& graph) {
  const auto there = file.facts.find(cat("graph of ", entry));
  if (there == file.facts.end() || !file.entry(entry))
    return invalid("the plan file has no decisions for the ", shown_plain(entry), " entry; make it again");
  const std::string here = hash_of(graph);
  if (there->second == here) return {};
  return invalid("the plan file was made for another ", entry, " graph (", there->second, " there, ", here,
                 " here): batch, loss, optimizer, what is trained, or the device differs; make it again");
}

namespace {

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

// Numbers of classes and of TaskGraphs become the names of scopes, so that a plan with one scope more compares well.
void name_records(Decisions& decisions) {
  std::vector<PlanRecord>& classes = decisions.records["class"];
  std::vector<PlanRecord>& task_graphs = decisions.records["taskgraph"];
  for (PlanRecord& task_graph : task_graphs) {
    TextReader reader(task_graph.text);
    int64_t c = -1;
    if (!reader.next_line() || !reader.take("class") || !reader.integer(c)) continue;
    if (c < 0 || c >= static_cast<int64_t>(classes.size())) continue;
    std::string& name = classes[static_cast<size_t>(c)].name;
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
