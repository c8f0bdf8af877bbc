#include "core/compile/plan_file.h"

#include <algorithm>
#include <cstdio>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/ir/text.h"

namespace epl {
namespace {

constexpr std::string_view head = "epl plan 1\n";

}  // namespace

std::string decisions_hash(std::string_view text) {
  Hash64 hash;
  hash.add(text.data(), text.size());
  char out[20];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash.value()));
  return out;
}

std::string decisions_hash(const Graph& graph) { return decisions_hash(print_graph(graph)); }

std::string decisions_text(Strategy strategy) {
  Attributes set;
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    const auto key = std::ranges::find(config_keys(), entry.name, [](const ConfigKey& one) { return one.name; });
    if (key == config_keys().end() || !identical(entry.value, key->value)) set.set(entry.name, entry.value);
  }
  strategy.config = std::move(set);
  return print_strategy(strategy);
}

Status made_for_another(std::string_view what, const std::string& there, const std::string& here) {
  return invalid("the plan file was made for another ", what, ": ", shown_plain(there, 500), " there, ",
                 shown_plain(here, 500), " here; make it again");
}

const std::string* PlanFile::entry(std::string_view name) const {
  const auto found = std::ranges::find(entries, name, &std::pair<std::string, std::string>::first);
  return found == entries.end() ? nullptr : &found->second;
}

std::string print_plan_file(const PlanFile& file) {
  std::string body;
  for (const auto& [name, value] : file.facts) body += cat("fact ", quoted(name), " ", quoted(value), "\n");
  for (const auto& [name, text] : file.entries) body += cat("entry ", name, "\n", text);
  return cat(head, "hash ", decisions_hash(body), "\n", body);
}

Result<PlanFile> parse_plan_file(std::string_view text) {
  if (!text.starts_with("epl plan ")) return error(Code::data_loss, "it is not a plan file of EPL");
  if (!text.starts_with(head))
    return unsupported("the plan file has a format that this version does not read: ", text.substr(0, text.find('\n')),
                       "; make it again");
  text.remove_prefix(head.size());
  const std::string_view first = text.substr(0, text.find('\n'));
  const std::string_view body = text.substr(std::min(first.size() + 1, text.size()));
  if (first != cat("hash ", decisions_hash(body))) {
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

Status check_strategy(const PlanFile& file, const Strategy& strategy) {
  const auto there = file.facts.find("strategy");
  const std::string here = decisions_text(strategy);
  if (there != file.facts.end() && there->second == here) return {};
  return made_for_another("strategy", there == file.facts.end() ? "" : there->second, here);
}

Status check_graph(const PlanFile& file, std::string_view entry, const Graph& graph) {
  const auto there = file.facts.find(cat("graph of ", entry));
  if (there == file.facts.end() || !file.entry(entry))
    return invalid("the plan file has no decisions for the ", shown_plain(entry), " entry; make it again");
  const std::string here = decisions_hash(graph);
  if (there->second == here) return {};
  return invalid("the plan file was made for another ", entry, " graph (", there->second, " there, ", here,
                 " here): batch, loss, optimizer, what is trained, or the device differs; make it again");
}

}  // namespace epl
