#include "tools/layouts.h"

#include <algorithm>

namespace epl::tools {
namespace {

// Keys that a layout draws by itself, with what they need.
bool drawn_apart(const std::string& name) {
  return name == "pipeline.num_micro_batch" || name == "pipeline.num_stages" || name == "pipeline.strategy" ||
         name == "pipeline.virtual_stages";
}

// What a node is called but for the number that it got because others have its name.
std::string_view without_number(std::string_view name) {
  const size_t end = name.find_last_not_of("0123456789");
  return end != std::string_view::npos && end + 1 < name.size() && name[end] == '_' ? name.substr(0, end) : name;
}

// Where a stage may end that would end before node `at`: one node of a model is several here, and in evaluation it is
// other ones, so none of them is cut.
int64_t end_of_model_node(const std::vector<std::string>& nodes, int64_t at) {
  const auto name = [&](int64_t n) { return without_number(nodes[static_cast<size_t>(n)]); };
  const auto count = static_cast<int64_t>(nodes.size());
  int64_t begin = at, end = at;
  while (end > 0 && end < count && name(end) == name(end - 1)) ++end;
  if (end < count) return end;
  while (begin > 0 && begin < count && name(begin) == name(begin - 1)) --begin;  // of the last one, as a loss
  return begin > 0 ? begin : at;
}

// Hosts or none, links that are slow or not, and ranks of one kind or of two: by these a search decides.
Json drawn_machine(Draws& draws) {
  const int64_t host = draws.one_in(2) ? 2 : 4;
  Json links = Json::array();
  if (draws.one_in(2)) links.push_back(Json{{"devices", host}, {"bandwidth", 1e10}, {"seconds", 1e-6}});
  links.push_back(Json{{"bandwidth", draws.one_in(2) ? 1e8 : 1e10}, {"seconds", 1e-5}});
  Json out = {{"core", true},
              {"measured", {{"device", "drawn"}, {"version", "0"}, {"error", 0.1}, {"error_90th", 0.2}}},
              {"bandwidth", 1e10},
              {"host_bandwidth", 1e10},
              {"products", {{"f32", 1e11}}},
              {"elementwise", {{"f32", 1e11}}},
              {"links", links},
              {"launch_seconds", 1e-6}};
  if (!draws.one_in(2)) return out;
  Json kinds = Json::array();
  kinds.push_back(Json{{"devices", host}});
  kinds.push_back(Json{{"devices", host}, {"speed", draws.one_in(2) ? 0.5 : 0.8}});
  out["kinds"] = kinds;
  return out;
}

}  // namespace

std::vector<std::string> forward_nodes(const Plan& plan) {
  const std::string text = text_of(epl_plan_print, plan.get(), "plan", size_t{4}, nullptr);
  std::vector<std::string> names;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, to - from);
    from = to + 1;
    if (!line.starts_with("node ")) continue;
    std::string name = line.substr(5, line.find(' ', 5) - 5);
    if (line[5] == '"') {
      size_t end = 6;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      name = parse_json(line.substr(5, end - 4)).get<std::string>();
    }
    if (name.find(".gradient") != std::string::npos) break;  // the backward pass begins
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<int> even_cuts(int64_t stages) {
  std::vector<int> cuts;
  for (int64_t s = 1; s < stages; ++s) cuts.push_back(static_cast<int>(1000 * s / stages));
  return cuts;
}

Json strategy_of(const Layout& layout, const SameBits& common, const std::vector<std::string>& nodes) {
  Json out = Json::object();
  for (const auto& [name, value] : layout.keys) out[name] = value;
  const int64_t micro_batches = common.independent > 1 ? common.independent : layout.micro_batches;
  if (micro_batches > 1) out["pipeline.num_micro_batch"] = micro_batches;
  if (common.independent > 1) out["batch.semantics"] = "per_micro_batch";
  if (common.units > 0) out["reproducible.units"] = common.units;
  if (common.level != "data") out["reproducible.level"] = common.level;
  if (!common.narrow.empty()) out["amp.level"] = "O1";
  if (!common.narrow.empty()) out["amp.type"] = common.narrow;
  std::string kept;
  for (const int at : layout.kept) {
    if (!nodes.empty()) kept += (kept.empty() ? "" : ", ") + nodes[nodes.size() * static_cast<size_t>(at) / 1000];
  }
  if (!kept.empty()) out["gradient_checkpoint.type"] = "collection";
  if (!kept.empty()) out["gradient_checkpoint.tensors"] = kept;
  const char* kind = layout.split == 1 ? "replicate" : layout.experts ? "expert" : "split";
  if (layout.engine_cuts && layout.stages() > 1) out["pipeline.num_stages"] = layout.stages();
  if (layout.cuts.empty() || layout.engine_cuts) {
    if (layout.split > 1 && layout.beside && layout.cuts.empty() && nodes.size() > 1) {
      std::vector<std::string> own;
      for (size_t n = 1; n < nodes.size(); n += 3) own.push_back(nodes[n]);
      out["scopes"].push_back({{"name", "beside"}, {kind, layout.split}, {"match", own}});
    } else if (layout.split > 1) {
      out["default"] = Json{{kind, layout.split}};
    }
    return out;
  }
  // At least one node for each stage, where there are so many.
  const auto count = static_cast<int64_t>(nodes.size());
  int64_t from = 0;
  for (int64_t s = 0; s < layout.stages(); ++s) {
    const bool last = s + 1 == layout.stages();
    int64_t to = last ? count : count * layout.cuts[static_cast<size_t>(s)] / 1000;
    to = std::clamp<int64_t>(to, std::min(from + 1, count), count);
    if (!last) to = end_of_model_node(nodes, to);
    const std::vector<std::string> own(nodes.begin() + from, nodes.begin() + to);
    out["scopes"].push_back({{"name", "stage" + std::to_string(s)}, {kind, layout.split}, {"match", own}});
    from = to;
  }
  return out;
}

std::vector<StrategyRow> parse_strategies(std::string_view text, const std::string& file) {
  std::vector<StrategyRow> out;
  const Json list = parse_json(text, file);
  if (!list.is_array()) throw UsageError(file + " is not a JSON list of strategies");
  for (const Json& one : list) {
    StrategyRow row;
    try {
      row.name = one.at("name").get<std::string>();
      row.layout.split = one.value("split", int64_t{1});
      row.layout.experts = one.value("experts", false);
      row.layout.beside = one.value("beside", false);
      row.layout.cuts = even_cuts(one.value("stages", int64_t{1}));
      const Json keys = one.value("strategy", Json::object());
      for (const auto& [key, value] : keys.items()) row.layout.keys[key] = value;
      const int64_t ranks = one.value("ranks", int64_t{1}), needed = row.layout.ranks();
      if (needed < 1 || ranks % needed != 0)
        throw UsageError(file + ": \"" + row.name + "\" needs " + std::to_string(needed) +
                         " ranks for a copy and has " + std::to_string(ranks));
      row.layout.copies = ranks / needed;
    } catch (const Json::exception& e) {
      throw UsageError(file + ": " + print_json(one) + ": " + e.what());
    }
    out.push_back(std::move(row));
  }
  return out;
}

std::vector<StrategyRow> with_options(const std::vector<StrategyRow>& rows, std::string_view options,
                                      const std::string& file) {
  std::vector<StrategyRow> out;
  const Json list = parse_json(options, file);
  if (!list.is_array()) throw UsageError(file + " is not a JSON list of options");
  std::vector<StrategyRow> all = {StrategyRow()};
  all.insert(all.end(), rows.begin(), rows.end());
  for (const Json& option : list) {
    try {
      const Json keys = option.value("strategy", Json::object()), optimizer = option.value("optimizer", Json::object());
      const Json refused = option.value("refused", Json::array());
      for (StrategyRow row : all) {
        if (std::ranges::any_of(keys.items(), [&](const auto& key) { return row.layout.keys.contains(key.key()); }))
          continue;
        row.alone = row.layout;
        for (const Json& reason : refused) row.refusals.push_back(reason.get<std::string>());
        for (const auto& [key, value] : keys.items()) row.layout.keys[key] = value;
        for (const auto& [name, value] : optimizer.items())
          row.optimizer.push_back(name + "=" + (value.is_string() ? value.get<std::string>() : print_json(value)));
        row.budget = option.value("budget", 0.0);
        row.name = option.at("name").get<std::string>() + (row.name.empty() ? "" : ", " + row.name);
        out.push_back(std::move(row));
      }
    } catch (const Json::exception& e) {
      throw UsageError(file + ": " + print_json(option) + ": " + e.what());
    }
  }
  return out;
}

const Json* LayoutSource::key(const std::string& name) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Json& one) { return one.at("name") == name; });
  return found == keys_.end() ? nullptr : &*found;
}

