#include "tools/inspect.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "tools/binding.h"
#include "tools/data_notes.h"
#include "tools/inspect_build.h"
#include "tools/output_folder.h"
#include "tools/sizes.h"
#include "tools/text.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

using Lines = std::vector<std::string>;

// A screen is short: of a long list the beginning.
void print_list(const Lines& lines, bool all) {
  constexpr size_t most = 12;
  const size_t shown = all || lines.size() <= most + 1 ? lines.size() : most;
  for (size_t i = 0; i < shown; ++i) say("  %s\n", lines[i].c_str());
  if (shown < lines.size())
    say("  ... and %s more; --all shows them\n", with_thousands(static_cast<int64_t>(lines.size() - shown)).c_str());
}

std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::string dims_text(const Json& dims) {
  std::string out = "[";
  for (const Json& dim : dims)
    out += (out.size() > 1 ? "," : "") +
           (dim.is_string() ? (dim.get<std::string>().empty() ? "?" : dim.get<std::string>()) : print_json(dim));
  return out + "]";
}

std::string typed(const Json& one) {
  const std::string dims = one.value("ranked", true) ? dims_text(one.at("dims")) : "[...]";  // "...": any number
  return text(one, "name") + ": " + text(one, "dtype") + dims;
}

Lines typed_lines(const Json& list) {
  Lines out;
  for (const Json& one : list) out.push_back(typed(one));
  return out;
}

// Which initialisers can be trained, and what stands in the way of gradients.
void print_training(const Json& t, bool all) {
  if (t.contains("refused")) {
    say("\ntraining\n  %s%s\n", t.contains("shapes") ? "" : "the model does not bind: ", text(t, "refused").c_str());
    return;
  }
  long long trainable = 0;
  Lines left_out, obstacles;
  for (const Json& one : t.at("initializers")) {
    trainable += one.at("trainable").get<bool>();
    if (!one.at("trainable").get<bool>()) left_out.push_back("not " + text(one, "name") + ": " + text(one, "reason"));
  }
  for (const Json& one : t.value("obstacles", Json::array())) {
    obstacles.push_back(std::string(one.at("blocks").get<bool>() ? "no gradient" : "gradients stop") + " at node " +
                        text(one, "node") + " (" + text(one, "op") + "): " + text(one, "reason"));
  }
  say("\ntraining: %lld of %zu initialisers can be trained", trainable, t.at("initializers").size());
  if (t.contains("open_dimensions_as"))
    say(" (open dimensions taken as %lld)", static_cast<long long>(t.at("open_dimensions_as").get<int64_t>()));
  Lines shapes;
  for (const Json& one : t.value("shapes", Json::array())) shapes.push_back(typed(one));
  if (!shapes.empty()) say(" (%s)", joined(shapes, ", ").c_str());
  say("\n");
  print_list(left_out, all);
  print_list(obstacles, all);
}

// What can be trained at the sizes that the options say: that of a plan. `training`: what the model says for itself.
Json training_at(const Engine& engine, const Model& model, const JobOptions& o, const Json& training) {
  constexpr int64_t usual_size = 8;
  Json out = {{"shapes", Json::array()}};
  Trainer trainer = make_trainer(engine, o);
  bind_open(trainer, model, o, usual_size);
  Plan plan;
  try {
    plan = make_plan(model, trainer, make_strategy(engine, o), o);
  } catch (const ApiError& e) {
    out["refused"] = e.what();
    return out;
  }
  for (int64_t i = 0; i < epl_plan_port_count(plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT); ++i) {
    const Port port = port_of(epl_plan_port, plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT, i);
    out["shapes"].push_back({{"name", port.name}, {"dtype", epl_dtype_name(port.dtype)}, {"dims", port.dims}});
  }
  std::map<std::string, Json> known;
  for (const Json& one : training.value("initializers", Json::array())) known[text(one, "name")] = one;
  for (const Json& one : parse_json(text_of(epl_plan_describe, plan.get(), "parameters", size_t{10}, nullptr))) {
    Json& entry = known[text(one, "name")];
    entry["name"] = one.at("name");
    entry["trainable"] = one.at("trained");
    entry.erase("reason");
    if (one.contains("reason")) entry["reason"] = one.at("reason");
  }
  out["initializers"] = Json::array();
  for (auto& [name, one] : known) out["initializers"].push_back(std::move(one));
  if (training.contains("obstacles")) out["obstacles"] = training.at("obstacles");
  return out;
}

