// Reads what a person or a measurement says of a device: every key is known, and every number makes sense.
#include "core/backend/sheet.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

constexpr uint64_t largest_file = 1 << 20;
// Where a file says nothing of them: what launches and messages usually take.
constexpr double usual_launch_seconds = 4e-6, usual_message_seconds = 10e-6;
constexpr double usual_file_bandwidth = 1e9;  // of a core that was measured without a folder

// One object of the file, of which every key is asked for.
class Reading {
 public:
  Reading(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Status only(std::initializer_list<const char*> known) const {
    if (!json_.is_object()) return invalid(where_, " is no object");
    const std::vector<std::string> names(known.begin(), known.end());
    for (const Json::Member& one : json_.items()) {
      if (std::ranges::find(names, one.key) == names.end())
        return invalid(where_, " has no key ", shown(one.key), choices(one.key, names));
    }
    return {};
  }
  bool has(std::string_view key) const { return json_.contains(key); }
  const Json& operator[](std::string_view key) const { return json_.at(key); }
  // Above 0 and at most `most`.
  Result<double> number(std::string_view key, double most = 1e30) const {
    const Json* found = json_.find(key);
    if (found == nullptr) return invalid(where_, " needs the key ", key);
    const double value = found->is_number() ? found->get<double>() : 0;
    if (!(value > 0 && value <= most)) return invalid(where_, ": ", key, " is a number above 0 and at most ", most);
    return value;
  }
  Result<double> number_or(std::string_view key, double otherwise) const {
    if (!has(key)) return otherwise;
    return number(key);
  }
  Result<int64_t> integer(std::string_view key, int64_t most) const {
    EPL_ASSIGN(const double value, number(key, static_cast<double>(most)));
    if (std::floor(value) != value) return invalid(where_, ": ", key, " is a whole number");
    return static_cast<int64_t>(value);
  }
  Result<bool> yes_or_no(std::string_view key) const {  // false where there is none
    const Json* found = json_.find(key);
    if (found == nullptr) return false;
    if (!found->is_boolean()) return invalid(where_, ": ", key, " is true or false");
    return found->get<bool>();
  }
  Result<std::string> text_or(std::string_view key, std::string otherwise, size_t most = 120) const {
    if (!has(key)) return otherwise;
    const Json& found = json_.at(key);
    if (!found.is_string() || found.text().empty()) return invalid(where_, ": ", key, " is a text");
    return shown_plain(found.text(), most);
  }

 private:
  const Json& json_;
  const std::string where_;
};

// 8.9 is 89 here.
Result<int> capability_of(const Reading& from) {
  EPL_ASSIGN(const double value, from.number("capability", 99));
  return static_cast<int>(std::lround(value * 10));
}

Status add_rates(const Json& json, const std::string& where, WorkKind kind, Machine& machine) {
  const Reading from(json, where);
  EPL_TRY(from.only({"f32", "f64", "f16", "bf16"}));
  for (const char* name : {"f32", "f64", "f16", "bf16"}) {  // f32 first: it stands for types that are not named
    if (!from.has(name)) continue;
    EPL_ASSIGN(const double rate, from.number(name));
    machine.rates.push_back({*parse_dtype(name), kind, rate});
  }
  return from.has("f32") ? Status() : invalid(where, " needs the key f32");
}

Status add_links(const Json& json, const std::string& path, Machine& machine) {
  if (!json.is_array() || json.empty()) return invalid(path, ": links is a list of objects");
  for (const Json& one : json) {
    const Reading from(one, cat(path, ": a link"));
    EPL_TRY(from.only({"devices", "bandwidth", "seconds", "rings"}));
    Machine::Link link;
    if (from.has("devices")) {
      EPL_ASSIGN(link.ranks, from.integer("devices", 1 << 20));
    }
    EPL_ASSIGN(link.bandwidth, from.number("bandwidth"));
    EPL_ASSIGN(link.seconds, from.number_or("seconds", usual_message_seconds));
    EPL_ASSIGN(link.rings, from.yes_or_no("rings"));
    machine.links.push_back(link);
  }
  if (machine.links.back().ranks == 0) return {};
  return invalid(path, ": the last of links joins any number of devices, so that it has no key devices");
}

Status add_kinds(const Json& json, const std::string& path, Machine& machine) {
  if (!json.is_array() || json.empty()) return invalid(path, ": kinds is a list of objects");
  for (const Json& one : json) {
    const Reading from(one, cat(path, ": a kind"));
    EPL_TRY(from.only({"devices", "speed", "memory"}));
    Machine::Ranks kind;
    EPL_ASSIGN(kind.ranks, from.integer("devices", 1 << 20));
    EPL_ASSIGN(kind.speed, from.number_or("speed", 1));
    EPL_ASSIGN(kind.memory, from.number_or("memory", 1));
    machine.kinds.push_back(kind);
  }
  return {};
}

Status add_tiles(const Json& json, const std::string& path, Machine& machine) {
  const Reading from(json, cat(path, ": tiles"));
  EPL_TRY(from.only({"side", "fill", "depth"}));
  EPL_ASSIGN(machine.tiles.side, from.number("side"));
  EPL_ASSIGN(machine.tiles.fill, from.number("fill"));
  EPL_ASSIGN(machine.tiles.depth, from.number("depth"));
  return {};
}

// What a sheet and a table have in common.
Status add_machine(const Reading& from, const std::string& path, Machine& machine) {
  EPL_ASSIGN(const double own, from.number("bandwidth"));
  EPL_ASSIGN(const double host, from.number("host_bandwidth"));
  machine.memories = {{MemoryKind::device, own}, {MemoryKind::host, host}};
  if (!from.has("products")) return invalid(path, " needs the key products");
  EPL_TRY(add_rates(from["products"], cat(path, ": products"), WorkKind::product, machine));
  const char* elementwise = from.has("elementwise") ? "elementwise" : "products";
  EPL_TRY(add_rates(from[elementwise], cat(path, ": ", elementwise), WorkKind::elementwise, machine));
  if (from.has("links")) {
    EPL_TRY(add_links(from["links"], path, machine));
  } else {
    machine.links = {{.ranks = 0, .bandwidth = host, .seconds = usual_message_seconds}};
  }
  EPL_ASSIGN(machine.launch_seconds, from.number_or("launch_seconds", usual_launch_seconds));
  if (from.has("tiles")) EPL_TRY(add_tiles(from["tiles"], path, machine));
  if (from.has("kinds")) EPL_TRY(add_kinds(from["kinds"], path, machine));
  return {};
}

Result<DeviceSheet> sheet_of(const Json& json, const std::string& path) {
  const Reading from(json, path);
  EPL_TRY(from.only({"product", "capability", "processors", "memory_bytes", "bandwidth", "host_bandwidth", "products",
                     "elementwise", "links", "launch_seconds", "tiles", "kinds"}));
  DeviceSheet sheet;
  sheet.name = path;
  EPL_ASSIGN(sheet.product, from.text_or("product", path));
  EPL_ASSIGN(sheet.capability, capability_of(from));
  EPL_ASSIGN(const int64_t processors, from.integer("processors", 1 << 16));
  sheet.processors = static_cast<int>(processors);
  EPL_ASSIGN(sheet.memory_bytes, from.integer("memory_bytes", int64_t{1} << 50));
  sheet.machine.name = sheet.product;
  sheet.machine.basis = Machine::Basis::sheet;
  EPL_TRY(add_machine(from, path, sheet.machine));
  return sheet;
}

Status add_measured(const Json& json, const std::string& path, Machine& machine) {
  const Reading from(json, cat(path, ": measured"));
  EPL_TRY(from.only({"device", "version", "seconds", "error", "error_90th"}));
  for (const char* key : {"device", "version"}) {
    if (!from.has(key)) return invalid(path, ": measured needs the key ", key);
  }
  EPL_ASSIGN(machine.measured.device, from.text_or("device", "", 2000));  // of several devices
  EPL_ASSIGN(machine.measured.version, from.text_or("version", ""));
  EPL_ASSIGN(machine.measured.error, from.number("error"));
  EPL_ASSIGN(machine.measured.error_90th, from.number("error_90th"));
  EPL_TRY(from.number_or("seconds", 1).status());
  return {};
}

Result<Machine> table_of(const Json& json, const std::string& path) {
  const Reading from(json, path);
  EPL_TRY(from.only({"measured", "core", "bandwidth", "host_bandwidth", "file_bandwidth", "products", "elementwise",
                     "links", "launch_seconds", "tiles", "kinds"}));
  if (!from.has("measured")) return invalid(path, " needs the key measured: a table says what it was measured on");
  Machine machine;
  machine.basis = Machine::Basis::table;
  EPL_TRY(add_measured(from["measured"], path, machine));
  machine.name = machine.measured.device;
  EPL_ASSIGN(machine.is_core, from.yes_or_no("core"));
  EPL_TRY(add_machine(from, path, machine));
  if (machine.is_core || from.has("file_bandwidth")) {
    EPL_ASSIGN(const double file, from.number_or("file_bandwidth", usual_file_bandwidth));
    machine.memories.push_back({MemoryKind::file, file});
  }
  return machine;
}

struct ReadFile {
  Json json;
  std::string where;
};

Result<ReadFile> read_json_file(const std::string& path) {
  EPL_ASSIGN(const auto file, FileReader::open(path));
  ReadFile read{.json = {}, .where = shown_path(path)};
  if (file->size() > largest_file)
    return invalid(read.where, " has ", file->size(), " bytes, which is no sheet of a device");
  EPL_ASSIGN(const std::vector<std::byte> bytes, file->read_all());
  auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json.ok()) return json.status().with_context(read.where);
  read.json = std::move(*json);
  return read;
}

}  // namespace

Result<DeviceSheet> read_device_sheet(const std::string& path) {
  EPL_ASSIGN(const ReadFile read, read_json_file(path));
  return sheet_of(read.json, read.where);
}

Result<Machine> read_machine_table(const std::string& path) {
  EPL_ASSIGN(const ReadFile read, read_json_file(path));
  return table_of(read.json, read.where);
}

}  // namespace epl