std::vector<std::string> LayoutSource::levels() const {
  std::vector<std::string> out;
  for (const Json& word : key("reproducible.level")->at("built_words")) {
    // On one kind of device `exact` is `data`.
    if (word != "run" && word != "exact") out.push_back(word.get<std::string>());
  }
  return out;
}

// What takes a list of names: which values lie in another memory, and which results are kept.
void LayoutSource::draw_values(Draws& draws, Layout& out) const {
  const auto offload = out.keys.find("offload.level");
  if (offload != out.keys.end() && offload->second == "v0" && draws.one_in(2)) {
    std::string values;
    for (const char* one : {"states", "weights", "gradients", "activations"}) {
      if (draws.one_in(2)) values += (values.empty() ? "" : ", ") + std::string(one);
    }
    if (!values.empty()) out.keys["offload.values"] = values;
  }
  const auto again = out.keys.find("gradient_checkpoint.type");
  if (again == out.keys.end() || again->second != "collection" || draws.one_in(3)) return;
  for (int64_t n = 1 + draws.below(4); n > 0; --n) out.kept.push_back(static_cast<int>(draws.below(1000)));
}

// Keys that do nothing because others are not drawn, which would be errors.
void LayoutSource::leave_out_what_does_nothing(Layout& out) const {
  const auto is_met = [&](const Json& need) {
    const Json& words = need.at("words");
    const auto set = out.keys.find(need.at("key").get<std::string>());
    if (set == out.keys.end()) return false;
    if (words.empty()) return set->second != key(set->first)->at("default");
    const std::string word = set->second.is_string() ? set->second.get<std::string>() : print_json(set->second);
    return std::any_of(words.begin(), words.end(), [&](const Json& one) { return one == word; });
  };
  for (const Json& one : keys_) {
    const Json needs = one.value("needs", Json::array());
    if (!needs.empty() && std::none_of(needs.begin(), needs.end(), is_met))
      out.keys.erase(one.at("name").get<std::string>());
  }
}

