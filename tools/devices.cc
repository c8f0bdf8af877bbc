// epl devices: what a training could run on here, what a GPU lacks to be used, and what can be planned for without one.
#include "tools/api.h"
#include "tools/commands.h"
#include "tools/job.h"
#include "tools/json.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

std::string text_of_key(const Json& json, const char* key) { return json.at(key).get<std::string>(); }

std::string bytes_text(const Json& json, const char* key) {
  return with_thousands(json.at(key).get<int64_t>()) + " bytes";
}

std::string gpu_text(const Json& gpu) {
  std::string out = text_of_key(gpu, "name") + ", capability " + text_of_key(gpu, "capability") + ", " +
                    std::to_string(gpu.at("processors").get<int64_t>()) + " processors, " +
                    bytes_text(gpu, "memory_bytes");
  if (gpu.contains("free_bytes")) out += " of which " + bytes_text(gpu, "free_bytes") + " are free";
  if (const int64_t links = gpu.value("links", int64_t{0}); links > 0) out += ", " + std::to_string(links) + " NVLinks";
  out += ", at " + text_of_key(gpu, "address") + "; driver ";
  if (gpu.contains("driver")) out += text_of_key(gpu, "driver") + ", ";
  return out + "for CUDA " + text_of_key(gpu, "driver_serves");
}

// "found, version 13.0, at /usr/lib/libcuda.so.1"; where it is not, what brings it.
std::string library_text(const Json& one) {
  const std::string state = text_of_key(one, "state");
  std::string out = text_of_key(one, "file") + " (" + text_of_key(one, "what") + "): " + state;
  if (one.contains("version")) out += ", version " + text_of_key(one, "version");
  if (one.contains("path")) out += ", at " + text_of_key(one, "path");
  if (state == "found") return out;
  // The reason has where it was looked for and what brings it.
  return out +
         (one.at("needed").get<bool>() ? "; without it there is no such device" : "; training goes on without it") +
         "\n      " + text_of_key(one, "reason");
}

void print_device(const Json& device) {
  const std::string name = text_of_key(device, "name");
  say("%s: %s\n", name.c_str(), text_of_key(device, "doc").c_str());
  const Json none = Json::array();
  const auto list = [&](const char* key) -> const Json& { return device.contains(key) ? device.at(key) : none; };
  for (const Json& gpu : list("gpus"))
    say("  %lld: %s\n", static_cast<long long>(gpu.at("ordinal").get<int64_t>()), gpu_text(gpu).c_str());
  for (const Json& pair : list("joined"))
    say("  %lld and %lld are joined by %s\n", static_cast<long long>(pair.at("one").get<int64_t>()),
        static_cast<long long>(pair.at("other").get<int64_t>()), text_of_key(pair, "by").c_str());
  if (device.contains("missing")) say("  not here: %s\n", text_of_key(device, "missing").c_str());
  for (const Json& one : list("libraries")) say("    %s\n", library_text(one).c_str());
  if (list("sheets").empty()) return;
  say("  planned for without being here, by epl plan --device NAME:\n");
  for (const Json& sheet : list("sheets"))
    say("    %s: %s, capability %s, %s\n", text_of_key(sheet, "name").c_str(), text_of_key(sheet, "product").c_str(),
        text_of_key(sheet, "capability").c_str(), bytes_text(sheet, "memory_bytes").c_str());
  say("    %s:FILE.json: any other (docs/gpu.md)\n", name.c_str());
}

int run_devices(const JobOptions& o) {
  const Engine engine = make_engine(o);
  const Json devices = parse_json(text_of(epl_engine_describe, engine.get())).at("devices");
  if (o.json) {
    say_json(devices);
    return 0;
  }
  for (const Json& device : devices) print_device(device);
  return 0;
}

}  // namespace

Run add_devices(CLI::App& app) {
  auto o = std::make_shared<JobOptions>();
  app.footer("  epl devices\n  epl devices --json");
  app.option_defaults()->group(groups::watching);
  app.add_flag("--json", o->json, "JSON");
  add_packs_option(app, *o);
  return [=] { return run_devices(*o); };
}

}  // namespace epl::tools