void print_model(const Json& m, bool all) {
  say("%s\n", text(m, "description").c_str());
  const std::string training = text(m, "training_parts");
  say("%s%s\n", training.empty() ? "ready for inference" : "for training: ", training.c_str());
  for (const char* kind : {"inputs", "outputs"}) {
    say("\n%s\n", kind);
    print_list(typed_lines(m.at(kind)), all);
  }
  say("\ninitialisers: %zu with %s elements\n", m.at("initializers").size(),
      with_thousands(m.at("initializer_elements").get<int64_t>()).c_str());
  print_list(typed_lines(m.at("initializers")), all);
  Lines ops;
  for (const auto& [name, count] : m.at("ops").items()) {
    const std::string number = std::to_string(count.get<int64_t>());
    ops.push_back(std::string(number.size() < 6 ? 6 - number.size() : 0, ' ') + number + "  " + name);
  }
  say("\noperators\n");
  print_list(ops, true);
  print_training(m.at("training"), all);
  Lines findings;
  for (const Json& f : m.at("findings"))
    findings.push_back(text(f, "level") + ": " + text(f, "where") + (text(f, "where").empty() ? "" : ": ") +
                       text(f, "message"));
  if (findings.empty()) return;
  say("\nworth knowing before training\n");
  print_list(findings, all);
}

void print_checkpoint(const Json& c, bool all) {
  say("checkpoint after %s steps; seed %llu, %lld batch units, numerics version %lld",
      with_thousands(c.at("step").get<int64_t>()).c_str(),
      static_cast<unsigned long long>(c.at("seed").get<uint64_t>()),
      static_cast<long long>(c.at("units").get<int64_t>()), static_cast<long long>(c.at("numerics").get<int64_t>()));
  if (c.at("data_position").get<int64_t>() >= 0)
    say(", %s batches of data seen", with_thousands(c.at("data_position").get<int64_t>()).c_str());
  say("\n");
  const std::string adapters = c.at("facts").value("adapters", "");
  if (!adapters.empty())
    say("low-rank adapters: %s; the weights that are not here are in the model's file\n", adapters.c_str());
  for (const char* kind : {"parameter", "frozen", "buffer", "optimizer"}) {
    Lines lines;
    for (const Json& t : c.at("tensors")) {
      if (t.at("kind") == kind) lines.push_back(typed(t));
    }
    if (lines.empty()) continue;
    say("\n%s: %zu\n", kind, lines.size());
    print_list(lines, all);
  }
}

}  // namespace

int run_inspect(const JobOptions& o, const std::string& path, bool all) {
  Engine engine = make_engine(o);
  struct stat info{};
  Json json;
  if (path.empty()) {
    json = parse_json(text_of(epl_engine_describe, engine.get()));
    if (!o.json) print_build(json);
  } else if (is_data(path)) {
    const std::string options = print_json(reader_options("--data-options", o.data_options));
    Dataset data = make<Dataset>(epl_dataset_open_within, engine.get(), path.data(), path.size(), "/", size_t{1},
                                 options.data(), options.size(), nullptr);
    json = parse_json(text_of(epl_dataset_describe, data.get()));
    if (!o.json) say("%s\n", data_text(json).c_str());
  } else if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    json = describe_checkpoint(engine, find_checkpoint(path));
    if (!o.json) print_checkpoint(printable_json(json), all);
  } else {
    Model model = load_model(engine, path);
    json = parse_json(text_of(epl_model_describe, model.get()));
    if (says_sizes(o)) json["training"] = training_at(engine, model, o, json.at("training"));
    if (!o.json) print_model(printable_json(json), all);
  }
  if (o.json) say_json(json);
  return 0;
}

}  // namespace epl::tools