Layout LayoutSource::draw(Draws& draws, int64_t units) const {
  static constexpr int64_t powers[] = {1, 2, 4, 8};
  Layout out;
  out.threads = 1 + static_cast<int>(draws.below(2));
  const int64_t stages = draws.one_in(2) ? 1 : 2 + draws.below(3);
  for (int64_t s = 1; s < stages; ++s) out.cuts.push_back(static_cast<int>(draws.below(1000)));
  std::sort(out.cuts.begin(), out.cuts.end());
  if (draws.one_in(3)) out.split = draws.one_in(3) ? 4 : 2;
  while (out.ranks() > max_ranks) out.split /= 2;
  do out.copies = draws.of(powers);
  while (out.copies > units || out.ranks() > max_ranks);
  do out.micro_batches = draws.of(powers);
  while (out.micro_batches * out.copies > units);
  out.experts = out.split > 1 && draws.one_in(4);
  // What is not split then has as many copies as there are ranks.
  const bool fits = out.micro_batches * out.copies * out.split <= units;
  out.beside = out.split > 1 && stages == 1 && fits && draws.one_in(2);
  for (const Json& one : keys_) {
    const std::string name = one.at("name");
    if (!one.at("built").get<bool>() || !one.at("keeps_bits").get<bool>() || drawn_apart(name) || !draws.one_in(3))
      continue;
    const Json& fallback = one.at("default");
    if (fallback.is_boolean()) out.keys[name] = draws.one_in(2);
    if (fallback.is_number()) out.keys[name] = powers[draws.below(3)];
    if (fallback.is_string() && !one.at("built_words").empty()) out.keys[name] = draws.of(one.at("built_words"));
    // How many bytes are a budget follows from the model.
    if (out.keys.contains(name) && out.keys[name] == "budget") out.keys[name] = "auto";
  }
  draw_values(draws, out);
  // The two would contradict each other.
  const auto level = out.keys.find("zero.level");
  if (level != out.keys.end() && (level->second == "v1" || level->second == "v2")) out.keys.erase("batch.order");
  if (stages > 1) out.keys["pipeline.strategy"] = draws.of(key("pipeline.strategy")->at("built_words"));
  if (stages > 1 && out.keys["pipeline.strategy"] == "interleaved") out.keys["pipeline.virtual_stages"] = 2;
  out.engine_cuts = stages > 1 && key("pipeline.num_stages")->at("built").get<bool>() && draws.one_in(2);
  // Where it finds anything is where no scope says where nodes run.
  if (out.stages() == 1 && out.split == 1 && draws.one_in(8) && key("auto.auto_parallel"))
    out.keys["auto.auto_parallel"] = true;
  leave_out_what_does_nothing(out);
  const auto found = out.keys.find("auto.auto_parallel");
  if (found != out.keys.end() && found->second == Json(true) && draws.one_in(2)) out.machine = drawn_machine(draws);
  return out;
}

std::vector<Layout> simpler(const Layout& layout) {
  std::vector<Layout> out;
  const auto with = [&](auto change) {
    Layout one = layout;
    change(one);
    if (!(one == layout)) out.push_back(std::move(one));
  };
  with([](Layout& one) { one = Layout(); });
  with([](Layout& one) { one.machine = Json(); });
  with([](Layout& one) { one.keys.clear(); });
  with([](Layout& one) {
    one.cuts.clear();
    one.engine_cuts = false;
    one.keys.erase("pipeline.strategy");
    one.keys.erase("pipeline.virtual_stages");
  });
  with([](Layout& one) {
    one.split = 1;
    one.experts = one.beside = false;
  });
  with([](Layout& one) { one.experts = one.beside = false; });
  with([](Layout& one) { one.copies = 1; });
  with([](Layout& one) { one.micro_batches = 1; });
  with([](Layout& one) { one.threads = 1; });
  with([](Layout& one) { one.kept.clear(); });
  with([](Layout& one) { one.copies = std::max<int64_t>(1, one.copies / 2); });
  if (layout.split > 2) with([](Layout& one) { one.split /= 2; });
  with([](Layout& one) { one.micro_batches = std::max<int64_t>(1, one.micro_batches / 2); });
  for (size_t cut = 0; cut < layout.cuts.size(); ++cut)
    with([&](Layout& one) { one.cuts.erase(one.cuts.begin() + static_cast<std::ptrdiff_t>(cut)); });
  for (const auto& [name, value] : layout.keys) with([&](Layout& one) { one.keys.erase(name); });
  return out;
}

}  // namespace epl::tools
